"""The interface that carries programs to a session and brings back their answers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from telegrad_engine.dtypes import DType
from telegrad_engine.program.registered_functions import Applicable
from telegrad_engine.program.result import Answer
from telegrad_engine.program.wire import Outgoing

if TYPE_CHECKING:
    import ssl  # needed by connections to servers alone

Verify: TypeAlias = "ssl.SSLContext | str | os.PathLike[str] | bool"
"""How a server's certificate is verified: with a context, the certificates in a file, the system's, or not at all."""
ID_PREFIX = "t"
"""The prefix of tensor ids."""


class TensorInfo(NamedTuple):
    """A tensor of a session: its description, as in answers, and whether it has a gradient."""

    description: dict[str, Any]
    has_grad: bool


class SessionGraph(Protocol):
    """Reads the graph of a session, for whoever shows it. Steps of the session are observed until :meth:`close`.

    The answers are those of ``GET /v1/sessions/{session}/graph/folded``, ``…/graph/nodes/{node}`` and
    ``POST …/graph/backward``, as JSON data.
    """

    def folded(self, source: str, fold: str, expand: list[str], limit: int, root: str | None) -> dict[str, Any]:
        """The graph behind ``root`` or all tensors (``source="live"``), or of the last observed step ("step")."""

    def node(self, node: str, source: str) -> dict[str, Any]:
        """The details of a node. Raises UnknownResource if there is none of this id."""

    def backward(self, tensor: str, fold: str, expand: list[str]) -> dict[str, Any]:
        """The steps of a backward pass from a tensor, with the boxes of the live graph; it changes nothing."""

    def close(self) -> None:
        """Have no more steps observed."""


class Transport(Protocol):
    """A session somewhere that runs programs."""

    url: str
    session_id: str
    """The session's id on its server; for a session in this process, a readable name."""
    id_prefix: str
    """The prefix of the ids of this client's tensors; unique to the client in a session that another client opened."""
    device: str
    """Where the session's tensors live."""
    dtype: DType
    """The session's default floating dtype."""
    remote: bool
    """Whether programs run elsewhere, so that it pays to send them before their answers are needed."""
    durable: bool
    """Whether the session stays when its client leaves it, so that nothing recorded may be lost then."""
    room: int
    """How many programs may be sent before the first of their answers is received."""

    def pack(self, message: Outgoing) -> Any:
        """Return a message in the form that :meth:`send` takes."""

    def send(self, packed: Any) -> None:
        """Submit a program, without waiting for it to run."""

    @property
    def answered(self) -> bool:
        """Whether :meth:`receive` would return without waiting for a server."""

    def receive(self) -> Answer:
        """Wait for the answer to the first unanswered program. Raises the session's TelegradError; then the programs
        that were sent after it do not run."""

    def forget(self) -> None:
        """Drop the unanswered programs: their answers will not be received."""

    def function(self, name: str) -> Applicable:
        """Return a registered function. Raises UnknownFunction."""

    def profile(self) -> dict[str, Any]:
        """The session's last profile, as data."""

    def compiled(self) -> list[dict[str, Any]]:
        """How the session's recurring programs ran, and why some are not planned."""

    def devices(self) -> list[dict[str, Any]]:
        """The devices that sessions can be opened on there, as ``GET /v1/devices`` describes them."""

    def status(self) -> dict[str, Any]:
        """The session as ``GET /v1/sessions/{session}`` describes it, at least its ``name`` or
        None, the number of its ``tensors``, and ``used_bytes`` of at most ``max_bytes``."""

    def graph(self) -> SessionGraph:
        """Return what reads the session's graph."""

    def another(self) -> Transport:
        """Open a new session with the same options, in the same place."""

    def fork(self) -> Transport:
        """Open a session in the state of this one, with its tensors under their ids. Raises NotSupported if this
        session cannot be forked at the moment."""

    def snapshot(self) -> bytes | memoryview:
        """The session's snapshot, the content of a file. Raises as :meth:`fork`."""

    def described(self) -> list[TensorInfo]:
        """The tensors of the session that have an id."""

    def abandon(self) -> None:
        """In a forked child, release what the parent process still uses, without telling the server."""

    def close(self) -> None:
        """End the session; if other clients use it, only free this client's tensors."""
