"""Telegrad in Jupyter: the extension behind ``%load_ext telegrad``, and a graph that is redrawn as it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from telegrad_engine.errors import InvalidOperation
from telegrad_engine.inspection.folding import MAX_BOXES

from ..sessions.session import Session, current


def live_graph(
    session: Session | None = None,
    *,
    names: Mapping[str, Any] | None = None,
    limit: int = MAX_BOXES,
    every_s: float = 1.0,
) -> Any:
    """Return a widget that shows the graph of a session as the console does, and follows it, also while a cell runs.

    ``session`` is the current one by default. ``names`` maps names to tensors, such as
    ``dict(model.named_parameters())``. At most ``limit`` boxes are drawn: a larger graph is folded. The kernel asks the
    session at most every ``every_s`` seconds, and less often if its answers take long; while the widget is open, steps
    of the session are observed. The widget's ``close()`` ends this, as does the end of the session. It needs the extra
    ``notebook``: raises InvalidOperation if that is not installed.
    """
    try:
        from .widget import GraphWidget
    except ImportError as error:
        raise InvalidOperation(
            f"a live graph needs {error.name}, which is not installed here: install telegrad[notebook]"
        ) from None
    return GraphWidget(session or current(), names or {}, limit, every_s)


__all__ = ["live_graph"]
