"""Failed instructions: the error that names the user's line, and the tensors that were never made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.errors import ProgramNotRun, TelegradError, TooLarge

from .in_flight import Recording


class Failed(dict[str, TelegradError]):
    """The tensors that never came to be, by id: using one raises its error, and nothing is freed."""

    def refuse(self, names: Sequence[str], error: TelegradError) -> None:
        """Note that these tensors never came to be."""
        if names:
            self.update(dict.fromkeys(names, _copy(error)))

    def check(self, inputs: Sequence[Any], outputs: Sequence[str] = ()) -> None:
        """Raise the error of the first of these inputs that never came to be; then neither do the outputs."""
        for x in inputs:
            if isinstance(x, str):
                if x in self:
                    self.refuse(outputs, self[x])
                    raise _copy(self[x])
            elif isinstance(x, tuple):
                self.check(x, outputs)


def explain(error: TelegradError, recording: Recording) -> int | None:
    """Note on an error the line that recorded the instruction which failed; from which one on nothing has run.

    None if that is not known.
    """
    program, lines = recording.program, recording.lines
    index = 0 if isinstance(error, ProgramNotRun) else error.context.get("instruction")
    if index is None and isinstance(error, TooLarge):
        return 0  # the program itself: it was not taken
    if not isinstance(index, int) or index >= len(program):
        return None
    if lines[index] is not None:
        error.add_note(f"recorded at {lines[index]} as {program[index]!r:.200}; tg.debug(True) raises it there")
    return index


def _copy(error: TelegradError) -> TelegradError:
    """The error without its traceback, which would keep the user's frames and the tensors in them alive."""
    copied = type(error)(error.detail, **error.context)
    for note in getattr(error, "__notes__", ()):
        copied.add_note(note)
    return copied
