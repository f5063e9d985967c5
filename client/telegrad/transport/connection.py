"""Certificates, proxies, errors and retries that a session's stream and its HTTP requests share."""

from __future__ import annotations

import json
import os
import random
import re
import ssl
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from telegrad_engine import errors
from telegrad_engine.errors import ConnectionFailed, InvalidArgument, InvalidValue
from telegrad_engine.program.frames import is_loopback

from . import progress
from .base import Verify

CONNECT_S = 10.0
"""Seconds in which a connection must be made."""
RETRY_S = 60.0
"""Seconds, by default, in which requests are repeated."""
QUOTA_S = 10.0
"""The most seconds of that if memory or sessions of the user's own are too many: only the user can free them."""
FIRST_S, MAX_S = 0.25, 15.0
"""The first and the longest random delay beyond the seconds that the server asks for."""
USED_UP = 429
REFUSED = frozenset({USED_UP, 503})
JITTER = random.SystemRandom()
"""Draws random delays, and leaves the state of the user's ``random`` alone."""
T = TypeVar("T")


def not_telegrad(url: str, reason: str) -> errors.ConnectionFailed:
    """The error for an answer that does not come from a Telegrad server."""
    return errors.ConnectionFailed(f"{url} does not answer as a Telegrad server: {reason}")


def problem_to_error(url: str, status: int, body: bytes | memoryview) -> errors.TelegradError:
    """The exception that local code would have raised, from a problem+json answer."""
    try:
        problem = json.loads(bytes(body))
        slug = str(problem.pop("type")).removeprefix(errors.TYPE_PREFIX)
        detail = str(problem.pop("detail"))
    except (ValueError, KeyError, AttributeError):
        return not_telegrad(url, f"its answer {status} is not a problem document")
    context = {k: v for k, v in problem.items() if k not in ("title", "status", "instance", "sequence")}
    return errors.from_slug(slug, detail, context)


