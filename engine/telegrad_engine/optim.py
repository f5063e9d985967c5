"""Optimizer steps: one call moves all parameters of a group, in place.

Each algorithm is declared once: its state tensors, its settings, and the update of one parameter. An
update works by augmented assignments, which write in place where arrays can be written to and otherwise
make new ones, and returns the parameter and its states, whichever they are.
``t`` is the number of steps so far, this one included; it is kept on the server as a state tensor,
so that every step of a loop is the same instruction. SGD and Adam are here, the others in optim_adaptive.py.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .errors import InvalidArgument, InvalidValue, UnknownOp
from .modes import state
from .params import BoolKind, Kind, NumberKind

Update = Callable[..., tuple[Any, ...]]
SCALARS = ("t", "mu_product")
"""States that are one number, whatever the parameter's shape."""


class Optimizer(NamedTuple):
    """A declared algorithm: state names (each a tensor per parameter), settings and the update.

    ``optional`` are states, after the others, that exist only where the setting they are mapped to is not zero.
    """

    name: str
    states: tuple[str, ...]
    defaults: dict[str, Any]
    update: Update
    doc: str
    optional: Mapping[str, str]

    def states_for(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of the states that a step with these settings takes."""
        if not self.optional:
            return self.states
        return self.states + tuple(state for state, setting in self.optional.items() if settings[setting])

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings, checked, with defaults filled in."""
        unknown = set(given) - set(self.defaults)
        if unknown:
            raise InvalidArgument(
                f"{self.name} has no setting {sorted(unknown)[0]!r}; it has {', '.join(self.defaults)}"
            )
        return {
            name: _parse(self.name, name, given.get(name, default), default) for name, default in self.defaults.items()
        }


OPTIMIZERS: dict[str, Optimizer] = {}


def optimizer(name: str, *states: str, **optional: str) -> Callable[[Update], Update]:
    """Declare an algorithm. The update's keyword-only parameters are its settings.

    ``optional`` states are the last arguments, and are left out where the setting named is zero.
    """

    def declare(update: Update) -> Update:
        parameters = inspect.signature(update).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        OPTIMIZERS[name] = Optimizer(name, states, defaults, update, inspect.getdoc(update) or "", optional)
        return update

    return declare


def _parse(algorithm: str, name: str, value: Any, default: Any) -> Any:
    kind: Kind = BoolKind() if isinstance(default, bool) else NumberKind()
    if isinstance(default, tuple):
        if not isinstance(value, (list, tuple)) or len(value) != len(default):
            raise InvalidArgument(f"{algorithm}: {name} must be {len(default)} numbers")
        return tuple(_parse(algorithm, name, v, d) for v, d in zip(value, default, strict=True))
    try:
        parsed = kind.parse(value)
    except TypeError:
        raise InvalidArgument(f"{algorithm}: {name} must be {kind.word}, not {type(value).__name__}") from None
    if not isinstance(default, bool) and not (math.isfinite(parsed) and parsed >= 0):
        raise InvalidValue(f"Invalid {name} value: {parsed}")
    return parsed


def get(name: str) -> Optimizer:
    """The algorithm of this name, or UnknownOp."""
    if name not in OPTIMIZERS:
        raise UnknownOp(f"unknown optimizer {name!r}; known: {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]


def step(name: str, params: Sequence[Any], states: Sequence[Sequence[Any]], given: Mapping[str, Any]) -> None:
    """Move every parameter that has a gradient. ``states`` has one list of tensors per state of the algorithm."""
    algorithm = get(name)
    settings = algorithm.settings(given)
    labels = algorithm.states_for(settings)
    if len(states) != len(labels) or any(len(s) != len(params) for s in states):
        raise InvalidArgument(
            f"{name} needs {len(labels)} lists of state ({', '.join(labels)}), "
            f"each as long as the {len(params)} parameters"
        )
    update = algorithm.update
    for i, param in enumerate(params):
        if param._grad is None:
            continue
        own = [state[i] for state in states]
        if own:
            _check_states(name, labels, own, param)
        moved = update(param._data, param._grad._data, *[s._data for s in own], **settings)
        for tensor, value in zip((param, *own), moved, strict=True):
            if value is not tensor._data:
                tensor._store(value)
            tensor._cell[0] += 1


def _check_states(name: str, labels: Sequence[str], own: Sequence[Any], param: Any) -> None:
    for label, tensor in zip(labels, own, strict=True):
        if label not in SCALARS and tensor._data.shape != param._data.shape:
            raise InvalidArgument(
                f"{name}: state {label!r} has shape {tuple(tensor.shape)}, its parameter {tuple(param.shape)}"
            )


# The algorithms -----------------------------------------------------------------------------------


def number(array: Any) -> Any:
    """The number in a state of one element; what stands for it while a program is compiled."""
    return float(array) if state.device is None else state.device.backend.number(array)


def holds(condition: Any, usually: bool) -> bool:
    """Whether a condition on states holds; what it usually does while a program is compiled."""
    return bool(condition) if state.device is None else state.device.backend.holds(condition, usually)


def decayed(p: Any, g: Any, weight_decay: float, maximize: bool) -> Any:
    """The gradient with weight decay added to it, its sign turned if the objective is maximized."""
    if maximize:
        g = -g
    return g + weight_decay * p if weight_decay else g


def shrunk_or_decayed(
    p: Any, g: Any, lr: float, weight_decay: float, decoupled: bool, maximize: bool
) -> tuple[Any, Any]:
    """The parameter and the gradient after weight decay: in the one (Loshchilov and Hutter 2019) or the other."""
    if not decoupled:
        return p, decayed(p, g, weight_decay, maximize)
    p *= 1 - lr * weight_decay
    return p, -g if maximize else g


@optimizer("sgd")
def sgd(p: Any, g: Any, *, lr: float = 1e-3, weight_decay: float = 0.0, maximize: bool = False) -> tuple[Any, ...]:
    """``p -= lr * g``."""
    if weight_decay or maximize:
        g = decayed(p, g, weight_decay, maximize)
    p -= lr * g
    return (p,)


@optimizer("sgd_momentum", "momentum_buffer", "t")
def sgd_momentum(
    p: Any,
    g: Any,
    buffer: Any,
    t: Any,
    *,
    lr: float = 1e-3,
    momentum: float = 0.9,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
) -> tuple[Any, ...]:
    """SGD with momentum: Sutskever et al. 2013, in the form PyTorch uses (the rate outside the buffer)."""
    g = decayed(p, g, weight_decay, maximize)
    t += 1
    if holds(t == 1, False):
        buffer = g
    else:
        buffer *= momentum
        buffer += (1 - dampening) * g
    p -= lr * (g + momentum * buffer if nesterov else buffer)
    return p, buffer, t


def _adam(p: Any, g: Any, m: Any, v: Any, t: Any, lr: float, betas: tuple[float, float], eps: float) -> tuple[Any, ...]:
    beta1, beta2 = betas
    t += 1
    count = number(t)
    change = g - m
    change *= 1 - beta1
    m += change
    square = g * g
    square *= 1 - beta2
    v *= beta2
    v += square
    # The second bias is corrected in the numbers, not in the array: a pass less.
    corrected = (1 - beta2**count) ** 0.5
    root = v**0.5
    root += eps * corrected
    change = m / root
    change *= lr * corrected / (1 - beta1**count)
    p -= change
    return p, m, v, t


@optimizer("adam", "exp_avg", "exp_avg_sq", "t")
def adam(
    p: Any,
    g: Any,
    m: Any,
    v: Any,
    t: Any,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    maximize: bool = False,
) -> tuple[Any, ...]:
    """Adam: Kingma and Ba 2015, algorithm 1; weight decay is added to the gradient."""
    return _adam(p, decayed(p, g, weight_decay, maximize), m, v, t, lr, betas, eps)


@optimizer("adamw", "exp_avg", "exp_avg_sq", "t")
def adamw(
    p: Any,
    g: Any,
    m: Any,
    v: Any,
    t: Any,
    *,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    maximize: bool = False,
) -> tuple[Any, ...]:
    """AdamW: Loshchilov and Hutter 2019, algorithm 2; weight decay shrinks the parameter directly."""
    p, g = shrunk_or_decayed(p, g, lr, weight_decay, True, maximize)
    return _adam(p, g, m, v, t, lr, betas, eps)


from . import optim_adaptive  # noqa: E402, F401  (declares its algorithms with what is above)
