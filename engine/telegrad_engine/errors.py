"""Every error a user can meet, declared once.

An error class carries the slug and HTTP status it travels under and derives from the built-in
exception that PyTorch raises in the same place. The service turns an instance into
problem+json, the SDK turns the problem back into the same class with the same text.
"""

from __future__ import annotations

from typing import Any, ClassVar

ERRORS: dict[str, type[TelegradError]] = {}
"""All error classes by slug."""


class TelegradError(Exception):
    """Base of all of Telegrad's errors.

    ``detail`` is the text (PyTorch's words where it has them); ``context`` says where it
    happened: ``instruction`` (its index in the program), ``op``, ``ids`` and ``shapes``.
    """

    slug: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Error"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        ERRORS[cls.slug] = cls

    def __init__(self, detail: str, **context: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.context: dict[str, Any] = context

    def __str__(self) -> str:
        return self.detail


# What is well-formed but wrong -------------------------------------------------------------


class InvalidOperation(TelegradError, RuntimeError):
    """The operation cannot be done on these values."""

    slug, status, title = "invalid-operation", 422, "Invalid operation"


class ShapeMismatch(TelegradError, RuntimeError):
    """Shapes do not fit each other or the operation."""

    slug, status, title = "shape-mismatch", 422, "Shapes do not fit"


class LinAlgError(TelegradError, RuntimeError):
    """A matrix is singular, not positive-definite, or otherwise has no such decomposition or solution."""

    slug, status, title = "linalg-error", 422, "No result for this matrix"


class DTypeMismatch(TelegradError, RuntimeError):
    """A dtype that the operation does not take."""

    slug, status, title = "dtype-mismatch", 422, "Dtypes do not fit"


class NotImplementedForDType(TelegradError, NotImplementedError):
    """PyTorch has no kernel for this dtype, and neither have we."""

    slug, status, title = "not-implemented-for-dtype", 422, "Not implemented for this dtype"


class IndexOutOfBounds(TelegradError, RuntimeError):
    """An index tensor points outside, where PyTorch raises a RuntimeError."""

    slug, status, title = "index-out-of-bounds", 422, "Index out of bounds"


class DataDependentShape(TelegradError, RuntimeError):
    """The result's shape depends on values that are not known here."""

    slug, status, title = "data-dependent-shape", 422, "The shape depends on values"


class IndexOutOfRange(TelegradError, IndexError):
    """A dimension or an index is out of range."""

    slug, status, title = "index-out-of-range", 422, "Index out of range"


class InvalidArgument(TelegradError, TypeError):
    """An argument is missing, unknown or of the wrong type."""

    slug, status, title = "invalid-argument", 422, "Invalid argument"


class InvalidValue(TelegradError, ValueError):
    """An argument has the right type and a wrong value."""

    slug, status, title = "invalid-value", 422, "Invalid value"


class NumberTooLarge(TelegradError, OverflowError):
    """A whole number that takes more than 64 bits."""

    slug, status, title = "number-too-large", 422, "Number too large"


class DivisionByZero(TelegradError, ZeroDivisionError):
    """A number that is divided by is 0, where PyTorch lets Python's error through."""

    slug, status, title = "division-by-zero", 422, "Division by zero"


class InvalidChoice(TelegradError, AssertionError):
    """An argument is none of the values it may have, or two exclude each other, where PyTorch asserts it."""

    slug, status, title = "invalid-choice", 422, "Invalid choice"


class NotSupported(TelegradError, NotImplementedError):
    """A combination of arguments that PyTorch does not support, and neither do we."""

    slug, status, title = "not-supported", 422, "Not supported"


class MethodMissing(TelegradError, NotImplementedError):
    """A Function lacks the method that is called: ``forward``, ``backward`` or ``jvp``."""

    slug, status, title = "method-missing", 422, "Method missing"


# The graph ---------------------------------------------------------------------------------


class GradRequired(TelegradError, RuntimeError):
    """A gradient was asked of something that does not track gradients."""

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
    """A derivative differs from the differences of the function it belongs to."""

    slug, status, title = "gradcheck-failed", 422, "The gradient is wrong"


class CheckpointError(TelegradError, RuntimeError):
    """A checkpointed function did something else when it was run again."""

    slug, status, title = "checkpoint-mismatch", 422, "The recomputation differs"


# Registered functions ----------------------------------------------------------------------


class InvalidFunction(TelegradError, ValueError):
    """A function's definition means nothing; ``where`` in the context names the wrong instruction."""

    slug, status, title = "invalid-function", 422, "Not a function"


class LimitExceeded(TelegradError, RuntimeError):
    """A registered function is larger, or does more, than functions may."""

    slug, status, title = "limit-exceeded", 422, "A limit was passed"


class NeedsExample(TelegradError, RuntimeError):
    """Code that is traced asks for what is known only with its inputs' shapes at hand."""

    slug, status, title = "needs-example", 422, "An example is needed"


class UnknownFunction(TelegradError, AttributeError):
    """No function of this name is registered."""

    slug, status, title = "unknown-function", 404, "Unknown function"


class FunctionExists(TelegradError):
    """A function of this name is registered already."""

    slug, status, title = "function-exists", 409, "The name is taken"


# The session and the wire ------------------------------------------------------------------


class MalformedRequest(TelegradError, ValueError):
    """The request cannot be parsed."""

    slug, status, title = "malformed-request", 400, "Cannot be parsed"


class UnknownOp(TelegradError, AttributeError):
    """No op of this name exists."""

    slug, status, title = "unknown-op", 404, "Unknown op"


class UnknownTensor(TelegradError, LookupError):
    """No tensor of this id exists in the session, or it was freed."""

    slug, status, title = "unknown-tensor", 404, "Unknown tensor"


class UnknownProgram(TelegradError, LookupError):
    """A program was named by its digest that this server does not remember, or no longer."""

    slug, status, title = "unknown-program", 404, "Unknown program"


class UnknownCall(TelegradError, LookupError):
    """No pass waits for a call of this id."""

    slug, status, title = "unknown-call", 404, "Unknown call"


class UnknownSession(TelegradError, LookupError):
    """No session of this id exists."""

    slug, status, title = "unknown-session", 404, "Unknown session"


class UnknownResource(TelegradError, LookupError):
    """Nothing is served at this address."""

    slug, status, title = "not-found", 404, "Not found"


class MethodNotAllowed(TelegradError):
    """The resource exists, but not with this method."""

    slug, status, title = "method-not-allowed", 405, "Method not allowed"


class ForbiddenOrigin(TelegradError):
    """A web page of another origin made a request that the server does not allow it to make."""

    slug, status, title = "forbidden-origin", 403, "Forbidden origin"


class UnknownHost(TelegradError):
    """A request's Host header does not name the server."""

    slug, status, title = "unknown-host", 421, "Unknown host"


class RequestTimeout(TelegradError):
    """A client did not send a request in time."""

    slug, status, title = "request-timeout", 408, "Request timeout"


class HeadersTooLarge(TelegradError):
    """A request's line or headers are larger than the server reads."""

    slug, status, title = "headers-too-large", 431, "Headers too large"


class NotAcceptable(TelegradError):
    """None of the media types in Accept can be served."""

    slug, status, title = "not-acceptable", 406, "Not acceptable"


class SequenceConflict(TelegradError):
    """A sequence number was used again with another body, or out of order."""

    slug, status, title = "sequence-conflict", 409, "Sequence conflict"


class ProgramNotRun(TelegradError, RuntimeError):
    """A program that was sent before its sender knew that one before it failed."""

    slug, status, title = "not-run", 409, "Not run"


class TensorExists(TelegradError):
    """A tensor of this id exists already."""

    slug, status, title = "tensor-exists", 409, "The id is taken"


class TooLarge(TelegradError, RuntimeError):
    """More bytes or elements than the limits allow."""

    slug, status, title = "too-large", 413, "Too large"


class TimeLimitExceeded(TelegradError, TimeoutError):
    """A program ran for longer than the server lets one run."""

    slug, status, title = "time-limit-exceeded", 422, "The time limit was exceeded"


class Cancelled(TelegradError, RuntimeError):
    """A program was stopped: its session ended, its client went away, or the server is about to stop."""

    slug, status, title = "cancelled", 409, "Cancelled"


class UnsupportedMediaType(TelegradError):
    """The body's media type is not one that the server reads."""

    slug, status, title = "unsupported-media-type", 415, "Unsupported media type"


class SessionLimit(TelegradError):
    """This client holds as many sessions, or bytes, as it may."""

    slug, status, title = "quota-exceeded", 429, "Quota exceeded"


class ServerBusy(TelegradError):
    """The server is full or draining; try again later."""

    slug, status, title = "server-busy", 503, "Server busy"


class ConnectionFailed(TelegradError, ConnectionError):
    """The SDK could not reach the server."""

    slug, status, title = "connection-failed", 502, "Connection failed"


class InternalError(TelegradError):
    """A fault of the server's own."""

    slug, status, title = "internal-error", 500, "Internal error"


def from_slug(slug: str, detail: str, context: dict[str, Any]) -> TelegradError:
    """The error that a problem+json document describes; unknown slugs become InternalError."""
    return ERRORS.get(slug, InternalError)(detail, **context)
