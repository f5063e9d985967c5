"""A widget with the graph of a session, drawn again as it changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from telegrad_engine.errors import TelegradError
from telegrad_engine.visualization import Drawing, newest

from ..sessions.session import Session
from ..tensor.notebook import Graph

PAUSE_FACTOR = 20
"""The pause before the graph is drawn again, as a multiple of the time that it took to draw it."""

NOTE = "; not up to date: "


class GraphWidget(anywidget.AnyWidget):
    """The graph of a session as a picture; see :func:`telegrad.notebook.live_graph`.

    The picture is drawn here, with all text escaped: what a server sends is data.
    """

    _esm = Path(__file__).with_name("widget.js")
    svg = traitlets.Unicode().tag(sync=True)
    """The picture."""
    caption = traitlets.Unicode().tag(sync=True)
    """What the picture shows, or why it does not change any more."""

    def __init__(self, session: Session, names: Mapping[str, Any], limit: int, every_s: float) -> None:
        super().__init__()
        self._session, self._limit, self._every_s = session, limit, every_s
        self._names: dict[str, list[str]] = {}
        for name, tensor in names.items():
            self._names.setdefault(tensor._id, []).append(name)
        self._waiting = 0
        self._stopped = threading.Event()
        session.flush()
        self.refresh()
        threading.Thread(target=self._redraw, name="telegrad-graph", daemon=True).start()

    def refresh(self) -> None:
        """Draw the graph as it is now. Raises the session's errors."""
        recorder, transport = self._session.recorder, self._session.recorder.transport
        # What was recorded and is not used any more, as a cell has ended, is sent. A loop sends its own programs.
        if recorder.waiting and recorder.waiting == self._waiting:
            recorder.flush()
        self._waiting = recorder.waiting
        if transport.remote:
            drawing = transport.graph()
        else:
            with recorder.lock:
                drawing = transport.graph()
        graph = Graph(newest(self._named(drawing), self._limit))
        self.svg, self.caption = graph.to_svg(), repr(graph).strip("<>")

    def _named(self, drawing: Drawing) -> Drawing:
        """The drawing with the user's names in place of ids."""
        nodes = [
            vertex._replace(tensors=[name for own in vertex.tensors for name in self._names.get(own, [own])])
            for vertex in drawing.nodes
        ]
        return drawing._replace(nodes=nodes)

    def _redraw(self) -> None:
        """Draw the graph again and again, until the widget or the session is closed; an error is shown."""
        pause = self._every_s
        while not self._stopped.wait(pause):
            began, shown = time.monotonic(), self.caption.partition(NOTE)[0]
            try:
                if not self._session.closed:
                    self.refresh()
            except (TelegradError, RuntimeError) as error:  # another thread may close the session at any moment
                self.caption = f"{shown}{NOTE}{error}"
            if self._session.closed:
                self.caption = f"{shown}{NOTE}the session is closed"
                return
            pause = max(self._every_s, PAUSE_FACTOR * (time.monotonic() - began))

    def close(self) -> None:
        """Stop drawing, and remove the widget from the notebook."""
        self._stopped.set()
        super().close()
