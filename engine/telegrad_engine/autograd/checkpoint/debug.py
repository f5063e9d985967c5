"""``checkpoint(debug=True)``: the operations of both runs, and where in the code they were, told if they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ...context import observed_by
from ...dtypes import from_numpy
from ...errors import CheckpointError
from ...instrumentation import Observer
from ..anomaly import HERE, user_stack

_enabled: list[bool | None] = []
"""What ``set_checkpoint_debug_enabled`` demands, innermost last; None leaves it to the call."""

HEAD = (
    " An error happened while unpacking tensors; dumping logs of latest computation\n"
    "because you passed `debug=True` to `torch.utils.checkpoint.checkpoint()`.\n"
    "Scroll all the way down for guidance on how to navigate these logs.\n"
)
TITLES = (
    "1. Stack traces of the operators that ran in the original forward",
    "2. Stack traces of the operators that ran during recomputation",
    "3. Log of operators in the original forward and recomputation",
)
TAIL = (
    "ERROR: Detected non-determinism while running activation checkpointing\n\n"
    "The recomputation did not save the tensors that the original forward did. Compare the operators in 3., find the\n"
    "first that differ, and look in 1. and 2. for the lines of code that they come from.\n"
)


@contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Decide for all checkpoints made within whether they are debugged; None leaves it to their ``debug``."""
    _enabled.append(enabled)
    try:
        yield
    finally:
        _enabled.pop()


def is_debugged(debug: bool) -> bool:
    """Whether a checkpoint that was asked for with this ``debug`` is debugged."""
    demanded = _enabled[-1] if _enabled else None
    return debug if demanded is None else demanded


class Log:
    """The recorded operations of the two runs of one checkpoint."""

    def __init__(self) -> None:
        self.runs: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
        """Of the original forward and of the recomputation: what was computed, and the stack it was computed under."""

    def of(self, run: int) -> AbstractContextManager[Observer]:
        """Note what is recorded within as run 0 or 1."""
        self.runs[run].clear()
        return observed_by(_Noting(self.runs[run]))

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Turn the error of runs that differ into one that tells all of this."""
        try:
            yield
        except CheckpointError as error:
            raise CheckpointError(self.text()) from error

    def text(self) -> str:
        """Both runs, as torch arranges them: their stacks, their operations, and how to read this."""
        parts = [HEAD]
        for title, run, name in zip(TITLES, self.runs, ("original", "recompute"), strict=False):
            parts.append(_boxed(title))
            parts.extend(f"{what}   ({i} of {len(run)} in {name})\n\n{stack}" for i, (what, stack) in enumerate(run, 1))
        parts.append(_boxed(TITLES[2]))
        for run, name in zip(self.runs, ("the original forward", "recomputation"), strict=True):
            parts.append(f"Operations executed during {name}:\n\n" + "".join(f"{what}\n" for what, _ in run))
        return "\n".join([*parts, TAIL])


class _Noting(Observer):
    """Notes each recorded operation, and the stack that it was recorded under."""

    def __init__(self, entries: list[tuple[str, str]]) -> None:
        self._entries = entries

    def node(self, node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        results = ", ".join(f"{from_numpy(o._data.dtype).name}{list(o._data.shape)}" for o in outputs)
        self._entries.append((f"{results} = {node.op.name}({_arguments(inputs)})", _stack()))
        super().node(node, inputs, outputs)


def _stack() -> str:
    """The lines of the user's code that led here."""
    return "".join(frame for frame in user_stack() if HERE not in frame)


def _arguments(inputs: Sequence[Any]) -> str:
    return ", ".join(
        f"[{_arguments(x)}]" if isinstance(x, tuple) else str(list(x._data.shape)) if hasattr(x, "_data") else repr(x)
        for x in inputs
    )


def _boxed(title: str) -> str:
    line = "+" + "~" * 78 + "+"
    return f"{line}\n|{title:^78}|\n{line}\n"
