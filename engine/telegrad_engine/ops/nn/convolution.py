"""Convolutions and transposed convolutions of one to three dimensions, all in terms of ``convolution``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ...dtypes import DType, bfloat16, float32, from_numpy, widened
from ...errors import DTypeMismatch, InvalidOperation, ShapeMismatch
from ...schema.declaration import FUNCTION, NN_FUNCTION, scratch
from ...schema.op import Op, composite, op
from ...schema.parameters import Array, Bool, Int, IntOrInts, Ints, IntsOrStr
from ...schema.promotion import LOWER, LOWER_ON_CUDA
from ...shapes import Shape, Spec
from ..batching import nn_rules
from ..blocked_loops import blocks
from ..guards import check_dtype, check_no_bools, kernel_name

COLUMNS = 2**26
"""The maximum number of bytes of windows that are copied to columns at a time."""

# Checks --------------------------------------------------------------------------------------------------


def _per_dim(name: str, value: Any, ndim: int) -> Shape:
    """Return one number per spatial dimension; a single number applies to all of them."""
    values = (value,) if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        return values * ndim
    if len(values) != ndim:
        raise ShapeMismatch(
            f"expected {name} to be a single integer value or a list of {ndim} values to match the convolution "
            f"dimensions, but got {name}={list(values)}"
        )
    return values


def _check_numbers(stride: Shape, padding: Shape, dilation: Shape, output_padding: Shape, groups: int) -> None:
    if groups <= 0:
        raise InvalidOperation("non-positive groups is not supported")
    for name, values in (("padding", padding), ("output_padding", output_padding)):
        if any(n < 0 for n in values):
            raise InvalidOperation(f"negative {name} is not supported")
    if any(n <= 0 for n in stride):
        raise InvalidOperation("non-positive stride is not supported")
    if any(n < 0 for n in dilation):
        raise InvalidOperation("dilation should be greater than zero")
    if 0 in dilation:
        raise InvalidOperation(f"dilation should be greater than zero, but got {list(dilation)}")


def _check_channels(input: Any, weight: Any, bias: Any, transposed: bool, groups: int) -> None:
    shape = list(weight.shape)
    if shape[0] < groups or not shape[0]:
        raise ShapeMismatch(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight of "
            f"size {shape} instead"
        )
    if shape[0] % groups:
        raise ShapeMismatch(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of "
            f"size [{shape}] instead"
        )
    channels = shape[0] if transposed else shape[1] * groups
    given = "transposed=1" if transposed else f"groups={groups}"
    if input.shape[1] != channels:
        raise ShapeMismatch(
            f"Given {given}, weight of size {shape}, expected input{list(input.shape)} to have {channels} channels, "
            f"but got {input.shape[1]} channels instead"
        )
    outputs = shape[1] * groups if transposed else shape[0]
    if bias is not None and bias.shape != (outputs,):
        raise ShapeMismatch(
            f"Given {f'{given}, ' if transposed else ''}weight of size {shape}, expected bias to be 1-dimensional "
            f"with {outputs} elements, but got bias of size {list(bias.shape)} instead"
        )


def _check_bias_dtype(input: DType, bias: DType) -> None:
    """Raise for a bias whose dtype is not the input's."""
    if bias is not input:
        raise DTypeMismatch(f"Input type ({input.c_name}) and bias type ({bias.c_name}) should be the same")


def _kernel_name(ndim: int, dilation: Shape, transposed: bool) -> str:
    """The name of torch's kernel for this number of dimensions."""
    if transposed:
        return f"slow_conv_transpose{max(ndim, 2)}d_out_cpu"
    if any(n != 1 for n in dilation):
        return "slow_conv_dilated<>"
    return "compute_columns3d" if ndim == 3 else "slow_conv2d_cpu"


def _tensor_type(dtype: Any) -> str:
    kind = kernel_name(dtype)
    return f"CPU{kind}Type" if kind in ("Bool", "BFloat16") else f"torch.{kind}Tensor"


def _by_library(input: Any, weight: Any, groups: int) -> bool:
    """Whether torch uses MKLDNN, whose error texts differ: for bfloat16, and for float32 unless the input is small."""
    if input.dtype != float32.numpy:
        return bool(input.dtype == bfloat16.numpy)
    large = len(input.shape) < 5 and math.prod(input.shape) > 20480
    return large or input.shape[0] > 1 or groups > 1 or min(weight.shape[2:][-2:]) > 3 < len(weight.shape)


