"""Anomaly mode: which line of the forward pass made the node whose backward failed, or gave a NaN.

While it is on, every recorded node keeps the stack it was recorded under, and the pass is one that evaluates
step by step, looks at every gradient, and warns with that stack when something is wrong. While it is off,
nothing of this exists.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any, NamedTuple

from ..context import AnomalyMode, observe, observer_of, state, stop_observing
from ..errors import InvalidOperation, TelegradError
from ..graph import node_evaluation
from ..graph.abstract_pass import AbstractPass
from ..graph.node import Node
from ..instrumentation import Observer

HERE = os.path.dirname(os.path.dirname(__file__)) + os.sep
OURS = ("telegrad_engine.", "telegrad.")
"""How the names of modules begin that no user wrote."""
POSITION = "node"
"""Under this, the error of a pass in a session tells which of the pass's nodes failed, newest first."""


class Anomaly(NamedTuple):
    """Anomaly mode, being on."""

    check_nan: bool
    parent: Node | None = None
    """The node that is being differentiated, which induces what is recorded meanwhile."""
    explain: Callable[[Any, Node, Exception], None] = lambda run, node, error: warn(node)
    """What is done about an error at a node of a pass."""

    def watching(self, kind: type[Any]) -> type[Any]:
        """This kind of pass, the same but that it explains errors and looks for NaNs."""
        watched: type[Any] = watchful(kind)  # type: ignore[arg-type]  # mypy: a class with no __hash__ of its own
        return watched


class set_detect_anomaly:
    """Switch anomaly mode on or off, at once or, used with ``with``, until the block's end.

    With ``check_nan`` a derivative that gives a NaN raises: "Function 'SqrtBackward0' returned nan values …".
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = _switch(Anomaly(check_nan) if mode else None, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _switch(*self._before)


class detect_anomaly:
    """Anomaly mode until the block's end, with a warning that it is slow."""

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
    """Whether anomaly mode is on."""
    return state.anomaly is not None


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode looks for NaNs, or will."""
    return state.anomaly_check_nan


def _switch(anomaly: AnomalyMode | None, check_nan: bool) -> tuple[AnomalyMode | None, bool]:
    """Set this thread's mode; returns the one before."""
    before = state.anomaly, state.anomaly_check_nan
    state.anomaly, state.anomaly_check_nan = anomaly, check_nan
    observer = observer_of(_Origins)
    if anomaly is not None and observer is None:
        observe(_Origins())
    elif anomaly is None and observer is not None:
        stop_observing(observer)
    return before


def located(check_nan: bool) -> Anomaly:
    """The mode in which errors say which node failed, for somebody elsewhere who knows where it comes from."""
    return Anomaly(check_nan, explain=_locate)


@contextmanager
def under(anomaly: AnomalyMode | None) -> Iterator[None]:
    """Within, passes run in this mode; where nodes come from is not noted."""
    before, state.anomaly = state.anomaly, anomaly
    try:
        yield
    finally:
        state.anomaly = before


def _locate(run: Any, node: Node, error: Exception) -> None:
    if isinstance(error, TelegradError):
        error.context[POSITION] = run.order.index(node)


# Forward: where a node comes from ------------------------------------------------------------


class _Origins(Observer):
    """Notes where each node comes from, while anomaly mode is on."""

    def node(self, node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        anomaly = state.anomaly
        if anomaly is not None:
            node.metadata["traceback_"] = user_stack()
            if anomaly.parent is not None:
                node.metadata["parent_"] = anomaly.parent
        super().node(node, inputs, outputs)


def user_stack() -> list[str]:
    """The stack of the user's code, outermost frame first, as tracebacks print it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(OURS):
        frame = frame.f_back
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame))
    summary.reverse()
    return summary.format()


# Backward: what goes wrong -------------------------------------------------------------------


@cache
def watchful(kind: Any) -> Any:
    """``kind`` of pass, the same but that it explains errors and looks for NaNs."""
    evaluates = not issubclass(kind, AbstractPass)

    class Watchful(kind):  # type: ignore[misc]
        _explaining: Node | None = None

        def _evaluate(self, node: Node, grad: Any) -> None:
            with self.explaining(node):
                if self.values.batched or not evaluates:
                    super()._evaluate(node, grad)
                else:
                    node_evaluation.evaluate(self, node, grad)

        def _evaluate_hooked(self, node: Node, grad: Any) -> None:
            with self.explaining(node):
                super()._evaluate_hooked(node, grad)

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

        def examine(self, node: Node, gradients: Sequence[Any]) -> None:
            """Check gradients of a node that were computed elsewhere: tensors and None."""
            with self.explaining(node):
                self.inspect(node, [None if t is None else self.values.from_tensor(t) for t in gradients])

        def inspect(self, node: Node, results: Sequence[Any]) -> None:
            if state.anomaly is None or not state.anomaly.check_nan:
                return
            for edge, grad in enumerate(results):
                if grad is not None and self.values.has_nan(grad):
                    raise InvalidOperation(f"Function '{node.name()}' returned nan values in its {edge}th output.")

    return Watchful


def warn(node: Node) -> None:
    """Tell where a node comes from at which something went wrong."""
    for text in _explanation(node):
        warnings.warn(text, stacklevel=2)


def _explanation(node: Node) -> Iterator[str]:
    """Where the node was recorded, the node whose backward recorded it, and so on."""
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
