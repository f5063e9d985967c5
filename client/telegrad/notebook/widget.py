"""A widget with the graph of a session: the console's view, for which the kernel asks the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from telegrad_engine.errors import TelegradError

from ..sessions.session import Session

PAUSE_FACTOR, MAX_PAUSE_S = 20, 10.0
"""The pause before the graph is read again, as a multiple of the time that reading it took; and the longest pause."""
BUNDLE = Path(__file__).with_name("static") / "notebook.js"
"""The console's graph view, which ``make console`` builds."""
NOT_BUILT = """export default { render({ el }) {
    el.textContent = "The picture of the graph was not built. Run `make console` at the root of the repository, " +
        "which needs Node.js 20.19 or later. If you installed without --editable, install the folder `client` again. " +
        "Restart the kernel.";
} };"""


class GraphWidget(anywidget.AnyWidget):
    """The graph of a session; see :func:`telegrad.notebook.live_graph`.

    The browser sets ``query``, and asks for nodes and passes by messages; it gets JSON data, which it shows as text.
    """

    _esm = BUNDLE if BUNDLE.exists() else NOT_BUILT
    query = traitlets.Dict().tag(sync=True)
    """What is shown: the arguments of ``SessionGraph.folded``."""
    picture = traitlets.Dict().tag(sync=True)
    """The ``query`` and its answer: ``graph``, or the title and the detail of an ``error``."""
    title = traitlets.Unicode().tag(sync=True)
    """What the graph is called: the id of the session."""
    ended = traitlets.Unicode().tag(sync=True)
    """Why the picture does not change any more."""

    def __init__(self, session: Session, names: Mapping[str, Any], limit: int, every_s: float) -> None:
        super().__init__(query={"source": "live", "fold": "auto", "expand": [], "limit": limit, "root": None})
        self.title = session.id
        self._session, self._limit, self._every_s = session, limit, every_s
        self._names: dict[str, str] = {tensor._id: name for name, tensor in names.items()}
        self._ids = {name: own for own, name in self._names.items()}
        self._waiting = 0
        self._stopped, self._asked = threading.Event(), threading.Event()
        session.flush()
        with self._reading():
            self._graph = session.recorder.transport.graph()
        self.refresh()
        self.observe(lambda _: self._asked.set(), names=["query"])
        self.on_msg(self._answer)
        threading.Thread(target=self._redraw, name="telegrad-graph", daemon=True).start()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Within the block, nothing else uses the session if it is in this process."""
        recorder = self._session.recorder
        if recorder.transport.remote:
            yield
        else:
            with recorder.lock:
                yield

    def refresh(self) -> None:
        """Read the graph as it is now. Raises the session's errors."""
        recorder, query = self._session.recorder, self.query
        # What was recorded and is not used any more, as a cell has ended, is sent. A loop sends its own programs.
        if recorder.waiting and recorder.waiting == self._waiting:
            recorder.flush()
        self._waiting = recorder.waiting
        limit = min(self._limit, query["limit"])
        root = query["root"] and self._ids.get(query["root"], query["root"])
        with self._reading():
            graph = self._graph.folded(query["source"], query["fold"], query["expand"], limit, root)
        self.picture = {"query": query, "graph": self._named(graph)}

    def _redraw(self) -> None:
        """Read the graph again and again, until the widget or the session is closed; an error is shown."""
        pause = self._every_s
        while True:
            self._asked.wait(pause)
            self._asked.clear()
            if self._stopped.is_set():
                return
            began, query = time.monotonic(), self.query
            try:
                if not self._session.closed:
                    self.refresh()
            except (TelegradError, RuntimeError) as error:  # another thread may close the session at any moment
                self.picture = {"query": query, "error": _described(error)}
            if self._session.closed:
                self.ended = "the session is closed"
                return
            pause = max(self._every_s, min(PAUSE_FACTOR * (time.monotonic() - began), MAX_PAUSE_S))

    def _answer(self, _: Any, question: dict[str, Any], __: Any) -> None:
        """Answer a question of the browser: about a node, or for the pass from a tensor."""
        answer: dict[str, Any] = {"id": question["id"]}
        try:
            with self._reading():
                if "node" in question:
                    found = self._graph.node(question["node"], question["source"])
                else:
                    tensor = self._ids.get(question["tensor"], question["tensor"])
                    found = self._graph.backward(tensor, question["fold"], question["expand"])
            answer["answer"] = self._with_names(found)
        except (TelegradError, RuntimeError) as error:
            answer["error"] = _described(error)
        self.send(answer)

    def _named(self, graph: dict[str, Any]) -> dict[str, Any]:
        """The graph with the user's names in place of ids."""
        for box in graph["boxes"]:
            if box["tensors"] and box["label"] == box["tensors"][0]:
                box["label"] = self._names.get(box["label"], box["label"])
            self._with_names(box)
        return graph

    def _with_names(self, found: dict[str, Any]) -> dict[str, Any]:
        if "tensors" in found:
            found["tensors"] = [self._names.get(own, own) for own in found["tensors"]]
        return found

    def close(self) -> None:
        """Stop reading, and remove the widget from the notebook."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._asked.set()
            self._graph.close()
        super().close()


def _described(error: Exception) -> dict[str, str]:
    """An error as the console shows those of a server."""
    return {"title": type(error).__name__, "detail": str(error)}
