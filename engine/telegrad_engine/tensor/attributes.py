"""Attributes and conversions of tensors that need no value, under torch's names.

The class here is a base of :class:`telegrad_engine.tensor.methods.TensorMethods`, and so of every kind of tensor.
"""

from __future__ import annotations

from typing import Any

from ..dtypes import ALL, DType, from_numpy, parse
from ..errors import InvalidArgument, InvalidOperation, InvalidValue, ShapeMismatch
from ..memory_layout import contiguous_format, geometry_of, in_order, memory_id, strided
from ..shapes import Size, wrap_dim

LEGACY = "Tensor"
"""The suffix of the legacy typed constructors' names, such as ``FloatTensor``."""


def legacy_name(dtype: DType) -> str:
    """Return what ``tensor.type()`` returns for a dtype, such as ``telegrad.FloatTensor``."""
    return f"telegrad.{dtype.kernel_name}{LEGACY}"


def legacy_dtype(name: str) -> DType:
    """Return the dtype of a name such as ``torch.FloatTensor``. Raises InvalidValue for any other name."""
    plain = name.removeprefix("torch.").removeprefix("telegrad.").removeprefix("cuda.")
    for dtype in ALL:
        if plain == f"{dtype.kernel_name}{LEGACY}":
            return dtype
    raise InvalidValue(f"invalid type: '{name}'")


