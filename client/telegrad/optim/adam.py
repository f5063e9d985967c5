"""The Adam family: Adam, AdamW, Adamax, NAdam, RAdam, SparseAdam and Adafactor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from telegrad_engine.errors import InvalidOperation, InvalidValue
from telegrad_engine.optim.adaptive import epsilon

from ..tensor.handle import Tensor
from .optimizer import CHECKS, Optimizer, options_in, require, require_rate, settings_of


class Adam(Optimizer):
    """Steps by the averages of gradients and of their squares (Kingma and Ba 2015, algorithm 1).

    Weight decay is added to the gradient, unless it is decoupled.

    Args:
        params: The parameters, or dicts of parameters (``params``) and options of their own.
        lr: The learning rate.
        betas: The decay rates of the averages of gradients and of squared gradients.
        eps: A small number that is added to the divisor.
        weight_decay: The factor of the parameter that is added to its gradient.
        amsgrad: Whether the largest second moment so far is used (Reddi et al. 2018).
        maximize: Whether the objective is maximized.
        capturable: As in torch. It changes nothing.
        differentiable: Whether steps are part of the graph; only False.
        decoupled_weight_decay: Whether the weight decay is that of AdamW.

    Examples:
        >>> model = tg.nn.Linear(2, 1)
        >>> optimizer = tg.optim.Adam(model.parameters(), lr=1e-2)
        >>> loss = model(tg.ones(4, 2)).square().mean()
        >>> loss.backward()
        >>> optimizer.step()
        >>> optimizer.zero_grad()
    """

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
    """Adam with decoupled weight decay, which shrinks the parameter directly (Loshchilov and Hutter 2019, algorithm 2).

    The arguments are those of ``Adam``, with ``weight_decay`` 0.01.

    Examples:
        >>> w = tg.tensor([1.0], requires_grad=True)
        >>> optimizer = tg.optim.AdamW([w], lr=0.1)
        >>> w.sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.8990])
    """

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
    """Adam with the infinity norm of the gradients: Kingma and Ba 2015, algorithm 2.

    The arguments are those of ``Adam``.

    Examples:
        >>> w = tg.tensor([1.0], requires_grad=True)
        >>> optimizer = tg.optim.Adamax([w], lr=0.1)
        >>> w.sum().backward()
        >>> optimizer.step()
    """

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
    """Adam with Nesterov's momentum: Dozat 2016.

    ``momentum_decay`` is how fast the momentum approaches its limit; the other arguments are those of ``Adam``.

    Examples:
        >>> w = tg.tensor([1.0], requires_grad=True)
        >>> optimizer = tg.optim.NAdam([w])
        >>> w.sum().backward()
        >>> optimizer.step()
    """

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
    """Adam with a rectified adaptive learning rate: Liu et al. 2020.

    The arguments are those of ``Adam``.

    Examples:
        >>> w = tg.tensor([1.0], requires_grad=True)
        >>> optimizer = tg.optim.RAdam([w])
        >>> w.sum().backward()
        >>> optimizer.step()
    """

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
    """Adam for sparse gradients. There are none here: ``step`` raises RuntimeError for dense ones, as in torch.

    The arguments are those of ``Adam``.

    Examples:
        >>> tg.optim.SparseAdam([tg.zeros(2, requires_grad=True)]).defaults["lr"]
        0.001
    """

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
    """Adam with one second moment per row and per column of a matrix as its state (Shazeer and Stern 2018).

    ``eps`` has the lower bounds of the variance (None: the dtype's epsilon) and of a parameter's scale; ``d`` is the
    threshold at which updates are clipped.

    Args:
        params: The parameters, or dicts of parameters (``params``) and options of their own.
        lr: The learning rate.
        beta2_decay: The exponent of the decay rate, below 0.
        eps: The two lower bounds.
        d: The threshold.
        weight_decay: The factor by which parameters decay.
        maximize: Whether the objective is maximized.

    Examples:
        >>> w = tg.ones(3, 2, requires_grad=True)
        >>> optimizer = tg.optim.Adafactor([w])
        >>> w.sum().backward()
        >>> optimizer.step()
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
