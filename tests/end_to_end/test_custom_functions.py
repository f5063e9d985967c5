"""Functions of one's own across languages and ways: from a shell and from the SDK, registered and not, one server.

Internals: messages are counted where they are sent, and the names that this process knows are removed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad.registered_functions import library

FOLDER = Path(__file__).parents[2] / "examples" / "functions"
CURL = shutil.which("curl") is not None and shutil.which("sh") is not None
X = [1.5, -3.0, 0.25]


def shell(server: str, *arguments: str) -> list[Any]:
    """What examples/functions/functions.sh prints, parsed: a JSON document a line."""
    run = subprocess.run(
        ["sh", str(FOLDER / "functions.sh"), *arguments],
        env={**os.environ, "TELEGRAD_URL": server, "no_proxy": "127.0.0.1"},
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return [json.loads(line) for line in run.stdout.splitlines() if line]


def request(server: str, method: str, path: str, body: bytes | None = None) -> Any:
    """The same without curl."""
    connection = HTTPConnection(urlsplit(server).netloc, timeout=240)
    connection.request(method, f"/v1/sessions{path}", body, {"content-type": "application/json"} if body else {})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status < 300, text
    return json.loads(text) if text else None


def apply_elsewhere(server: str, name: str) -> tuple[Any, Any]:
    """What a function that all sessions have makes of X, and its gradient, without the SDK."""
    if CURL:
        applied, differentiated = shell(server, "apply", name, json.dumps(X))
    else:
        session = "/" + request(server, "POST", "", b"{}")["id"]
        tensor = {"id": "x", "data": X, "dtype": "float64", "requires_grad": True}
        request(server, "POST", f"{session}/tensors", json.dumps(tensor).encode())
        applying = b'{"inputs": ["x"], "outputs": ["y"]}'
        applied = request(server, "POST", f"{session}/functions/{name}/apply?data=true", applying)
        request(server, "POST", f"{session}/ops/sum", b'{"inputs": ["y"], "outputs": ["total"]}')
        differentiated = request(server, "POST", f"{session}/grad", b'{"outputs": ["total"], "inputs": ["x"]}')
        request(server, "DELETE", session)
    return applied["outputs"][0]["data"], differentiated["grads"][0]["data"]


def test_from_a_shell_to_the_sdk(server: str) -> None:
    if CURL:
        (registered,) = shell(server, "register", "squash.json")
    else:
        session = "/" + request(server, "POST", "", b"{}")["id"]
        registered = request(server, "POST", f"{session}/functions", (FOLDER / "squash.json").read_bytes())
    assert registered["signature"] == "squash(Tensor x, Number k = 1)"
    try:
        with tg.connect(server):
            ours = tg.tensor(X, dtype=tg.float64, requires_grad=True)
            theirs = torch.tensor(X, dtype=torch.float64, requires_grad=True)
            y, expected = tg.ops.squash(ours, k=2.0), theirs / (0.5 + theirs.abs())
            np.testing.assert_allclose(y.tolist(), expected.tolist(), rtol=1e-12)
            (first,) = tg.autograd.grad(y.sum(), ours, create_graph=True)
            (their_first,) = torch.autograd.grad(expected.sum(), theirs, create_graph=True)
            np.testing.assert_allclose(first.tolist(), their_first.tolist(), rtol=1e-12)
            assert apply_elsewhere(server, "squash")[0] == tg.ops.squash(ours).tolist()
    finally:
        with tg.connect(server):
            tg.remove_function("squash", scope="server")


def test_from_the_sdk_to_a_shell(server: str) -> None:
    class Softsign(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            below = 1 + x.abs()
            ctx.save_for_backward(below)
            return x / below

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            (below,) = ctx.saved_tensors
            return grads[0] / below**2

    with tg.connect(server):
        tg.register_function("traced_softsign", Softsign, scope="server", verify=True)
    try:
        y, grad = apply_elsewhere(server, "traced_softsign")
        theirs = torch.tensor(X, dtype=torch.float64, requires_grad=True)
        expected = torch.nn.functional.softsign(theirs)
        expected.sum().backward()
        np.testing.assert_allclose(y, expected.tolist(), rtol=1e-12)
        np.testing.assert_allclose(grad, theirs.grad.tolist(), rtol=1e-12)
    finally:
        if CURL:
            assert shell(server, "remove", "traced_softsign") == []
        library.own.pop("traced_softsign")


@pytest.mark.skipif(not CURL, reason="the script needs sh and curl")
def test_the_script_says_what_is_wrong(server: str, tmp_path: Path) -> None:
    script = ["sh", str(FOLDER / "functions.sh")]
    environment = {**os.environ, "TELEGRAD_URL": server, "no_proxy": "127.0.0.1"}
    run = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 2
    assert "functions.sh register squash.json" in run.stderr
    wrong = (FOLDER / "squash.json").read_text().replace('"op": "abs"', '"op": "abbs"')
    (tmp_path / "wrong.json").write_text(wrong)
    run = subprocess.run(
        [*script, "register", str(tmp_path / "wrong.json")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode != 0
    assert "forward[0] (abbs): unknown op 'abbs'; did you mean abs" in run.stdout


# A function that decides by a value ---------------------------------------------------------------

BOTH = ([-1.0, 1.0, -1.0, 1.0], [1.0, 2.0, -1.0, 1.0])
"""One input for each branch."""


def conditional(lib: Any) -> Any:
    class ConditionalComputation(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2 if x.sum() > 0 else x / 2

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad_output * 2 if x.sum() > 0 else grad_output / 2

    return ConditionalComputation


def by_both_branches(lib: Any, function: Any) -> list[Any]:
    found = []
    for values in BOTH:
        x = lib.tensor(values, requires_grad=True)
        y = function(x)
        y.backward(lib.ones_like(x))
        found += [y, x.grad]
    return found


def messages(session: tg.Session) -> list[str]:
    """Everything that goes to the server from now on: programs, and what httpx asks."""
    transport: Any = session.recorder.transport
    sent: list[str] = []
    post = transport._programs.send
    transport._programs.send = lambda body: (sent.append("program"), post(body))[1]
    transport._client.event_hooks["request"].append(lambda request: sent.append(request.url.path))
    return sent


def test_registered_it_decides_without_a_round_trip(server: str) -> None:
    expected = [t.tolist() for t in by_both_branches(torch, conditional(torch).apply)]
    with tg.connect(server) as session:
        sent = messages(session)
        tg.register_function("decides_there", conditional(tg))
        assert sent == ["program"]  # which says at once whether the name is free
        sent.clear()
        found = by_both_branches(tg, tg.ops.decides_there)
        assert sent == []
        first = found[0].tolist()
        assert sent == ["program"]
        assert [first, *[t.tolist() for t in found[1:]]] == expected
        assert set(sent) == {"program"}


def test_unregistered_it_gives_the_same_by_a_suspended_pass(server: str) -> None:
    expected = [t.tolist() for t in by_both_branches(torch, conditional(torch).apply)]
    with tg.connect(server) as session:
        sent = messages(session)
        found = by_both_branches(tg, conditional(tg).apply)
        # Each forward and each backward asks for the value.
        assert len(sent) >= 2 * 2
        assert [t.tolist() for t in found] == expected
