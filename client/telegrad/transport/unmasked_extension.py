"""The WebSocket extension ``telegrad-unmasked``: the SDK sends unmasked frames to a server on the same machine.

RFC 6455 (10.3) requires masks because of proxies between client and server. The client's offer names its own address
and port, and the server accepts if it sees the same ones: then there is no proxy.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import ip_address

from websockets.exceptions import NegotiationError
from websockets.extensions import ClientExtensionFactory, Extension
from websockets.frames import Frame
from websockets.typing import ExtensionName, ExtensionParameter

NAME = ExtensionName("telegrad-unmasked")
KEY = bytes(4)
"""The masking key of every binary message, once the server has accepted."""


class Unmasked(Extension):
    """The accepted extension, which does not change how frames are laid out."""

    name = NAME

    def decode(self, frame: Frame, *, max_size: int | None = None) -> Frame:
        """The frame, unchanged."""
        return frame

    def encode(self, frame: Frame) -> Frame:
        """The frame, unchanged."""
        return frame


class Offer(ClientExtensionFactory):
    """The client's offer, with its address in hexadecimal digits and its port."""

    name = NAME

    def __init__(self, address: str, port: int) -> None:
        self._end = [("address", ip_address(address).packed.hex()), ("port", str(port))]

    def get_request_params(self) -> Sequence[ExtensionParameter]:
        """The client's address and port."""
        return self._end

    def process_response_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> Extension:
        """The extension. Raises NegotiationError if the server's answer has parameters."""
        if params:
            raise NegotiationError(f"{NAME} was accepted with parameters")
        return Unmasked()


def offers(connection: socket.socket) -> list[ClientExtensionFactory] | None:
    """The extensions to offer on a connection: this one if the client's address is a loopback address.

    On Windows, where a socket cannot send several pieces of memory in one call, masking costs no additional copy.
    """
    address, port = connection.getsockname()[:2]
    return [Offer(address, port)] if hasattr(connection, "sendmsg") and ip_address(address).is_loopback else None
