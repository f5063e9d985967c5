"""The message that is being recorded, as far as it goes along a path of steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.modes import state

from ..elision import free
from ..lines import Line
from ..packing import Remembered
from ..recording import Written
from .calls import placed
from .drawing import Drawing, is_quiet
from .numbers import OwnNumbers
from .steps import Ending, Step, lasting, matched, places_of


class Round:
    """What was recorded since the last message, which all went along the path to ``last``."""

    __slots__ = ("arrays", "changed", "dead", "drawing", "ended", "last", "lines", "next", "places")

    def __init__(self, start: Step) -> None:
        self.last, self.next = start, start.next
        self.places: dict[str, int] = {}
        self.arrays: dict[int, Any] = {}
        """What it uploads, by the index of the step that does."""
        self.changed: dict[int, OwnNumbers] = {}
        """What instructions have of their own whose numbers are not those of their steps, by the indices of these."""
        self.lines: dict[int, Line | None] = {}
        """The user's lines where they are not those of the steps."""
        self.drawing: Drawing | None = None
        """What of its ops is not in the shadow graph yet, as long as it goes on."""
        self.ended: Ending | None = None
        """How it ended, where nothing more was recorded before it was to be sent."""
        self.dead: Sequence[str] = ()
        """What it frees then."""

    def __len__(self) -> int:
        return self.last.index

    def follow(
        self, op: str, inputs: Sequence[Any], outputs: Sequence[str], attrs: Any, mode: str | None, line: Line | None
    ) -> bool:
        """Go on with an instruction, if it is one that is known to come here and was not recorded by a call."""
        step, own, changed = self.next, lasting(op, attrs), None
        while step is not None:
            if step.is_of(op, mode, len(outputs)):
                if step.has(own) and matched(inputs, step.inputs, self.places):
                    break
                self.go_back()
                changed = step.changed(inputs, own)
                if changed is not None and matched(inputs, step.inputs, self.places, numbers=False):
                    self.changed[step.index] = changed
                    break
            self.go_back()
            step = step.sibling
        else:
            return False
        for name in outputs:
            placed(name, self.places)
        if own is not attrs:
            self.arrays[step.index] = attrs["data"]
        if line != step.line:
            self.lines[step.index] = line
        if not is_quiet(op, own):
            self.close()
        self.last, self.next = step, step.next
        return True

    def drawing_at(self, step: Step, tensors: Sequence[Any]) -> Drawing | None:
        """The drawing to which the op of this step belongs, on these tensors; None if it is to be in the graph now."""
        if step.opening is not None:
            if step.opening.begins:
                self.close(step.before)
                self.drawing = Drawing(self, step)
            if self.drawing is not None and not all(map(self.drawing.take, [tensors[i] for i in step.opening.given])):
                self.close(step.before)
        if state.observer is not None:
            self.close(step.before)
        return self.drawing

    def close(self, last: Step | None = None) -> None:
        """Have no more be drawn together with what came up to this step, or the last one."""
        if self.drawing is not None:
            self.drawing.close(last)

    def go_back(self) -> None:
        """Forget the ids that were noted since the last step."""
        places, width = self.places, self.last.width
        while len(places) > width:
            places.popitem()

    def end(self, dead: Sequence[str]) -> bool:
        """End it here, if a message has, and nothing may come behind it: these tensors have died."""
        if self.ended is not None or not len(self):
            return self.ended is not None and not dead
        found = places_of(dead, self.places)
        self.dead, self.ended = dead, next((each for each in self.last.endings if each.dead == found), None)
        if self.ended is not None:
            self.next = None
        return self.ended is not None

    def remembered(self) -> Remembered:
        """What it has become: a program that the server remembers."""
        assert self.ended is not None
        names = [*self.places, *[name for name in self.dead if name not in self.places]]
        arrays = {name: self.arrays[index] for name, index in self.ended.arrays}
        ids = [names[place] for place in self.ended.ids]
        return Remembered(self.ended.known, ids, arrays, self._operands(self.ended.numbered))

    def _operands(self, steps: Sequence[Step]) -> list[float]:
        """The operands of these steps."""
        if not self.changed:
            return [x for step in steps for x in step.numbers.operands]
        return [x for step in steps for x in self.changed.get(step.index, step.numbers).operands]

    def unrolled(self) -> Written:
        """The instructions, and the user's lines behind them."""
        names, path = list(self.places), self.last.path()
        program = [step.instruction(names, self.arrays, self.changed.get(step.index)) for step in path]
        lines = [self.lines.get(step.index, step.line) for step in path]
        if self.ended is not None:
            free(program, lines, self.dead)
        return program, lines
