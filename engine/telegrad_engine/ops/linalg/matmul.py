"""Products of vectors and matrices, and sums of a tensor and a product."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import FLOATING, bool_, from_numpy, widened
from ...errors import DTypeMismatch, ShapeMismatch
from ...schema.declaration import FUNCTION, INPLACE, METHOD, NN_FUNCTION, NO_SCRATCH, ONLY_ITSELF, UNCHECKED, scratch
from ...schema.op import composite, op
from ...schema.parameters import Array, Number
from ...schema.promotion import LOWER, UNWIDENED, Autocast, Policy, common_dtype
from ...shapes import Shape, Spec, broadcast_shapes, expanded_shape, size_at
from ..batching import math_rules
from ..guards import check_no_bools, no_kernel
from .solving import kind_names


def _check_same_dtype(a: Any, b: Any) -> None:
    """Raise unless both have the same dtype; products do not promote."""
    if a.dtype != b.dtype:
        left, right = (from_numpy(x.dtype).c_name for x in (a, b))
        raise DTypeMismatch(f"expected m1 and m2 to have the same dtype, but got: {left} != {right}")


def _check_pair(a: Any, b: Any) -> str:
    """Return the name of torch's kernel for these dimensions; raises torch's error for different dtypes."""
    left, right = kind_names(a, b)
    if len(b.shape) == 1:
        if len(a.shape) == 1:
            if left != right:
                raise DTypeMismatch(f"dot : expected both vectors to have same dtype, but found {left} and {right}")
            return "dot"
        if left != right:
            raise DTypeMismatch(f"addmv input tensors must have the same dtype, but got {right}, {left}, and {right}")
        return "addmv_impl_cpu"
    if len(b.shape) == 2:
        _check_same_dtype(a, b)
        return "addmm_impl_cpu_"
    if left != right and left == "Bool":
        raise no_kernel("bmm", bool_)
    if left != right:
        raise DTypeMismatch(f"expected scalar type {left} but found {right}")
    return "bmm"


def _check_no_bools(kernel: str, dtype: Any, out: Shape, inner: int) -> None:
    """Raise for a product of bools, unless it has no elements and torch's kernel is not ``dot``."""
    if dtype == bool_.numpy and (math.prod(out) * inner or kernel == "dot"):
        raise no_kernel(kernel, bool_)


def product(xp: Any, a: Any, b: Any) -> Any:
    """The matrix product; float16 and bfloat16 are accumulated in float32."""
    if a.dtype.itemsize == 2:
        a, b = widened(a), widened(b)
    if b.ndim != 2:
        return xp.matmul(a, b)
    if a.ndim < 3:
        return xp.dot(a, b)
    # One product of all rows; NumPy's matmul would compute one per matrix of the batch.
    return xp.reshape(xp.dot(as_rows(xp, a), b), (*a.shape[:-1], b.shape[-1]))


def as_rows(F: Any, x: Any) -> Any:
    """All rows of ``x`` as one matrix."""
    return x if len(x.shape) == 2 else F.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _matmul_rule(input: Any, other: Any) -> Spec:
    a, b = input.shape, other.shape
    if not a or not b:
        raise ShapeMismatch(f"both arguments to matmul need to be at least 1D, but they are {len(a)}D and {len(b)}D")
    kernel = _check_pair(input, other)
    left = a if len(a) > 1 else (1, *a)
    right = b if len(b) > 1 else (*b, 1)
    if left[-1] != right[-2]:
        if len(a) == 1 and len(b) == 1:
            raise ShapeMismatch(
                f"inconsistent tensor size, expected tensor [{a[0]}] and src [{b[0]}] to have the same number of "
                f"elements, but got {a[0]} and {b[0]} elements respectively"
            )
        if len(b) == 1:
            raise ShapeMismatch(f"size mismatch, got input ({left[-2]}), mat ({left[-2]}x{left[-1]}), vec ({b[0]})")
        if len(b) > 2:
            count = math.prod(broadcast_shapes(left[:-2], right[:-2]))
            raise _wrong_batch2([count, left[-1]], [count, right[-2]])
        raise ShapeMismatch(
            f"mat1 and mat2 shapes cannot be multiplied ({math.prod(left[:-1])}x{left[-1]} and {right[-2]}x{right[-1]})"
        )
    batch = broadcast_shapes(left[:-2], right[:-2])
    shape = batch + left[-2:-1] * (len(a) > 1) + right[-1:] * (len(b) > 1)
    _check_no_bools(kernel, input.dtype, shape, left[-1])
    return Spec(shape, input.dtype)


