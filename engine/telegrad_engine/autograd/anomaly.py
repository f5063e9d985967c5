"""Anomaly mode: finds the line of the forward pass that made a node whose backward fails or returns NaN.

While it is on, every recorded node keeps the stack of its recording, and backward passes evaluate step by step, check
every gradient, and warn with that stack if something is wrong. While it is off, none of this runs.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any, NamedTuple

from ..context import observe, observer_of, state, stop_observing
from ..errors import InvalidOperation, TelegradError
from ..graph import node_evaluation
from ..graph.abstract_pass import AbstractPass
from ..graph.node import Node
from ..instrumentation import Observer

OURS = ("telegrad_engine.", "telegrad.")
"""The prefixes of the names of Telegrad's own modules."""
POSITION = "node"
"""The key in an error's context for the index of the node that failed, among the pass's nodes from the newest."""


class Anomaly(NamedTuple):
    """The settings of anomaly mode while it is on."""

    check_nan: bool
    parent: Node | None = None
    """The node that is being differentiated; it becomes the parent of the nodes recorded meanwhile."""
    explain: Callable[[Any, Node, Exception], None] = lambda run, node, error: warn(node)
    """Called with a pass, a node and the error that occurred there."""

    def watching(self, kind: type[Any]) -> type[Any]:
        """Return a subclass of this kind of pass that explains errors and checks for NaNs."""
        watched: type[Any] = watchful(kind)  # type: ignore[arg-type]  # mypy: a class with no __hash__ of its own
        return watched


class set_detect_anomaly:
    """Switch anomaly mode on or off at once; as a context manager, until the end of the block.

    With ``check_nan`` a derivative that returns NaN raises: "Function 'SqrtBackward0' returned nan values …".

    ``mode`` says which.

    Examples:
        >>> with tg.set_anomaly_enabled(True):
        ...     print(tg.is_anomaly_enabled())
        True
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = _switch(Anomaly(check_nan) if mode else None, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _switch(*self._before)


class detect_anomaly:
    """Switch anomaly mode on until the end of the block, and warn that it is slow.

    With ``check_nan``, a derivative that returns NaN raises an error.

    Examples:
        >>> import warnings; warnings.simplefilter("ignore")
        >>> with tg.autograd.detect_anomaly():
        ...     print(tg.is_anomaly_enabled())
        True
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be "
            "enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self._before = _switch(Anomaly(self._check_nan), self._check_nan)

    def __exit__(self, *exc: object) -> None:
        _switch(*self._before)


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on.

    Examples:
        >>> tg.is_anomaly_enabled()
        False
    """
    return state.anomaly is not None


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode checks for NaNs, or would if it were on.

    Examples:
        >>> tg.is_anomaly_check_nan_enabled()
        True
    """
    return state.anomaly_check_nan


def _switch(anomaly: Anomaly | None, check_nan: bool) -> tuple[Anomaly | None, bool]:
    """Set this thread's mode and return the previous one."""
    before = state.anomaly, state.anomaly_check_nan
    state.anomaly, state.anomaly_check_nan = anomaly, check_nan
    observer = observer_of(_Origins)
    if anomaly is not None and observer is None:
        observe(_Origins())
    elif anomaly is None and observer is not None:
        stop_observing(observer)
    return before


def located(check_nan: bool) -> Anomaly:
    """Return a mode in which errors carry the index of the failed node, for a client that has the stacks."""
    return Anomaly(check_nan, explain=_locate)


@contextmanager
def under(anomaly: Anomaly | None) -> Iterator[None]:
    """Run passes in this mode inside the block, without recording the origins of nodes."""
    before, state.anomaly = state.anomaly, anomaly
    try:
        yield
    finally:
        state.anomaly = before


def _locate(run: Any, node: Node, error: Exception) -> None:
    if isinstance(error, TelegradError):
        error.context[POSITION] = run.order.index(node)


# Forward: the origins of nodes ---------------------------------------------------------------


class _Origins(Observer):
    """Stores the stack of each node's recording while anomaly mode is on."""

    def node(self, node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        anomaly = state.anomaly
        if anomaly is not None:
            node.metadata["traceback_"] = user_stack()
            if anomaly.parent is not None:
                node.metadata["parent_"] = anomaly.parent
        super().node(node, inputs, outputs)


def user_stack() -> list[str]:
    """Return the stack of the user's code, outermost frame first, formatted as in tracebacks."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(OURS):
        frame = frame.f_back
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame))
    summary.reverse()
    return summary.format()


# Backward: errors and NaNs -------------------------------------------------------------------


@cache
def watchful(kind: Any) -> Any:
    """Return a subclass of the pass class ``kind`` that explains errors and checks for NaNs."""
    evaluates = not issubclass(kind, AbstractPass)

    class Watchful(kind):  # type: ignore[misc]
        _explaining: Node | None = None

        def _evaluate(self, node: Node, grad: Any) -> None:
            with self.explaining(node):
                if not evaluates:
                    super()._evaluate(node, grad)
                else:
                    self._run_steps(node_evaluation.evaluate(self, node, tuple(grad) if node.many else (grad,)))

        @contextmanager
        def explaining(self, node: Node) -> Iterator[None]:
            if self._explaining is node:
                yield
                return
            self._explaining, before = node, state.anomaly
            state.anomaly = before and before._replace(parent=node)
            try:
                yield
            except Exception as error:
                if before is not None:
                    before.explain(self, node, error)
                raise
            finally:
                self._explaining, state.anomaly = None, before

        def inspect(self, node: Node, results: Sequence[Any]) -> None:
            if state.anomaly is None or not state.anomaly.check_nan:
                return
            for edge, grad in enumerate(results):
                if grad is not None and self.values.has_nan(grad):
                    raise InvalidOperation(f"Function '{node.name()}' returned nan values in its {edge}th output.")

    return Watchful


def warn(node: Node) -> None:
    """Warn with the origin of a node that failed."""
    for text in _explanation(node):
        warnings.warn(text, stacklevel=2)


def _explanation(node: Node) -> Iterator[str]:
    """Yield the origin of the node, then of the node whose backward recorded it, and so on."""
    yield f"Error detected in {node.name()}. " + _origin(node, "caused the error")
    parent = node.metadata.get("parent_")
    while parent is not None:
        origin = _origin(parent, "induced the previous calculation")
        yield f"\n\nPrevious calculation was induced by {parent.name()}. {origin}"
        parent = parent.metadata.get("parent_")


def _origin(node: Node, what: str) -> str:
    stack = node.metadata.get("traceback_")
    if stack is None:
        return "No forward pass information available. Enable detect anomaly during forward pass for more information."
    return f"Traceback of forward call that {what}:\n" + "".join(stack)
