"""Sessions on a server: programs are sent over a stream or as requests, all else over HTTP."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import httpx

from telegrad_engine import __version__, errors
from telegrad_engine.dtypes import DType, parse
from telegrad_engine.program import compression
from telegrad_engine.program.registered_functions import Applicable, from_entry
from telegrad_engine.program.result import Answer
from telegrad_engine.program.wire import SAFETENSORS, Outgoing, decode_answer

from . import progress
from .base import ID_PREFIX, TensorInfo, Verify
from .connection import (
    CONNECT_S,
    RETRY_S,
    Credentials,
    Reply,
    failure,
    not_telegrad,
    problem_to_error,
    proxy_of,
    refusal,
    repeated,
    ssl_context,
)
from .http_fallback import HttpFallback
from .stream import DELAYS_S, Stream, WorkerAddress
from .tracing import tracing_to
from .websocket import Refused

KEY_HEADER = "idempotency-key"
LEAVE_S = 5.0
"""How many seconds a client that closes its session waits for the server's answer."""
KEY_ERRORS = (errors.Unauthenticated, errors.MissingScope)
"""The server's own refusals of a key. A proxy that allows no stream may answer with the same statuses."""
PER_TTL = 4
"""How many heartbeats are sent in the time that the server waits for one, so that a few may be lost."""

LISTENING_S = 60.0
"""The seconds without a byte after which listening to a session begins anew; the server sends some every 15."""

PAUSE_S = 1.0
"""The seconds after which listening begins anew."""


