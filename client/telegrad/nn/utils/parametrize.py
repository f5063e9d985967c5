"""Parametrizations, as in torch: parameters and buffers that are computed from others whenever they are read."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from telegrad_engine.context import no_grad
from telegrad_engine.errors import InvalidOperation, InvalidValue

from ...tensor.handle import Tensor
from ..modules.container import ModuleDict, ModuleList
from ..modules.module import Module
from ..parameter import Parameter

NO_CHANGE = "Registering a parametrization may not change the {} of the tensor, unless"
_cache_enabled = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Cache each parametrized tensor after its first read inside the context.

    Examples:
        >>> layer = tg.nn.utils.parametrizations.weight_norm(tg.nn.Linear(4, 2))
        >>> with tg.nn.utils.parametrize.cached():
        ...     print(layer.weight is layer.weight)
        True
    """
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor and their inputs: ``original``, or ``original0``, ``original1`` and so on.

    ``modules`` are applied in order. Raises ValueError if they change the dtype or the shape, unless ``unsafe``.

    Examples:
        >>> class Positive(tg.nn.Module):
        ...     def forward(self, x):
        ...         return x.exp()
        >>> layer = tg.nn.Linear(2, 2)
        >>> _ = tg.nn.utils.parametrize.register_parametrization(layer, "weight", Positive())
        >>> type(layer.parametrizations.weight).__name__
        'ParametrizationList'
    """

    original: Tensor

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise InvalidValue("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        before = _kind(original)
        new = self._inverted(original)
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if original.dtype != new.dtype:
                raise InvalidValue(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {new.dtype}"
                )
            _set(original, new)
            _register(self, "original", original)
        else:
            for i, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise InvalidValue(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got element "
                        f"{i} of the sequence with type {type(part).__name__}."
                    )
                own = Parameter(part, original.requires_grad) if isinstance(original, Parameter) else part
                _register(self, f"original{i}", own.requires_grad_(original.requires_grad))
        if not unsafe:
            _check_same(before, self(), f"{NO_CHANGE} `unsafe` flag is enabled.", ("unparametrized ", "parametrized "))

    @no_grad()
    def _inverted(self, value: Any) -> Any:
        """Apply the parametrizations' right inverses to ``value``, skipping those that have none."""
        for module in reversed(list(self)):
            if hasattr(module, "right_inverse"):
                with suppress(NotImplementedError):
                    value = module.right_inverse(value)
        if not isinstance(value, (Tensor, Sequence)):
            raise InvalidValue(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(value).__name__}"
            )
        return value

    @no_grad()
    def right_inverse(self, value: Any) -> None:
        """Set the original tensors so that the parametrized tensor becomes ``value``."""
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise InvalidOperation(f"parametrization {type(module).__name__} does not implement right_inverse.")
            value = module.right_inverse(value)
        if self.is_tensor:
            if not isinstance(value, Tensor):
                raise InvalidValue(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
            if value.dtype != self.original.dtype:
                raise InvalidValue(
                    f"The tensor returned by `right_inverse` has dtype {value.dtype} while `original` has dtype "
                    f"{self.original.dtype}"
                )
            _set(self.original, value)
            return
        if not isinstance(value, Sequence):
            raise InvalidValue(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
        if len(value) != self.ntensors:
            raise InvalidValue(
                f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of "
                f"length {len(value)}."
            )
        for i, tensor in enumerate(value):
            _set(getattr(self, f"original{i}"), tensor)

    def _originals(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def forward(self) -> Any:
        """Return the parametrized tensor."""
        first, *rest = list(self)
        value = first(*[getattr(self, name) for name in self._originals()])
        for module in rest:
            value = module(value)
        return value


def _set(tensor: Tensor, value: Tensor) -> None:
    """Make ``tensor`` share the memory of ``value``, whose shape may differ."""
    if value is not tensor:
        tensor.data = value.detach()


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _get_state(self: Any) -> Any:
    raise InvalidOperation(
        "Serialization of parametrized modules is only supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    replica = memo[id(self)] = self.__new__(type(self))
    replica.__dict__ = copy.deepcopy(self.__dict__, memo)
    return replica


def _subclass(module: Module) -> None:
    """Give the module its own class, which holds its parametrized tensors as properties."""
    cls = type(module)
    body: dict[str, Any] = {"__getstate__": _get_state, "__module__": cls.__module__}
    if not hasattr(cls, "__deepcopy__"):
        body["__deepcopy__"] = _deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), body)


def _add_property(module: Module, name: str) -> None:
    def read(self: Any) -> Any:
        computed = self.parametrizations[name]
        if not _cache_enabled:
            return computed()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = computed()
        return _cache[key]

    def write(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(read, write))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute ``module``'s tensor ``tensor_name`` with ``parametrization``; several are applied in order.

    If ``parametrization`` has a ``right_inverse``, the tensor keeps its value and can be assigned to. Raises
    ValueError if there is no such tensor or, unless ``unsafe``, if its dtype or shape would change.

    Examples:
        >>> class Positive(tg.nn.Module):
        ...     def forward(self, x):
        ...         return x.exp()
        >>> layer = tg.nn.Linear(2, 2)
        >>> _ = tg.nn.utils.parametrize.register_parametrization(layer, "weight", Positive())
        >>> bool((layer.weight > 0).all())
        True
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_another(module, tensor_name, parametrization)
        known: Any = module.parametrizations[tensor_name]
        known.append(parametrization)
        known.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        parametrizations = ParametrizationList([parametrization], original, unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _subclass(module)
            module.parametrizations = ModuleDict()
        _add_property(module, tensor_name)
        module.parametrizations[tensor_name] = parametrizations
    else:
        raise InvalidValue(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
            f"'{tensor_name}'"
        )
    return module


def _check_another(module: Module, name: str, parametrization: Any) -> None:
    """Raise ValueError if an additional parametrization changes the tensor's dtype or shape."""
    value = getattr(module, name)
    made = parametrization(value)
    labels = f"module.{name}.", f"parametrization(module.{name})."
    _check_same(_kind(value), made, f"{NO_CHANGE} the `unsafe` flag is enabled.", labels)
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(made)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise InvalidValue(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
    text = "The tensor returned by parametrization.right_inverse must have the same {} as"
    _check_same(
        _kind(value), back, f"{text} module.{name}, unless the `unsafe` flag is enabled.", (labels[0], "returned ")
    )


def _kind(tensor: Tensor) -> dict[str, Any]:
    return {"dtype": tensor.dtype, "shape": tensor.shape}


def _check_same(before: dict[str, Any], made: Any, text: str, labels: tuple[str, str]) -> None:
    """Raise ValueError unless a result is a tensor of the same kind; ``text`` has a placeholder for what differs."""
    if not isinstance(made, Tensor):
        raise InvalidValue(f"A parametrization must return a tensor. Got {type(made).__name__}.")
    for what, value in before.items():
        if value != getattr(made, what):
            both = f"{labels[0]}{what}: {value}\n{labels[1]}{what}: {getattr(made, what)}"
            raise InvalidValue(f"{text.format(what)}\n{both}")


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has any parametrization, or one for ``tensor_name``.

    Examples:
        >>> layer = tg.nn.utils.parametrizations.weight_norm(tg.nn.Linear(4, 2))
        >>> tg.nn.utils.parametrize.is_parametrized(layer, "weight")
        True
    """
    known = getattr(module, "parametrizations", None)
    if not isinstance(known, ModuleDict):
        return False
    return len(known) > 0 if tensor_name is None else tensor_name in known


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a parametrized tensor ordinary, with its current value or, without ``leave_parametrized``, its original.

    Raises ValueError if it is not parametrized, or if it has several originals and ``leave_parametrized`` is False.

    ``module`` is returned, and ``tensor_name`` is the name of the tensor.

    Examples:
        >>> layer = tg.nn.utils.parametrizations.weight_norm(tg.nn.Linear(4, 2))
        >>> isinstance(tg.nn.utils.parametrize.remove_parametrizations(layer, "weight").weight, tg.nn.Parameter)
        True
    """
    if not is_parametrized(module, tensor_name):
        raise InvalidValue(f"Module {module} does not have a parametrization on {tensor_name}")
    known: Any = module.parametrizations[tensor_name]
    if known.is_tensor:
        tensor = known.original
        if leave_parametrized:
            with no_grad():
                _set(tensor, getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        tensor = Parameter(value) if value.requires_grad else value
    else:
        raise InvalidValue(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a "
            "sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, tensor)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """Return the module's class, or its class before it was parametrized.

    Examples:
        >>> layer = tg.nn.utils.parametrizations.weight_norm(tg.nn.Linear(4, 2))
        >>> tg.nn.utils.parametrize.type_before_parametrizations(layer) is tg.nn.Linear
        True
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


@no_grad()
def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give ``to_module`` the parametrizations and originals of one tensor of ``from_module``, or of all of them.

    ``tensor_name`` is the name of the tensor; None transfers all.

    Examples:
        >>> first = tg.nn.utils.parametrizations.weight_norm(tg.nn.Linear(4, 2))
        >>> second = tg.nn.utils.parametrize.transfer_parametrizations_and_params(first, tg.nn.Linear(4, 2))
        >>> tg.nn.utils.parametrize.is_parametrized(second)
        True
    """
    if not is_parametrized(from_module):
        return to_module
    known: Any = from_module.parametrizations
    for name in [tensor_name] if tensor_name is not None else list(known):
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        for parametrization in known[name]:
            register_parametrization(to_module, name, parametrization)
        ours: Any = to_module.parametrizations[name]
        for place in known[name]._originals():
            setattr(ours, place, getattr(known[name], place))
    return to_module