def _wrong_batch2(expected: list[int], got: list[int]) -> ShapeMismatch:
    return ShapeMismatch(f"Expected size for first two dimensions of batch2 tensor to be: {expected} but got: {got}.")


def _matmul_node(node: Any) -> str:
    """The node name of torch's op for this product, chosen by the number of dimensions of the result."""
    return {0: "DotBackward0", 1: "MvBackward0", 2: "MmBackward0"}.get(len(node.shape), "UnsafeViewBackward0")


def _dot(xp: Any, input: Any, other: Any) -> Any:
    return xp.dot if input.ndim == other.ndim == 2 and input.dtype.itemsize > 2 else None


@op(_matmul_rule, node=_matmul_node, memory=NO_SCRATCH, autocast=LOWER, batching=math_rules.matmul, prepare=_dot)
def matmul(xp: Any, input: Array, other: Array) -> Any:
    """The matrix product, with torch's rules for vectors and batches."""
    return product(xp, input, other)


def _matmul_wrt_input(F: Any, grad: Any, other: Any, input_shape: Any) -> Any:
    if other.ndim == 2 and len(input_shape) > 1:
        return F.matmul(grad, F.t(other))
    if other.ndim == 1:
        return F.unsqueeze(grad, -1) * other
    if len(input_shape) == 1:
        return F.matmul(other, F.unsqueeze(grad, -1)).squeeze(-1)
    return F.matmul(grad, F.transpose(other, -2, -1))


def _matmul_wrt_other(F: Any, grad: Any, input: Any, other_shape: Any) -> Any:
    if input.ndim == len(other_shape) == 2:
        return F.matmul(F.t(input), grad)
    if input.ndim == 1:
        return F.unsqueeze(input, -1) * F.unsqueeze(grad, -2) if len(other_shape) > 1 else grad * input
    if len(other_shape) == 1:
        return F.matmul(F.transpose(input, -2, -1), F.unsqueeze(grad, -1)).squeeze(-1)
    if len(other_shape) == 2 and grad.ndim == input.ndim > 2:
        return F.mm(F.t(as_rows(F, input)), as_rows(F, grad))
    return F.matmul(F.transpose(input, -2, -1), grad)


matmul.derivative(input=_matmul_wrt_input, other=_matmul_wrt_other)


def _mm_rule(input: Any, mat2: Any) -> Spec:
    for x, name in ((input, "self"), (mat2, "mat2")):
        if len(x.shape) != 2:
            raise ShapeMismatch(f"{name} must be a matrix")
    return _matmul_rule(input, mat2)


@op(_mm_rule, memory=NO_SCRATCH, autocast=LOWER, batching=math_rules.matmul)
def mm(xp: Any, input: Array, mat2: Array) -> Any:
    """The product of two matrices."""
    return product(xp, input, mat2)


mm.derivative(
    input=lambda F, grad, mat2: F.mm(grad, F.t(mat2)),
    mat2=lambda F, grad, input: F.mm(F.t(input), grad),
)


def _check_batches(batch1: Any, batch2: Any) -> None:
    """Raise unless these are two batches of the same number of matrices that can be multiplied."""
    for x, name in ((batch1, "batch1"), (batch2, "batch2")):
        if len(x.shape) != 3:
            raise ShapeMismatch(f"{name} must be a 3D tensor")
    expected, got = [batch1.shape[0], batch1.shape[2]], list(batch2.shape[:2])
    if got != expected:
        raise _wrong_batch2(expected, got)


def _bmm_rule(input: Any, mat2: Any) -> Spec:
    _check_batches(input, mat2)
    return _matmul_rule(input, mat2)


@op(_bmm_rule, memory=NO_SCRATCH, autocast=LOWER, batching=math_rules.matmul)
def bmm(xp: Any, input: Array, mat2: Array) -> Any:
    """The products of two batches of matrices."""
    return product(xp, input, mat2)


