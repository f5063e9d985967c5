"""How programs reach a session: over HTTP, or in this process."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import httpx

from telegrad_engine import errors
from telegrad_engine.answer import Answer
from telegrad_engine.custom import Applicable, from_entry
from telegrad_engine.dtypes import DType, parse
from telegrad_engine.program import Instruction, compression
from telegrad_engine.program.wire import SAFETENSORS, decode_answer
from telegrad_engine.session import Session

from . import progress
from .connection import CONNECT_S, connect, failure, is_proxied
from .packing import Packed, Packer, Remembered, named
from .posts import Posts
from .problems import problem_to_error
from .stream import Stream
from .websocket import Refused


class Transport(Protocol):
    """A session somewhere that runs programs."""

    url: str
    device: str
    """Where the session's tensors live."""
    dtype: DType
    """The session's default floating dtype."""
    remote: bool
    """Whether programs run elsewhere, so that it pays to send them before anybody waits for their answers."""
    room: int
    """How many programs may be sent before the first of their answers is received."""

    def pack(self, program: Sequence[Instruction] | Remembered) -> Any:
        """A program as :meth:`send` takes it; what is recorded later changes nothing in it.

        A remote session's has ``remembered``, and the program may be one that was.
        """
        ...

    def send(self, packed: Any) -> None:
        """Have a program run, without waiting for it if it runs elsewhere."""
        ...

    @property
    def answered(self) -> bool:
        """Whether :meth:`receive` would not wait."""
        ...

    def receive(self) -> Answer:
        """What the first unanswered program brings back. Raises the session's TelegradError: then those sent before
        that was known do not run."""
        ...

    def forget(self) -> None:
        """Nobody will receive what is unanswered."""
        ...

    def function(self, name: str) -> Applicable:
        """A registered function. Raises UnknownFunction."""
        ...

    def profile(self) -> dict[str, Any]:
        """The session's last profile, as data."""
        ...

    def compiled(self) -> list[dict[str, Any]]:
        """How the session's programs ran that recur: those that are compiled, and why the others are not."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


class LocalTransport:
    """A session in this process."""

    url = "local://"
    remote = False
    room = 1

    def __init__(self, **options: Any) -> None:
        self.session = Session(**options)
        self.device, self.dtype = self.session.device, self.session.environment.dtype

    def pack(self, program: Any) -> Sequence[Instruction]:
        """The program itself: it does not travel."""
        known: Sequence[Instruction] = program
        return known

    def send(self, packed: Sequence[Instruction]) -> None:
        """Keep the program for when its answer is asked for."""
        self._program = packed

    answered = True

    def receive(self) -> Answer:
        """Run the program."""
        return self.session.run(self._program)

    def forget(self) -> None:
        """Nothing: what is not received has not run."""

    def function(self, name: str) -> Applicable:
        """A registered function."""
        return self.session.functions.find(name)

    def profile(self) -> dict[str, Any]:
        """The session's last profile."""
        from telegrad_engine.profiler import to_data

        return to_data(self.session.last_profile(), events=True)

    def compiled(self) -> list[dict[str, Any]]:
        """Nothing: in this process no program is compiled."""
        return []

    def close(self) -> None:
        """Drop the session's tensors."""
        self.session.suspensions.waiting.clear()
        self.session.tensors.clear()


class Message(NamedTuple):
    """A program as it is to be sent."""

    packed: Packed
    labels: Mapping[str, str]
    body: Sequence[bytes | memoryview]

    @property
    def remembered(self) -> Remembered | None:
        """The program as one that the server remembers, if it does."""
        return self.packed.remembered


