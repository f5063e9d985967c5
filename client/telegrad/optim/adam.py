"""The Adam family: Adam, AdamW, Adamax, NAdam, RAdam, SparseAdam and Adafactor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from telegrad_engine.errors import InvalidOperation, InvalidValue
from telegrad_engine.optim.adaptive import epsilon

from ..tensor.handle import Tensor
from .optimizer import CHECKS, Optimizer, options_in, require, require_rate, settings_of


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

    def algorithm(self, group: Mapping[str, Any], params: Sequence[Tensor]) -> tuple[str, dict[str, Any]]:
        """Return ``adam``, ``adam_amsgrad``, or ``adamw`` with decoupled weight decay, and the settings."""
        if group["amsgrad"]:
            return settings_of("adam_amsgrad", group)
        return settings_of("adamw" if group["decoupled_weight_decay"] else "adam", group)


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


class Adamax(Optimizer, algorithm="adamax"):
    """Adam with the infinity norm of the gradients: Kingma and Ba 2015, algorithm 2."""

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


class NAdam(Optimizer, algorithm="nadam"):
    """Adam with Nesterov's momentum: Dozat 2016."""

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


class RAdam(Optimizer, algorithm="radam"):
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


class Adafactor(Optimizer):
    """Shazeer and Stern 2018: for a matrix, the state has one second moment per row and per column.

    ``eps`` has the lower bounds of the variance (None: the dtype's epsilon) and of a parameter's scale; ``d`` is the
    threshold at which updates are clipped.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        options = options_in(locals(), unchecked=CHECKS)
        require_rate(lr)
        require(beta2_decay <= 0, f"beta2_decay should be <= 0 but is: {beta2_decay}")
        require(eps[0] is None or eps[0] >= 0, f"epsilon1 should be >= 0 but is: {eps[0]}")
        require(eps[1] >= 0, f"epsilon2 should be >= 0 but is: {eps[1]}")
        require(d >= 1, f"Clipping threshold d should be >= 1 but is: {d}")
        require(weight_decay >= 0, f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(params, options)

    def _portions(self, params: list[Tensor]) -> list[list[Tensor]]:
        for param in params:
            self.state[param]  # creates the entries in the order of torch's state dict
        return [[p for p in params if p.dim() > 1], [p for p in params if p.dim() <= 1]]

    def algorithm(self, group: Mapping[str, Any], params: Sequence[Tensor]) -> tuple[str, dict[str, Any]]:
        """Return ``adafactor``, or ``adafactor_vector`` for vectors and numbers, and the settings."""
        least = group["eps"][0]
        if least is None:
            least = epsilon(params[0].dtype)
        name = "adafactor" if params[0].dim() > 1 else "adafactor_vector"
        return settings_of(name, group, eps=(least, group["eps"][1]))


def _check_tensors(lr: Any, betas: Any, foreach: bool | None) -> None:
    """Raise ValueError for betas of two types, invalid tensors, and tensors together with ``foreach``."""
    kinds = [next((kind for kind in (float, Tensor) if isinstance(beta, kind)), None) for beta in betas[:2]]
    if kinds[0] is None or kinds[0] != kinds[1]:
        raise InvalidValue("betas must be either both floats or both Tensors")
    for name, value in (("lr", lr), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
        if isinstance(value, Tensor) and foreach:
            raise InvalidValue(f"{name} as a Tensor is not supported for capturable=False and foreach=True")
        if isinstance(value, Tensor) and value.numel() != 1:
            raise InvalidValue(f"Tensor {name} must be 1-element")
