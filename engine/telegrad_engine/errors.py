"""All error classes of the public API.

An error class has a slug (its name with hyphens, unless given) and an HTTP status, and derives from the built-in
exception that PyTorch raises in the same case. The service converts an instance to problem+json, and the SDK converts
it back to the same class with the same text.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

TYPE_PREFIX = "urn:telegrad:problem:"
"""A problem document's ``type`` is this and the slug of its error."""
ERRORS: dict[str, type[TelegradError]] = {}
"""All error classes by slug."""


class TelegradError(Exception):
    """The base class of all Telegrad errors.

    ``detail`` is the text, which is PyTorch's if PyTorch has one. ``context`` says where the error occurred:
    ``instruction`` (its index in the program), ``op``, ``ids`` (a list) and ``shapes`` (by id: ``{"x": [2, 0]}``).

    Examples:
        >>> try:
        ...     tg.zeros(2) + tg.zeros(3)
        ... except tg.TelegradError as error:
        ...     print(type(error).__name__, "is a RuntimeError:", isinstance(error, RuntimeError))
        ShapeMismatch is a RuntimeError: True
    """

    slug: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Error"
    retry_after_s: ClassVar[int | None] = None
    """Seconds after which a repeated request may succeed; None if repeating does not help."""
    repeatable: ClassVar[bool] = True
    """Whether a session in the same state always meets it again; no limit, time or library of the server decides."""

    def __init_subclass__(
        cls, slug: str = "", status: int = 0, title: str = "", retry_after_s: int = 0, repeatable: bool = True
    ) -> None:
        if status:  # not for a user's own subclass, which has those of its base
            cls.slug = slug or re.sub("(?<=[a-z])(?=[A-Z])", "-", cls.__name__).lower()
            cls.status, cls.title, cls.retry_after_s = status, title, retry_after_s or None
            cls.repeatable = repeatable
            ERRORS[cls.slug] = cls

    def __init__(self, detail: str, **context: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.context: dict[str, Any] = context

    @property
    def request_id(self) -> str | None:
        """The id of the request that failed, as in the server's log; None for an error of this process."""
        found: str | None = self.context.get("request_id")
        return found

    def __str__(self) -> str:
        return self.detail


# Requests that are well-formed but wrong -------------------------------------------------------------


class InvalidOperation(TelegradError, RuntimeError, status=422, title="Invalid operation"):
    """The operation is not possible with these values."""


class ShapeMismatch(TelegradError, RuntimeError, status=422, title="Shapes do not fit"):
    """Shapes do not fit each other or the operation."""


class LinAlgError(TelegradError, RuntimeError, slug="linalg-error", status=422, title="No result for this matrix"):
    """A matrix is singular, not positive-definite, or otherwise has no such decomposition or solution.

    ``detail`` and ``context`` are those of ``TelegradError``.

    Examples:
        >>> try:
        ...     print(tg.linalg.inv(tg.zeros(2, 2)))
        ... except tg.linalg.LinAlgError:
        ...     print("singular")
        singular
    """


class DTypeMismatch(TelegradError, RuntimeError, status=422, title="Dtypes do not fit"):
    """The operation does not support this dtype."""


class NotImplementedForDType(TelegradError, NotImplementedError, status=422, title="Not implemented for this dtype"):
    """Neither PyTorch nor Telegrad has a kernel for this dtype."""


class IndexOutOfBounds(TelegradError, RuntimeError, status=422, title="Index out of bounds"):
    """An index tensor contains an index out of bounds, where PyTorch raises a RuntimeError."""


class DataDependentShape(TelegradError, RuntimeError, status=422, title="The shape depends on values"):
    """The shape of the result depends on values that are not known."""


class IndexOutOfRange(TelegradError, IndexError, status=422, title="Index out of range"):
    """A dimension or an index is out of range."""


class InvalidArgument(TelegradError, TypeError, status=422, title="Invalid argument"):
    """An argument is missing, unknown or of the wrong type."""


class InvalidValue(TelegradError, ValueError, status=422, title="Invalid value"):
    """An argument has the right type but a wrong value."""


class NumberTooLarge(TelegradError, OverflowError, status=422, title="Number too large"):
    """An integer does not fit in 64 bits."""


class DivisionByZero(TelegradError, ZeroDivisionError, status=422, title="Division by zero"):
    """A divisor is 0, where PyTorch raises Python's ZeroDivisionError."""


class InvalidChoice(TelegradError, AssertionError, status=422, title="Invalid choice"):
    """An argument is not one of the allowed values, or two conflict, where PyTorch raises an AssertionError."""


class NotSupported(TelegradError, NotImplementedError, status=422, title="Not supported"):
    """Neither PyTorch nor Telegrad supports this combination of arguments."""


class MethodMissing(TelegradError, NotImplementedError, status=422, title="Method missing"):
    """A Function lacks the method that is called: ``forward``, ``backward`` or ``jvp``."""


# The graph ---------------------------------------------------------------------------------


class GradRequired(TelegradError, RuntimeError, status=422, title="No gradient is tracked here"):
    """A gradient was requested for a tensor that does not require grad."""


class InplaceOnLeaf(TelegradError, RuntimeError, status=422, title="In-place change of a leaf"):
    """A leaf that requires grad was changed in place."""


class GraphFreed(TelegradError, RuntimeError, status=409, title="The graph was freed"):
    """A graph was used again after its saved tensors were freed."""


class VersionConflict(TelegradError, RuntimeError, status=409, title="A saved tensor was modified"):
    """A tensor saved for backward was modified afterwards."""


class GradcheckError(TelegradError, RuntimeError, slug="gradcheck-failed", status=422, title="The gradient is wrong"):
    """A derivative differs from the numerical differences of its function."""


class CheckpointError(
    TelegradError, RuntimeError, slug="checkpoint-mismatch", status=422, title="The recomputation differs"
):
    """A checkpointed function behaved differently when it was recomputed.

    ``detail`` and ``context`` are those of ``TelegradError``.

    Examples:
        >>> issubclass(tg.utils.checkpoint.CheckpointError, tg.TelegradError)
        True
    """


# Registered functions ----------------------------------------------------------------------


class InvalidFunction(TelegradError, ValueError, status=422, title="Not a function"):
    """A function's definition is invalid; ``where`` in the context names the wrong instruction."""


class LimitExceeded(TelegradError, RuntimeError, status=422, title="A limit was passed", repeatable=False):
    """A limit is exceeded, such as the size or the work of a registered function."""


class NeedsExample(TelegradError, RuntimeError, status=422, title="An example is needed"):
    """Traced code needs information that is known only with example inputs."""


class UnknownFunction(TelegradError, AttributeError, status=404, title="Unknown function", repeatable=False):
    """No function with this name is registered."""


class ProcedureExists(TelegradError, ValueError, status=409, title="The name is taken"):
    """A procedure with this name is already defined."""


class FunctionExists(TelegradError, status=409, title="The name is taken", repeatable=False):
    """A function with this name is already registered."""


# The session and the wire ------------------------------------------------------------------


class MalformedRequest(TelegradError, ValueError, status=400, title="Cannot be parsed"):
    """The request cannot be parsed."""


class UnknownOp(TelegradError, AttributeError, status=404, title="Unknown op"):
    """No op with this name exists."""


class UnknownTensor(TelegradError, LookupError, status=404, title="Unknown tensor"):
    """The session has no tensor with this id, or it was freed."""


class UnknownProgram(TelegradError, LookupError, status=404, title="Unknown program", repeatable=False):
    """The server does not have a program with this digest, or no longer has it."""


class UnknownCall(TelegradError, LookupError, status=404, title="Unknown call"):
    """No backward pass is waiting for a call with this id."""


class UnknownSession(TelegradError, LookupError, status=404, title="Unknown session"):
    """No session with this id exists."""


class SessionExists(TelegradError, status=409, title="The name is taken"):
    """A durable session of this name exists; ``session`` in the context is its id."""


class SessionLost(TelegradError, LookupError, status=410, title="The session is lost"):
    """A session existed, but its state cannot be had back."""


class UnknownResource(TelegradError, LookupError, slug="not-found", status=404, title="Not found"):
    """There is no resource at this URL."""


class MethodNotAllowed(TelegradError, status=405, title="Method not allowed"):
    """The resource does not support this method."""


class Unauthenticated(TelegradError, PermissionError, status=401, title="No valid API key"):
    """The request has no API key, or one that is not valid."""


class MissingScope(
    TelegradError, PermissionError, status=403, title="The API key does not allow this", repeatable=False
):
    """The API key does not have the scope that the request needs."""


class ForbiddenOrigin(TelegradError, status=403, title="Forbidden origin"):
    """The server does not allow this request from a web page of another origin."""


class UnknownHost(TelegradError, status=421, title="Unknown host"):
    """A request's Host header does not name the server."""


class RequestTimeout(TelegradError, status=408, title="Request timeout"):
    """A client did not send a request in time."""


class HeadersTooLarge(TelegradError, status=431, title="Headers too large"):
    """The request line or the headers are larger than the server accepts."""


class NotAcceptable(TelegradError, status=406, title="Not acceptable"):
    """The server can produce none of the media types in Accept."""


class SequenceConflict(TelegradError, status=409, title="Sequence conflict"):
    """A sequence number was reused with a different body, or used out of order."""


class ProgramNotRun(TelegradError, RuntimeError, slug="not-run", status=409, title="Not run"):
    """A program was not run because an earlier program failed before the client knew of the failure."""


class IdempotencyMismatch(TelegradError, status=422, title="The key was used for another request"):
    """An idempotency key was reused for a different request."""


class IdempotencyConflict(TelegradError, status=409, title="The first request is still running"):
    """The first request with this idempotency key is still running."""


class PreconditionFailed(TelegradError, status=412, title="Precondition failed"):
    """A resource has changed since the client read it."""


class TensorExists(TelegradError, status=409, title="The id is taken"):
    """A tensor with this id already exists."""


class TooLarge(TelegradError, RuntimeError, status=413, title="Too large", repeatable=False):
    """A size in bytes or elements exceeds a limit.

    ``detail`` and ``context`` are those of ``TelegradError``. The session stays usable.

    Examples:
        >>> issubclass(tg.OutOfMemoryError, tg.TelegradError)
        True
    """


class TimeLimitExceeded(TelegradError, TimeoutError, status=422, title="The time limit was exceeded", repeatable=False):
    """A program ran for longer than the server's time limit."""


class Cancelled(TelegradError, RuntimeError, status=409, title="Cancelled", repeatable=False):
    """A program was stopped because its session ended, its client disconnected or the server is stopping."""


class UnsupportedMediaType(TelegradError, status=415, title="Unsupported media type"):
    """The server does not accept the body's media type."""


class SessionLimit(
    TelegradError, slug="quota-exceeded", status=429, title="Quota exceeded", retry_after_s=5, repeatable=False
):
    """The client or its tenant has reached its limit of sessions, bytes or waiting requests."""


class ServerBusy(TelegradError, status=503, title="Server busy", retry_after_s=5, repeatable=False):
    """The server is full or draining; try again later."""


class SessionMoved(ServerBusy, status=503, title="The session has moved", retry_after_s=1):
    """The session belongs to another server: that one has taken it over, or this one takes no new sessions."""


class ConnectionFailed(TelegradError, ConnectionError, status=502, title="Connection failed"):
    """The SDK could not reach the server."""


class InternalError(TelegradError, status=500, title="Internal error", repeatable=False):
    """An error in the server itself."""

    def __str__(self) -> str:
        return self.detail if self.request_id is None else f"{self.detail} (request {self.request_id})"


def from_slug(slug: str, detail: str, context: dict[str, Any]) -> TelegradError:
    """Return the error that a problem+json document describes; an unknown slug gives an InternalError."""
    return ERRORS.get(slug, InternalError)(detail, **context)