def dtype_of_type(value: Any) -> DType:
    """Return the dtype for an argument of ``type()``: a dtype, a legacy name, a typed constructor or a Python type."""
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
    """Attributes and conversions that need only a shape and a dtype, which ``_data`` has."""

    _data: Any

    # Kinds of tensors that do not exist here -------------------------------------------------

    is_ipu = is_maia = is_meta = is_mkldnn = is_mps = is_mtia = is_vulkan = is_xla = is_xpu = False
    is_nested = is_quantized = is_sparse = is_sparse_csr = False
    name: str | None = None
    layout = strided

    def is_complex(self) -> bool:
        """Whether the dtype is complex; always False.

        Examples:
            >>> tg.ones(2).is_complex()
            False
        """
        return self._dtype.is_complex

    def is_conj(self) -> bool:
        """Whether the conjugate bit is set; always False.

        Examples:
            >>> tg.ones(2).is_conj()
            False
        """
        return False

    def is_neg(self) -> bool:
        """Whether the negative bit is set; always False.

        Examples:
            >>> tg.ones(2).is_neg()
            False
        """
        return False

    def is_distributed(self) -> bool:
        """Whether the tensor is spread over several devices; always False.

        Examples:
            >>> tg.ones(2).is_distributed()
            False
        """
        return False

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the memory is page-locked; always False.

        ``device`` has no effect.

        Examples:
            >>> tg.ones(2).is_pinned()
            False
        """
        return False

    def is_shared(self) -> bool:
        """Whether the memory is shared with other processes; always False.

        Examples:
            >>> tg.ones(2).is_shared()
            False
        """
        return False

    # Facts about the dtype -------------------------------------------------------------------

    @property
    def _dtype(self) -> DType:
        return from_numpy(self._data.dtype)

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers.

        Examples:
            >>> tg.ones(2).is_signed()
            True
        """
        return self._dtype.is_signed

    @property
    def grad_dtype(self) -> DType:
        """The dtype of this tensor's gradient, which is the tensor's own.

        Examples:
            >>> tg.ones(2).grad_dtype
            telegrad.float32
        """
        return self._dtype

    def type(self, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """Return the tensor in a dtype or a typed constructor's dtype; without an argument, the legacy type name.

        Raises ValueError for an unknown name and TypeError for an argument that is not a type.

        ``dtype`` is the dtype, the constructor or its name; ``non_blocking`` and ``kwargs`` have no effect.

        Examples:
            >>> tg.ones(2).type(), tg.ones(2).type(tg.int64)
            ('telegrad.FloatTensor', tensor([1, 1]))
        """
        if dtype is None:
            return legacy_name(self._dtype)
        to: Any = self
        return to.to(dtype=dtype_of_type(dtype))

    def _as(self, name: str, memory_format: Any = None) -> Any:
        tensor: Any = self
        if memory_format is not None:
            return tensor.to(dtype=name, memory_format=memory_format)
        dtype = parse(name)
        return tensor if tensor.dtype is dtype else tensor._cast(dtype)

    # Facts about the shape ---------------------------------------------------------------------

    def ndimension(self) -> int:
        """Number of dimensions.

        Examples:
            >>> tg.ones(2, 3).ndimension()
            2
        """
        return len(self._data.shape)

    def nelement(self) -> int:
        """Number of elements.

        Examples:
            >>> tg.ones(2, 3).nelement()
            6
        """
        return Size(self._data.shape).numel()

    def dense_dim(self) -> int:
        """Number of dense dimensions, which is all of them for a strided tensor.

        Examples:
            >>> tg.ones(2, 3).dense_dim()
            2
        """
        return len(self._data.shape)

    def sparse_dim(self) -> int:
        """Number of sparse dimensions: 0.

        Examples:
            >>> tg.ones(2, 3).sparse_dim()
            0
        """
        return 0

    def is_same_size(self, other: Any) -> bool:
        """Whether ``other`` has the same shape.

        Examples:
            >>> tg.ones(2).is_same_size(tg.zeros(2))
            True
        """
        if not hasattr(other, "_data"):
            raise InvalidArgument(
                f"is_same_size(): argument 'other' (position 1) must be Tensor, not {type(other).__name__}"
            )
        return tuple(self._data.shape) == tuple(other._data.shape)

    # Memory ------------------------------------------------------------------------------------

    def stride(self, dim: int | None = None) -> Any:
        """Return the strides in elements, or the stride of dimension ``dim``.

        Examples:
            >>> tg.ones(2, 3).stride(), tg.ones(2, 3).stride(0)
            ((3, 1), 3)
        """
        if dim is not None and (isinstance(dim, bool) or not hasattr(dim, "__index__")):
            raise InvalidArgument(f"stride(): argument 'dim' (position 1) must be int, not {type(dim).__name__}")
        strides = geometry_of(self).strides
        return strides if dim is None else strides[wrap_dim(dim, len(strides))]

    def storage_offset(self) -> int:
        """Return the offset of the first element in the memory, in elements.

        Examples:
            >>> tg.arange(4)[1:].storage_offset()
            1
        """
        return geometry_of(self).offset

    def is_contiguous(self, *, memory_format: Any = contiguous_format) -> bool:
        """Whether the elements are stored in the order of ``memory_format``, without gaps.

        Examples:
            >>> tg.ones(2, 3).t().is_contiguous()
            False
        """
        return in_order(geometry_of(self), memory_format)

    def dim_order(self, ambiguity_check: Any = False) -> tuple[int, ...]:
        """Return the dimensions in order of decreasing stride.

        ``ambiguity_check`` has no effect.

        Examples:
            >>> tg.ones(2, 3).t().dim_order()
            (1, 0)
        """
        strides = geometry_of(self).strides
        return tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))

    def data_ptr(self) -> int:
        """Return a number that identifies the memory of the first element; 0 for an empty tensor.

        Two tensors have the same number exactly if their first elements share memory. It is not an address that can
        be read.

        Examples:
            >>> x = tg.ones(2)
            >>> x.data_ptr() == x.view(2).data_ptr()
            True
        """
        if not self.nelement():
            return 0
        return memory_id(self) + self.storage_offset() * self._dtype.itemsize

    const_data_ptr = data_ptr

    def is_set_to(self, tensor: Any) -> bool:
        """Whether ``tensor`` has the same memory, offset, shape and strides.

        Examples:
            >>> x = tg.ones(2)
            >>> x.is_set_to(x.view(2))
            True
        """
        if not hasattr(tensor, "_data"):
            raise InvalidArgument(
                f"is_set_to(): argument 'tensor' (position 1) must be Tensor, not {type(tensor).__name__}"
            )
        same = memory_id(self) == memory_id(tensor)
        return same and geometry_of(self) == geometry_of(tensor)

    def _is_view(self) -> bool:
        return getattr(self, "_base", None) is not None

    # Identities, because all tensors are real, dense and in ordinary memory ---------------------

    def share_memory_(self) -> Any:
        """Return the tensor itself: memory is not shared with other processes.

        Examples:
            >>> x = tg.ones(2)
            >>> x.share_memory_() is x
            True
        """
        return self

    def to_dense(self, dtype: Any = None, *, masked_grad: bool = True) -> Any:
        """Return the tensor itself, which is dense already, or the tensor in ``dtype``.

        ``masked_grad`` has no effect.

        Examples:
            >>> tg.ones(2).to_dense()
            tensor([1., 1.])
        """
        return self if dtype is None else self._as(dtype)

    @property
    def H(self) -> Any:
        """The transpose of a matrix. Raises RuntimeError unless the tensor has 0 or 2 dimensions.

        Examples:
            >>> tg.tensor([[1, 2], [3, 4]]).H
            tensor([[1, 3],
                    [2, 4]])
        """
        ndim = len(self._data.shape)
        if ndim not in (0, 2):
            raise ShapeMismatch(f"tensor.H is only supported on matrices (2-D tensors). Got {ndim}-D tensor.")
        return _transposed(self, "tensor.H")

    @property
    def mH(self) -> Any:
        """The tensor with its last two dimensions swapped. Raises RuntimeError for a 1-D tensor.

        Examples:
            >>> tg.ones(5, 2, 3).mH.shape
            telegrad.Size([5, 3, 2])
        """
        return _transposed(self, "tensor.mH")

    @property
    def real(self) -> Any:
        """The tensor itself, which is real.

        Examples:
            >>> tg.ones(2).real
            tensor([1., 1.])
        """
        return self

    @property
    def imag(self) -> Any:
        """Raise RuntimeError: only complex tensors have an imaginary part.

        Examples:
            >>> tg.ones(2).is_complex()  # so that there is no imaginary part
            False
        """
        raise InvalidOperation("imag is not implemented for tensors with non-complex dtypes.")


def _transposed(tensor: Any, name: str) -> Any:
    ndim = len(tensor._data.shape)
    if not ndim:
        return tensor
    if ndim < 2:
        raise ShapeMismatch(f"{name} is only supported on matrices or batches of matrices. Got {ndim}-D tensor.")
    return tensor.transpose(-2, -1)
