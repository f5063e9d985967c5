"""The WebSocket extension ``telegrad-unmasked``: a client on the same machine sends frames that are not masked.

RFC 6455 (10.3) requires masks because of proxies between client and server. The client's offer contains its own address
and port. The server accepts if it sees the same ones, because then there is no proxy.
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
    """The accepted extension: the masking key of the client's messages is zero, and their layout is unchanged."""

    name = NAME

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:
        """The frame, unchanged."""
        return frame

    def encode(self, frame: Frame) -> Frame:
        """The frame, unchanged."""
        return frame


class UnmaskedFactory(ServerExtensionFactory):
    """Answers a client's offer, given the address and port at which the server sees the client."""

    name = NAME

    def __init__(self, client: tuple[str, int] | None) -> None:
        self._client = client

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> tuple[list[ExtensionParameter], Extension]:
        """Accept. Raises NegotiationError if the client is on another machine, or behind a proxy."""
        if self._client is None or not _is_loopback(self._client[0]) or list(params) != _offer_of(*self._client):
            raise NegotiationError(f"{NAME}: the client is not at the other end of this connection")
        return [], Unmasked()


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:  # the path of a Unix socket
        return False


def _offer_of(address: str, port: int) -> list[ExtensionParameter]:
    """The parameters in the offer of a client at this address and port."""
    return [("address", ip_address(address).packed.hex()), ("port", str(port))]
