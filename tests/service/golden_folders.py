"""Golden data folders: what a server of an earlier version left behind must open in every later one.

``python -m tests.service.golden_folders NAME`` writes a folder of this version. What is committed stays for good.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

import telegrad as tg

from ..servers import running
from .conftest import SessionClient

FOLDER = Path(__file__).parent / "golden"
EXPECTED = "expected.json"
CUBED = {
    "inputs": ["x"],
    "instructions": [{"op": "mul", "in": ["x", "x"], "out": ["s"]}, {"op": "mul", "in": ["s", "x"], "out": ["y"]}],
    "outputs": ["y"],
}


def fill(url: str) -> dict[str, Any]:
    """Make durable sessions that use each part of the format. Return the answers to expect, by path."""
    with httpx.Client(base_url=url, timeout=240) as client:
        session = SessionClient(client, durable=True, name="rest", seed=3, ttl_s=600_000.0)
        session.tensor("w", [1.0, 2.0, 3.0], requires_grad=True)
        numbered = {"Telegrad-Sequence": "1", "Telegrad-Sender": "golden"}
        session.post("/ops/mul", {"inputs": ["w", "w"], "outputs": ["y"]}, headers=numbered)
        session.post("/functions", {"name": "cubed", "forward": CUBED})
        session.post("/functions/cubed/apply", {"inputs": ["w"], "outputs": ["c"]})
        session.run({"op": "add", "in": ["y", "c"], "out": ["z"]}, {"op": "matmul", "in": ["z", 1]})
        session.run({"op": "sum", "in": ["z"], "out": ["loss"]})
        fork = session.post("/fork", {"durable": True, "name": "fork"}).json()["id"]
        session.post("/backward", {"tensors": ["loss"]})
        session.post("/tensors", {"id": "big", "data": [2**40, -1], "dtype": "int64"})
        with tg.connect(url, durable=True, name="sdk", seed=4, ttl_s=600_000.0) as opened:
            streamed = opened.id
            weights = tg.ones(2, 2, requires_grad=True)
            for _ in range(4):
                (weights * 0.5).sum().backward()
                with tg.no_grad():
                    weights -= weights.grad
                weights.grad = None
                weights.sum().item()
            opened.keep({"weights": weights})
        paths = [f"{session.path}/tensors/{name}" for name in ("w", "y", "c", "z", "loss", "big")]
        paths += [f"{session.path}/tensors/w/grad", f"{session.path}/graph", f"{session.path}/functions/cubed"]
        paths += [f"/v1/sessions/{fork}/tensors/loss", f"/v1/sessions/{streamed}/tensors/weights"]
        return {path: client.get(path).raise_for_status().json() for path in paths}


def main(name: str) -> None:
    """Write a golden folder; the server is killed, so that it leaves its journals as they are."""
    with tempfile.TemporaryDirectory() as folder:
        with running("--data-dir", folder) as (url, process):
            expected = fill(url)
            process.kill()
        target = FOLDER / name
        shutil.copytree(Path(folder) / "sessions", target / "sessions")
        (target / EXPECTED).write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
