"""Products other than matmul: tensordot, Kronecker and cross products, multi_dot, the trace, and einsum."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

from ...dtypes import FLOATING, bool_, int64, widened
from ...errors import DTypeMismatch, InvalidOperation, InvalidValue, ShapeMismatch
from ...schema.declaration import FUNCTION, INPLACE, LINALG_FUNCTION, MAY_ALIAS, METHOD, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Arrays, Int, IntsKind, Items, ManyArrays, Number, OptionalInt, Str
from ...schema.promotion import FLOAT32_ON_CPU, LOWER, LOWER_ON_CUDA, PROMOTE_ON_CUDA, Autocast, Policy
from ...schema.signature import REQUIRED, Param, Signature
from ...shapes import Spec, broadcast_shapes, expands_to, size_at, wrap_dim, wrap_dims
from ..batching import math_rules
from ..guards import check_dtype, check_no_bools, kernel_name
from .solving import check_floating


@composite(variants=FUNCTION, autocast=PROMOTE_ON_CUDA)
def tensordot(F: Any, a: Array, b: Array, dims: Int = 2) -> Any:
    """The sum of products over the last ``dims`` dimensions of ``a`` and the first of ``b``."""
    if dims < 0:
        raise InvalidOperation(f"tensordot expects dims >= 0, but got dims={dims}")
    if dims > min(a.ndim, b.ndim):
        raise InvalidOperation(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
    return _contract(F, a, b, tuple(range(-dims, 0)), tuple(range(dims)))


@composite(key="tensordot.dims", variants=FUNCTION, autocast=PROMOTE_ON_CUDA)
def tensordot_dims(F: Any, a: Array, b: Array, dims: Items) -> Any:
    """The sum of products over pairs of dimensions: those of ``a``, then those of ``b``."""
    if len(dims) != 2:
        few = len(dims) < 2
        raise InvalidValue(
            f"{'not enough' if few else 'too many'} values to unpack (expected 2{f', got {len(dims)}' * few})"
        )
    checked = _PAIR.check_attrs(dict(zip(("dims_self", "dims_other"), dims, strict=True)))
    return _contract(F, a, b, checked["dims_self"], checked["dims_other"])


_PAIR = Signature("tensordot", tuple(Param(name, IntsKind(), REQUIRED, False) for name in ("dims_self", "dims_other")))
"""The signature that validates tensordot's two lists of dimensions."""


def _contract(F: Any, a: Any, b: Any, dims_a: tuple[int, ...], dims_b: tuple[int, ...]) -> Any:
    if len(dims_a) != len(dims_b):
        raise InvalidOperation("both dimension lists should have same length")
    if a.dtype != b.dtype:
        raise DTypeMismatch("both inputs should have same dtype")
    for i, j in zip(dims_a, dims_b, strict=True):
        n, m = size_at(a.shape, i), size_at(b.shape, j)
        if m == 1:
            a = F.sum(a, (i,), True)
        elif n == 1:
            b = F.sum(b, (j,), True)
        elif n != m:
            raise ShapeMismatch(
                f"contracted dimensions need to match, but first has size {n} in dim {i} "
                f"and second has size {m} in dim {j}"
            )
    axes_a, axes_b = (wrap_dims(d, x.ndim) if d else () for d, x in ((dims_a, a), (dims_b, b)))
    left = tuple(i for i in range(a.ndim) if i not in axes_a)
    right = tuple(i for i in range(b.ndim) if i not in axes_b)
    rows, columns = tuple(a.shape[i] for i in left), tuple(b.shape[i] for i in right)
    summed = math.prod(a.shape[i] for i in axes_a)
    first = F.reshape(F.permute(a, left + axes_a), (math.prod(rows), summed))
    second = F.reshape(F.permute(b, axes_b + right), (summed, math.prod(columns)))
    return F.reshape(F.mm(first, second), rows + columns)


@composite()
def inner(F: Any, input: Array, other: Array) -> Any:
    """The sums of products over the last dimensions of both; a 0-dim tensor only scales."""
    if not input.ndim or not other.ndim:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise ShapeMismatch(
            f"inner() the last dimension must match on both input tensors but got shapes "
            f"{list(input.shape)} and {list(other.shape)}"
        )
    return _contract(F, input, other, (-1,), (-1,))


@composite(autocast=Autocast(cpu=Policy.AS_GIVEN, cuda=Policy.PROMOTE))
def vdot(F: Any, input: Array, other: Array) -> Any:
    """The inner product of two vectors; for real ones it is ``dot``."""
    return F.dot(input, other)


# Other products ---------------------------------------------------------------------------------------


