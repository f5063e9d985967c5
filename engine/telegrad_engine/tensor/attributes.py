"""Attributes and conversions of tensors that need no value, under torch's names.

The class here is a base of :class:`telegrad_engine.tensor.methods.TensorMethods`, and so of every kind of tensor.
"""

from __future__ import annotations

from typing import Any

from ..dtypes import DType, from_numpy, parse
from ..errors import InvalidArgument, InvalidOperation, InvalidValue, ShapeMismatch
from ..memory_layout import contiguous_format, geometry_of, in_order, memory_id, strided
from ..shapes import Size, wrap_dim

LEGACY = "Tensor"
"""What the names of the old typed constructors end in: ``FloatTensor``."""


def legacy_name(dtype: DType) -> str:
    """What ``tensor.type()`` answers for a dtype: ``telegrad.FloatTensor``."""
    return f"telegrad.{dtype.kernel_name}{LEGACY}"


def legacy_dtype(name: str) -> DType:
    """The dtype of a name such as ``torch.FloatTensor``. Raises InvalidValue for any other name."""
    from ..dtypes import ALL

    plain = name.removeprefix("torch.").removeprefix("telegrad.").removeprefix("cuda.")
    for dtype in ALL:
        if plain == f"{dtype.kernel_name}{LEGACY}":
            return dtype
    raise InvalidValue(f"invalid type: '{name}'")


