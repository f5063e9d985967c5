"""Requests that are small and ask for much: each is refused, and the server's memory stays bounded.

Internals: the zstd bomb is made by the codec that the server uses.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from itertools import repeat
from typing import Any, NamedTuple

import httpx

from telegrad_engine.program import compression

from .server import MIB, Figure, Loaded, loaded

OTHERS_MIB = 128
"""What a request may make the server's memory grow by in addition to 1.3 of what the session may hold."""
JSON = {"content-type": "application/json"}
BINARY = {"content-type": "application/vnd.safetensors"}
HUGE = 10**18


class Bomb(NamedTuple):
    """A hostile request: what sends it to a session's address, and the statuses that it may get."""

    send: Callable[[httpx.Client, str], httpx.Response]
    statuses: frozenset[int]


def program_bomb(*instructions: dict[str, Any], statuses: tuple[int, ...] = (413, 422)) -> Bomb:
    body = json.dumps({"instructions": instructions}).encode()
    return Bomb(lambda client, path: client.post(f"{path}/programs", content=body, headers=JSON), frozenset(statuses))


def op_bomb(op: str, inputs: list[Any] | None = None, **attrs: Any) -> Bomb:
    x = {"op": "arange", "out": ["x"], "attrs": {"start": 4}}
    return program_bomb(x, {"op": op, "in": inputs or [], "out": ["y"], "attrs": attrs})


def body_bomb(content: bytes, *statuses: int, **headers: str) -> Bomb:
    def send(client: httpx.Client, path: str) -> httpx.Response:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.post(f"{path}/programs", content=content, headers={**JSON, **names})

    return Bomb(send, frozenset(statuses))


def chunked(client: httpx.Client, path: str) -> httpx.Response:
    """Send 10 GB in chunks over a connection of its own, and return the answer or a 413 if it was cut off."""
    with suppress(httpx.HTTPError):
        return client.post(f"{path}/programs", content=repeat(bytes(MIB), 10 * 1024), headers=BINARY)
    return httpx.Response(413)  # the server closed the connection while the client was still sending


Step = Callable[[int], list[dict[str, Any]]]
"""The instructions with a number."""


def tiny(number: int) -> list[dict[str, Any]]:
    """Make one tensor."""
    return [{"op": "ones", "out": [f"a{number}"], "attrs": {"size": [1]}}]


def node_step(number: int) -> list[dict[str, Any]]:
    """Make one node of a graph, which alone keeps the tensor before it."""
    if not number:
        return [*tiny(0), {"op": "requires_grad_", "in": ["a0"]}]
    last, made = f"a{number - 1}", f"a{number}"
    return [{"op": "sin", "in": [last], "out": [made]}, {"op": "free", "in": [[last]]}]


def until_refused(step: Step, each: int) -> Callable[[httpx.Client, str], httpx.Response]:
    """Run programs with the instructions of ``each`` numbers until one is refused, for at most two million numbers."""

    def send(client: httpx.Client, path: str) -> httpx.Response:
        for start in range(0, 2_000_000, each):
            program = [instruction for number in range(start, start + each) for instruction in step(number)]
            answer = client.post(f"{path}/programs", json={"instructions": program})
            if answer.status_code != 200:
                break
        return answer

    return send


def get_bomb(path: str, *statuses: int, **headers: str) -> Bomb:
    names = {name.replace("_", "-"): value for name, value in headers.items()}

    def send(client: httpx.Client, session: str) -> httpx.Response:
        return client.get(path.replace("{session}", session), headers=names)

    return Bomb(send, frozenset(statuses))


def foreign(client: httpx.Client, path: str) -> httpx.Response:
    return client.post("/v1/sessions", json={}, headers={"origin": "https://example.org"})


