"""Lazy modules, which infer sizes from their first input and then become the corresponding regular modules."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Concatenate, ParamSpec

from telegrad_engine.context import no_grad
from telegrad_engine.errors import InvalidChoice, InvalidOperation, InvalidValue
from telegrad_engine.shapes import torch_size

from ...tensor.handle import Tensor
from ..parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from .batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear
from .module import Module

P = ParamSpec("P")


class LazyModuleMixin(Module):
    """A module with placeholders for parameters and buffers, which are materialized before the first ``forward``.

    A subclass materializes them in ``initialize_parameters``, which is called with the arguments of ``forward``. Then
    the module's class becomes ``cls_to_become``, unless that is None.
    """

    cls_to_become: type[Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self.register_load_state_dict_pre_hook(_take_shapes)
        self._initialize_hook = self.register_forward_pre_hook(_infer_parameters, with_kwargs=True)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialize the placeholders."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether any parameter or buffer is still a placeholder."""
        return any(is_lazy(member) for member in (*self._parameters.values(), *self._buffers.values()))


def _take_shapes(module: Any, state_dict: Any, prefix: str, *_: Any) -> None:
    """Materialize placeholders with the shapes of the values to be loaded into them."""
    for name, member in (*module._parameters.items(), *module._buffers.items()):
        value = state_dict.get(prefix + name)
        if is_lazy(member) and value is not None and not is_lazy(value):
            member.materialize(tuple(value.shape))