def _check_dtypes(input: Any, weight: Any, bias: Any, groups: int, kernel: str) -> None:
    check_no_bools(kernel, input)
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.dtype != input.dtype and _by_library(input, weight, groups):
            raise DTypeMismatch(
                f"Input type ({_tensor_type(input.dtype)}) and {name} type ({_tensor_type(parameter.dtype)}) should be "
                f"the same or input should be a MKLDNN tensor and {name} is a dense tensor"
            )
    check_dtype(weight, input.dtype)
    if bias is not None:
        _check_bias_dtype(from_numpy(input.dtype), from_numpy(bias.dtype))


def _times(sizes: Any) -> str:
    return " x ".join(map(str, sizes))


def _named(name: str, values: Shape) -> str:
    """Format the number of each dimension with its name; torch treats one dimension as two."""
    values = values if len(values) > 1 else (0 if name == "output_padding" else 1, *values)
    axes = ("depth", "height", "width")[-len(values) :]
    return " ".join(f"{name}_{axis}: {n}" for axis, n in zip(axes, values, strict=True))


def _spans(weight_shape: Any, dilation: Shape) -> Shape:
    """The number of input elements that a window spans, per dimension."""
    return tuple(d * (k - 1) + 1 for k, d in zip(weight_shape[2:], dilation, strict=True))