def dtype_of_type(value: Any) -> DType:
    """The dtype that an argument of ``type()`` means: a dtype, its old name, or a typed constructor."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        return legacy_dtype(value)
    dtype = getattr(value, "dtype", None)
    if isinstance(value, type) and isinstance(dtype, DType):
        return dtype
    if isinstance(value, type):
        try:
            return parse(value)
        except (InvalidArgument, TypeError):
            pass
    raise InvalidArgument("dtype must be a type, str, or dtype object")


class TensorAttributes:
    """Attributes and conversions that need a shape and a dtype alone. ``_data`` has both."""

    _data: Any

    # Kinds of tensors that there are none of -------------------------------------------------

    is_ipu = is_maia = is_meta = is_mkldnn = is_mps = is_mtia = is_vulkan = is_xla = is_xpu = False
    is_nested = is_quantized = is_sparse = is_sparse_csr = False
    name: str | None = None
    layout = strided

    def is_complex(self) -> bool:
        """Whether the dtype is complex; none is."""
        return self._dtype.is_complex

    def is_conj(self) -> bool:
        """Whether the conjugate bit is set; never."""
        return False

    def is_neg(self) -> bool:
        """Whether the negative bit is set; never."""
        return False

    def is_distributed(self) -> bool:
        """Whether the tensor is spread over several devices; never."""
        return False

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the memory is page-locked; never."""
        return False

    def is_shared(self) -> bool:
        """Whether the memory is shared with other processes; never."""
        return False

    # What the dtype says ---------------------------------------------------------------------

    @property
    def _dtype(self) -> DType:
        return from_numpy(self._data.dtype)

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return self._dtype.is_signed

    @property
    def grad_dtype(self) -> DType:
        """The dtype that gradients of this tensor have: its own."""
        return self._dtype

    def type(self, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """The tensor in a dtype, or in that of a typed constructor; without an argument, that one's name.

        Raises ValueError for an unknown name and TypeError for what names no type.
        """
        if dtype is None:
            return legacy_name(self._dtype)
        to: Any = self
        return to.to(dtype=dtype_of_type(dtype))

    def short(self, memory_format: Any = None) -> Any:
        """The tensor as int16."""
        return self._as("int16", memory_format)

    def char(self, memory_format: Any = None) -> Any:
        """The tensor as int8."""
        return self._as("int8", memory_format)

    def byte(self, memory_format: Any = None) -> Any:
        """The tensor as uint8."""
        return self._as("uint8", memory_format)

    def bfloat16(self, memory_format: Any = None) -> Any:
        """The tensor as bfloat16."""
        return self._as("bfloat16", memory_format)

    def _as(self, name: str, memory_format: Any = None) -> Any:
        tensor: Any = self
        if memory_format is not None:
            return tensor.to(dtype=name, memory_format=memory_format)
        dtype = parse(name)
        return tensor if tensor.dtype is dtype else tensor._cast(dtype)

    # What the shape says -----------------------------------------------------------------------

    def ndimension(self) -> int:
        """Number of dimensions."""
        return len(self._data.shape)

    def nelement(self) -> int:
        """Number of elements."""
        return Size(self._data.shape).numel()

    def dense_dim(self) -> int:
        """Number of dimensions: a strided tensor is dense in all."""
        return len(self._data.shape)

    def sparse_dim(self) -> int:
        """Number of sparse dimensions: 0."""
        return 0

    def is_same_size(self, other: Any) -> bool:
        """Whether ``other`` has the same shape."""
        if not hasattr(other, "_data"):
            raise InvalidArgument(
                f"is_same_size(): argument 'other' (position 1) must be Tensor, not {type(other).__name__}"
            )
        return tuple(self._data.shape) == tuple(other._data.shape)

    # Memory ------------------------------------------------------------------------------------

    def stride(self, dim: int | None = None) -> Any:
        """How many elements apart neighbours along each dimension are in memory, or along one dimension."""
        if dim is not None and (isinstance(dim, bool) or not hasattr(dim, "__index__")):
            raise InvalidArgument(f"stride(): argument 'dim' (position 1) must be int, not {type(dim).__name__}")
        strides = geometry_of(self).strides
        return strides if dim is None else strides[wrap_dim(dim, len(strides))]

    def storage_offset(self) -> int:
        """How many elements of the memory precede the first element."""
        return geometry_of(self).offset

    def is_contiguous(self, *, memory_format: Any = contiguous_format) -> bool:
        """Whether the elements lie in memory in the order of ``memory_format``, without gaps."""
        return in_order(geometry_of(self), memory_format)

    def dim_order(self, ambiguity_check: Any = False) -> tuple[int, ...]:
        """The dimensions from the one with the largest stride to the one with the smallest."""
        strides = geometry_of(self).strides
        return tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))

    def data_ptr(self) -> int:
        """A number that tensors share whose first elements share memory, and no others; 0 for an empty tensor.

        It is no address: nothing can be read there.
        """
        if not self.nelement():
            return 0
        return memory_id(self) + self.storage_offset() * self._dtype.itemsize

    const_data_ptr = data_ptr

    def is_set_to(self, tensor: Any) -> bool:
        """Whether ``tensor`` shows the same memory in the same geometry."""
        if not hasattr(tensor, "_data"):
            raise InvalidArgument(
                f"is_set_to(): argument 'tensor' (position 1) must be Tensor, not {type(tensor).__name__}"
            )
        same = memory_id(self) == memory_id(tensor)
        return same and geometry_of(self) == geometry_of(tensor)

    def _is_view(self) -> bool:
        return getattr(self, "_base", None) is not None

    # Themselves, for tensors of real numbers in ordinary memory ---------------------------------

    def share_memory_(self) -> Any:
        """The tensor itself: sessions share memory with no process."""
        return self

    def to_dense(self, dtype: Any = None, *, masked_grad: bool = True) -> Any:
        """The tensor itself, which is dense, or in another dtype."""
        return self if dtype is None else self._as(dtype)

    @property
    def H(self) -> Any:
        """The transpose of a matrix. Raises RuntimeError for other numbers of dimensions."""
        ndim = len(self._data.shape)
        if ndim not in (0, 2):
            raise ShapeMismatch(f"tensor.H is only supported on matrices (2-D tensors). Got {ndim}-D tensor.")
        return _transposed(self, "tensor.H")

    @property
    def mH(self) -> Any:
        """The tensor with its last two dimensions swapped. Raises RuntimeError for fewer than two."""
        return _transposed(self, "tensor.mH")

    @property
    def real(self) -> Any:
        """The tensor itself, whose numbers are real."""
        return self

    @property
    def imag(self) -> Any:
        """Raises RuntimeError: only complex tensors have an imaginary part."""
        raise InvalidOperation("imag is not implemented for tensors with non-complex dtypes.")


def _transposed(tensor: Any, name: str) -> Any:
    ndim = len(tensor._data.shape)
    if not ndim:
        return tensor
    if ndim < 2:
        raise ShapeMismatch(f"{name} is only supported on matrices or batches of matrices. Got {ndim}-D tensor.")
    return tensor.transpose(-2, -1)
