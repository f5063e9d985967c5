"""Convolutions as they are called: of one, two and three dimensions, and transposed ones."""

from __future__ import annotations

from typing import Any

from ..errors import InvalidOperation, ShapeMismatch
from ..schema.op import Op, composite
from ..schema.parameters import Array, Int, IntOrInts, IntsOrStr
from ..shapes import Shape
from .convolution import check_bias_dtype, per_dim, spans


def _batched(F: Any, name: str, ndim: int, input: Any, weight: Any, bias: Any, attrs: tuple[Any, ...]) -> Any:
    """The convolution of an input with or without a batch dimension."""
    shape = list(input.shape)
    if len(shape) not in (ndim + 1, ndim + 2):
        raise ShapeMismatch(
            f"Expected {ndim + 1}D (unbatched) or {ndim + 2}D (batched) input to {name}, but got input of size: {shape}"
        )
    if len(shape) == ndim + 2:
        return F.convolution(input, weight, bias, *attrs)
    return F.squeeze(F.convolution(F.unsqueeze(input, 0), weight, bias, *attrs), 0)


def _convolve(
    F: Any, ndim: int, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    stride, dilation = per_dim("stride", stride, ndim), per_dim("dilation", dilation, ndim)
    if isinstance(padding, str):
        input, padding = _padding_named(F, padding, ndim, input, weight, stride, dilation)
    padding = per_dim("padding", padding, ndim)
    if bias is not None:
        check_bias_dtype(input.dtype, bias.dtype)
    attrs = (stride, padding, dilation, False, (0,) * ndim, groups)
    return _batched(F, f"conv{ndim}d", ndim, input, weight, bias, attrs)


def _padding_named(
    F: Any, padding: str, ndim: int, input: Any, weight: Any, stride: Shape, dilation: Shape
) -> tuple[Any, Shape]:
    """The padding that "valid" or "same" means; an odd one is put at the end, into the input itself."""
    if padding == "valid":
        return input, (0,) * ndim
    if padding != "same":
        raise InvalidOperation(f"Invalid padding string: '{padding}'")
    if any(s != 1 for s in stride):
        raise InvalidOperation("padding='same' is not supported for strided convolutions")
    if len(weight.shape) != ndim + 2 or len(input.shape) not in (ndim + 1, ndim + 2):
        return input, (0,) * ndim  # the op itself says what is wrong
    total = tuple(span - 1 for span in spans(weight.shape, dilation))
    if any(n % 2 for n in total):
        input = F.pad(input, tuple(n for t in reversed(total) for n in (0, t % 2)))
    return input, tuple(n // 2 for n in total)


def _transpose(
    F: Any,
    ndim: int,
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Any:
    if 0 in weight.shape[1:] and input.shape and input.shape[0]:
        form, shape = "non-empty 2D or 4D weight tensor expected, but got:", list(weight.shape)
        if ndim == 1:
            shape.insert(2, 1)
        if ndim == 3:
            planes = "n_output_plane x n_input_plane x kernel_depth x kernel_height x kernel_width"
            form = f"non-empty 5D ({planes}) tensor expected for weight, but got:"
        raise ShapeMismatch(f"{form} {shape}")
    numbers = {"stride": stride, "padding": padding, "dilation": dilation, "output_padding": output_padding}
    stride, padding, dilation, output_padding = (per_dim(name, value, ndim) for name, value in numbers.items())
    attrs = (stride, padding, dilation, True, output_padding, groups)
    return _batched(F, f"conv_transpose{ndim}d", ndim, input, weight, bias, attrs)


# What users call -----------------------------------------------------------------------------------------

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
        return _convolve(F, ndim, input, weight, bias, stride, padding, dilation, groups)

    conv.__doc__ = f"""The correlation of {SHAPED[ndim]} with a weight (O, C / groups, …).

    ``padding`` is numbers, or "valid" for none, or "same" for as much as keeps the size.
    """
    return composite(key=f"conv{ndim}d", functional=True, method=False)(conv)


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
        return _transpose(F, ndim, input, weight, bias, stride, padding, output_padding, groups, dilation)

    conv_transpose.__doc__ = f"""The transpose of ``conv{ndim}d`` as a linear map, with a weight (C, O / groups, …)."""
    return composite(key=f"conv_transpose{ndim}d", functional=True, method=False)(conv_transpose)


conv1d = _declare_conv(1)
conv2d = _declare_conv(2)
conv3d = _declare_conv(3)
conv_transpose1d = _declare_transpose(1)
conv_transpose2d = _declare_transpose(2)
conv_transpose3d = _declare_transpose(3)


@composite(method=False, functional=True)
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
    if pad < 0:  # it takes away what others add
        input, pad = F.narrow(input, 0, -pad, input.shape[0] + 2 * pad), 0
    result = F.conv1d(F.permute(input, (1, 2, 0)), F.permute(weight, (2, 1, 0)), bias, padding=pad)
    return F.permute(result, (2, 0, 1))
