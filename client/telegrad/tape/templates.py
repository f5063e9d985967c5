"""The templates of a session: those of the segments that it has recorded, by their steps and slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.program.template import TAKES_DATA, stand_ins, template_of

from .step import Places, Single

MAX_STEPS = 100_000
"""How many steps the remembered templates have together; those used last are remembered."""
DIGITS = 12
"""How many digits of a digest are shown in reports."""
Key = tuple[tuple[Any, ...], tuple[Places, ...]]
"""The kinds of a segment's steps, and their places."""


class SentTemplate:
    """A template, and where its segments have uploads.

    It refers to few objects besides its key, because most segments never recur.
    """

    def __init__(self, key: Key, slots: int) -> None:
        names = stand_ins(slots)
        self._key = key
        self.sent = self.recurs = False
        """Whether it has been sent to the server, and whether it was recorded more than once."""
        texts, operands, steps = [], 0, self.steps
        for step, places, _ in steps:
            texts.append(step.text([names[slot] for slot in places], operands))
            operands += len(step.operands)
        self.length = len(steps)
        self.template = template_of(texts)
        self.uploads = [
            (names[places[0]], index) for index, (step, places, _) in enumerate(steps) if step.op in TAKES_DATA
        ]
        """The placeholders of the uploaded arrays, and the indices of the instructions that upload them."""

    @property
    def steps(self) -> list[Single]:
        """The single steps, with their places."""
        return [single for step, places in zip(*self._key, strict=True) for single in step.expanded(places)]


class Templates:
    """The templates of one session."""

    def __init__(self) -> None:
        self._known: dict[Key, SentTemplate] = {}
        """By key, that used last at the end."""
        self._steps = 0
        self._newest: SentTemplate | None = None

    def __len__(self) -> int:
        return len(self._known)

    def of(self, key: Key, slots: int) -> SentTemplate:
        """The template with this key, of a segment with that many slots."""
        found = self._known.pop(key, None)
        if found is not None:
            found.recurs = True
        else:
            found = self._newest = SentTemplate(key, slots)
            self._steps += found.length
            while self._steps > MAX_STEPS and self._known:
                self._steps -= self._known.pop(next(iter(self._known))).length
        self._known[key] = found
        return found

    def unsent(self, templates: Sequence[SentTemplate]) -> set[str]:
        """Return the digests of those that are sent for the first time, and mark them as sent."""
        new = [each for each in templates if not each.sent]
        for each in new:
            each.sent = True
        return {each.template.digest for each in new}

    def misses(self) -> list[dict[str, Any]]:
        """A report on the newest template, with the instruction by which it differs from the most similar one."""
        new = self._newest
        if new is None:
            return []
        others = [each for each in self._known.values() if each is not new]
        others = [each for each in others if each.recurs] or others
        reason = "it was sent for the first time"
        if others:
            same, _, other = max([(_alike(new, each), index, each) for index, each in enumerate(others)])
            reason += "; " + _difference(new, other, same)
        return [{"digest": None, "instructions": new.length, "runs": 1, "planned_runs": 0, "reason": reason}]


def _alike(one: SentTemplate, other: SentTemplate) -> int:
    """How many instructions two templates begin with alike."""
    for index, (a, b) in enumerate(zip(one.steps, other.steps, strict=False)):
        if a[0].kind is not b[0].kind or a[1] != b[1]:
            return index
    return min(len(one.steps), len(other.steps))


def _difference(new: SentTemplate, other: SentTemplate, index: int) -> str:
    """Describe the difference at the first instruction that is not alike."""
    name = f"program {other.template.digest[:DIGITS]}"
    if index == len(other.steps) < len(new.steps):
        return f"{name} ends before instruction {index}, {new.steps[index][0].op}"
    if index == len(new.steps):
        longer = other.steps[index][0].op if index < len(other.steps) else "the end"
        return f"unlike {name}, it ends before instruction {index}, {longer}"
    step, old = new.steps[index][0], other.steps[index][0]
    where = f"unlike {name}, instruction {index}"
    if step.op != old.op:
        return f"{where} is {step.op}, and not {old.op}"
    if step.settings != old.settings:
        return f"{where}, {step.op}, has {step.settings or 'no settings'}, and not {old.settings or 'none'}"
    if step.mode != old.mode:
        return f"{where}, {step.op}, is recorded in another grad mode"
    return f"{where}, {step.op}, takes other tensors"
