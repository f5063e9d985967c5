"""Sessions on a server: programs are sent over a stream or as requests, all else over HTTP."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from telegrad_engine import __version__, errors
from telegrad_engine.dtypes import DType, parse
from telegrad_engine.program import compression
from telegrad_engine.program.registered_functions import Applicable, from_entry
from telegrad_engine.program.result import Answer
from telegrad_engine.program.wire import Outgoing, decode_answer

from . import progress
from .base import ID_PREFIX, Verify
from .connection import CONNECT_S, failure, not_telegrad, problem_to_error, proxy_of, ssl_context
from .http_fallback import HttpFallback
from .stream import Stream
from .websocket import Refused

LEAVE_S = 5.0
"""How many seconds a client that closes its session waits for the server's answer."""
PER_TTL = 4
"""How many heartbeats are sent in the time that the server waits for one, so that a few may be lost."""


class Heartbeats:
    """The heartbeats of one session, until :meth:`stop` or the end of the process."""

    def __init__(self, client: httpx.Client, session_id: str, ttl_s: float) -> None:
        self._stopped = threading.Event()
        self._pid = os.getpid()
        arguments = client, f"/v1/sessions/{session_id}/heartbeat", ttl_s / PER_TTL, self._stopped
        threading.Thread(target=_beat, args=arguments, name="telegrad-heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Stop sending heartbeats. A forked child has no such thread, so there is nothing to stop."""
        if os.getpid() == self._pid:
            self._stopped.set()


def _beat(client: httpx.Client, path: str, period_s: float, stopped: threading.Event) -> None:
    while not stopped.wait(period_s):
        try:
            if client.put(path, timeout=period_s).status_code == httpx.codes.NOT_FOUND:
                return  # the session has ended; its next use raises the error
        except (httpx.HTTPError, RuntimeError):  # the server is out of reach for now, or the client is closed
            pass


class Labelled(NamedTuple):
    """A message with its labels, ready to be sent."""

    message: Outgoing
    labels: Mapping[str, str]
    body: Sequence[bytes | memoryview]


class HTTPTransport:
    """A session on a server: programs go over a stream, or as requests if there is none; all else over HTTP.

    With ``session``, it is the session of this id, which stays when this transport is closed. Otherwise it is a new
    one, which ends with the transport, or soon after this process.
    ``stream`` requires (True) or forbids (False) the stream. With ``compress``, programs and answers are compressed if
    that is worthwhile; raises InvalidOperation, naming the extra, if the library is not installed.
    """

    remote = True

    def __init__(
        self,
        url: str,
        *,
        session: str | None = None,
        timeout: float = 300.0,
        stream: bool | None = None,
        compress: str | None = None,
        verify: Verify = True,
        **options: Any,
    ) -> None:
        self.url = url.rstrip("/")
        ways = {"timeout": timeout, "stream": stream, "compress": compress, "verify": verify}
        self._options = {"session": session, **ways, **options}
        self._compressed = compress is not None
        if self._compressed and not compression.available():
            raise errors.InvalidOperation(
                "compress='zstd' needs a library that is not installed here: pip install 'telegrad[zstd]'"
            )
        self._context, self._proxy = ssl_context(verify), proxy_of(self.url)
        self._client = httpx.Client(
            base_url=self.url,
            timeout=httpx.Timeout(timeout, connect=CONNECT_S),
            verify=self._context,
            proxy=self._proxy,
            trust_env=False,  # the proxy and the certificates are chosen above, for the WebSocket too
        )
        self._attached = session is not None
        body = {k: v.name if isinstance(v, DType) else v for k, v in options.items() if v is not None}
        try:
            found = self._create({**body, "heartbeats": True}) if session is None else self._find(session)
            self.session_id: str = found["id"]
            self.device: str = found["device"]
            self.dtype = parse(found["dtype"])
            ttl_s: float | None = found["heartbeat_ttl_s"]
        except KeyError as missing:
            self._client.close()
            raise not_telegrad(self.url, f"its session has no {missing}") from None
        except BaseException:
            self._client.close()
            raise
        self.id_prefix = ID_PREFIX if session is None else f"{ID_PREFIX}{secrets.token_hex(4)}_"
        self._unanswered: deque[Outgoing] = deque()
        self._programs = self._channel(stream, timeout)
        self.room = self._programs.room
        self._heartbeats = None if ttl_s is None else Heartbeats(self._client, self.session_id, ttl_s)

    def _channel(self, stream: bool | None, timeout: float) -> Stream | HttpFallback:
        """The channel that programs are sent over."""
        path = f"/v1/sessions/{self.session_id}"
        if stream is None:
            stream = None if self._proxy is None else False
        if stream is not False:
            try:
                headers = {"user-agent": self._client.headers["user-agent"]}
                return Stream(self.url + path, headers, timeout, self._context, self._compressed)
            except OSError as error:  # a proxy may block it in any way: the server itself answered just now
                if self._compressed and isinstance(error, Refused) and error.status == 415:  # it knows no zstd
                    self._leave()
                    raise problem_to_error(self.url, error.status, error.body) from None
                if stream:
                    self._leave()
                    text = f"{self.url} takes no stream: {error}. Without stream=True, the SDK does without one"
                    raise errors.ConnectionFailed(text) from None
        return HttpFallback(self.url, f"{path}/programs", self._client, self._compressed)

    def pack(self, message: Outgoing) -> Labelled:
        """Return the message as a safetensors container."""
        labels = self._programs.labels
        return Labelled(message, labels, message.pieces(labels))

    def send(self, packed: Labelled) -> None:
        """Send a message."""
        if packed.labels.get("sequence") != self._programs.labels.get("sequence"):
            packed = self.pack(packed.message)  # others were sent again since, with new numbers
        self._programs.send(packed.body)
        self._unanswered.append(packed.message)

    @property
    def answered(self) -> bool:
        """Whether the next answer has arrived."""
        return self._programs.answered

    def receive(self) -> Answer:
        """Wait for a program's answer. If the server has forgotten the program, send it again in full."""
        message = self._unanswered.popleft()
        status, body, labels = self._programs.receive()
        if status < 400:
            return decode_answer(body, labels)
        problem = problem_to_error(self.url, status, body)
        if not isinstance(problem, errors.UnknownProgram) or message.is_whole:
            try:
                raise problem
            finally:
                del problem  # its traceback holds this frame, and the user's frames above it
        # The programs after it have not run: the server cannot know that this client has seen the error.
        later = list(self._unanswered)
        self._unanswered.clear()
        for _ in later:
            self._programs.receive()
        message.complete()
        for each in (message, *later):
            self.send(self.pack(each))
        return self.receive()

    def forget(self) -> None:
        """Drop the unanswered programs: their answers will not be received."""
        self._unanswered.clear()
        self._programs.forget()

    def function(self, name: str) -> Applicable:
        """Return a registered function, made from its definition."""
        return from_entry(self._get(f"functions/{name}"), self.function)

    def profile(self) -> dict[str, Any]:
        """The session's last profile."""
        found: dict[str, Any] = self._get("profile?events=true")
        return found

    def compiled(self) -> list[dict[str, Any]]:
        """How the session's recurring programs ran."""
        found: list[dict[str, Any]] = self._get("compiled")["items"]
        return found

    def another(self) -> HTTPTransport:
        """Open a new session with the same options on the same server."""
        return HTTPTransport(self.url, **self._options)

    def abandon(self) -> None:
        """Close this process's copies of the sockets; the parent's stay open."""
        self._programs.abandon()

    def close(self) -> None:
        """End the session on the server if it still exists. An attached one goes on without this client's tensors."""
        try:
            if self._heartbeats is not None:
                self._heartbeats.stop()
            self._programs.close()
        finally:
            self._leave()

    def _leave(self) -> None:
        path = f"/v1/sessions/{self.session_id}"
        with contextlib.suppress(httpx.HTTPError):
            if self._attached:
                program = [{"op": "free", "in": [self._own_tensors(path)]}]
                self._client.post(f"{path}/programs", json={"instructions": program}, timeout=LEAVE_S)
            else:
                self._client.delete(path, timeout=LEAVE_S)
        self._client.close()

    def _own_tensors(self, path: str) -> list[str]:
        """The ids of this client's tensors, which are consecutive in the session's list."""
        found: list[str] = []
        cursor: str | None = self.id_prefix
        while cursor is not None:
            query = httpx.QueryParams(cursor=cursor, limit=1000)
            page = self._client.get(f"{path}/tensors", params=query, timeout=LEAVE_S).raise_for_status().json()
            own = [item["id"] for item in page["items"] if item["id"].startswith(self.id_prefix)]
            found += own
            cursor = page["next_cursor"] if len(own) == len(page["items"]) else None
        return found

    def _get(self, path: str) -> Any:
        """The JSON data at a path of the session."""
        return self._request("GET", f"/v1/sessions/{self.session_id}/{path}")

    def _create(self, body: dict[str, Any]) -> Any:
        with progress.waiting(f"connecting to {self.url}"):
            return self._request("POST", "/v1/sessions", json=body)

    def _find(self, session: str) -> Any:
        """The session of this id, to attach to."""
        with progress.waiting(f"connecting to {self.url}"):
            try:
                found = self._request("GET", f"/v1/sessions/{quote(session, safe='')}")
            except (errors.UnknownSession, errors.UnknownResource):
                raise errors.UnknownSession(
                    f"session {session} is not at {self.url}: it has ended, or is another server's"
                ) from None
        if found.get("version") != __version__:
            theirs = found.get("version", "of an unknown version")
            raise errors.InvalidOperation(
                f"session {session} is on a server with Telegrad {theirs}, and this SDK is {__version__}: "
                "attaching to a session needs the same version"
            )
        return found

    def _request(self, method: str, path: str, **content: Any) -> Any:
        """The answer to a request, as JSON data."""
        try:
            response = self._client.request(method, path, **content)
        except httpx.InvalidURL as error:
            raise errors.ConnectionFailed(f"{self.url!r} is not an address: {error}") from None
        except httpx.HTTPError as error:
            raise failure(self.url, error) from None
        if response.is_error:
            raise problem_to_error(self.url, response.status_code, response.content)
        try:
            found = response.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise not_telegrad(self.url, f"its answer {response.status_code} is not a JSON object")
        return found