def _output_sizes(
    sizes: Shape, span: Shape, stride: Shape, padding: Shape, transposed: bool, output_padding: Shape
) -> Shape:
    steps = zip(sizes, span, stride, padding, output_padding, strict=True)
    if transposed:
        return tuple((n - 1) * s - 2 * p + k + o for n, k, s, p, o in steps)
    return tuple((n + 2 * p - k) // s + 1 for n, k, s, p, _ in steps)


def _rule(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Spec:
    ndim = len(weight.shape) - 2
    if not 1 <= ndim <= 3:
        raise ShapeMismatch(
            f"convolution: weight must have 3 to 5 dimensions, but got one of size {list(weight.shape)}"
        )
    numbers = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding}
    numbers = {name: _per_dim(name, value, ndim) for name, value in numbers.items()}
    stride, padding, dilation, output_padding = numbers.values()
    _check_numbers(stride, padding, dilation, output_padding, groups)
    if len(input.shape) != len(weight.shape):
        raise ShapeMismatch(
            f"Expected {ndim + 2}-dimensional input for {ndim + 2}-dimensional weight{list(weight.shape)}, but got "
            f"{len(input.shape)}-dimensional input of size {list(input.shape)} instead"
        )
    _check_channels(input, weight, bias, transposed, groups)
    sizes, span = input.shape[2:], _spans(weight.shape, dilation)
    if 0 in weight.shape[2:]:
        raise ShapeMismatch(f"kernel size should be greater than zero, but got {_times(weight.shape[2:])}")
    out = _output_sizes(sizes, span, stride, padding, transposed, output_padding)
    padded = tuple(n + 2 * p for n, p in zip(sizes, padding, strict=True))
    if not transposed and any(n < k for n, k in zip(padded, span, strict=True)):
        raise ShapeMismatch(
            f"Calculated padded input size per channel: ({_times(padded)}). Kernel size: ({_times(span)}). "
            "Kernel size can't be greater than actual input size"
        )
    _check_dtypes(input, weight, bias, groups, _kernel_name(ndim, dilation, transposed))
    if 0 in sizes:
        raise ShapeMismatch(
            f"Only zero batch or zero channel inputs are supported, but got input shape: {list(input.shape)}"
        )
    if transposed and any(o >= max(s, d) for o, s, d in zip(output_padding, stride, dilation, strict=True)):
        raise ShapeMismatch(
            "output padding must be smaller than either stride or dilation, but got "
            + " ".join(_named(n, numbers[n]) for n in ("output_padding", "stride", "dilation"))
        )
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    if any(n < 1 for n in out):
        raise ShapeMismatch(_too_small(input.shape[0], channels, sizes, out))
    return Spec((input.shape[0], channels, *out), input.dtype)


def _too_small(batch: int, channels: int, sizes: Shape, out: Shape) -> str:
    """The error text for an output without elements; torch treats a signal as an image of height 1."""
    if len(out) == 1:
        sizes, out = (1, *sizes), (1, *out)
    negative = next((i for i, n in enumerate(out, 2) if n < 0), None)
    if not batch and negative is not None:
        shape = [batch, channels, *out]
        return f"invalid shape dimension {shape[negative]} at index {negative} of shape {shape}"
    return (
        f"Given input size per channel: ({_times(sizes)}). Calculated output size per channel: ({_times(out)}). "
        "Output size is too small"
    )


# The op --------------------------------------------------------------------------------------------------


def _scratch(input: Any, weight: Any, bias: Any, padding: Any = (), transposed: bool = False, **attrs: Any) -> int:
    """The scratch bytes: a padded input, the columns of a block, and copies of the result."""
    ndim = len(weight.shape) - 2
    result = convolution.rule(input, weight, bias, padding=padding, transposed=transposed, **attrs).shape
    itemsize, taps = max(input.dtype.itemsize, 4), math.prod(weight.shape[2:])
    copies = 3 * math.prod(result) + math.prod(input.shape) + math.prod(weight.shape)
    sizes = result[2:] if transposed else input.shape[2:]
    padded = math.prod([n + 2 * p for n, p in zip(sizes, _per_dim("", padding, ndim), strict=True)])
    if transposed:
        return int(itemsize * (copies + result[0] * result[1] * (padded + taps * math.prod(input.shape[2:]))))
    sample = input.shape[1] * taps * math.prod(result[2:])
    slices = result[0] if result[0] > 1 else result[2]
    columns = min(itemsize * sample * result[0], max(COLUMNS, itemsize * sample * result[0] // max(slices, 1)))
    return int(2 * columns + itemsize * (copies + input.shape[0] * input.shape[1] * padded))


@op(_rule, variants=FUNCTION, memory=scratch(_scratch), autocast=LOWER_ON_CUDA, batching=nn_rules.convolution)
def convolution(
    xp: Any,
    input: Array,
    weight: Array,
    bias: Array = None,
    stride: Ints = (),
    padding: Ints = (),
    dilation: Ints = (),
    transposed: Bool = False,
    output_padding: Ints = (),
    groups: Int = 1,
) -> Any:
    """Windows of input (N, C, …) times a weight (O, C / groups, …), or the transpose of that map."""
    ndim = weight.ndim - 2
    stride, padding, dilation = (_per_dim("", v, ndim) for v in (stride, padding, dilation))
    if transposed:
        result = _scatter(xp, input, weight, stride, padding, dilation, _per_dim("", output_padding, ndim), groups)
    else:
        result = _gather(xp, input, weight, stride, padding, dilation, groups)
    return result if bias is None else result + xp.reshape(bias, (-1,) + (1,) * ndim)


def _gather(xp: Any, input: Any, weight: Any, stride: Shape, padding: Shape, dilation: Shape, groups: int) -> Any:
    n, outputs, kernel = len(input), weight.shape[0], weight.shape[2:]
    split = _windows(xp, input, kernel, stride, padding, dilation, groups)
    ndim = len(kernel)
    sizes = split.shape[3 : 3 + ndim]
    taps, places = math.prod(kernel), math.prod(sizes)
    matrix = xp.reshape(weight, (groups, outputs // groups, weight.shape[1] * taps))
    products = []
    for block in _column_blocks(split, 0):
        parts = (block,) if len(block) > 1 else _column_blocks(block, 3)  # a single sample may still be too large
        products.append(_joined(xp, [_product(xp, matrix, part, ndim, taps <= places) for part in parts], -1))
    return xp.reshape(_joined(xp, products, 0), (n, outputs, *sizes))


def _joined(xp: Any, parts: list[Any], axis: int) -> Any:
    return parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=axis)


def _product(xp: Any, matrix: Any, split: Any, ndim: int, by_sample: bool) -> Any:
    """Multiply the matrix by the windows as columns: (N, groups, O / groups, places)."""
    if by_sample:
        # One matrix product per sample: the result needs no reordering, and columns are copied in rows of the output.
        return xp.matmul(matrix, _columns(xp, split, ndim))
    # A kernel larger than the output, as for a weight's gradient: one product, with columns copied in kernel rows.
    n, groups, _, *shape = split.shape
    places, rows = math.prod(shape[:ndim]), matrix.shape[-1]
    at, within = range(3, 3 + ndim), range(3 + ndim, 3 + 2 * ndim)
    columns = xp.reshape(xp.transpose(split, (1, 0, *at, 2, *within)), (groups, n * places, rows))
    product = xp.reshape(xp.matmul(matrix, xp.swapaxes(columns, 1, 2)), (groups, matrix.shape[1], n, places))
    return xp.ascontiguousarray(xp.transpose(product, (2, 0, 1, 3)))


def _column_blocks(split: Any, axis: int) -> Iterable[Any]:
    """Split the windows along ``axis`` into parts whose columns take at most COLUMNS bytes, or into single slices."""
    return blocks(split, axis, math.prod(split.shape) * split.dtype.itemsize, COLUMNS)


def _windows(xp: Any, input: Any, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, groups: int) -> Any:
    """All windows: (N, groups, C / groups, *places, *kernel)."""
    n, channels, *_ = input.shape
    windows = xp.strided_windows(xp.padded(input, padding), kernel, stride, dilation)
    return xp.reshape(windows, (n, groups, channels // groups, *windows.shape[2:]))


def _columns(xp: Any, split: Any, ndim: int) -> Any:
    """The windows as the columns of matrices: (N, groups, C / groups * taps, places)."""
    at, within = range(3, 3 + ndim), range(3 + ndim, 3 + 2 * ndim)
    rows = split.shape[2] * math.prod(split.shape[3 + ndim :])
    shape = (*split.shape[:2], rows, math.prod(split.shape[3 : 3 + ndim]))
    return xp.reshape(xp.transpose(split, (0, 1, 2, *within, *at)), shape)


def _scatter(
    xp: Any, input: Any, weight: Any, stride: Shape, padding: Shape, dilation: Shape, output_padding: Shape, groups: int
) -> Any:
    n, channels, *sizes = input.shape
    kernel, outputs = weight.shape[2:], weight.shape[1] * groups
    rows = weight.shape[1] * math.prod(kernel)
    matrix = xp.swapaxes(xp.reshape(weight, (groups, channels // groups, rows)), 1, 2)
    columns = xp.matmul(matrix, xp.reshape(input, (n, groups, channels // groups, math.prod(sizes))))
    full = _output_sizes(tuple(sizes), _spans(weight.shape, dilation), stride, (0,) * len(kernel), True, output_padding)
    result = xp.fold(xp.reshape(columns, (n, outputs, *kernel, *sizes)), full, stride, dilation)
    if not any(padding):
        return result
    inner = tuple(slice(p, m - p) for p, m in zip(padding, full, strict=True))
    return xp.ascontiguousarray(result[(slice(None), slice(None), *inner)])


# Derivatives, which are convolutions too, so that derivatives of any order work --------------------------


def _corner(F: Any, value: Any, sizes: Shape) -> Any:
    """The first ``sizes`` elements of each spatial dimension."""
    if tuple(value.shape[2:]) == sizes:
        return value
    everything = ("slice", None, None, None)
    return F.getitem(value, (everything, everything, *[("slice", 0, n, None) for n in sizes]))


def _input_grad(
    F: Any,
    grad: Any,
    weight: Any,
    input_shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    groups: int,
) -> Any:
    ndim = len(input_shape) - 2
    stride, padding, dilation = (_per_dim("", v, ndim) for v in (stride, padding, dilation))
    sizes, none = tuple(input_shape[2:]), (0,) * ndim
    if transposed:
        # An output padding of at least one stride adds windows that match no input element.
        return _corner(F, F.convolution(grad, weight, None, stride, padding, dilation, False, none, groups), sizes)
    reached = _output_sizes(tuple(grad.shape[2:]), _spans(weight.shape, dilation), stride, padding, True, none)
    missed = tuple(n - m for n, m in zip(sizes, reached, strict=True))
    return F.convolution(grad, weight, None, stride, padding, dilation, True, missed, groups)


def _weight_grad(
    F: Any,
    grad: Any,
    input: Any,
    weight_shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    groups: int,
) -> Any:
    """Convolve the input with the gradient, with batch and channels exchanged, and stride and dilation exchanged."""
    if transposed:
        input, grad = grad, input
    n, channels, *sizes = input.shape
    if not n:
        return F.new_zeros(grad, tuple(weight_shape))
    ndim = len(sizes)
    stride, padding, dilation = (_per_dim("", v, ndim) for v in (stride, padding, dilation))
    if F.xp is not None and math.prod(weight_shape[2:]) <= math.prod(grad.shape[2:]):
        return _weight_grad_by_columns(F.xp, grad, input, weight_shape, stride, padding, dilation, groups)
    split = F.reshape(input, (n, groups, channels // groups, *sizes))
    turned = F.reshape(F.permute(split, (2, 1, 0, *range(3, 3 + ndim))), (channels // groups, groups * n, *sizes))
    kernel = F.transpose(grad, 0, 1)
    result = F.convolution(turned, kernel, None, dilation, padding, stride, False, (0,) * ndim, groups)
    return F.transpose(_corner(F, result, tuple(weight_shape[2:])), 0, 1)


def _weight_grad_by_columns(
    xp: Any, grad: Any, input: Any, weight_shape: Any, stride: Shape, padding: Shape, dilation: Shape, groups: int
) -> Any:
    """``_weight_grad`` on arrays, from the columns of the forward pass: one product per sample, then their sum."""
    n, outputs, *places = grad.shape
    ndim = len(places)
    split = _windows(xp, input, weight_shape[2:], stride, padding, dilation, groups)
    # A larger stride or an output padding leaves windows that match no element of the gradient.
    split = split[(slice(None), slice(None), slice(None), *[slice(size) for size in places])]
    rows = xp.reshape(widened(grad), (n, groups, outputs // groups, math.prod(places)))
    products, done = [], 0
    for block in _column_blocks(split, 0):
        columns = _columns(xp, widened(block), ndim)
        here = rows if len(block) == n else rows[done : done + len(block)]
        products.append(xp.matmul(here, xp.swapaxes(columns, -1, -2)))
        done += len(block)
    rows = xp.reshape(_joined(xp, products, 0), (n, math.prod(weight_shape)))
    return xp.reshape(xp.column_sums(rows), tuple(weight_shape))


def _bias_grad(F: Any, grad: Any) -> Any:
    if F.xp is None or grad.dtype.itemsize == 2:
        return F.sum(grad, (0, *range(2, len(grad.shape))))
    n, channels, *sizes = grad.shape
    sums = F.xp.row_sums(F.xp.reshape(grad, (n * channels, math.prod(sizes))))
    return F.xp.column_sums(F.xp.reshape(sums, (n, channels)))


convolution.derivative(input=_input_grad, weight=_weight_grad, bias=_bias_grad)


# Public functions of one to three dimensions -------------------------------------------------------------


def _batched(F: Any, name: str, ndim: int, input: Any, weight: Any, bias: Any, attrs: tuple[Any, ...]) -> Any:
    """Convolve an input with or without a batch dimension."""
    shape = list(input.shape)
    if len(shape) not in (ndim + 1, ndim + 2):
        raise ShapeMismatch(
            f"Expected {ndim + 1}D (unbatched) or {ndim + 2}D (batched) input to {name}, but got input of size: {shape}"
        )
    if len(shape) == ndim + 2:
        return F.convolution(input, weight, bias, *attrs)
    return F.squeeze(F.convolution(F.unsqueeze(input, 0), weight, bias, *attrs), 0)


def _padding_named(
    F: Any, padding: str, ndim: int, input: Any, weight: Any, stride: Shape, dilation: Shape
) -> tuple[Any, Shape]:
    """Return the input and the numbers for padding "valid" or "same"; an odd total is padded at the end first."""
    if padding == "valid":
        return input, (0,) * ndim
    if padding != "same":
        raise InvalidOperation(f"Invalid padding string: '{padding}'")
    if any(s != 1 for s in stride):
        raise InvalidOperation("padding='same' is not supported for strided convolutions")
    if len(weight.shape) != ndim + 2 or len(input.shape) not in (ndim + 1, ndim + 2):
        return input, (0,) * ndim  # the op raises the error
    total = tuple(span - 1 for span in _spans(weight.shape, dilation))
    if any(n % 2 for n in total):
        input = F.pad(input, tuple(n for t in reversed(total) for n in (0, t % 2)))
    return input, tuple(n // 2 for n in total)


def _check_transposed(ndim: int, input: Any, weight: Any) -> None:
    """Raise for a weight without elements."""
    if 0 in weight.shape[1:] and input.shape and input.shape[0]:
        form, shape = "non-empty 2D or 4D weight tensor expected, but got:", list(weight.shape)
        if ndim == 1:
            shape.insert(2, 1)
        if ndim == 3:
            planes = "n_output_plane x n_input_plane x kernel_depth x kernel_height x kernel_width"
            form = f"non-empty 5D ({planes}) tensor expected for weight, but got:"
        raise ShapeMismatch(f"{form} {shape}")


SHAPED = {
    1: "signals (N, C, L) or (C, L)",
    2: "images (N, C, H, W) or (C, H, W)",
    3: "volumes (N, C, D, H, W) or (C, D, H, W)",
}


def _declare_conv(ndim: int) -> Op:
    def conv(
        F: Any,
        input: Array,
        weight: Array,
        bias: Array = None,
        stride: IntOrInts = 1,
        padding: IntsOrStr = 0,
        dilation: IntOrInts = 1,
        groups: Int = 1,
    ) -> Any:
        stride, dilation = _per_dim("stride", stride, ndim), _per_dim("dilation", dilation, ndim)
        if isinstance(padding, str):
            input, padding = _padding_named(F, padding, ndim, input, weight, stride, dilation)
        padding = _per_dim("padding", padding, ndim)
        if bias is not None:
            _check_bias_dtype(input.dtype, bias.dtype)
        attrs = (stride, padding, dilation, False, (0,) * ndim, groups)
        return _batched(F, f"conv{ndim}d", ndim, input, weight, bias, attrs)

    conv.__doc__ = f"""The correlation of {SHAPED[ndim]} with a weight (O, C / groups, …).

    ``padding`` is numbers, or "valid" for none, or "same" for as much as keeps the size.
    """
    return composite(key=f"conv{ndim}d", variants=FUNCTION | NN_FUNCTION, autocast=LOWER)(conv)


def _declare_transpose(ndim: int) -> Op:
    def conv_transpose(
        F: Any,
        input: Array,
        weight: Array,
        bias: Array = None,
        stride: IntOrInts = 1,
        padding: IntOrInts = 0,
        output_padding: IntOrInts = 0,
        groups: Int = 1,
        dilation: IntOrInts = 1,
    ) -> Any:
        _check_transposed(ndim, input, weight)
        numbers = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding}
        stride, padding, dilation, output_padding = (_per_dim(name, value, ndim) for name, value in numbers.items())
        attrs = (stride, padding, dilation, True, output_padding, groups)
        return _batched(F, f"conv_transpose{ndim}d", ndim, input, weight, bias, attrs)

    conv_transpose.__doc__ = f"""The transpose of ``conv{ndim}d`` as a linear map, with a weight (C, O / groups, …)."""
    return composite(key=f"conv_transpose{ndim}d", variants=FUNCTION | NN_FUNCTION, autocast=LOWER)(conv_transpose)


for _declare in (_declare_conv, _declare_transpose):
    for _ndim in SHAPED:
        _declare(_ndim)


@composite(variants=FUNCTION | NN_FUNCTION)
def conv_tbc(F: Any, input: Array, weight: Array, bias: Array, pad: Int = 0) -> Any:
    """Convolution of sequences (L, N, C) with weights (K, C, D): (L', N, D)."""
    if input.ndim != 3:
        raise ShapeMismatch("Input must have 3 dims: time, batch, in_channel")
    if weight.ndim != 3:
        raise ShapeMismatch("Weight tensor must have 3 dims: kernel_width, in_channels, out_channels.")
    if bias.ndim != 1:
        raise ShapeMismatch("Bias must be 1-D")
    if input.shape[2] != weight.shape[1]:
        raise ShapeMismatch("Input dim 2 (input channels) is not == dim 1 in the weight tensor")
    if bias.shape[0] != weight.shape[2]:
        raise ShapeMismatch("Bias size must equal dim 2 in the weight tensor (output channels).")
    length = input.shape[0] + 2 * pad - weight.shape[0] + 1
    if length < 0:
        shape = [length, input.shape[1], weight.shape[2]]
        raise ShapeMismatch(f"Trying to create tensor with negative dimension {length}: {shape}")
    if pad < 0:  # a negative padding crops
        input, pad = F.narrow(input, 0, -pad, input.shape[0] + 2 * pad), 0
    result = F.conv1d(F.permute(input, (1, 2, 0)), F.permute(weight, (2, 1, 0)), bias, padding=pad)
    return F.permute(result, (2, 0, 1))