bmm.derivative(
    input=lambda F, grad, mat2: F.bmm(grad, F.transpose(mat2, 1, 2)),
    mat2=lambda F, grad, input: F.bmm(F.transpose(input, 1, 2), grad),
)


def _outer_rule(input: Any, vec2: Any) -> Spec:
    for x, name in ((input, "self"), (vec2, "vec2")):
        if len(x.shape) != 1:
            raise ShapeMismatch(f"outer: Expected 1-D argument {name}, but got {len(x.shape)}-D")
    return Spec((*input.shape, *vec2.shape), common_dtype((input, vec2)))


@op(
    _outer_rule,
    aliases=("ger",),
    node="MulBackward0",
    promotion=UNWIDENED,
    autocast=Autocast(cpu=Policy.AS_GIVEN),
    batching=math_rules.outer,
)
def outer(xp: Any, input: Array, vec2: Array) -> Any:
    """The outer product of two vectors."""
    return xp.multiply(input[:, None], vec2[None, :])


outer.derivative(
    input=lambda F, grad, vec2: F.matmul(grad, vec2),
    vec2=lambda F, grad, input: F.matmul(F.t(grad), input),
)


@composite(autocast=Autocast(cpu=Policy.AS_GIVEN, cuda=Policy.PROMOTE))
def dot(F: Any, input: Array, tensor: Array) -> Any:
    """The inner product of two vectors."""
    if input.ndim != 1 or tensor.ndim != 1:
        raise ShapeMismatch(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    if input.dtype != tensor.dtype:
        kinds = [x.dtype.kernel_name for x in (input, tensor)]
        raise DTypeMismatch(f"dot : expected both vectors to have same dtype, but found {kinds[0]} and {kinds[1]}")
    return F.matmul(input, tensor)


@composite(autocast=Autocast(cpu=Policy.AS_GIVEN, cuda=Policy.LOWER))
def mv(F: Any, input: Array, vec: Array) -> Any:
    """The product of a matrix and a vector."""
    size_at(input.shape, 0)  # raises for a 0-dim tensor
    if len(input.shape) != 2 or len(vec.shape) != 1:
        raise ShapeMismatch(f"vector + matrix @ vector expected, got 1, {len(input.shape)}, {len(vec.shape)}")
    return F.matmul(input, vec)


# Linear ---------------------------------------------------------------------------------------------


def linear_rule(input: Any, weight: Any, bias: Any) -> Spec:
    """The shape rule of ``linear``, also used by other ops that multiply by a weight and add a bias."""
    if len(weight.shape) != 2 or not input.shape:
        raise _no_product(input, weight, bias)
    if bias is None:
        _check_same_dtype(input, weight)
    else:
        _check_dtypes_match(weight, self=bias, mat1=input)
    out_features, in_features = weight.shape
    rows = math.prod(input.shape[:-1])
    if input.shape[-1] != in_features:
        raise ShapeMismatch(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{input.shape[-1]} and {in_features}x{out_features})"
        )
    if bias is not None and bias.shape not in ((out_features,), (), (1,)):
        expanded_shape(tuple(bias.shape), bias.dtype, (rows, out_features))
        raise ShapeMismatch(
            f"linear(): expected a bias of shape [{out_features}] or of one element, but got {list(bias.shape)}"
        )
    shape = (*input.shape[:-1], out_features)
    _check_no_bools("addmm_impl_cpu_", input.dtype, shape, in_features)
    return Spec(shape, input.dtype)


def _no_product(input: Any, weight: Any, bias: Any) -> ShapeMismatch:
    """The error for a weight that is not a matrix, or for a 0-dim input."""
    dims = len(weight.shape)
    if not dims or not input.shape:
        return ShapeMismatch(
            f"both arguments to linear need to be at least 1D, but they are {len(input.shape)}D and {dims}D"
        )
    if dims > 2:
        return ShapeMismatch(f"t() expects a tensor with <= 2 dimensions, but self is {dims}D")
    if bias is not None:
        return ShapeMismatch("mat2 must be a matrix, got 1-D tensor")
    rows, n = math.prod(input.shape[:-1]), input.shape[-1]
    if len(input.shape) > 1 and weight.shape[0] != n:
        return ShapeMismatch(f"size mismatch, got input ({rows}), mat ({rows}x{n}), vec ({weight.shape[0]})")
    return ShapeMismatch("linear(): expected a weight of 2 dimensions, but it has 1; matmul takes vectors")


