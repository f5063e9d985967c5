"""All error classes of the public API.

An error class has a slug and an HTTP status, and derives from the built-in exception that PyTorch raises in the same
case. The service converts an instance to problem+json, and the SDK converts it back to the same class with the same
text.
"""

from __future__ import annotations

from typing import Any, ClassVar

ERRORS: dict[str, type[TelegradError]] = {}
"""All error classes by slug."""


class TelegradError(Exception):
    """The base class of all Telegrad errors.

    ``detail`` is the text, which is PyTorch's if PyTorch has one. ``context`` says where the error occurred:
    ``instruction`` (its index in the program), ``op``, ``ids`` and ``shapes``.
    """

    slug: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Error"
    retry_after_s: ClassVar[int | None] = None
    """Seconds after which a repeated request may succeed; None if repeating does not help."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
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


class InvalidOperation(TelegradError, RuntimeError):
    """The operation is not possible with these values."""

    slug, status, title = "invalid-operation", 422, "Invalid operation"


class ShapeMismatch(TelegradError, RuntimeError):
    """Shapes do not fit each other or the operation."""

    slug, status, title = "shape-mismatch", 422, "Shapes do not fit"


class LinAlgError(TelegradError, RuntimeError):
    """A matrix is singular, not positive-definite, or otherwise has no such decomposition or solution."""

    slug, status, title = "linalg-error", 422, "No result for this matrix"


class DTypeMismatch(TelegradError, RuntimeError):
    """The operation does not support this dtype."""

    slug, status, title = "dtype-mismatch", 422, "Dtypes do not fit"


class NotImplementedForDType(TelegradError, NotImplementedError):
    """Neither PyTorch nor Telegrad has a kernel for this dtype."""

    slug, status, title = "not-implemented-for-dtype", 422, "Not implemented for this dtype"


class IndexOutOfBounds(TelegradError, RuntimeError):
    """An index tensor contains an index out of bounds, where PyTorch raises a RuntimeError."""

    slug, status, title = "index-out-of-bounds", 422, "Index out of bounds"


class DataDependentShape(TelegradError, RuntimeError):
    """The shape of the result depends on values that are not known."""

    slug, status, title = "data-dependent-shape", 422, "The shape depends on values"


class IndexOutOfRange(TelegradError, IndexError):
    """A dimension or an index is out of range."""

    slug, status, title = "index-out-of-range", 422, "Index out of range"


class InvalidArgument(TelegradError, TypeError):
    """An argument is missing, unknown or of the wrong type."""

    slug, status, title = "invalid-argument", 422, "Invalid argument"


class InvalidValue(TelegradError, ValueError):
    """An argument has the right type but a wrong value."""

    slug, status, title = "invalid-value", 422, "Invalid value"


class NumberTooLarge(TelegradError, OverflowError):
    """An integer does not fit in 64 bits."""

    slug, status, title = "number-too-large", 422, "Number too large"


class DivisionByZero(TelegradError, ZeroDivisionError):
    """A divisor is 0, where PyTorch raises Python's ZeroDivisionError."""

    slug, status, title = "division-by-zero", 422, "Division by zero"


class InvalidChoice(TelegradError, AssertionError):
    """An argument is not one of the allowed values, or two conflict, where PyTorch raises an AssertionError."""

    slug, status, title = "invalid-choice", 422, "Invalid choice"


class NotSupported(TelegradError, NotImplementedError):
    """Neither PyTorch nor Telegrad supports this combination of arguments."""

    slug, status, title = "not-supported", 422, "Not supported"


class MethodMissing(TelegradError, NotImplementedError):
    """A Function lacks the method that is called: ``forward``, ``backward`` or ``jvp``."""

    slug, status, title = "method-missing", 422, "Method missing"


# The graph ---------------------------------------------------------------------------------


class GradRequired(TelegradError, RuntimeError):
    """A gradient was requested for a tensor that does not require grad."""

    slug, status, title = "grad-required", 422, "No gradient is tracked here"


