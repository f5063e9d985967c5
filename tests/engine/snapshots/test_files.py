"""Files of snapshots: what they take, and that damaged and hostile ones are refused.

Internals: as in test_twins.py, and hostile files are made with the functions that write files. A later version is one
with other derivatives.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from telegrad_engine.errors import MalformedRequest, NotSupported, TelegradError, TooLarge
from telegrad_engine.program import Instruction, safetensors
from telegrad_engine.schema.op import CATALOGUE
from telegrad_engine.session import snapshot
from telegrad_engine.session.session import Session
from telegrad_engine.session.snapshot import container
from telegrad_engine.session.snapshot.blocks import Arrays

from ... import fake_gpu
from .random_programs import Programs, outcome, run


def session_with_everything(seed: int = 1) -> Session:
    programs, session = Programs(seed), Session(seed=seed)
    for _ in range(80):
        outcome(session, programs.next())
    return session


def file_of(document: Any, blocks: list[Any]) -> Any:
    """The file of a description and blocks of bytes, with a correct checksum."""
    arrays = Arrays()
    for block in blocks:
        arrays.number(block.copy())
    return container.encode(document, arrays)


@pytest.mark.parametrize("freed", [False, True])
def test_a_derivative_of_a_later_version_may_need_the_saved_values_in_another_order(
    monkeypatch: pytest.MonkeyPatch, freed: bool
) -> None:
    session = Session()
    for name, value in (("x", 3.0), ("y", 5.0)):
        run(session, ("full", [], [name], {"size": (), "fill_value": value}), ("requires_grad_", [name], [], {}))
    run(session, ("mul", ["x", "y"], ["z"], {}))
    if freed:
        run(session, ("backward", [("z",)], [], {}))
    content = snapshot.save(session)
    op = CATALOGUE.get("mul")
    monkeypatch.setattr(op, "plans", {})
    monkeypatch.setitem(op.rules, "input", lambda F, grad, input, other: grad * other)
    restored = snapshot.restore(content)
    if not freed:
        run(restored, ("backward", [("z",)], [], {}))
    assert [restored.tensors[name].grad.item() for name in "xy"] == [5.0, 3.0]


def test_a_snapshot_without_a_value_that_a_later_version_needs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    run(session, ("ones", [], ["x"], {"size": (2,)}), ("requires_grad_", ["x"], [], {}), ("tan", ["x"], ["y"], {}))
    content = snapshot.save(session)
    op = CATALOGUE.get("tan")
    monkeypatch.setattr(op, "plans", {})
    monkeypatch.setitem(op.rules, "input", lambda F, grad, input: grad / F.cos(input) ** 2)
    with pytest.raises(NotSupported, match="the derivative of tan needs its input, which the version"):
        snapshot.restore(content)


@pytest.mark.full
def test_other_readers_see_large_tensors_as_they_are() -> None:
    session = Session()
    run(
        session, ("arange", [], ["x"], {"start": 0.0, "end": 32768.0}), ("reshape", ["x"], ["y"], {"shape": (128, 256)})
    )
    metadata, arrays = safetensors.decode(snapshot.save(session))
    assert metadata["format"] == "telegrad.snapshot"
    np.testing.assert_array_equal(arrays["block.0"], np.arange(32768, dtype=np.float32))


def test_a_truncated_or_damaged_file_is_refused() -> None:
    content = bytes(snapshot.save(session_with_everything()))
    for end in range(0, len(content), max(1, len(content) // 50)):
        with pytest.raises(TelegradError):
            snapshot.restore(content[:end])
    chosen = random.Random(0)
    for _ in range(100):
        damaged = bytearray(content)
        damaged[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)
        try:
            session = snapshot.restore(bytes(damaged))
        except TelegradError:
            continue
        assert bytes(snapshot.save(session)) == content, "only the header's own words may be damaged without harm"


@pytest.mark.full
def test_another_container_and_another_version_are_refused() -> None:
    with pytest.raises(MalformedRequest, match="not a snapshot"):
        snapshot.restore(safetensors.encode({}, {"x": np.zeros(2, np.float32)}))
    metadata, arrays = safetensors.decode(snapshot.save(Session(seed=0)))
    with pytest.raises(NotSupported, match="version '99'"):
        snapshot.restore(safetensors.encode({**metadata, "version": "99"}, arrays))


def test_a_session_that_is_too_large_is_refused_before_its_memory_is_allocated() -> None:
    session = Session()
    run(session, ("zeros", [], ["x"], {"size": (2**20,)}))
    with pytest.raises(TooLarge, match="may hold 1048576"):
        snapshot.restore(snapshot.save(session), max_bytes=2**20)


HOSTILE: dict[str, Callable[[Any], Any]] = {
    "an array beyond its memory": lambda d: d["arrays"][0].__setitem__(1, 2**40),
    "an array before its memory": lambda d: d["arrays"][0].__setitem__(3, [-(2**30)] * len(d["arrays"][0][2])),
    "an array of more elements": lambda d: d["arrays"][0].__setitem__(2, [2**31] * len(d["arrays"][0][2])),
    "an array of objects": lambda d: d["arrays"][0].__setitem__(4, "object"),
    "an array in no memory at all": lambda d: d["blocks"].__setitem__(0, 0),
    "an unknown op": lambda d: next(n for n in d["nodes"] if n[0]).__setitem__(0, "os.system"),
    "a cycle": lambda d: d["order"].reverse(),
    "no order": lambda d: d["order"].clear(),
    "an edge to nowhere": lambda d: next(n for n in d["nodes"] if n[0])[1].__setitem__(0, 10**6),
    "a tensor that does not exist": lambda d: d["names"].append(["z", 10**6]),
    "a negative number": lambda d: d["names"].append(["z", -1]),
    "a name that is no id": lambda d: d["names"].append(["../etc", 0]),
    "a counter that is no number": lambda d: d["counters"].__setitem__(0, "x"),
    "a block of other size": lambda d: d["blocks"].__setitem__(0, 2**50),
    "a generator in no state": lambda d: d.__setitem__("generator", "00"),
    "an unknown device": lambda d: d.__setitem__("device", "nowhere"),
    "a device that has no snapshots": lambda d: d.__setitem__("device", "cuda"),
    "a function that is none": lambda d: d["functions"].append({"definition": "{}", "uses": {}}),
    "a function that applies itself": lambda d: d["functions"].append(
        {
            "definition": '{"name": "f", "forward": {"inputs": ["x"], "instructions": [], "outputs": ["x"]}}',
            "uses": {"g": 99},
        }
    ),
    "no tensors": lambda d: d.pop("tensors"),
    "tensors of another type": lambda d: d.__setitem__("tensors", {"x": 1}),
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.every
def test_a_hostile_file_is_refused_with_a_clear_error(what: str) -> None:
    document, blocks = container.decode(snapshot.save(session_with_everything()))
    document = copy.deepcopy(document)
    HOSTILE[what](document)
    with fake_gpu.installed(), pytest.raises(TelegradError) as refused:
        snapshot.restore(file_of(document, blocks))
    assert refused.value.status < 500


@pytest.mark.full
def test_a_description_that_nests_too_deep_is_refused() -> None:
    metadata, arrays = safetensors.decode(snapshot.save(Session(seed=0)))
    for levels in (500, 100_000):
        arrays["state"] = np.frombuffer(b'{"format":1,"packed":' + b"[" * levels + b"]" * levels + b"}", np.uint8)
        checksum = container._checksum(arrays)
        with pytest.raises(MalformedRequest):
            snapshot.restore(safetensors.encode({**metadata, "checksum": checksum}, arrays))


@pytest.mark.full
def test_random_changes_of_a_description_give_a_session_or_a_clear_error() -> None:
    document, blocks = container.decode(snapshot.save(session_with_everything()))
    chosen = random.Random(0)
    for _ in range(300):
        changed = copy.deepcopy(document)
        for _ in range(chosen.randrange(1, 4)):
            _change(changed, chosen)
        try:
            session = snapshot.restore(file_of(changed, blocks), max_bytes=2**24)
        except TelegradError as error:
            assert error.status < 500
            continue
        for name in list(session.tensors)[:3]:
            outcome(session, Instruction("backward", [(name,)], [], {"retain_graph": True}))


def _change(value: Any, chosen: random.Random) -> None:
    """Replace a random part of JSON data by another value."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = chosen.choice(keys)
        inner = value[key]
        if isinstance(inner, (dict, list)) and inner and chosen.random() < 0.9:
            value = inner
            continue
        value[key] = chosen.choice([None, -1, 0, 1, 2**62, 10**6, "x", [], {}, True, 1.5, ["t"], ["T", 0], ["a", 0]])
        return
