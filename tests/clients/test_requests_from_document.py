"""Requests that schemathesis makes of openapi/openapi.json: the server does what the document says.

Of responses, that none is a fault of the server's and each is documented: status, media type, headers and schema. Of
requests, that those which the document excludes are refused. Of several requests after each other, that what was
created is there, and what was deleted is not. The first on a server that requires API keys, the second on one that has
none. Some 6,000 requests, always the same.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from telegrad_service.cli import main
from telegrad_service.launch import running_server

from .test_generated_clients import DOCUMENT, need, run

COMMAND = Path(sys.prefix, "schemathesis/bin/schemathesis")
SEED = 1
SETTINGS = {"max_sessions": 20_000, "max_sessions_per_peer": 0}
CONFIGURATION = """\
[checks.positive_data_acceptance]
# Which tensors exist, their shapes and their dtypes decide what is valid: schemas cannot say that.
expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "412", "413", "422", "429", "503"]
"""
OF_KEYS = ("ignored_auth", "missing_required_header", "negative_data_rejection")
"""Checks that a server without keys does not pass: requests without a key are valid there."""
CUBE: list[dict[str, Any]] = [
    {"op": "tensor", "outputs": ["x"], "attrs": {"data": [1.0, 2.0], "requires_grad": True}},
    {"op": "mul", "inputs": ["x", 2], "outputs": ["a"]},
    {"op": "pow", "inputs": ["a", 3], "outputs": ["y"], "grad_mode": "no_grad"},
    {"op": "client_function", "inputs": [["a"], ["y"]], "attrs": {"function": "Cube", "ctx": "first"}},
    {"op": "sum", "inputs": ["y"], "outputs": ["loss"]},
    {"op": "backward", "inputs": [["loss"]], "attrs": {"retain_graph": True}},
]
"""A session with a call that a backward pass waits for."""


def deletions() -> Iterator[tuple[str, str]]:
    """The operations that would delete what the others need, and the path parameter that says what."""
    paths = json.loads(DOCUMENT.read_text(encoding="utf-8"))["paths"]
    for path, operations in paths.items():
        if "delete" in operations:
            yield operations["delete"]["operationId"], re.findall(r"{(\w+)}", path)[-1]


def check(url: str, directory: Path, phases: str, examples: int, *options: object, **settings: object) -> int:
    """Check the server, with the names in ``settings`` as values of path parameters. Return the number of requests."""
    need(COMMAND.exists(), "schemathesis, which `make test-clients` installs,")
    parameters = [f'"path.{name}" = {json.dumps(value)}' for name, value in settings.items()]
    apart = [
        f'[[operations]]\ninclude-operation-id = "{name}"\nparameters = {{ "path.{parameter}" = "another" }}\n'
        for name, parameter in deletions()
    ]
    configuration = directory / "schemathesis.toml"
    configuration.write_text("\n".join(["[parameters]", *parameters, "", CONFIGURATION, *(apart if settings else ())]))
    printed = run(
        COMMAND, "--config-file", configuration, "run", DOCUMENT, "--url", url, "--seed", SEED,
        "--max-examples", examples, "--phases", phases, "--checks", "all", "--warnings", "off",
        "--exclude-operation-id", "listen_to_session",  # it never ends
        "--exclude-operation-id", "import_session",  # schemathesis cannot make a file of this media type
        "--continue-on-failure", "--no-color", *options, directory=directory,
    )  # fmt: skip
    found = re.search(r"^\s*(\d+) generated", printed, re.MULTILINE)
    assert found is not None, printed
    return int(found[1])


def prepared(client: httpx.Client) -> dict[str, str]:
    """Create a session and something of each kind in it. Return their names, by the path parameter for them.

    Without them, all that most requests find out is 404.
    """
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))

    def example(resource: str, name: str) -> dict[str, Any]:
        body = document["paths"][f"/v1/sessions/{{session}}/{resource}"]["post"]["requestBody"]
        found: dict[str, Any] = body["content"]["application/json"]["examples"][name]["value"]
        return found

    session = client.post("/v1/sessions").raise_for_status().json()["id"]
    function = example("functions", "power")
    # Numbers that are used already: schemathesis would take an accepted one, which is text in a header, for a mistake.
    for number in ("1", "2"):
        numbered = {"Telegrad-Sequence": number}
        client.post(f"/v1/sessions/{session}/programs", json={"instructions": []}, headers=numbered).raise_for_status()
    for place, body in [
        ("programs", {"instructions": CUBE}),
        ("functions", function),
        ("procedures", {**example("procedures", "step"), "name": function["name"]}),
        ("programs", {"instructions": [{"op": "start_profile"}]}),
    ]:
        client.post(f"/v1/sessions/{session}/{place}", json=body).raise_for_status()
    (call,) = client.get(f"/v1/sessions/{session}/pending").raise_for_status().json()["items"]
    return {"session": session, "id": "x", "name": function["name"], "call": call["call"]}


def headers(authorization: str | None) -> list[str]:
    """The options for requests with a key."""
    return [] if authorization is None else ["--header", f"Authorization: {authorization}"]


def check_each(url: str, directory: Path, authorization: str | None = None) -> None:
    """Check each operation apart, in one session."""
    given = {} if authorization is None else {"authorization": authorization}
    with httpx.Client(base_url=url, headers=given) as client:
        phases = "examples,coverage,fuzzing"
        assert check(url, directory, phases, 40, *headers(authorization), **prepared(client)) > 3000
        assert client.get("/healthz").json()["status"] == "ok"


def check_sequences(url: str, directory: Path, *options: object) -> None:
    """Check operations after each other, each with what earlier ones have created."""
    assert check(url, directory, "stateful", 200, *options) > 1000


def test_the_server_does_what_the_document_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = f"sqlite:///{tmp_path / 'keys.db'}"
    main(["keys", "create", "--tenant", "t", "--scopes", "sessions,functions,admin", "--database-url", database])
    authorization = f"Bearer {capsys.readouterr().out.strip()}"
    with running_server(**SETTINGS, database_url=database) as url:
        check_each(url, tmp_path, authorization)


def test_what_is_created_is_there_and_what_is_deleted_is_not(tmp_path: Path) -> None:
    with running_server(**SETTINGS) as url:
        check_sequences(url, tmp_path, "--exclude-checks", ",".join(OF_KEYS))
