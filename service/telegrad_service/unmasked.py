"""The WebSocket extension by which a client on the same machine sends frames that are not masked.

RFC 6455 has clients mask what they send because of what may be between the two (10.3). The client names its own end of
the connection; the server accepts if that is the end that it sees, for then nothing is between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from websockets.exceptions import NegotiationError
from websockets.extensions import Extension, ServerExtensionFactory
from websockets.frames import Frame
from websockets.typing import ExtensionName, ExtensionParameter

NAME = ExtensionName("telegrad-unmasked")


class Unmasked(Extension):
    """The extension, as accepted: the key of the client's frames is zero, so that they look as they do without it."""

    name = NAME

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:
        """The frame as it is."""
        return frame

    def encode(self, frame: Frame) -> Frame:
        """The frame as it is."""
        return frame


class Unmasking(ServerExtensionFactory):
    """What the server answers to a client's offer, by the address and port at which it sees the client."""

    name = NAME

    def __init__(self, client: tuple[str, int] | None) -> None:
        self._client = client

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> tuple[list[ExtensionParameter], Extension]:
        """Accept. Raises NegotiationError if the client is elsewhere, or something is between the two."""
        if self._client is None or not _is_loopback(self._client[0]) or list(params) != _named(*self._client):
            raise NegotiationError(f"{NAME}: the client is not at the other end of this connection")
        return [], Unmasked()


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:  # a socket in the file system
        return False


def _named(address: str, port: int) -> list[ExtensionParameter]:
    """The parameters by which a client there names its end."""
    return [("address", ip_address(address).packed.hex()), ("port", str(port))]
