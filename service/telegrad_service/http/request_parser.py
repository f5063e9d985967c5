"""httptools' parser for uvicorn's HTTP protocol, with support for clients that offer an unsupported protocol.

Java's HTTP client and some modes of curl offer HTTP/2 with each request (``Upgrade: h2c``). A server may ignore that
(RFC 9110, section 7.8), but httptools treats the data after the headers as the other protocol and so loses the body.
"""

from __future__ import annotations

from types import SimpleNamespace

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

Headers = list[tuple[bytes, bytes]]
# The headers of an offer and their options in the header Connection.
OFFER = (b"upgrade", b"http2-settings")


class RequestParser:
    """Parses the requests of a connection; offers of protocols other than WebSocket are ignored."""

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol = protocol
        self._ignored = False
        self._parser = self._new_parser()

    def _new_parser(self) -> httptools.HttpRequestParser:
        protocol = self._protocol
        callbacks = SimpleNamespace(
            on_message_begin=protocol.on_message_begin,
            on_url=protocol.on_url,
            on_header=protocol.on_header,
            on_headers_complete=self._on_headers_complete,
            on_body=protocol.on_body,
            on_message_complete=self._on_message_complete,
        )
        parser = httptools.HttpRequestParser(callbacks)
        self.get_http_version = parser.get_http_version
        self.get_method = parser.get_method
        self.should_keep_alive = parser.should_keep_alive
        self.should_upgrade = parser.should_upgrade
        return parser

    def feed_data(self, data: bytes) -> None:
        """Parse data. Raises the errors of httptools' parser, but HttpParserUpgrade only for WebSockets."""
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not self._ignored:
                    raise
                self._ignored = False
                data = self._head_without_offer() + data[upgrade.args[0] :]
                self._parser = self._new_parser()

    def _on_headers_complete(self) -> None:
        protocol = self._protocol
        self._ignored = (
            self.should_upgrade()
            and not protocol._should_upgrade()
            and any(name == b"upgrade" for name, _ in protocol.headers)
        )
        if not self._ignored:
            protocol.on_headers_complete()

    def _on_message_complete(self) -> None:
        if not self._ignored:
            self._protocol.on_message_complete()

    def _head_without_offer(self) -> bytes:
        method, version = self.get_method(), self.get_http_version().encode()
        lines = [method + b" " + self._protocol.url + b" HTTP/" + version]
        for name, value in self._protocol.headers:
            if name in OFFER:
                continue
            if name == b"connection":
                options = [option for option in value.split(b",") if option.strip().lower() not in OFFER]
                value = b",".join(options)
            lines.append(name + b": " + value)
        return b"\r\n".join([*lines, b"", b""])