@composite()
def kron(F: Any, input: Array, other: Array) -> Any:
    """The Kronecker product: each element of ``input`` times all of ``other``, in blocks."""
    ndim = max(input.ndim, other.ndim)
    a, b = ((1,) * (ndim - x.ndim) + tuple(x.shape) for x in (input, other))
    spread = F.reshape(input, tuple(n for size in a for n in (size, 1)))
    blocks = F.reshape(other, tuple(n for size in b for n in (1, size)))
    return F.reshape(spread * blocks, tuple(n * m for n, m in zip(a, b, strict=True)))


def _cross_rule(input: Any, other: Any, dim: int) -> Spec:
    if len(input.shape) != len(other.shape):
        raise ShapeMismatch("linalg.cross: inputs must have the same number of dimensions.")
    axis = wrap_dim(dim, len(input.shape))
    n, m = (x.shape[axis] if x.shape else 1 for x in (input, other))
    if n != 3 or m != 3:
        raise ShapeMismatch(f"linalg.cross: inputs dimension {dim} must have length 3. Got {n} and {m}")
    shape = broadcast_shapes(input.shape, other.shape)
    check_no_bools("cross", input)
    check_dtype(other, input.dtype)
    return Spec(shape, input.dtype)


@op(_cross_rule, key="cross", variants=LINALG_FUNCTION, memory=scratch(1.25), batching=math_rules.linalg_cross)
def linalg_cross(xp: Any, input: Array, other: Array, *, dim: Int = -1) -> Any:
    """The cross product of vectors of three along ``dim``."""
    return xp.cross(input, other, axis=dim)


linalg_cross.derivative(
    input=lambda F, grad, other, dim: F.linalg_cross(other, grad, dim=dim),
    other=lambda F, grad, input, dim: F.linalg_cross(grad, input, dim=dim),
)


@composite(autocast=PROMOTE_ON_CUDA)
def cross(F: Any, input: Array, other: Array, dim: OptionalInt = None) -> Any:
    """The cross product of vectors of three along ``dim``, by default the first of size 3."""
    if dim is None:
        if 3 not in input.shape:
            raise ShapeMismatch("no dimension of size 3 in input")
        dim = tuple(input.shape).index(3)
    return F.linalg_cross(input, other, dim=dim)


@composite(variants=LINALG_FUNCTION, autocast=LOWER)
def vecdot(F: Any, x: Array, y: Array, *, dim: Int = -1) -> Any:
    """The inner products of vectors along ``dim``."""
    check_floating(x._data, "linalg.vecdot")
    if x.dtype is not y.dtype:
        raise DTypeMismatch(
            f"linalg.vecdot: Expected x and y to have the same dtype, but found x of type {kernel_name(x)} and y "
            f"of type {kernel_name(y)} instead"
        )
    return F.dot(x, y) if x.ndim == y.ndim == 1 else F.sum(x * y, (dim,))


@composite(key="matmul", variants=LINALG_FUNCTION)
def linalg_matmul(F: Any, input: Array, other: Array) -> Any:
    """The matrix product: ``matmul``."""
    return F.matmul(input, other)