def _infer_parameters(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with no_grad():
        module.initialize_parameters(*args, **kwargs)
    if module.has_uninitialized_params():
        raise InvalidOperation(f"module {type(module).__name__} has not been fully initialized")
    module._initialize_hook.remove()
    module._load_hook.remove()
    del module._initialize_hook, module._load_hook
    if module.cls_to_become is not None:
        module.__class__ = module.cls_to_become


class _LazyModule(LazyModuleMixin):
    """A module that infers its first constructor argument, a size, from the first input.

    ``_shapes()`` returns the shapes of the module's parameters and buffers by name.
    """

    _shapes: Callable[[], dict[str, tuple[int, ...]]]

    size_name: ClassVar[str]
    """The name of the attribute that holds the size, which is 0 until it is inferred."""

    def _infer_size(self, input: Tensor) -> int:
        """Return the size. Raises an error if the module does not accept the input."""
        raise NotImplementedError

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Infer the size and give the placeholders their shapes and initial values."""
        is_new = self.has_uninitialized_params()
        if getattr(self, self.size_name) == 0:
            setattr(self, self.size_name, self._infer_size(input))
        for name, shape in self._shapes().items():
            member = getattr(self, name)
            if is_lazy(member):
                member.materialize(shape)
        if is_new:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset the parameters if the size is known."""
        if not self.has_uninitialized_params() and getattr(self, self.size_name) != 0:
            super().reset_parameters()  # type: ignore[misc]

    def _remove_shapes(self) -> None:
        """Replace the members whose shapes depend on the size with placeholders."""
        for name in self._shapes():
            member = getattr(self, name)
            if name in self._parameters and member is not None:
                self._parameters[name] = UninitializedParameter(dtype=member.dtype)
            elif member is not None:
                self._buffers[name] = UninitializedBuffer(dtype=member.dtype)


def _without_size(init: Callable[Concatenate[Any, int, P], None]) -> Callable[Concatenate[Any, P], None]:
    """Return the constructor of a lazy module: ``init`` with its defaults but without the size."""
    signature = inspect.signature(init)
    own, _, *others = signature.parameters.values()

    def lazy_init(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
        defaults = {p.name: p.default for p in others[len(args) :] if p.default is not p.empty}
        LazyModuleMixin.__init__(self, 0, *args, **{**defaults, **kwargs})
        self._remove_shapes()

    functools.update_wrapper(lazy_init, init)
    lazy_init.__signature__ = signature.replace(parameters=[own, *others])  # type: ignore[attr-defined]
    return lazy_init


class LazyLinear(_LazyModule, Linear):
    """A Linear that infers ``in_features`` from the last dimension of its first input.

    ``out_features``, ``bias``, ``device`` and ``dtype`` are those of ``Linear``.

    Examples:
        >>> layer = tg.nn.LazyLinear(2)
        >>> layer(tg.ones(3, 4)).shape
        telegrad.Size([3, 2])
        >>> layer
        Linear(in_features=4, out_features=2, bias=True)
    """

    cls_to_become = Linear
    size_name = "in_features"
    __init__ = _without_size(Linear.__init__)

    def _infer_size(self, input: Tensor) -> int:
        size: int = input.shape[-1]
        if not is_lazy(self.weight) and size != self.weight.shape[-1]:
            raise InvalidChoice(
                f"The in_features inferred from input: {size} is not equal to in_features from self.weight: "
                f"{self.weight.shape[-1]}"
            )
        return size


class _LazyConv(_LazyModule):
    size_name = "in_channels"
    dims: ClassVar[int]
    groups: int

    def _infer_size(self, input: Tensor) -> int:
        if input.dim() not in (self.dims + 1, self.dims + 2):
            raise InvalidOperation(
                f"Expected {self.dims + 1}D (unbatched) or {self.dims + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {torch_size(input.shape)}"
            )
        channels: int = input.shape[-self.dims - 1]
        if channels % self.groups:
            raise InvalidValue("in_channels must be divisible by groups")
        return channels


class _LazyNorm(_LazyModule):
    size_name = "num_features"

    def _infer_size(self, input: Tensor) -> int:
        channels: int = input.shape[1]
        return channels


class LazyConv1d(_LazyConv, Conv1d):
    """A Conv1d that infers ``in_channels`` from its first input.

    The arguments are those of ``Conv1d``, see ``Conv2d``.

    Examples:
        >>> tg.nn.LazyConv1d(8, 3)(tg.ones(1, 3, 16)).shape
        telegrad.Size([1, 8, 14])
    """

    cls_to_become = Conv1d
    __init__ = _without_size(Conv1d.__init__)


class LazyConv2d(_LazyConv, Conv2d):
    """A Conv2d that infers ``in_channels`` from its first input.

    The other arguments are those of ``Conv2d``.

    Examples:
        >>> tg.nn.LazyConv2d(8, 3)(tg.ones(1, 3, 16, 16)).shape
        telegrad.Size([1, 8, 14, 14])
    """

    cls_to_become = Conv2d
    __init__ = _without_size(Conv2d.__init__)


class LazyConv3d(_LazyConv, Conv3d):
    """A Conv3d that infers ``in_channels`` from its first input.

    The arguments are those of ``Conv3d``, see ``Conv2d``.

    Examples:
        >>> tg.nn.LazyConv3d(8, 3)(tg.ones(1, 3, 8, 8, 8)).shape
        telegrad.Size([1, 8, 6, 6, 6])
    """

    cls_to_become = Conv3d
    __init__ = _without_size(Conv3d.__init__)


class LazyConvTranspose1d(_LazyConv, ConvTranspose1d):
    """A ConvTranspose1d that infers ``in_channels`` from its first input.

    The arguments are those of ``ConvTranspose1d``, see ``ConvTranspose2d``.

    Examples:
        >>> tg.nn.LazyConvTranspose1d(3, 4)(tg.ones(1, 8, 15)).shape
        telegrad.Size([1, 3, 18])
    """

    cls_to_become = ConvTranspose1d
    __init__ = _without_size(ConvTranspose1d.__init__)


class LazyConvTranspose2d(_LazyConv, ConvTranspose2d):
    """A ConvTranspose2d that infers ``in_channels`` from its first input.

    The other arguments are those of ``ConvTranspose2d``.

    Examples:
        >>> tg.nn.LazyConvTranspose2d(3, 2)(tg.ones(1, 8, 4, 4)).shape
        telegrad.Size([1, 3, 5, 5])
    """

    cls_to_become = ConvTranspose2d
    __init__ = _without_size(ConvTranspose2d.__init__)


class LazyConvTranspose3d(_LazyConv, ConvTranspose3d):
    """A ConvTranspose3d that infers ``in_channels`` from its first input.

    The arguments are those of ``ConvTranspose3d``, see ``ConvTranspose2d``.

    Examples:
        >>> tg.nn.LazyConvTranspose3d(3, 2)(tg.ones(1, 8, 4, 4, 4)).shape
        telegrad.Size([1, 3, 5, 5, 5])
    """

    cls_to_become = ConvTranspose3d
    __init__ = _without_size(ConvTranspose3d.__init__)


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A BatchNorm1d that infers ``num_features`` from its first input.

    The other arguments are those of ``BatchNorm2d``.

    Examples:
        >>> tg.nn.LazyBatchNorm1d()(tg.ones(2, 3)).shape
        telegrad.Size([2, 3])
    """

    cls_to_become = BatchNorm1d
    __init__ = _without_size(BatchNorm1d.__init__)


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A BatchNorm2d that infers ``num_features`` from its first input.

    The other arguments are those of ``BatchNorm2d``.

    Examples:
        >>> tg.nn.LazyBatchNorm2d()(tg.ones(2, 3, 4, 4)).shape
        telegrad.Size([2, 3, 4, 4])
    """

    cls_to_become = BatchNorm2d
    __init__ = _without_size(BatchNorm2d.__init__)


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A BatchNorm3d that infers ``num_features`` from its first input.

    The other arguments are those of ``BatchNorm2d``.

    Examples:
        >>> tg.nn.LazyBatchNorm3d()(tg.ones(2, 3, 4, 4, 4)).shape
        telegrad.Size([2, 3, 4, 4, 4])
    """

    cls_to_become = BatchNorm3d
    __init__ = _without_size(BatchNorm3d.__init__)


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """An InstanceNorm1d that infers ``num_features`` from its first input.

    The other arguments are those of ``BatchNorm2d``.

    Examples:
        >>> tg.nn.LazyInstanceNorm1d()(tg.ones(2, 3, 4)).shape
        telegrad.Size([2, 3, 4])
    """

    cls_to_become = InstanceNorm1d
    __init__ = _without_size(BatchNorm1d.__init__)  # torch gives it these defaults


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """An InstanceNorm2d that infers ``num_features`` from its first input.

    The other arguments are those of ``BatchNorm2d``.

    Examples:
        >>> tg.nn.LazyInstanceNorm2d()(tg.ones(2, 3, 4, 4)).shape
        telegrad.Size([2, 3, 4, 4])
    """

    cls_to_become = InstanceNorm2d
    __init__ = _without_size(BatchNorm2d.__init__)  # torch gives it these defaults


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """An InstanceNorm3d that infers ``num_features`` from its first input.

    The other arguments are those of ``BatchNorm2d``.

    Examples:
        >>> tg.nn.LazyInstanceNorm3d()(tg.ones(2, 3, 4, 4, 4)).shape
        telegrad.Size([2, 3, 4, 4, 4])
    """

    cls_to_become = InstanceNorm3d
    __init__ = _without_size(BatchNorm3d.__init__)  # torch gives it these defaults
