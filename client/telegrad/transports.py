"""How programs reach a session: over HTTP, or in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from urllib.request import getproxies, proxy_bypass

import httpx

from telegrad_engine import errors
from telegrad_engine.dtypes import DType, parse
from telegrad_engine.program import Instruction
from telegrad_engine.program.wire import SAFETENSORS, decode_answer, encode_program
from telegrad_engine.session import Answer, Session

PROBLEM_PREFIX = "urn:telegrad:problem:"


class Transport(Protocol):
    """A session somewhere that runs programs."""

    url: str
    dtype: DType
    """The session's default floating dtype."""

    def run(self, program: Sequence[Instruction]) -> Answer:
        """Run a program and bring back what it fetched. Raises the session's TelegradError."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


class LocalTransport:
    """A session in this process."""

    url = "local://"

    def __init__(self, **options: Any) -> None:
        self.session = Session(**options)
        self.dtype = self.session.dtype

    def run(self, program: Sequence[Instruction]) -> Answer:
        """Run a program in the session here."""
        return self.session.run(program)

    def close(self) -> None:
        """Drop the session's tensors."""
        self.session.tensors.clear()


class HTTPTransport:
    """A session on a server, over HTTP."""

    def __init__(self, url: str, *, timeout: float = 300.0, **options: Any) -> None:
        self.url = url.rstrip("/")
        self._transport = httpx.HTTPTransport(proxy=_proxy(self.url))
        self._client = httpx.Client(
            base_url=self.url, timeout=httpx.Timeout(timeout, connect=10.0), transport=self._transport
        )
        body = {k: v.name if isinstance(v, DType) else v for k, v in options.items() if v is not None}
        created = self._request("POST", "/v1/sessions", json=body).json()
        self.session_id: str = created["id"]
        self.dtype = parse(created["dtype"])
        # Parsed once: every program goes to the same address with the same headers.
        self._programs = httpx.URL(f"{self.url}/v1/sessions/{self.session_id}/programs")
        self._headers = {**self._client.headers, "content-type": SAFETENSORS, "accept": SAFETENSORS}
        self._extensions = {"timeout": self._client.timeout.as_dict()}

    def run(self, program: Sequence[Instruction]) -> Answer:
        """Send a program and wait for its answer."""
        request = httpx.Request(
            "POST",
            self._programs,
            headers=self._headers,
            content=encode_program(program),
            extensions=self._extensions,
        )
        # Straight to the transport: redirects, cookies and authentication, which the client would look
        # after, have no part in a program, and cost a fifth of the round trip.
        return decode_answer(self._send(request, self._transport.handle_request).content)

    def close(self) -> None:
        """End the session on the server, as well as can be: it may be gone already."""
        with contextlib.suppress(httpx.HTTPError):
            self._client.delete(f"/v1/sessions/{self.session_id}", timeout=5.0)
        self._client.close()

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            request = self._client.build_request(method, path, **options)
        except httpx.InvalidURL as error:
            raise errors.ConnectionFailed(f"{self.url!r} is not an address: {error}") from None
        return self._send(request, self._client.send)

    def _send(self, request: httpx.Request, send: Callable[[httpx.Request], httpx.Response]) -> httpx.Response:
        try:
            response = send(request)
            response.read()
        except httpx.TimeoutException:
            raise errors.ConnectionFailed(f"{self.url} did not answer in time") from None
        except httpx.HTTPError as error:
            raise errors.ConnectionFailed(
                f"cannot reach {self.url}: {error}. Is a server running there? `telegrad serve` starts one."
            ) from None
        if response.is_error:
            raise problem_to_error(response)
        return response


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for an address, as httpx's own client would choose it."""
    address = httpx.URL(url)
    if proxy_bypass(address.host):
        return None
    proxies = getproxies()
    return proxies.get(address.scheme) or proxies.get("all")


def problem_to_error(response: httpx.Response) -> errors.TelegradError:
    """The exception that local code would have raised, from a problem+json answer."""
    try:
        problem = response.json()
        slug = str(problem.pop("type")).removeprefix(PROBLEM_PREFIX)
        detail = str(problem.pop("detail"))
    except (ValueError, KeyError, AttributeError):
        return errors.InternalError(f"{response.url} answered {response.status_code} without a problem document")
    context = {k: v for k, v in problem.items() if k not in ("title", "status", "instance")}
    return errors.from_slug(slug, detail, context)
