"""Pruning: a mask keeps some elements of a parameter at zero.

A pruned parameter ``NAME`` is stored as ``NAME_orig`` and its mask as the buffer ``NAME_mask``; their product is
computed before each ``forward``. Repeated pruning applies each method to the elements that the earlier ones left.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from telegrad_engine.errors import IndexOutOfRange, InvalidChoice, InvalidValue

from ...tensor.handle import Tensor, functions
from ..modules.module import Module
from .convert_parameters import parameters_to_vector


class BasePruningMethod(ABC):
    """Base class of pruning methods. A subclass sets ``PRUNING_TYPE`` and defines ``compute_mask``.

    Examples:
        >>> class Small(tg.nn.utils.prune.BasePruningMethod):
        ...     PRUNING_TYPE = "unstructured"
        ...     def compute_mask(self, t, default_mask):
        ...         return default_mask * (t.abs() > 0.1)
        >>> layer = tg.nn.Linear(2, 1)
        >>> _ = Small.apply(layer, "weight")
        >>> tg.nn.utils.prune.is_pruned(layer)
        True
    """

    PRUNING_TYPE: str
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        """Compute the pruned tensor and assign it to the module."""
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return a new mask with the shape of ``default_mask``, based on the elements' importance in ``t``."""

    def apply_mask(self, module: Module) -> Tensor:
        """Return the pruned tensor."""
        mask, original = (getattr(module, f"{self._tensor_name}_{part}") for part in ("mask", "orig"))
        pruned: Tensor = mask.to(original.dtype) * original
        return pruned

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prune a module's parameter by ``importance_scores``, by default its own elements."""
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        earlier = _hooks_of(module, name)
        if len(earlier) > 1:
            raise InvalidChoice(
                f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. Use a "
                "PruningContainer."
            )
        for key, known in earlier:
            del module._forward_pre_hooks[key]
            container = known if isinstance(known, PruningContainer) else PruningContainer(known)
            container.add_pruning_method(method)
            method = container
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if tuple(scores.shape) != tuple(original.shape):
            raise InvalidChoice(
                f"importance_scores should have the same shape as parameter {name} of {module}, got "
                f"{scores.shape} vs {original.shape}"
            )
        if earlier:
            before = getattr(module, f"{name}_mask").detach().clone()
            mask = method.compute_mask(scores.detach(), before)
        else:
            mask = method.compute_mask(scores.detach(), functions.ones_like(original.detach()))
            module.register_parameter(f"{name}_orig", original)
            del module._parameters[name]
        module.register_buffer(f"{name}_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """Return ``t`` multiplied by its mask, without changing a module."""
        scores = t if importance_scores is None else importance_scores
        if tuple(scores.shape) != tuple(t.shape):
            raise InvalidChoice(
                f"importance_scores should have the same shape as tensor t, got {scores.shape} vs {t.shape}"
            )
        before = functions.ones_like(t.detach()) if default_mask is None else default_mask
        return t * self.compute_mask(scores.detach(), before)

    def remove(self, module: Any) -> None:
        """Make the parameter an ordinary one again, with zeros where it was pruned."""
        weight = self.apply_mask(module).detach()
        delattr(module, self._tensor_name)
        original = module._parameters.pop(f"{self._tensor_name}_orig")
        original.data = weight
        delattr(module, f"{self._tensor_name}_mask")
        setattr(module, self._tensor_name, original)


def _hooks_of(module: Any, name: str | None = None) -> list[tuple[int, BasePruningMethod]]:
    """Return the pruning hooks of a module, or of one of its parameters, with their keys."""
    found = module._forward_pre_hooks.items()
    return [(k, h) for k, h in found if isinstance(h, BasePruningMethod) and name in (None, h._tensor_name)]


class PruningContainer(BasePruningMethod):
    """Several methods for one parameter; each prunes the elements that the earlier ones left.

    Examples:
        >>> methods = tg.nn.utils.prune.PruningContainer()
        >>> len(methods)
        0
    """

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a method. Raises TypeError unless it is a pruning method, ValueError if it is for another parameter."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise InvalidValue(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to "
                f"PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: Any) -> Any:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Apply the last method to the elements that ``default_mask`` keeps and return the combined mask."""
        method: Any = self._pruning_methods[-1]
        mask = default_mask
        where: Any
        if method.PRUNING_TYPE == "unstructured":
            where = mask == 1
        elif method.PRUNING_TYPE == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError(
                    'Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.'
                )
            dim = method.dim + t.dim() if method.dim < 0 else method.dim
            if dim < 0:
                raise IndexOutOfRange(f"Index is out of bounds for tensor with dimensions {t.dim()}")
            kept = mask.sum([d for d in range(t.dim()) if d != dim]) != 0
            where = tuple([kept if d == dim else slice(None) for d in range(t.dim())])
        elif method.PRUNING_TYPE == "global":
            where = tuple([slice(None)] * t.dim())
        else:
            raise InvalidValue(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        combined = mask.to(t.dtype).clone()
        combined[where] = method.compute_mask(t[where], mask[where]).to(combined.dtype)
        return combined


class Identity(BasePruningMethod):
    """Prunes nothing, but stores the parameter with a mask of ones.

    Examples:
        >>> layer = tg.nn.Linear(2, 1)
        >>> _ = tg.nn.utils.prune.Identity.apply(layer, "weight")
        >>> layer.weight_mask
        tensor([[1., 1.]])
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return ``default_mask``."""
        return default_mask


class _ByAmount(BasePruningMethod):
    """A method that prunes ``amount`` elements or channels: a count (int) or a fraction (float)."""

    amount: Any

    def __init__(self, amount: Any) -> None:
        if not isinstance(amount, numbers.Real):
            raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
        if (isinstance(amount, numbers.Integral) and amount < 0) or (
            not isinstance(amount, numbers.Integral) and not 0.0 <= float(amount) <= 1.0
        ):
            raise InvalidValue(
                f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer"
            )
        self.amount = amount

    def _count(self, size: int) -> int:
        """Return how many of ``size`` elements or channels to prune."""
        count = int(self.amount) if isinstance(self.amount, numbers.Integral) else round(self.amount * size)
        if isinstance(self.amount, numbers.Integral) and count > size:
            raise InvalidValue(f"amount={count} should be smaller than the number of parameters to prune={size}")
        return count


def _without(mask: Tensor, places: Tensor) -> Tensor:
    """Return the mask with further zeros at ``places``, indices into the flattened mask."""
    flat = mask.reshape(-1).index_fill(0, places, 0)
    return flat.reshape(tuple(mask.shape))


class RandomUnstructured(_ByAmount):
    """Prunes elements at random.

    ``amount`` is a count (int) or a fraction (float).

    Examples:
        >>> int((tg.nn.utils.prune.RandomUnstructured(amount=2).prune(tg.ones(5)) == 0).sum())
        2
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the mask with ``amount`` further zeros."""
        count = self._count(t.numel())
        return _without(default_mask, functions.rand_like(t).reshape(-1).topk(count)[1]) if count else default_mask


class L1Unstructured(_ByAmount):
    """Prunes the elements of least magnitude.

    ``amount`` is a count (int) or a fraction (float).

    Examples:
        >>> tg.nn.utils.prune.L1Unstructured(amount=1).prune(tg.tensor([3.0, -1.0, 2.0]))
        tensor([3., -0., 2.])
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the mask with ``amount`` further zeros."""
        count = self._count(t.numel())
        return _without(default_mask, t.abs().reshape(-1).topk(count, largest=False)[1]) if count else default_mask

    @classmethod
    def apply(cls, module: Any, name: str, amount: float, importance_scores: Any = None) -> Any:  # type: ignore[override]
        """Prune a module's parameter."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _Structured(_ByAmount):
    """Prunes whole channels along ``dim``."""

    PRUNING_TYPE = "structured"
    dim: int

    def _kept(self, t: Tensor, count: int) -> Tensor:
        """Return the indices of the ``count`` channels to keep."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the mask with ``amount`` channels set to zero."""
        if t.dim() <= 1:
            raise InvalidValue(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
                f"{t.shape} with {t.dim()} dims"
            )
        if self.dim >= t.dim():
            raise IndexOutOfRange(f"Invalid index {self.dim} for tensor of size {t.shape}")
        size = t.shape[self.dim]
        count = self._count(size)
        if not count:
            return default_mask
        mask = functions.zeros_like(t).index_fill(self.dim, self._kept(t, size - count), 1)
        return mask * default_mask.to(mask.dtype)


class RandomStructured(_Structured):
    """Prunes channels at random.

    ``amount`` is a count (int) or a fraction (float) of the channels, ``dim`` their dimension.

    Examples:
        >>> int((tg.nn.utils.prune.RandomStructured(amount=1, dim=0).prune(tg.ones(3, 2)) == 0).sum())
        2
    """

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _kept(self, t: Tensor, count: int) -> Tensor:
        return functions.randperm(t.shape[self.dim])[:count]


class LnStructured(_Structured):
    """Prunes the channels with the smallest norm of order ``n``.

    ``amount`` is a count (int) or a fraction (float) of the channels, ``dim`` their dimension.

    Examples:
        >>> tg.nn.utils.prune.LnStructured(amount=1, n=2, dim=0).prune(tg.tensor([[1.0, 1.0], [2.0, 2.0]]))
        tensor([[0., 0.],
                [2., 2.]])
    """

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.n, self.dim = n, dim

    def _kept(self, t: Tensor, count: int) -> Tensor:
        others = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        norms = t.norm(p=self.n, dim=others)
        return norms.topk(count)[1]

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: float, n: Any, dim: int, importance_scores: Any = None
    ) -> Any:
        """Prune a module's parameter."""
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes with a given mask.

    ``mask`` has the shape of the parameter, with 0 for what is pruned.

    Examples:
        >>> layer = tg.nn.Linear(2, 1)
        >>> _ = tg.nn.utils.prune.CustomFromMask.apply(layer, "weight", tg.tensor([[1, 0]]))
        >>> layer.weight_mask
        tensor([[1., 0.]])
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return the product of both masks."""
        if tuple(default_mask.shape) != tuple(self.mask.shape):
            raise InvalidChoice(f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}")
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: Any, name: str) -> Any:
    """Store a parameter with a mask of ones, which prunes nothing.

    ``module`` is returned, and ``name`` is the name of the parameter.

    Examples:
        >>> tg.nn.utils.prune.identity(tg.nn.Linear(2, 1), "weight").weight_mask
        tensor([[1., 1.]])
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: float) -> Any:
    """Prune random elements: ``amount`` is a count (int) or a fraction (float).

    ``module`` is returned, and ``name`` is the name of the parameter.

    Examples:
        >>> layer = tg.nn.utils.prune.random_unstructured(tg.nn.Linear(2, 3), "weight", amount=0.5)
        >>> int((layer.weight == 0).sum())
        3
    """
    RandomUnstructured.apply(module, name, amount=amount)
    return module