class InplaceOnLeaf(TelegradError, RuntimeError):
    """A leaf that requires grad was changed in place."""

    slug, status, title = "inplace-on-leaf", 422, "In-place change of a leaf"


class GraphFreed(TelegradError, RuntimeError):
    """A graph was used again after its saved tensors were freed."""

    slug, status, title = "graph-freed", 409, "The graph was freed"


class VersionConflict(TelegradError, RuntimeError):
    """A tensor saved for backward was modified afterwards."""

    slug, status, title = "version-conflict", 409, "A saved tensor was modified"


class GradcheckError(TelegradError, RuntimeError):
    """A derivative differs from the numerical differences of its function."""

    slug, status, title = "gradcheck-failed", 422, "The gradient is wrong"


class CheckpointError(TelegradError, RuntimeError):
    """A checkpointed function behaved differently when it was recomputed."""

    slug, status, title = "checkpoint-mismatch", 422, "The recomputation differs"


# Registered functions ----------------------------------------------------------------------


class InvalidFunction(TelegradError, ValueError):
    """A function's definition is invalid; ``where`` in the context names the wrong instruction."""

    slug, status, title = "invalid-function", 422, "Not a function"


class LimitExceeded(TelegradError, RuntimeError):
    """A limit is exceeded, such as the size or the work of a registered function."""

    slug, status, title = "limit-exceeded", 422, "A limit was passed"


class NeedsExample(TelegradError, RuntimeError):
    """Traced code needs information that is known only with example inputs."""

    slug, status, title = "needs-example", 422, "An example is needed"


class UnknownFunction(TelegradError, AttributeError):
    """No function with this name is registered."""

    slug, status, title = "unknown-function", 404, "Unknown function"


class ProcedureExists(TelegradError, ValueError):
    """A procedure with this name is already defined."""

    slug, status, title = "procedure-exists", 409, "The name is taken"


class FunctionExists(TelegradError):
    """A function with this name is already registered."""

    slug, status, title = "function-exists", 409, "The name is taken"


# The session and the wire ------------------------------------------------------------------


class MalformedRequest(TelegradError, ValueError):
    """The request cannot be parsed."""

    slug, status, title = "malformed-request", 400, "Cannot be parsed"


class UnknownOp(TelegradError, AttributeError):
    """No op with this name exists."""

    slug, status, title = "unknown-op", 404, "Unknown op"


class UnknownTensor(TelegradError, LookupError):
    """The session has no tensor with this id, or it was freed."""

    slug, status, title = "unknown-tensor", 404, "Unknown tensor"


class UnknownProgram(TelegradError, LookupError):
    """The server does not have a program with this digest, or no longer has it."""

    slug, status, title = "unknown-program", 404, "Unknown program"


class UnknownCall(TelegradError, LookupError):
    """No backward pass is waiting for a call with this id."""

    slug, status, title = "unknown-call", 404, "Unknown call"


class UnknownSession(TelegradError, LookupError):
    """No session with this id exists."""

    slug, status, title = "unknown-session", 404, "Unknown session"


class SessionExists(TelegradError):
    """A durable session of this name exists; ``session`` in the context is its id."""

    slug, status, title = "session-exists", 409, "The name is taken"


class SessionLost(TelegradError, LookupError):
    """A session existed, but its state cannot be had back."""

    slug, status, title = "session-lost", 410, "The session is lost"


class UnknownResource(TelegradError, LookupError):
    """There is no resource at this URL."""

    slug, status, title = "not-found", 404, "Not found"


class MethodNotAllowed(TelegradError):
    """The resource does not support this method."""

    slug, status, title = "method-not-allowed", 405, "Method not allowed"


class Unauthenticated(TelegradError, PermissionError):
    """The request has no API key, or one that is not valid."""

    slug, status, title = "unauthenticated", 401, "No valid API key"


