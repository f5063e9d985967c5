"""The Adam family: Adam, AdamW, Adamax, NAdam, RAdam and SparseAdam."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from telegrad_engine.errors import InvalidOperation, InvalidValue

from ..tensor.handle import Tensor
from .optimizer import Optimizer, settings_of
from .options import options_in


class Adam(Optimizer):
    """Kingma and Ba 2015, algorithm 1; weight decay is added to the gradient, unless decoupled."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        options = options_in(locals())
        _check_tensors(lr, betas, foreach and not capturable)
        super().__init__(params, options)

    def algorithm(self, group: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """``adam``, ``adamw`` for a group with decoupled weight decay, or ``adam_amsgrad``."""
        decoupled = group["decoupled_weight_decay"]
        if group["amsgrad"]:
            return settings_of("adam_amsgrad", group, decoupled=decoupled)
        return settings_of("adamw" if decoupled else "adam", group)


class AdamW(Adam):
    """Loshchilov and Hutter 2019, algorithm 2; weight decay shrinks the parameter directly."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, **options_in(locals()), decoupled_weight_decay=True)


class Adamax(Optimizer):
    """Adam with the infinity norm of the gradients: Kingma and Ba 2015, algorithm 2."""

    algorithm_name = "adamax"

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, options_in(locals()))


class NAdam(Optimizer):
    """Adam with Nesterov's momentum: Dozat 2016."""

    initial = {"mu_product": 1.0}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options_in(locals()))

    def algorithm(self, group: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """``nadam``."""
        return settings_of("nadam", group, decoupled=group["decoupled_weight_decay"])


class RAdam(Optimizer):
    """Adam with a rectified adaptive learning rate: Liu et al. 2020."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options_in(locals()))

    def algorithm(self, group: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """``radam``."""
        return settings_of("radam", group, decoupled=group["decoupled_weight_decay"])


class SparseAdam(Optimizer):
    """Adam for sparse gradients. There are none here: ``step`` raises RuntimeError for dense ones, as in torch."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        options = options_in(locals())
        for name, value in (("learning rate", lr), ("epsilon value", eps)):
            if not value > 0.0:
                raise InvalidValue(f"Invalid {name}: {value}")
        super().__init__(params, options)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Raise RuntimeError if a parameter has a gradient."""
        loss = None if closure is None else closure()
        if any(param._has_grad for param in self._params()):
            raise InvalidOperation("SparseAdam does not support dense gradients, please consider Adam instead")
        return loss


def _check_tensors(lr: Any, betas: Any, foreach: bool | None) -> None:
    """Raise ValueError for betas of two types, and for tensors together with ``foreach``."""
    kinds = [next((kind for kind in (float, Tensor) if isinstance(beta, kind)), None) for beta in betas[:2]]
    if kinds[0] is None or kinds[0] != kinds[1]:
        raise InvalidValue("betas must be either both floats or both Tensors")
    for name, value in (("lr", lr), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
        if isinstance(value, Tensor) and foreach:
            raise InvalidValue(f"{name} as a Tensor is not supported for capturable=False and foreach=True")
        if isinstance(value, Tensor) and value.numel() != 1:
            raise InvalidValue(f"Tensor {name} must be 1-element")