def ssl_context(verify: Verify = True) -> ssl.SSLContext:
    """The SSL context for ``verify``.

    That is True for the system's certificates, the path of a PEM file, a context, or False for no verification.

    If the system has no certificates, httpx's default context is used. Raises InvalidValue for a path without
    certificates, InvalidArgument for anything else.
    """
    if isinstance(verify, ssl.SSLContext):
        return verify
    if isinstance(verify, bool):
        if verify:
            return _of_the_system(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if not isinstance(verify, (str, os.PathLike)):
        raise InvalidArgument(f"verify is an SSLContext, a path or a bool, not {type(verify).__name__}")
    try:
        return ssl.create_default_context(cafile=verify)
    except OSError as error:
        raise InvalidValue(f"verify={os.fspath(verify)!r}: no certificates can be read there: {error}") from None


@lru_cache(maxsize=4)
def _of_the_system(cafile: str | None, capath: str | None) -> ssl.SSLContext:
    """The context with the system's certificates, or those that the two variables name. Reading them takes 30 ms."""
    context, paths = ssl.create_default_context(), ssl.get_default_verify_paths()
    found = context.cert_store_stats()["x509_ca"] or paths.cafile or paths.capath
    return context if found else httpx.create_ssl_context()


class Credentials:
    """The headers that authenticate a client; its ``repr`` does not show the key.

    Raises InvalidArgument or InvalidValue, without the key in the text, for what cannot be one.
    """

    def __init__(self, api_key: str | None = None) -> None:
        if api_key is not None and not isinstance(api_key, str):
            raise InvalidArgument(f"api_key is a string, not {type(api_key).__name__}")
        self._api_key = None if api_key is None else api_key.strip()  # a key from a file ends with a line break
        if self._api_key is not None and not re.fullmatch(r"[!-~]*", self._api_key):
            raise InvalidValue("api_key has characters that an API key cannot have")

    def __repr__(self) -> str:
        return f"<credentials: {'no API key' if self._api_key is None else 'an API key'}>"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request to the server."""
        return {} if self._api_key is None else {"authorization": f"Bearer {self._api_key}"}


class Refusal(NamedTuple):
    """The refusal of a request that may be repeated."""

    after_s: float
    """The seconds after which it may be repeated."""
    is_own_quota: bool = False
    """Whether memory or sessions of the user's own are too many."""


class Reply(NamedTuple):
    """The parts of an HTTP response that a program needs."""

    status: int
    body: bytes | memoryview
    labels: Mapping[str, str] = {}
    """The labels that the answer's metadata must have."""
    observed: bool = False
    """Whether a header says that somebody observes the session."""
    refusal: Refusal | None = None
    """The refusal of a request that had no effect and may be repeated; None for any other answer."""


def proxy_of(url: str) -> str | None:
    """The proxy that the environment names for an address (``HTTPS_PROXY``, ``ALL_PROXY`` and so on), or None.

    Addresses in ``NO_PROXY`` and this machine have none.
    """
    address = urlsplit(url)
    proxies, host = getproxies(), address.hostname or ""
    found = proxies.get(address.scheme) or proxies.get("all")
    if not found or is_loopback(host) or proxy_bypass(address.netloc.rpartition("@")[2]):
        return None
    return found if "://" in found else f"http://{found}"


def failure(url: str, error: Exception) -> ConnectionFailed:
    """The error for a server that cannot be reached, saying what to do."""
    if isinstance(error, (TimeoutError, httpx.TimeoutException)):
        return ConnectionFailed(f"{url} did not answer in time")
    reason = str(error) or type(error).__name__
    if "WRONG_VERSION_NUMBER" in reason:
        return ConnectionFailed(
            f"cannot reach {url}: the server there does not speak TLS. Its address begins with http:"
        )
    return ConnectionFailed(f"cannot reach {url}: {reason}. Is a server running there? `telegrad serve` starts one.")


# Busy servers --------------------------------------------------------------------------------
#
# A server that refuses a request before it has done anything answers with a 429 or a 503 with ``Retry-After``. Other
# errors are never repeated here, nor is a program that the server stopped for lack of memory: parts of it have run.


def refusal(status: int, headers: Mapping[str, str], body: bytes | memoryview) -> Refusal | None:
    """The refusal in an answer; None if the request was not refused, or must not be repeated.

    A date in ``Retry-After``, which our servers never send, counts as one second.
    """
    asked = headers.get("retry-after")
    if status not in REFUSED or asked is None:
        return None
    try:
        problem = json.loads(bytes(body))
    except ValueError:
        problem = None
    found = problem if isinstance(problem, dict) else {}
    if "sequence" in found:  # its number is used up: it has been recorded with this answer
        return None
    own = status == USED_UP and found.get("quota") in ("memory", "sessions")
    return Refusal(float(asked) if asked.isdecimal() else 1.0, own)


def repeated(attempt: Callable[[], T], refused: Callable[[T], Refusal | None], where: str, seconds: float) -> T:
    """Return the result of ``attempt()``, repeated as long as ``refused(result)`` is not None.

    It is repeated for at most ``seconds``, or at most ``QUOTA_S`` seconds if a quota of the user's own is used up. The
    pauses are at least as long as the refusal says, and longer by a random time that grows exponentially. While it
    waits, a progress bar says so.
    """
    result = attempt()
    if refused(result) is None:
        return result
    # Most processes never need it, and it imports asyncio.
    from tenacity import RetryCallState, Retrying, retry_if_result, stop_before_delay, wait_exponential

    most_further = wait_exponential(multiplier=FIRST_S, max=MAX_S)

    def refusal_of(state: RetryCallState) -> Refusal:
        return refused(state.outcome.result()) or Refusal(0.0)  # type: ignore[union-attr]

    def is_enough(state: RetryCallState) -> bool:
        most = min(seconds, QUOTA_S) if refusal_of(state).is_own_quota else seconds
        return stop_before_delay(most)(state)

    retrying = Retrying(
        retry=retry_if_result(lambda found: refused(found) is not None),
        wait=lambda state: refusal_of(state).after_s + JITTER.uniform(0.0, most_further(state)),
        stop=is_enough,
        retry_error_callback=lambda state: state.outcome.result(),  # type: ignore[union-attr]
    )
    known = [result]  # the first attempt is over
    with progress.waiting(f"{where} is busy, waiting"):
        found: T = retrying(lambda: known.pop() if known else attempt())
    return found