class MissingScope(TelegradError, PermissionError):
    """The API key does not have the scope that the request needs."""

    slug, status, title = "missing-scope", 403, "The API key does not allow this"


class ForbiddenOrigin(TelegradError):
    """The server does not allow this request from a web page of another origin."""

    slug, status, title = "forbidden-origin", 403, "Forbidden origin"


class UnknownHost(TelegradError):
    """A request's Host header does not name the server."""

    slug, status, title = "unknown-host", 421, "Unknown host"


class RequestTimeout(TelegradError):
    """A client did not send a request in time."""

    slug, status, title = "request-timeout", 408, "Request timeout"


class HeadersTooLarge(TelegradError):
    """The request line or the headers are larger than the server accepts."""

    slug, status, title = "headers-too-large", 431, "Headers too large"


class NotAcceptable(TelegradError):
    """The server can produce none of the media types in Accept."""

    slug, status, title = "not-acceptable", 406, "Not acceptable"


class SequenceConflict(TelegradError):
    """A sequence number was reused with a different body, or used out of order."""

    slug, status, title = "sequence-conflict", 409, "Sequence conflict"


class ProgramNotRun(TelegradError, RuntimeError):
    """A program was not run because an earlier program failed before the client knew of the failure."""

    slug, status, title = "not-run", 409, "Not run"


class IdempotencyMismatch(TelegradError):
    """An idempotency key was reused for a different request."""

    slug, status, title = "idempotency-mismatch", 422, "The key was used for another request"


class IdempotencyConflict(TelegradError):
    """The first request with this idempotency key is still running."""

    slug, status, title = "idempotency-conflict", 409, "The first request is still running"


class PreconditionFailed(TelegradError):
    """A resource has changed since the client read it."""

    slug, status, title = "precondition-failed", 412, "Precondition failed"


class TensorExists(TelegradError):
    """A tensor with this id already exists."""

    slug, status, title = "tensor-exists", 409, "The id is taken"


class TooLarge(TelegradError, RuntimeError):
    """A size in bytes or elements exceeds a limit."""

    slug, status, title = "too-large", 413, "Too large"


class TimeLimitExceeded(TelegradError, TimeoutError):
    """A program ran for longer than the server's time limit."""

    slug, status, title = "time-limit-exceeded", 422, "The time limit was exceeded"


class Cancelled(TelegradError, RuntimeError):
    """A program was stopped because its session ended, its client disconnected or the server is stopping."""

    slug, status, title = "cancelled", 409, "Cancelled"


class UnsupportedMediaType(TelegradError):
    """The server does not accept the body's media type."""

    slug, status, title = "unsupported-media-type", 415, "Unsupported media type"


class SessionLimit(TelegradError):
    """The client or its tenant has reached its limit of sessions, bytes or waiting requests."""

    slug, status, title = "quota-exceeded", 429, "Quota exceeded"
    retry_after_s = 5


class ServerBusy(TelegradError):
    """The server is full or draining; try again later."""

    slug, status, title = "server-busy", 503, "Server busy"
    retry_after_s = 5


class SessionMoved(ServerBusy):
    """Another server has taken the session over, and this one must not use it any more."""

    slug, status, title = "session-moved", 503, "The session has moved"
    retry_after_s = 1


class ConnectionFailed(TelegradError, ConnectionError):
    """The SDK could not reach the server."""

    slug, status, title = "connection-failed", 502, "Connection failed"


class InternalError(TelegradError):
    """An error in the server itself."""

    slug, status, title = "internal-error", 500, "Internal error"

    def __str__(self) -> str:
        return self.detail if self.request_id is None else f"{self.detail} (request {self.request_id})"


def from_slug(slug: str, detail: str, context: dict[str, Any]) -> TelegradError:
    """Return the error that a problem+json document describes; an unknown slug gives an InternalError."""
    return ERRORS.get(slug, InternalError)(detail, **context)
