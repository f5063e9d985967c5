"""Every parameter of every op, verb and optimizer is described, each op says what it returns, and all of it is used.

Internals: the files ``parameters.toml`` and the places in them that hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch

import telegrad_engine
from telegrad_engine.optim.algorithms import OPTIMIZERS
from telegrad_engine.optim.algorithms import __name__ as ALGORITHMS
from telegrad_engine.program import VERBS
from telegrad_engine.schema.descriptions import FILE, RETURNS, entries, table
from telegrad_engine.schema.op import CATALOGUE

OPS = [op for op in CATALOGUE if not op.private]
FOLDER = Path(telegrad_engine.__file__).parent
OF_THE_SDK = {"out", "generator", "requires_grad", "device", "layout", "pin_memory", "inplace", "memory_format"}
"""Parameters of the SDK's functions that no op declares."""


class Described(NamedTuple):
    """What has a description: an op, a verb or an optimizer, and one of its parameters, or its results."""

    module: str
    keys: tuple[str, ...]
    name: str
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.keys[0]}({self.name}: {self.kind})"


def everything() -> Iterator[Described]:
    for declared in [*OPS, *VERBS.values()]:
        for param in declared.params:
            yield Described(declared.module, declared.keys, param.name, param.kind.label)
    for optimizer in OPTIMIZERS.values():
        for param in optimizer.params:
            yield Described(ALGORITHMS, (optimizer.name,), param.name)


def leaves(place: tuple[str, ...], found: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in found.items():
        if isinstance(value, dict):
            yield from leaves((*place, key), value)
        else:
            yield (*place, key), value


WRITTEN = {
    place: text
    for file in sorted(FOLDER.rglob(FILE))
    for place, text in leaves((str(file.parent),), table(str(file.parent)))
}


def test_every_parameter_has_a_description() -> None:
    found = [*everything()]
    assert len(found) > 1800
    missing = [str(each) for each in found if not [*entries(*each)]]
    assert not missing


def test_every_op_says_what_it_does_and_returns() -> None:
    assert not [op.key for op in OPS if not (op.doc and op.returns)]


def test_every_description_is_of_something() -> None:
    used = {next(entries(*each))[0] for each in everything()}
    used |= {next(entries(op.module, op.keys, RETURNS))[0] for op in OPS if not op.pointwise}
    idle = {place[1:] for place in WRITTEN if place not in used and place[-1] not in OF_THE_SDK}
    assert not idle


def test_no_description_repeats_the_one_that_would_hold_without_it() -> None:
    repeated = []
    for each in everything():
        texts = [text for _, text in entries(*each)]
        if texts[0] in texts[1:2]:
            repeated.append(str(each))
    assert not repeated


def test_descriptions_are_sentences() -> None:
    for place, text in WRITTEN.items():
        assert text.endswith("."), place
        assert text[0].isupper() or not text[0].isalpha() or text.startswith("``"), place
        assert text.count("``") % 2 == 0, place


def test_the_name_in_torch_is_one_of_torch() -> None:
    for op in OPS:
        if op.torch_name:
            assert callable(attrgetter(op.torch_name.removeprefix("torch."))(torch)), op.torch_name
