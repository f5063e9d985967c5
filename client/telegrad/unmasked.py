"""The WebSocket extension by which the SDK's frames go unmasked to a server on the same machine.

RFC 6455 has clients mask what they send because of what may be between the two (10.3). The client names its own end of
the connection, and the server accepts if that is the end that it sees: then nothing is between them.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import ip_address

from websockets.exceptions import NegotiationError
from websockets.extensions import ClientExtensionFactory, Extension
from websockets.typing import ExtensionName, ExtensionParameter

NAME = ExtensionName("telegrad-unmasked")
KEY = bytes(4)
"""The masking key of every frame, once the server has accepted."""


class Unmasked(Extension):
    """The extension, as accepted. Frames look as they do without it."""

    name = NAME


class Offer(ClientExtensionFactory):
    """The client's offer, with the address of its socket and the port, in hexadecimal digits and in decimal."""

    name = NAME

    def __init__(self, address: str, port: int) -> None:
        self._end = [("address", ip_address(address).packed.hex()), ("port", str(port))]

    def get_request_params(self) -> Sequence[ExtensionParameter]:
        """Where the client is."""
        return self._end

    def process_response_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> Extension:
        """The extension. Raises NegotiationError if the server's answer has parameters."""
        if params:
            raise NegotiationError(f"{NAME} was accepted with parameters")
        return Unmasked()


def offers(connection: socket.socket) -> list[ClientExtensionFactory] | None:
    """What to offer on a connection: the extension if its own end is a loopback address, else nothing.

    Windows sends memory only in one piece: there a frame is copied anyhow.
    """
    address, port = connection.getsockname()[:2]
    return [Offer(address, port)] if hasattr(connection, "sendmsg") and ip_address(address).is_loopback else None
