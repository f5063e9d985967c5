"""How programs reach a session: over HTTP, or in this process."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any, Protocol

import httpx

from telegrad_engine import errors
from telegrad_engine.custom import Applicable, from_entry
from telegrad_engine.dtypes import DType, parse
from telegrad_engine.program import Instruction
from telegrad_engine.program.wire import SAFETENSORS, decode_answer
from telegrad_engine.session import Answer, Session

from . import progress
from .connection import CONNECT_S, UNREACHABLE, connect, failure
from .packing import Packed, Packer

PROBLEM_PREFIX = "urn:telegrad:problem:"


class Transport(Protocol):
    """A session somewhere that runs programs."""

    url: str
    device: str
    """Where the session's tensors live."""
    dtype: DType
    """The session's default floating dtype."""
    remote: bool
    """Whether programs run elsewhere, so that it pays to send them before anybody waits for their answers."""

    def pack(self, program: Sequence[Instruction]) -> Any:
        """A program as :meth:`send` takes it; what is recorded later changes nothing in it."""
        ...

    def send(self, packed: Any) -> None:
        """Have a program run, without waiting for it if it runs elsewhere."""
        ...

    @property
    def answered(self) -> bool:
        """Whether :meth:`receive` would not wait."""
        ...

    def receive(self) -> Answer:
        """What the program that was sent last brings back. Raises the session's TelegradError."""
        ...

    def function(self, name: str) -> Applicable:
        """A registered function. Raises UnknownFunction."""
        ...

    def profile(self) -> dict[str, Any]:
        """The session's last profile, as data."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


class LocalTransport:
    """A session in this process."""

    url = "local://"
    remote = False

    def __init__(self, **options: Any) -> None:
        self.session = Session(**options)
        self.device, self.dtype = self.session.device, self.session.dtype

    def pack(self, program: Sequence[Instruction]) -> Sequence[Instruction]:
        """The program itself: it does not travel."""
        return program

    def send(self, packed: Sequence[Instruction]) -> None:
        """Keep the program for when its answer is asked for."""
        self._program = packed

    answered = True

    def receive(self) -> Answer:
        """Run the program."""
        return self.session.run(self._program)

    def function(self, name: str) -> Applicable:
        """A registered function."""
        return self.session.functions.find(name)

    def profile(self) -> dict[str, Any]:
        """The session's last profile."""
        from telegrad_engine.profiler import to_data

        return to_data(self.session.last_profile(), events=True)

    def close(self) -> None:
        """Drop the session's tensors."""
        self.session.suspensions.waiting.clear()
        self.session.tensors.clear()


class HTTPTransport:
    """A session on a server, over HTTP."""

    remote = True

    def __init__(self, url: str, *, timeout: float = 300.0, **options: Any) -> None:
        self.url = url.rstrip("/")
        self._client = httpx.Client(base_url=self.url, timeout=httpx.Timeout(timeout, connect=CONNECT_S))
        body = {k: v.name if isinstance(v, DType) else v for k, v in options.items() if v is not None}
        created = self._create(body)
        self.session_id: str = created["id"]
        self.device: str = created["device"]
        self.dtype = parse(created["dtype"])
        self._packer = Packer()
        headers = {**self._client.headers, "content-type": SAFETENSORS, "accept": SAFETENSORS}
        self._programs = connect(f"{self.url}/v1/sessions/{self.session_id}/programs", headers, timeout, self._client)

    def pack(self, program: Sequence[Instruction]) -> Packed:
        """The program as a safetensors container."""
        return self._packer.pack(program)

    def send(self, packed: Packed) -> None:
        """Send a program."""
        self._sent = packed
        try:
            self._programs.send(packed.body)
        except UNREACHABLE as error:
            raise failure(self.url, error) from None

    @property
    def answered(self) -> bool:
        """Whether the answer is here."""
        return self._programs.answered

    def receive(self) -> Answer:
        """Wait for a program's answer; a program that the server has forgotten is sent again, whole."""
        try:
            status, body = self._programs.receive()
        except UNREACHABLE as error:
            raise failure(self.url, error) from None
        if status < 400:
            return decode_answer(body)
        problem = problem_to_error(self.url, status, body)
        if not isinstance(problem, errors.UnknownProgram) or self._sent.whole is None:
            raise problem
        self.send(Packed(self._sent.whole()))
        return self.receive()

    def function(self, name: str) -> Applicable:
        """A registered function, from its definition."""
        return from_entry(self._get(f"functions/{name}"), self.function)

    def profile(self) -> dict[str, Any]:
        """The session's last profile."""
        found: dict[str, Any] = self._get("profile?events=true")
        return found

    def close(self) -> None:
        """End the session on the server, as well as can be: it may be gone already."""
        self._programs.close()
        with contextlib.suppress(httpx.HTTPError):
            self._client.delete(f"/v1/sessions/{self.session_id}", timeout=5.0)
        self._client.close()

    def _get(self, path: str) -> Any:
        """What the session has under a path, as JSON data."""
        try:
            response = self._client.get(f"/v1/sessions/{self.session_id}/{path}")
        except httpx.HTTPError as error:
            raise failure(self.url, error) from None
        if response.is_error:
            raise problem_to_error(self.url, response.status_code, response.content)
        return response.json()

    def _create(self, body: dict[str, Any]) -> Any:
        try:
            with progress.waiting(f"connecting to {self.url}"):
                response = self._client.post("/v1/sessions", json=body)
        except httpx.InvalidURL as error:
            raise errors.ConnectionFailed(f"{self.url!r} is not an address: {error}") from None
        except httpx.HTTPError as error:
            raise failure(self.url, error) from None
        if response.is_error:
            raise problem_to_error(self.url, response.status_code, response.content)
        return response.json()


def problem_to_error(url: str, status: int, body: bytes) -> errors.TelegradError:
    """The exception that local code would have raised, from a problem+json answer."""
    try:
        problem = json.loads(body)
        slug = str(problem.pop("type")).removeprefix(PROBLEM_PREFIX)
        detail = str(problem.pop("detail"))
    except (ValueError, KeyError, AttributeError):
        return errors.InternalError(f"{url} answered {status} without a problem document")
    context = {k: v for k, v in problem.items() if k not in ("title", "status", "instance")}
    return errors.from_slug(slug, detail, context)