class Heartbeats:
    """The heartbeats of one session, until :meth:`stop` or the end of the process."""

    def __init__(self, client: httpx.Client, session_id: str, ttl_s: float) -> None:
        self._client, self._path, self._period_s = client, f"/v1/sessions/{session_id}/heartbeat", ttl_s / PER_TTL
        self._stopped = threading.Event()
        self._pid = os.getpid()
        threading.Thread(target=self._send, name="telegrad-heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Stop sending heartbeats. A forked child has no such thread, so there is nothing to stop."""
        if os.getpid() == self._pid:
            self._stopped.set()

    def _send(self) -> None:
        while not self._stopped.wait(self._period_s):
            try:
                if self._client.put(self._path, timeout=self._period_s).status_code == httpx.codes.NOT_FOUND:
                    return  # the session has ended; its next use raises the error
            except (httpx.HTTPError, RuntimeError):  # the server is out of reach for now, or the client is closed
                pass


class ServerGraph:
    """The graph of a session on a server, which observes steps while somebody listens to the session's events."""

    def __init__(self, client: httpx.Client, path: str, request: Callable[..., Any]) -> None:
        self._client, self._path, self._request = client, path, request
        self._stopped = threading.Event()
        threading.Thread(target=self._listen, name="telegrad-observation", daemon=True).start()

    def folded(self, source: str, fold: str, expand: list[str], limit: int, root: str | None) -> dict[str, Any]:
        """The graph as boxes."""
        only = {} if root is None else {"root": root}
        return self._get("folded", {"source": source, "fold": fold, "expand": expand, "limit": limit} | only)

    def node(self, node: str, source: str) -> dict[str, Any]:
        """The details of a node."""
        return self._get(f"nodes/{quote(node, safe='')}", {"source": source})

    def backward(self, tensor: str, fold: str, expand: list[str]) -> dict[str, Any]:
        """The steps of a backward pass."""
        body = {"tensor": tensor, "fold": fold, "expand": expand}
        return dict(self._request("POST", f"{self._path}/graph/backward", json=body))

    def _get(self, path: str, query: Mapping[str, Any]) -> dict[str, Any]:
        return dict(self._request("GET", f"{self._path}/graph/{path}", params=query))

    def _listen(self) -> None:
        """Listen to the session's events until it ends. What they tell of the graph is read by others."""
        while not self._stopped.is_set():
            try:
                events = f"{self._path}/events?observe=true"
                with self._client.stream("GET", events, timeout=LISTENING_S) as response:
                    if response.is_client_error:
                        return
                    for _ in response.iter_raw():
                        if self._stopped.is_set():
                            return
            except (httpx.HTTPError, RuntimeError):  # the server is out of reach for now, or the client is closed
                if self._client.is_closed:
                    return
            self._stopped.wait(PAUSE_S)

    def close(self) -> None:
        """Stop listening, when the next event arrives."""
        self._stopped.set()


class LabelledMessage(NamedTuple):
    """A message with its labels, ready to be sent."""

    message: Outgoing
    labels: Mapping[str, str]
    body: Sequence[bytes | memoryview]
    span: Any = None
    """Its span, if it is traced."""


class HTTPTransport:
    """A session on a server: programs go over a stream, or as requests if there is none; all else over HTTP.

    With ``session``, it is the session of this id, which stays when this transport is closed. Otherwise it is a new
    one, which ends with the transport, or soon after this process: with ``fork`` a fork of ``session``, with
    ``snapshot`` one in the state of a snapshot.
    Requests that a busy server refuses are repeated for ``retry_s`` seconds.
    With ``direct`` the stream goes to the session's worker, past the gateway, if that can be reached.
    ``stream`` requires (True) or forbids (False) the stream. With ``compress``, programs and answers are compressed if
    that is worthwhile; raises InvalidOperation, naming the extra, if the library is not installed.
    """

    remote = True

    def __init__(
        self,
        url: str,
        *,
        session: str | None = None,
        fork: bool = False,
        snapshot: bytes | None = None,
        timeout: float = 300.0,
        stream: bool | None = None,
        compress: str | None = None,
        verify: Verify = True,
        retry_s: float = RETRY_S,
        api_key: str | Credentials | None = None,
        direct: bool = False,
        **options: Any,
    ) -> None:
        self.url = url.rstrip("/")
        self._retry_s = retry_s
        credentials = api_key if isinstance(api_key, Credentials) else Credentials(api_key)
        self._options = {
            "session": session,
            "timeout": timeout,
            "stream": stream,
            "compress": compress,
            "verify": verify,
            "retry_s": retry_s,
            "api_key": credentials,
            "direct": direct,
            **options,
        }
        """The arguments of :meth:`another`."""
        self._compressed = compress is not None
        if self._compressed and not compression.available():
            raise errors.InvalidOperation(
                "compress='zstd' needs a library that is not installed here: install telegrad[zstd]"
            )
        self._context, self._proxy = ssl_context(verify), proxy_of(self.url)
        self._tracing = tracing_to(self.url)
        self._client = httpx.Client(
            base_url=self.url,
            timeout=httpx.Timeout(timeout, connect=CONNECT_S),
            headers=credentials.headers,
            follow_redirects=False,  # the key is for this server alone
            verify=self._context,
            proxy=self._proxy,
            event_hooks={} if self._tracing is None else {"request": [self._tracing.inject]},
            trust_env=False,  # the proxy and the certificates are chosen above, for the WebSocket too
        )
        self._stays = not fork and (session is not None or bool(options.get("durable")))
        """Whether the session stays when this client leaves it."""
        body = {k: v.name if isinstance(v, DType) else v for k, v in options.items() if v is not None}
        try:
            if snapshot is not None:
                with progress.waiting(f"sending a snapshot to {self.url}"):
                    media = {"content-type": SAFETENSORS}
                    found = self._made("/v1/sessions/import", media, params={"heartbeats": "true"}, content=snapshot)
            elif session is None:
                with progress.waiting(f"connecting to {self.url}"):
                    found = self._made("/v1/sessions", json={"heartbeats": not self._stays, **body})
            elif fork:
                found = self._made(f"/v1/sessions/{session}/fork", json={"heartbeats": True})
            else:
                found = self._find(session)
            self.session_id: str = found["id"]
            self.device: str = found["device"]
            self.dtype = parse(found["dtype"])
            self.durable: bool = found["durable"]
            ttl_s: float | None = found["heartbeat_ttl_s"]
        except KeyError as missing:
            self._client.close()
            raise not_telegrad(self.url, f"its session has no {missing}") from None
        except BaseException:
            self._client.close()
            raise
        shared = self._stays or session is not None or snapshot is not None
        self.id_prefix = f"{ID_PREFIX}{secrets.token_hex(4)}_" if shared else ID_PREFIX
        self._unanswered: deque[LabelledMessage] = deque()
        self._programs = self._channel(stream, timeout, direct)
        self.room = self._programs.room
        self._heartbeats = None if ttl_s is None else Heartbeats(self._client, self.session_id, ttl_s)

    def _channel(self, stream: bool | None, timeout: float, direct: bool) -> Stream | HttpFallback:
        """The channel that programs are sent over."""
        path = f"/v1/sessions/{self.session_id}"
        if stream is None:
            stream = None if self._proxy is None else False
        if stream is not False:
            try:
                own = self._client.headers
                headers = {name: own[name] for name in ("user-agent", "authorization") if name in own}
                ways = self._compressed, self.durable, self._retry_s, self._locate if direct else None
                return Stream(self.url + path, headers, timeout, self._context, *ways)
            except OSError as error:  # a proxy may block it in any way: the server itself answered just now
                if isinstance(error, Refused):
                    problem = problem_to_error(self.url, error.status, error.body)
                    without_zstd = self._compressed and error.status == errors.UnsupportedMediaType.status
                    if without_zstd or isinstance(problem, KEY_ERRORS):
                        self._leave()
                        raise problem from None
                if stream:
                    self._leave()
                    text = f"{self.url} takes no stream: {error}. Without stream=True, the SDK does without one"
                    raise errors.ConnectionFailed(text) from None
        return HttpFallback(self.url, f"{path}/programs", self._client, self._compressed, self._retry_s)

    def _locate(self) -> WorkerAddress | None:
        """Where the session's worker is; None if the server is none of several, or does not say."""
        try:
            found = self._client.get(f"/v1/sessions/{self.session_id}/endpoint", timeout=CONNECT_S)
            place = found.json() if found.status_code == httpx.codes.OK else {}
            return WorkerAddress(str(place["url"]), str(place["token"])) if place.get("url") else None
        except (httpx.HTTPError, ValueError, KeyError, AttributeError):
            return None

    def pack(self, message: Outgoing) -> LabelledMessage:
        """Return the message as a safetensors container."""
        labels = self._programs.labels
        if self._tracing is None:
            return LabelledMessage(message, labels, message.pieces(labels))
        span, context = self._tracing.start(message)
        return LabelledMessage(message, labels, message.pieces({**labels, **context}), span)

    def send(self, packed: LabelledMessage) -> None:
        """Send a message."""
        if packed.labels.get("sequence") != self._programs.labels.get("sequence"):
            packed = self.pack(packed.message)  # others were sent again since, with new numbers
        self._programs.send(packed.body)
        self._unanswered.append(packed)

    @property
    def answered(self) -> bool:
        """Whether the next answer has arrived."""
        return self._programs.answered

    def receive(self) -> Answer:
        """Wait for a program's answer. If the server has forgotten the program, send it again in full."""
        packed = self._unanswered.popleft()
        message = packed.message
        status, body, labels, observed, _ = self._receive(packed)
        if status < 400:
            answer = decode_answer(body, labels)
            return answer._replace(observed=True) if observed else answer
        problem = problem_to_error(self.url, status, body)
        if not isinstance(problem, errors.UnknownProgram) or message.is_whole:
            try:
                raise problem
            finally:
                del problem  # its traceback holds this frame, and the user's frames above it
        # The programs after it have not run: the server cannot know that this client has seen the error.
        later = list(self._unanswered)
        self._unanswered.clear()
        for each in later:
            self._receive(each)
        message.complete()
        for each in (packed, *later):
            self.send(self.pack(each.message))
        return self.receive()

    def _receive(self, packed: LabelledMessage) -> Reply:
        """The next reply, which is that to this message. It ends the message's span, if that is traced."""
        if self._tracing is None:
            return self._programs.receive()
        return self._tracing.receive(packed.span, self._programs.receive)

    def forget(self) -> None:
        """Drop the unanswered programs: their answers will not be received."""
        self._unanswered.clear()
        self._programs.forget()

    def function(self, name: str) -> Applicable:
        """Return a registered function, made from its definition."""
        return from_entry(self._get(f"functions/{name}"), self.function)

    def profile(self) -> dict[str, Any]:
        """The session's last profile."""
        return dict(self._get("profile?events=true"))

    def compiled(self) -> list[dict[str, Any]]:
        """How the session's recurring programs ran."""
        return list(self._get("compiled")["items"])

    def devices(self) -> list[dict[str, Any]]:
        """The devices of the server."""
        return list(self._request("GET", "/v1/devices?limit=100")["items"])

    def status(self) -> dict[str, Any]:
        """The server's description of the session."""
        return dict(self._request("GET", f"/v1/sessions/{self.session_id}"))

    def graph(self) -> ServerGraph:
        """Return what reads the session's graph."""
        return ServerGraph(self._client, f"/v1/sessions/{self.session_id}", self._request)

    def another(self) -> HTTPTransport:
        """Open a new session with the same options on the same server."""
        return HTTPTransport(self.url, **self._options)

    def fork(self) -> HTTPTransport:
        """Open a session in the state of this one on the same server."""
        forked = HTTPTransport(self.url, **{**self._options, "session": self.session_id, "fork": True})
        forked._options = self._options
        return forked

    def snapshot(self) -> bytes:
        """The session's snapshot."""
        return self._response("GET", f"/v1/sessions/{self.session_id}/snapshot").content

    def described(self) -> list[TensorInfo]:
        """The tensors of the session that have an id."""
        path = f"/v1/sessions/{self.session_id}/tensors"
        items = _pages(lambda query: self._request("GET", path, params=query))
        return [TensorInfo(item, self._has_grad(path, item)) for item in items]

    def _has_grad(self, path: str, item: Mapping[str, Any]) -> bool:
        if not (item["requires_grad"] and item["is_leaf"]):
            return False
        try:
            self._request("GET", f"{path}/{item['id']}/grad", params={"data": "false"})
        except errors.UnknownResource:
            return False
        return True

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
        path, client = f"/v1/sessions/{self.session_id}", self._client

        def page(query: dict[str, Any]) -> Any:
            return client.get(f"{path}/tensors", params=query, timeout=LEAVE_S).raise_for_status().json()

        with contextlib.suppress(httpx.HTTPError):
            if self._stays:
                own = [item["id"] for item in _pages(page, prefix=self.id_prefix)]
                program = [{"op": "free", "inputs": [own]}]
                client.post(f"{path}/programs", json={"instructions": program}, timeout=LEAVE_S)
            else:
                client.delete(path, timeout=LEAVE_S)
        client.close()

    def _get(self, path: str) -> Any:
        """The JSON data at a path of the session."""
        return self._request("GET", f"/v1/sessions/{self.session_id}/{path}")

    def _made(self, path: str, headers: Mapping[str, str] = {}, **content: Any) -> Any:
        """Make a session. The request has a key, so that it makes one session even if its answer is lost."""
        return self._request("POST", path, headers={**headers, KEY_HEADER: secrets.token_urlsafe(16)}, **content)

    def _find(self, session: str) -> Any:
        """The session of this id, to attach to."""
        with progress.waiting(f"connecting to {self.url}"):
            try:
                found = self._request("GET", f"/v1/sessions/{quote(session, safe='')}")
            except (errors.UnknownSession, errors.UnknownResource) as error:
                raise errors.UnknownSession(
                    f"session {session} is not at {self.url}: it has ended, or is another server's",
                    request_id=error.request_id,
                ) from None
        if found.get("version") != __version__:
            theirs = found.get("version", "of an unknown version")
            raise errors.InvalidOperation(
                f"session {session} is on a server with Telegrad {theirs}, and this SDK is {__version__}: "
                "attaching to a session needs the same version"
            )
        return found

    def _response(self, method: str, path: str, **content: Any) -> httpx.Response:
        """The answer to a request, which is repeated while the server refuses it because it is busy.

        Raises the error of a problem document.
        """
        try:
            response = repeated(
                lambda: self._sent(method, path, **content),
                lambda found: refusal(found.status_code, found.headers, found.content),
                urlsplit(self.url).netloc,
                self._retry_s,
            )
        except httpx.InvalidURL as error:
            raise errors.ConnectionFailed(f"{self.url!r} is not an address: {error}") from None
        except httpx.HTTPError as error:
            raise failure(self.url, error) from None
        if response.is_error:
            raise problem_to_error(self.url, response.status_code, response.content)
        return response

    def _sent(self, method: str, path: str, **content: Any) -> httpx.Response:
        """Send a request, again if it has a key and the connection breaks, or while the server still answers it."""
        delays = [*DELAYS_S] if KEY_HEADER in content.get("headers", ()) else []
        while True:
            try:
                response = self._client.request(method, path, **content)
                if not delays or response.status_code != errors.IdempotencyConflict.status:
                    return response
                problem = problem_to_error(self.url, response.status_code, response.content)
                if not isinstance(problem, errors.IdempotencyConflict):
                    return response
            except httpx.TransportError as error:
                if not delays or isinstance(error, (httpx.ConnectError, httpx.TimeoutException)):
                    raise
            time.sleep(delays.pop(0))

    def _request(self, method: str, path: str, **content: Any) -> Any:
        """The answer to a request, as JSON data."""
        response = self._response(method, path, **content)
        try:
            found = response.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise not_telegrad(self.url, f"its answer {response.status_code} is not a JSON object")
        return found


def _pages(get: Callable[[dict[str, Any]], Any], **query: Any) -> Iterator[Any]:
    """The items of a list, of which ``get`` gets the page that a query asks for."""
    query["limit"] = 1000
    while query.get("cursor", "") is not None:
        page = get(query)
        yield from page["items"]
        query["cursor"] = page["next_cursor"]