@composite(variants=LINALG_FUNCTION, autocast=LOWER)
def multi_dot(F: Any, tensors: Arrays) -> Any:
    """The product of several matrices in the order that costs least; the first and the last may be vectors."""
    if len(tensors) < 2:
        raise InvalidOperation(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    ends = {0: (1, 2), len(tensors) - 1: (1, 2)}
    for i, x in enumerate(tensors):
        if x.ndim not in ends.get(i, (2,)):
            allowed = "1D or 2D" if i in ends else "2D"
            raise ShapeMismatch(f"multi_dot(): tensor {i} must be {allowed} but got {x.ndim}D")
    first, last = tensors[0], tensors[-1]
    rows = [F.unsqueeze(first, 0) if first.ndim == 1 else first, *tensors[1:-1]]
    chain = [*rows, F.unsqueeze(last, 1) if last.ndim == 1 else last]
    for i, (a, b) in enumerate(itertools.pairwise(chain)):
        if a.shape[1] != b.shape[0]:
            raise ShapeMismatch(
                f"multi_dot(): tensors {i} and {i + 1} with shapes {list(tensors[i].shape)} and "
                f"{list(tensors[i + 1].shape)} cannot be multiplied"
            )
    result = _cheapest(F, chain)
    return F.reshape(result, (*tuple(first.shape)[: first.ndim - 1], *tuple(last.shape)[1:]))


def _cheapest(F: Any, chain: list[Any]) -> Any:
    """The product of matrices, split as in the dynamic programming of Godbole (1973)."""
    sizes = [chain[0].shape[0], *[x.shape[1] for x in chain]]
    costs: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(len(chain))}
    for span in range(1, len(chain)):
        for i in range(len(chain) - span):
            j = i + span
            costs[i, j] = min(
                (costs[i, k][0] + costs[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def product(i: int, j: int) -> Any:
        split = costs[i, j][1]
        return chain[i] if i == j else product(i, split) @ product(split + 1, j)

    return product(0, len(chain) - 1)


def _trace_rule(input: Any) -> Spec:
    if len(input.shape) != 2:
        raise ShapeMismatch(f"trace: expected a matrix, but got tensor with dim {len(input.shape)}")
    check_no_bools("trace", input)
    return Spec((), input.dtype if input.dtype in FLOATING else int64.numpy)


@op(_trace_rule, memory=scratch(3.0), autocast=FLOAT32_ON_CPU, batching=math_rules.trace)
def trace(xp: Any, input: Array) -> Any:
    """The sum of the diagonal of a matrix."""
    return xp.asarray(xp.trace(widened(input.astype(_trace_rule(input).dtype))))


trace.derivative(input=lambda F, grad, input_shape: F.where(F.eye(*input_shape, dtype=bool_), grad, 0.0))


@composite(variants=FUNCTION | METHOD | INPLACE, autocast=LOWER_ON_CUDA)
def addr(F: Any, input: Array, vec1: Array, vec2: Array, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """``beta * input + alpha * outer(vec1, vec2)``."""
    for name, vec in (("vec1", vec1), ("vec2", vec2)):
        if vec.ndim != 1:
            raise ShapeMismatch(f"addr: Expected 1-D argument {name}, but got {vec.ndim}-D")
    shape = (vec1.shape[0], vec2.shape[0])
    if not expands_to(tuple(input.shape), shape):
        raise ShapeMismatch(f"The expanded size of the tensor must match {list(shape)}, got {list(input.shape)}")
    for name, number in (("beta", beta), ("alpha", alpha)):
        if isinstance(number, float) and not input.is_floating_point():
            raise InvalidOperation(f"For integral input tensors, argument {name} must not be a floating point number.")
    product = F.outer(vec1, vec2) * alpha
    finite = input if beta else F.nan_to_num(input, 0.0, 0.0, 0.0)  # with a beta of 0, NaN in the input must be ignored
    return finite * beta + product


# Einsum, by diagonals, sums, permutations and batched matrix products ------------------------------------


def _read_subscripts(text: str, start: int, operand: int | None = None) -> str:
    """Return the subscripts of an operand or of the output, which begin at ``start`` in the equation, without spaces.

    Raises for anything but letters and a single "...".
    """
    where, already, ellipsis = f"operand {operand}", "for which an ellipsis was already found", "ellipsis"
    if operand is None:
        where, already, ellipsis = "output", "but an ellipsis (...) was already found", "ellipsis (...)"
    tokens: list[str] = []
    for found in re.finditer(r"\.{3}|[^ ]", text):
        token = found.group()
        if token[0] == ".":
            if "..." in tokens:
                raise InvalidOperation(f"einsum(): found '.' for {where} {already}")
            if token == ".":
                raise InvalidOperation(f"einsum(): found '.' for {where} that is not part of any {ellipsis}")
        elif not (token.isascii() and token.isalpha()):
            raise InvalidOperation(
                f"einsum(): invalid subscript given at index {start + found.start()} in the equation string, "
                "subscripts must be in [a-zA-Z]"
            )
        tokens.append(token)
    return "".join(tokens)


def _parse_equation(equation: str, shapes: list[Any]) -> tuple[list[str], str, dict[str, int]]:
    """Return the subscripts of each operand and of the output, and the size of each subscript.

    An ellipsis is replaced by capital letters that the equation does not use, aligned at the right.
    """
    left, arrow, right = equation.partition("->")
    terms, start = [], 0
    for i, text in enumerate(left.split(",")):
        if i == len(shapes):
            raise InvalidOperation("einsum(): fewer operands were provided than specified in the equation")
        terms.append(_read_subscripts(text, start, i))
        start += len(text) + 1
    if len(terms) < len(shapes):
        raise InvalidOperation("einsum(): more operands were provided than specified in the equation")
    free = [c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in equation]
    covered = [len(shape) - len(t.replace("...", "")) for t, shape in zip(terms, shapes, strict=True) if "..." in t]
    widest = max([0, *covered])
    dots = "".join(reversed(free[:widest]))
    expanded = []
    for i, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        count = len(term.replace("...", ""))
        n = len(shape) - count
        if n < 0 or (n > 0 and "..." not in term):
            relation, end = ("is more than", "") if "..." in term else ("does not match", " and no ellipsis was given")
            raise InvalidOperation(
                f"einsum(): the number of subscripts in the equation ({count}) {relation} the number of dimensions "
                f"({len(shape)}) for operand {i}{end}"
            )
        expanded.append(term.replace("...", dots[widest - n :] if n else ""))
    right = _read_subscripts(right, start + 1)
    sizes = _subscript_sizes(expanded, shapes)
    letters = "".join(expanded)
    once = sorted({c for c in letters if letters.count(c) == 1 and c not in dots})
    right = right.replace("...", dots) if arrow else dots + "".join(once)
    for c in right:
        if c not in sizes:
            raise InvalidOperation(
                f"einsum(): output subscript {c} does not appear in the equation for any input operand"
            )
        if right.count(c) > 1:
            raise InvalidOperation(f"einsum(): output subscript {c} appears more than once in the output")
    return expanded, right, sizes


def _subscript_sizes(terms: list[str], shapes: list[Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for i, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        for c, n in zip(term, shape, strict=True):
            if sizes.get(c, 1) not in (1, n) and n != 1:
                raise ShapeMismatch(
                    f"einsum(): subscript {c} has size {n} for operand {i} which does not broadcast with "
                    f"previously seen size {sizes[c]}"
                )
            sizes[c] = n if sizes.get(c, 1) == 1 else sizes[c]
    return sizes


@composite(variants=FUNCTION, memory=MAY_ALIAS, autocast=LOWER_ON_CUDA)
def einsum(F: Any, equation: Str, operands: ManyArrays = ()) -> Any:
    """The sum of products that ``equation`` names: ``"ij,jk->ik"`` is a matrix product."""
    if not operands:
        raise InvalidValue(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its "
            "subscripts list"
        )
    terms, out, sizes = _parse_equation(equation, [tuple(x.shape) for x in operands])
    pending = []
    for i, (x, term) in enumerate(zip(operands, terms, strict=True)):
        x, term = _take_diagonals(F, x, term)
        elsewhere = out + "".join(terms[:i] + terms[i + 1 :])
        pending.append(_sum_unless(F, x, term, elsewhere))
    x, term = pending[0]
    for i, (y, other) in enumerate(pending[1:], 1):
        later = out + "".join(t for _, t in pending[i + 1 :])
        x, term = _multiply_operands(F, x, term, y, other, later, sizes)
    x, term = _sum_unless(F, x, term, out)
    return F.permute(x, tuple(term.index(c) for c in out)) if out != term else x


def _take_diagonals(F: Any, x: Any, term: str) -> tuple[Any, str]:
    """Take the diagonal of the two dimensions of each repeated subscript, so that each occurs once."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            i = term.index(c)
            j = term.index(c, i + 1)
            n = x.shape[i]
            rest = [k for k in range(len(term)) if k not in (i, j)]
            flat = F.reshape(F.permute(x, (i, j, *rest)), (n * n, *[x.shape[k] for k in rest]))
            x = flat[:: n + 1]
            term = c + "".join(term[k] for k in rest)
    return x, term


def _sum_unless(F: Any, x: Any, term: str, kept: str) -> tuple[Any, str]:
    """Sum ``x`` over the subscripts that are not in ``kept``."""
    summed = tuple(i for i, c in enumerate(term) if c not in kept)
    return (F.sum(x, summed), "".join(c for c in term if c in kept)) if summed else (x, term)


def _multiply_operands(F: Any, x: Any, a: str, y: Any, b: str, later: str, sizes: dict[str, int]) -> tuple[Any, str]:
    """The product of two operands as one batched matrix product, summed over the subscripts not in ``later``."""
    batch = "".join(c for c in a if c in b and c in later)
    summed = "".join(c for c in a if c in b and c not in later)
    left = "".join(c for c in a if c not in b)
    right = "".join(c for c in b if c not in a)

    def arrange(tensor: Any, term: str, groups: tuple[str, str, str]) -> Any:
        tensor = F.permute(tensor, tuple(term.index(c) for c in "".join(groups)))
        tensor = F.expand(tensor, tuple(sizes[c] for c in "".join(groups)))
        return F.reshape(tensor, tuple(math.prod(sizes[c] for c in group) for group in groups))

    multiply = F.bmm if summed else F.mul  # unlike bmm, mul promotes, as in torch
    product = multiply(arrange(x, a, (batch, left, summed)), arrange(y, b, (batch, summed, right)))
    term = batch + left + right
    return F.reshape(product, tuple(sizes[c] for c in term)), term