def _check_dtypes_match(mat2: Any, **others: Any) -> None:
    """Raise unless all have the dtype of ``mat2``; the error names the first that differs."""
    for name, x in others.items():
        if x.dtype != mat2.dtype:
            kinds = kind_names(x, mat2)
            raise DTypeMismatch(f"{name} and mat2 must have the same dtype, but got {kinds[0]} and {kinds[1]}")


def _linear_node(node: Any) -> str:
    if len(node.shape) != 2:
        return "ViewBackward0"
    return "MmBackward0" if node.next_edges[2] is None else "AddmmBackward0"


@op(linear_rule, variants=NN_FUNCTION, node=_linear_node, autocast=LOWER, batching=math_rules.linear)
def linear(xp: Any, input: Array, weight: Array, bias: Array = None) -> Any:
    """``input @ weight.T + bias``: (…, in) by (out, in) to (…, out)."""
    result = product(xp, input, weight.T)
    if bias is not None:
        result += bias
    return result


def _weight_grad(F: Any, grad: Any, input: Any) -> Any:
    rows, inputs = as_rows(F, grad), as_rows(F, input)
    return F.mm(F.t(rows), inputs) if F.xp is None else product(F.xp, rows.T, inputs)


def _bias_grad(F: Any, grad: Any) -> Any:
    rows = as_rows(F, grad)
    if F.xp is not None and rows.dtype.itemsize > 2:
        return F.xp.column_sums(rows)
    return F.sum(rows, (0,))


linear.derivative(input=lambda F, grad, weight: F.matmul(grad, weight), weight=_weight_grad, bias=_bias_grad)


# Sums of a tensor and a product, with scale factors ------------------------------------------------------


def _sum_spec(input: Any, product: tuple[int, ...], kernel: str) -> Spec:
    check_no_bools(kernel, input)
    return Spec(expanded_shape(input.shape, input.dtype, product), input.dtype)


def _weighted(xp: Any, input: Any, matrix: Any, beta: float, alpha: float) -> Any:
    """``beta * input + alpha * matrix``; a ``beta`` of 0 ignores NaN in ``input``, and integers use integer factors."""
    if input.dtype not in FLOATING:
        beta, alpha = int(beta), int(alpha)
    if alpha != 1:
        matrix = matrix * alpha
    if beta == 0:
        return matrix
    input = widened(input)
    return xp.add(matrix, input if beta == 1 else input * beta)


def _addmm_rule(input: Any, mat1: Any, mat2: Any) -> Spec:
    for x, name in ((mat1, "mat1"), (mat2, "mat2")):
        if len(x.shape) != 2:
            raise ShapeMismatch(f"{name} must be a matrix, got {len(x.shape)}-D tensor")
    (n, k), (j, m) = mat1.shape, mat2.shape
    if k != j:
        raise ShapeMismatch(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {j}x{m})")
    _check_dtypes_match(mat2, mat1=mat1, self=input)
    return _sum_spec(input, (n, m), "addmm_impl_cpu_")


