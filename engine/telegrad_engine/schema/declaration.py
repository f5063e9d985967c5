"""The parts of an op's declaration: its variants, its results, the memory that its kernel takes, and its batching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .derivative_plan import Rule

Variants = frozenset[str]
"""Where torch has an op, as the ``variants`` in its ``native_functions.yaml``: ``FUNCTION | METHOD``."""

FUNCTION: Variants = frozenset({"function"})
"""``torch.softmax(x)``"""
METHOD: Variants = frozenset({"method"})
"""``x.softmax()``, if the op takes a tensor."""
METHOD_OF_TORCH: Variants = FUNCTION | METHOD | {"method of torch"}
"""``x.view(2, 3)``, for which torch has no function."""
INPLACE: Variants = frozenset({"inplace"})
"""``x.relu_()``"""
LINALG_FUNCTION: Variants = frozenset({"linalg function"})
"""``torch.linalg.inv(x)``"""
NN_FUNCTION: Variants = frozenset({"nn function"})
"""``torch.nn.functional.softmax(x)``"""
INPLACE_ARGUMENT: Variants = frozenset({"inplace argument"})
"""``torch.nn.functional.relu(x, inplace=True)``"""
INTERNAL: Variants = frozenset()
"""None: the op is internal, as are all without a function. Only other ops and tensor methods use it."""
PRIVATE: Variants = frozenset({"private"})
"""Only derivatives and in-place ops use it, but no program, function or template."""


class Results(NamedTuple):
    """The results of an op."""

    outputs: tuple[str, ...] = ("result",)
    """Their names: several form torch's named tuple."""
    listed: bool = False
    """Whether they are a tuple of any length."""
    new: bool = False
    """Whether the op creates a tensor, so that its function takes ``requires_grad`` and ``device``."""
    truth: bool = False
    """Whether functions and methods return a Python bool instead of a 0-dim tensor."""
    constants: tuple[str, ...] = ()
    """The floating outputs that have no derivative."""
    hidden: tuple[str, ...] = ()
    """The names of further results of the kernel, which only derivatives use."""
    hidden_rule: Rule | None = None
    """Returns the Specs of the hidden results, from the inputs and attributes."""


RESULT = Results()
LIST = Results(listed=True)
NEW = Results(new=True)
TRUTH = Results(truth=True)


def named(*outputs: str) -> Results:
    """Several results, such as ``named("values", "indices")``."""
    return Results(outputs)


def hiding(*hidden: str, rule: Rule, outputs: Sequence[str] = RESULT.outputs) -> Results:
    """Results with hidden ones, whose Specs ``rule`` returns."""
    return Results(tuple(outputs), hidden=hidden, hidden_rule=rule)


SCRATCH = 0.75
"""The default scratch memory of a kernel, besides its results, as a multiple of its inputs and results."""


class MemoryUse(NamedTuple):
    """The memory that an op's kernel allocates, and the memory that its result shares with its input."""

    scratch: float | Callable[..., int] = SCRATCH
    """The memory besides the results: a multiple of inputs and results, or a function ``scratch(*inputs, **attrs)`` of
    inputs with a shape and a dtype that returns bytes."""
    blocked: bool = False
    """Whether the kernel works in blocks, so that ``scratch`` is a multiple of a block and the results."""
    view: bool = False
    """Whether the result is a view of the input."""
    may_copy: bool = False
    """Whether a view op makes a copy if the strides of its input do not allow a view."""
    strict: bool = False
    """Whether a view op raises an error if the strides of its input do not allow a view."""
    may_alias: bool = False
    """Whether a composite op may return an input or a view of one; otherwise such a result is copied."""
    repeats: bool = False
    """Whether several elements of a view may be one element of the input."""


DEFAULT_MEMORY = MemoryUse()
NO_SCRATCH = MemoryUse(0.0)
VIEW = MemoryUse(view=True)
STRICT_VIEW = MemoryUse(view=True, strict=True)
REPEATING_VIEW = MemoryUse(view=True, repeats=True)
MAY_ALIAS = MemoryUse(may_alias=True)


def scratch(amount: float | Callable[..., int]) -> MemoryUse:
    """A kernel that allocates this besides its results; see :class:`MemoryUse`."""
    return MemoryUse(amount)


def blocks(amount: float) -> MemoryUse:
    """A kernel that works in blocks and allocates this multiple of a block and the results."""
    return MemoryUse(amount, blocked=True)


def view_or_copy(copied: Callable[..., int]) -> MemoryUse:
    """A view op that copies if the strides do not allow a view; ``copied`` returns the bytes of the copy."""
    return MemoryUse(copied, view=True, may_copy=True)


class Overlap(NamedTuple):
    """The overlaps of memory that the in-place form of an op refuses, as in torch."""

    itself: bool = True
    """Whether it refuses to write to a tensor whose own elements share memory."""
    inputs: int | None = None
    """How many of the tensors, of which the written one is the first, must not overlap it partly; None means all."""
    whole: bool = False
    """Whether these must not share all of the written memory either."""


CHECKED = Overlap()
APART = Overlap(whole=True)
ONLY_ITSELF = Overlap(inputs=1)
ONLY_SECOND = Overlap(itself=False, inputs=2)
UNCHECKED = Overlap(itself=False, inputs=1)


class Batching(NamedTuple):
    """How ``vmap`` applies an op to a batch, unless that follows from other facts (``ops/batching/rules.py``)."""

    rule: Callable[[Any], Any] | None = None
    """Computes the results of a BatchedCall, with the batch as dimension 0; NotImplemented for calls not covered."""
    parts: Rule | None = None
    """``parts(F, *inputs, **attrs)`` computes the results with other ops, on batched tensors."""
    refusal: str = ""
    """The text of the error that refuses the op, if ``vmap`` does not support it."""
    dynamic: str = ""
    """The text of the error for a result whose shape depends on values, if it is not the general one."""
    in_place: str = ""
    """What the error calls the in-place op if it writes a batch to a tensor without one; by default its ATen name."""


DERIVED = Batching()
NO_BATCHING_RULE = "Batching rule not implemented for aten::{}. We could not generate a fallback."
"""A ``refusal`` of ``vmap``."""
INPLACE_ARITHMETIC = Batching(in_place="inplace arithmetic")
