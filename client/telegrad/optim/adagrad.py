"""Steps scaled by past gradients: Adagrad, its decaying forms Adadelta and RMSprop, and Rprop, for full batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from telegrad_engine.errors import InvalidValue

from ..tensor.handle import Tensor
from .optimizer import Optimizer, options_in, settings_of


class Adagrad(Optimizer, algorithm="adagrad"):
    """Divide by the root of the sum of all squared gradients: Duchi, Hazan and Singer 2011.

    Args:
        params: The parameters, or dicts of parameters (``params``) and options of their own.
        lr: The learning rate.
        lr_decay: How fast the learning rate falls with the number of steps.
        weight_decay: The factor of the parameter that is added to its gradient.
        initial_accumulator_value: The sum of squares before the first step.
        eps: A small number that is added to the divisor.
        maximize: Whether the objective is maximized.
        differentiable: Whether steps are part of the graph; only False.

    Examples:
        >>> w = tg.tensor([1.0], requires_grad=True)
        >>> optimizer = tg.optim.Adagrad([w], lr=0.1)
        >>> w.sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.9000])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, options_in(locals()))
        self.initial = {"sum": float(initial_accumulator_value)}
        # As in torch, the state exists before the first step.
        for group in self.param_groups:
            for param in group["params"]:
                self._state(param, "t", group)
                self._state(param, "sum", group)


class Adadelta(Optimizer, algorithm="adadelta"):
    """Scale the gradient by the ratio of the RMS of past updates to that of past gradients: Zeiler 2012.

    Args:
        params: The parameters, or dicts of parameters (``params``) and options of their own.
        lr: The factor of an update.
        rho: The decay rate of the averages of squares.
        eps: A small number that is added to the averages.
        weight_decay: The factor of the parameter that is added to its gradient.
        capturable: As in torch. It changes nothing.
        maximize: Whether the objective is maximized.
        differentiable: Whether steps are part of the graph; only False.

    Examples:
        >>> w = tg.tensor([1.0], requires_grad=True)
        >>> optimizer = tg.optim.Adadelta([w])
        >>> w.sum().backward()
        >>> optimizer.step()
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options_in(locals()))


class Rprop(Optimizer):
    """Step sizes grow by ``etas[1]`` or shrink by ``etas[0]``, by the gradient's sign (Riedmiller and Braun 1993).

    Args:
        params: The parameters, or dicts of parameters (``params``) and options of their own.
        lr: The first step size.
        etas: The factors of a step size when the gradient's sign changes, and when it stays.
        step_sizes: The least and the largest step size.
        capturable: As in torch. It changes nothing.
        maximize: Whether the objective is maximized.
        differentiable: Whether steps are part of the graph; only False.

    Examples:
        >>> w = tg.tensor([1.0], requires_grad=True)
        >>> optimizer = tg.optim.Rprop([w], lr=0.1)
        >>> w.sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.9000])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        options = options_in(locals())
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise InvalidValue(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(params, options)

    def algorithm(self, group: Mapping[str, Any], params: Sequence[Tensor]) -> tuple[str, dict[str, Any]]:
        """Return ``rprop`` and its settings."""
        return settings_of("rprop", group, weight_decay=0.0)


class RMSprop(Optimizer, algorithm="rmsprop"):
    """Divide by the root mean square of recent gradients (Tieleman and Hinton 2012); ``centered``: Graves 2013.

    Args:
        params: The parameters, or dicts of parameters (``params``) and options of their own.
        lr: The learning rate.
        alpha: The decay rate of the average of squared gradients.
        eps: A small number that is added to the divisor.
        weight_decay: The factor of the parameter that is added to its gradient.
        momentum: The decay rate of the average of updates; 0 keeps none.
        centered: Whether the average of gradients is subtracted, so that the divisor is a deviation.
        capturable: As in torch. It changes nothing.
        maximize: Whether the objective is maximized.
        differentiable: Whether steps are part of the graph; only False.

    Examples:
        >>> w = tg.tensor([1.0], requires_grad=True)
        >>> optimizer = tg.optim.RMSprop([w])
        >>> w.sum().backward()
        >>> optimizer.step()
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, options_in(locals()))