class HTTPTransport:
    """A session on a server: programs by its stream, or by requests where there is none; all else over HTTP.

    ``stream`` says that it must be the stream, or must not. With ``compress``, programs and answers are compressed
    where that is worth it; raises InvalidOperation, naming the extra, where the library for it is missing.
    """

    remote = True

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 300.0,
        stream: bool | None = None,
        compress: str | None = None,
        **options: Any,
    ) -> None:
        self.url = url.rstrip("/")
        self._compressed = compress is not None
        if self._compressed and not compression.available():
            raise errors.InvalidOperation(
                "compress='zstd' needs a library that is not installed here: pip install 'telegrad[zstd]'"
            )
        self._client = httpx.Client(base_url=self.url, timeout=httpx.Timeout(timeout, connect=CONNECT_S))
        body = {k: v.name if isinstance(v, DType) else v for k, v in options.items() if v is not None}
        created = self._create(body)
        self.session_id: str = created["id"]
        self.device: str = created["device"]
        self.dtype = parse(created["dtype"])
        self._packer = Packer()
        self._unanswered: deque[Packed] = deque()
        self._programs = self._channel(stream, timeout)
        self.room = self._programs.room

    def _channel(self, stream: bool | None, timeout: float) -> Stream | Posts:
        """The way that programs go."""
        path = f"{self.url}/v1/sessions/{self.session_id}"
        if stream is None:
            stream = None if not is_proxied(self.url) else False
        if stream is not False:
            try:
                return Stream(path, {"user-agent": self._client.headers["user-agent"]}, timeout, self._compressed)
            except OSError as error:  # whatever a proxy does to a WebSocket: the server itself was there just now
                if self._compressed and isinstance(error, Refused) and error.status == 415:  # it knows no zstd
                    self._leave()
                    raise problem_to_error(self.url, error.status, error.body) from None
                if stream:
                    self._leave()
                    text = f"{self.url} takes no stream: {error}. Without stream=True, the SDK does without one"
                    raise errors.ConnectionFailed(text) from None
        coding = compression.ENCODING if self._compressed else "identity"  # not what httpx could unpack
        kinds = {"content-type": SAFETENSORS, "accept": SAFETENSORS, "accept-encoding": coding}
        connection = connect(f"{path}/programs", {**self._client.headers, **kinds}, timeout, self._client)
        return Posts(self.url, connection, self._compressed)

    def pack(self, program: Sequence[Instruction] | Remembered) -> Message:
        """The program as a safetensors container."""
        return self._message(named(program) if isinstance(program, Remembered) else self._packer.pack(program))

    def _message(self, packed: Packed) -> Message:
        labels = self._programs.labels
        return Message(packed, labels, packed.encode(labels))

    def send(self, message: Message) -> None:
        """Send a program."""
        expected = self._programs.labels
        if message.labels.get("sequence") != expected.get("sequence"):
            message = self._message(message.packed)  # others were sent again in the meantime
        self._programs.send(message.body)
        self._unanswered.append(message.packed)

    @property
    def answered(self) -> bool:
        """Whether the answer is here."""
        return self._programs.answered

    def receive(self) -> Answer:
        """Wait for a program's answer; a program that the server has forgotten is sent again, whole."""
        packed = self._unanswered.popleft()
        status, body, labels = self._programs.receive()
        if status < 400:
            return decode_answer(body, labels)
        problem = problem_to_error(self.url, status, body)
        if not isinstance(problem, errors.UnknownProgram) or packed.whole is None:
            raise problem
        # Those behind it have not run: the server does not know that we know what became of it.
        behind = list(self._unanswered)
        self._unanswered.clear()
        for _ in behind:
            self._programs.receive()
        for each in (Packed(packed.whole), *behind):
            self.send(self._message(each))
        return self.receive()

    def forget(self) -> None:
        """Nobody will receive what is unanswered."""
        self._unanswered.clear()
        self._programs.forget()

    def function(self, name: str) -> Applicable:
        """A registered function, from its definition."""
        return from_entry(self._get(f"functions/{name}"), self.function)

    def profile(self) -> dict[str, Any]:
        """The session's last profile."""
        found: dict[str, Any] = self._get("profile?events=true")
        return found

    def compiled(self) -> list[dict[str, Any]]:
        """How the session's programs ran that recur."""
        items: list[dict[str, Any]] = self._get("compiled")["items"]
        return items

    def close(self) -> None:
        """End the session on the server, as well as can be: it may be gone already."""
        self._programs.close()
        self._leave()

    def _leave(self) -> None:
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