@op(
    _addmm_rule,
    variants=FUNCTION | METHOD | INPLACE,
    memory=scratch(1.25),
    overlap=ONLY_ITSELF,
    autocast=LOWER,
    batching=math_rules.addmm,
)
def addmm(xp: Any, input: Array, mat1: Array, mat2: Array, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """``beta * input + alpha * (mat1 @ mat2)``."""
    return _weighted(xp, input, product(xp, mat1, mat2), beta, alpha)


addmm.derivative(
    input=lambda F, grad, beta: grad * beta,
    mat1=lambda F, grad, mat2, alpha: grad @ mat2.mT * alpha,
    mat2=lambda F, grad, mat1, alpha: mat1.mT @ grad * alpha,
)


def _addmv_rule(input: Any, mat: Any, vec: Any) -> Spec:
    if len(mat.shape) != 2 or len(vec.shape) != 1 or len(input.shape) > 1:
        dims = ", ".join(str(len(x.shape)) for x in (input, mat, vec))
        raise ShapeMismatch(f"vector + matrix @ vector expected, got {dims}")
    n, k = mat.shape
    size = math.prod(input.shape)
    if vec.shape[0] != k or size not in (1, n):
        size_at(input.shape, 0)
        raise ShapeMismatch(f"size mismatch, got input ({size}), mat ({n}x{k}), vec ({vec.shape[0]})")
    if not input.dtype == mat.dtype == vec.dtype:
        names = "{}, {}, and {}".format(*kind_names(input, mat, vec))
        raise DTypeMismatch(f"addmv input tensors must have the same dtype, but got {names}")
    return _sum_spec(input, (n,), "addmv_impl_cpu")


@op(
    _addmv_rule,
    variants=FUNCTION | METHOD | INPLACE,
    memory=scratch(1.25),
    overlap=UNCHECKED,
    autocast=Autocast(cpu=Policy.AS_GIVEN, cuda=Policy.LOWER),
    batching=math_rules.addmm,
)
def addmv(xp: Any, input: Array, mat: Array, vec: Array, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """``beta * input + alpha * (mat @ vec)``."""
    return _weighted(xp, input, product(xp, mat, vec), beta, alpha)


addmv.derivative(
    input=lambda F, grad, beta: grad * beta,
    mat=lambda F, grad, vec, alpha: F.unsqueeze(grad, -1) * vec * alpha,
    vec=lambda F, grad, mat, alpha: mat.mT @ grad * alpha,
)


def _baddbmm_rule(input: Any, batch1: Any, batch2: Any) -> Spec:
    for x, dim in ((batch1, 0), (batch1, 1), (batch2, 2)):
        size_at(x.shape, dim)  # raises for too few dimensions first, as torch does
    _check_batches(batch1, batch2)
    if batch1.dtype != batch2.dtype and batch1.dtype != bool_.numpy:
        raise DTypeMismatch("expected scalar type {} but found {}".format(*kind_names(batch1, batch2)))
    if input.dtype != batch1.dtype:
        names = "input {}, batch1: {}, batch2: {}".format(*[n.lower() for n in kind_names(input, batch1, batch2)])
        raise DTypeMismatch(f"Input dtypes must be the same, got: {names}")
    return _sum_spec(input, (*batch1.shape[:2], batch2.shape[2]), "baddbmm")


@op(_baddbmm_rule, variants=FUNCTION | METHOD | INPLACE, overlap=UNCHECKED, autocast=LOWER, batching=math_rules.addmm)
def baddbmm(xp: Any, input: Array, batch1: Array, batch2: Array, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """``beta * input + alpha * (batch1 @ batch2)``, matrix by matrix."""
    return _weighted(xp, input, product(xp, batch1, batch2), beta, alpha)


def _addbmm_rule(input: Any, batch1: Any, batch2: Any) -> Spec:
    for x, name, dim in ((batch1, "batch1", 1), (batch2, "batch2", 2)):
        size_at(x.shape, dim)
        if len(x.shape) != 3:
            raise ShapeMismatch(f"{name} must be a 3D tensor")
    (b, n, k), (c, j, m) = batch1.shape, batch2.shape
    expanded_shape(input.shape, input.dtype, (n, m))
    if b != c:
        raise ShapeMismatch(f"batch1 and batch2 must have same number of batches, got {b} and {c}")
    if k != j:
        raise ShapeMismatch(f"Incompatible matrix sizes for bmm ({n}x{k} and {j}x{m})")
    _check_dtypes_match(batch2, mat1=batch1, self=input)
    return _sum_spec(input, (n, m), "addmm_impl_cpu_")


@op(
    _addbmm_rule,
    variants=FUNCTION | METHOD | INPLACE,
    overlap=ONLY_ITSELF,
    autocast=LOWER,
    batching=math_rules.addbmm,
)
def addbmm(xp: Any, input: Array, batch1: Array, batch2: Array, *, beta: Number = 1, alpha: Number = 1) -> Any:
    """``beta * input + alpha * (batch1 @ batch2)``, the matrices of the batch summed."""
    return _weighted(xp, input, xp.sum(product(xp, batch1, batch2), axis=0), beta, alpha)


for _batched in (baddbmm, addbmm):
    _batched.derivative(
        input=lambda F, grad, beta: grad * beta,
        batch1=lambda F, grad, batch2, alpha: grad @ batch2.mT * alpha,
        batch2=lambda F, grad, batch1, alpha: batch1.mT @ grad * alpha,
    )