def l1_unstructured(module: Any, name: str, amount: float, importance_scores: Tensor | None = None) -> Any:
    """Prune the elements of least magnitude: ``amount`` is a count (int) or a fraction (float).

    ``module`` is returned; ``name`` is the name of the parameter, and ``importance_scores`` replace its magnitudes.

    Examples:
        >>> layer = tg.nn.utils.prune.l1_unstructured(tg.nn.Linear(2, 1), "weight", amount=1)
        >>> int((layer.weight == 0).sum())
        1
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: float, dim: int) -> Any:
    """Prune random channels along ``dim``: ``amount`` is a count (int) or a fraction (float).

    ``module`` is returned, and ``name`` is the name of the parameter.

    Examples:
        >>> layer = tg.nn.utils.prune.random_structured(tg.nn.Linear(2, 3), "weight", amount=1, dim=0)
        >>> int((layer.weight == 0).sum())
        2
    """
    RandomStructured.apply(module, name, amount=amount, dim=dim)
    return module


def ln_structured(
    module: Any, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Any:
    """Prune the channels along ``dim`` with the smallest ``n``-norm; ``amount`` is a count or a fraction (float).

    ``module`` is returned; ``name`` is the name of the parameter, and ``importance_scores`` replace its values.

    Examples:
        >>> layer = tg.nn.utils.prune.ln_structured(tg.nn.Linear(2, 3), "weight", amount=1, n=2, dim=0)
        >>> int((layer.weight == 0).sum())
        2
    """
    LnStructured.apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Any, pruning_method: type[BasePruningMethod], importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prune several parameters, given as pairs of module and name, as if they were one.

    ``pruning_method`` is a class of methods, ``kwargs`` are its arguments, and ``importance_scores`` a dict of scores
    by module and name; None scores by magnitude.

    Examples:
        >>> first, second = tg.nn.Linear(2, 1), tg.nn.Linear(2, 1)
        >>> weights = [(first, "weight"), (second, "weight")]
        >>> tg.nn.utils.prune.global_unstructured(weights, tg.nn.utils.prune.L1Unstructured, amount=3)
        >>> int((first.weight == 0).sum() + (second.weight == 0).sum())
        3
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    parameters = list(parameters)
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    container, method = PruningContainer(), pruning_method(**kwargs)
    container._tensor_name = method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method {pruning_method} of '
            f"type {method.PRUNING_TYPE}"
        )
    container.add_pruning_method(method)
    values = [(module, name, getattr(module, name).detach()) for module, name in parameters]
    importance = parameters_to_vector([scores.get((module, name), value) for module, name, value in values])
    before = parameters_to_vector(
        [getattr(module, f"{name}_mask", functions.ones_like(value)) for module, name, value in values]
    )
    mask = container.compute_mask(importance, before)
    start = 0
    for module, name, value in values:
        part = mask[start : start + value.numel()].reshape(tuple(value.shape))
        custom_from_mask(module, name, part)
        start += value.numel()


def custom_from_mask(module: Any, name: str, mask: Tensor) -> Any:
    """Prune a parameter with a given mask.

    ``mask`` has the shape of the parameter ``name``, with 0 for what is pruned; ``module`` is returned.

    Examples:
        >>> layer = tg.nn.utils.prune.custom_from_mask(tg.nn.Linear(2, 1), "weight", tg.tensor([[1, 0]]))
        >>> layer.weight_mask
        tensor([[1., 0.]])
    """
    CustomFromMask.apply(module, name, mask=mask)
    return module


def remove(module: Any, name: str) -> Any:
    """Make a pruned parameter an ordinary one, with zeros where it was pruned. Raises ValueError if it is not.

    ``module`` is returned, and ``name`` is the name of the parameter.

    Examples:
        >>> layer = tg.nn.utils.prune.l1_unstructured(tg.nn.Linear(2, 1), "weight", amount=1)
        >>> tg.nn.utils.prune.is_pruned(tg.nn.utils.prune.remove(layer, "weight"))
        False
    """
    for key, hook in _hooks_of(module, name):
        hook.remove(module)
        del module._forward_pre_hooks[key]
        return module
    raise InvalidValue(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module or of a submodule is pruned.

    Examples:
        >>> tg.nn.utils.prune.is_pruned(tg.nn.Linear(2, 1))
        False
    """
    return any(_hooks_of(part) for part in module.modules())