def bombs(full: bool) -> dict[str, Bomb]:
    """All of them; if not ``full``, without those that take a minute."""
    found = {
        "a gzip bomb": body_bomb(gzip.compress(bytes(256 * MIB)), 415, content_encoding="gzip"),
        "JSON of 100,000 levels": body_bomb(b"[" * 100_000 + b"]" * 100_000, 400),
        "JSON objects of 100,000 levels": body_bomb(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400),
        "zeros of 2^62": op_bomb("zeros", size=[2**62]),
        "reshape to 10^18": op_bomb("reshape", ["x"], shape=[HUGE]),
        "expand to 10^18": op_bomb("expand", ["x"], size=[HUGE, 4]),
        "repeat 10^18 times": op_bomb("repeat", ["x"], repeats=[HUGE]),
        "repeat_interleave 2^40 times": op_bomb("repeat_interleave", ["x"], repeats=2**40),
        "tile 10^18 times": op_bomb("tile", ["x"], dims=[HUGE]),
        "one_hot of 2^40 classes": op_bomb("one_hot", ["x"], num_classes=2**40),
        "arange to 10^18": op_bomb("arange", start=0, end=HUGE),
        "eye of 2^40": op_bomb("eye", n=2**40),
        "linspace of 2^40": op_bomb("linspace", start=0, end=1, steps=2**40),
        "randperm of 2^40": op_bomb("randperm", n=2**40),
        "bincount of 2^40": op_bomb("bincount", ["x"], minlength=2**40),
        "pad by 2^40": op_bomb("pad", ["x"], pad=[2**40, 0]),
        "results of an expanded view": program_bomb(
            {"op": "ones", "out": ["x"], "attrs": {"size": [1]}},
            {"op": "expand", "in": ["x"], "out": ["y"], "attrs": {"size": [2**25]}},
            {"op": "mul", "in": ["y", 2.0], "out": ["z"]},
            {"op": "mul", "in": ["y", 2.0], "out": ["w"]},
            {"op": "mul", "in": ["y", 2.0], "out": ["v"]},
        ),
        "a path out of the session": get_bomb("{session}/tensors/..%2f..%2f..%2f..%2fetc%2fpasswd", 404, 422),
        "a path out of the documentation": get_bomb("/docs/..%2f..%2f..%2fetc%2fpasswd", 404),
        "a session that is a path": get_bomb("/v1/sessions/..%2f..%2fetc%2fpasswd", 404),
        "a tensor that is a path": program_bomb(
            {"op": "ones", "out": ["../../etc/passwd"], "attrs": {"size": [1]}}, statuses=(400, 422)
        ),
        "a page of another origin": Bomb(foreign, frozenset({403})),
        "a name by DNS rebinding": get_bomb("/v1/sessions", 421, host="example.org"),
        "a million tiny tensors": Bomb(until_refused(tiny, 50_000), frozenset({413})),
        "a million tiny tensors in many programs": Bomb(until_refused(tiny, 1000), frozenset({413})),
        "a graph of a million nodes": Bomb(until_refused(node_step, 25_000), frozenset({413})),
    }
    if compression.available():
        bomb = bytes(compression.compress(bytes(768 * MIB)))
        found["a zstd bomb"] = body_bomb(bomb, 413, content_type=BINARY["content-type"], content_encoding="zstd")
    if full:
        found["10 GB in chunks"] = Bomb(chunked, frozenset({413}))
    return found


def meet(server: Loaded, name: str, bomb: Bomb, empty: int, session_mib: int) -> Figure:
    with httpx.Client(base_url=server.url, timeout=600) as client:
        session = client.post("/v1/sessions", json={}).json()["id"]
        path = f"/v1/sessions/{session}"
        server.reset_peak()
        answer = bomb.send(client, path)
        grown = (server.peak() - empty) / MIB
        assert answer.status_code in bomb.statuses, (name, answer.status_code, answer.text[:300])
    with httpx.Client(base_url=server.url, timeout=60) as client:  # what broke off may have broken the connection
        assert client.get(f"{path}").status_code == 200, name
        client.delete(path)
    return Figure(f"{name}: {answer.status_code}, memory", grown, "MiB", 1.3 * session_mib + OTHERS_MIB)


def run(full: bool = True, session_mib: int = 256) -> list[Figure]:
    """Send all bombs to one server whose sessions may hold ``session_mib`` MiB each."""
    flags = "--max-session-bytes", str(session_mib * MIB), "--max-body-bytes", str(64 * MIB)
    with loaded(*flags) as server:
        empty = server.rss()
        return [meet(server, name, bomb, empty, session_mib) for name, bomb in bombs(full).items()]
