"""Optimizer steps: one call moves all parameters of a group, in place.

Each algorithm is declared once: its state tensors, its settings, and the update of one parameter from its gradient.
Weight decay comes first and is shared by all. An update uses augmented assignments, which write in place where arrays
are writable and otherwise create new ones, and returns the parameter and its states.
``t`` is the number of steps so far, including the current one; it is kept on the server as a state tensor,
so that every step of a loop is the same instruction. SGD, averaged SGD and Adam are here, the others in adaptive.py.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arrays.numpy import NUMPY
from ..arrays.symbolic import TensorScalar
from ..context import state
from ..dtypes import FLOATING
from ..errors import DTypeMismatch, InvalidArgument, InvalidValue, UnknownOp
from ..schema.descriptions import describe
from ..schema.parameters import BoolKind, Kind, NumberKind, NumbersKind
from ..schema.signature import Param

Moved = tuple[Any, ...]
"""A parameter and its states after an update."""

Update = Callable[..., Moved]
Pair = tuple[float, float]
Betas = Pair
"""The decay rates of the averages of gradients and of squared gradients."""

SCALARS = ("t", "mu_product", "eta", "mu")
"""States that hold one number, whatever the parameter's shape."""
REDUCED = {"row_var": -1, "col_var": -2}
"""States of the parameter's shape with one dimension of size 1, and the index of that dimension."""
INITIAL: Mapping[str, float | str] = {"mu_product": 1.0, "mu": 1.0, "eta": "lr", "step_size": "lr"}
"""The initial values of states that do not start at 0: a number, or the name of a setting."""
SIGNED = ("ns_coefficients", "beta2_decay")
"""Settings that may be negative."""


def state_shape(label: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the state ``label`` for a parameter of this shape."""
    if label in SCALARS:
        return ()
    if label not in REDUCED or len(shape) < 2:
        return shape
    sizes = list(shape)
    sizes[REDUCED[label]] = 1
    return tuple(sizes)


class Optimizer(NamedTuple):
    """A declared algorithm: state names (each a tensor per parameter), settings and the update.

    ``optional`` maps each optional state to a setting; the state comes last and exists only if the setting is not zero.
    ``decoupled`` says whether weight decay shrinks the parameter directly; None if the setting ``decoupled`` decides.
    ``own_decay`` is True if the update has a setting ``weight_decay`` and applies it itself.
    """

    name: str
    states: tuple[str, ...]
    defaults: dict[str, Any]
    update: Update
    optional: Mapping[str, str]
    decoupled: bool | None
    own_decay: bool

    @property
    def params(self) -> list[Param]:
        """Its settings, as parameters."""
        return [Param(name, _kind(default), default, True) for name, default in self.defaults.items()]

    def describe(self, setting: Param) -> str:
        """What a setting means."""
        return describe(__name__, (self.name,), setting.name)

    @property
    def doc(self) -> str:
        """What the algorithm computes, and where it was published."""
        return inspect.getdoc(self.update) or ""

    def states_for(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of the states that a step with these settings uses."""
        if not self.optional:
            return self.states
        return self.states + tuple(state for state, setting in self.optional.items() if settings[setting])

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Check the settings and fill in the defaults."""
        unknown = set(given) - set(self.defaults)
        if unknown:
            raise InvalidArgument(
                f"{self.name} has no setting {sorted(unknown)[0]!r}; it has {', '.join(self.defaults)}"
            )
        return {
            name: _parse(self.name, name, given.get(name, default), default) for name, default in self.defaults.items()
        }


OPTIMIZERS: dict[str, Optimizer] = {}


def optimizer(
    name: str, *states: str, weight_decay: float = 0.0, decoupled: bool | None = False, **optional: str
) -> Callable[[Update], Update]:
    """Declare an algorithm. The update's keyword-only parameters are its settings.

    Every algorithm also has ``weight_decay``, with this default, and ``maximize``, and has ``decoupled`` if that is
    given as None. They are applied before the update gets the parameter and the gradient. ``optional`` states are the
    last arguments, and are left out if their setting is zero.
    """

    def declare(update: Update) -> Update:
        defaults: dict[str, Any] = {**(update.__kwdefaults__ or {})}
        own_decay = "weight_decay" in defaults
        defaults = {"weight_decay": weight_decay, **defaults, "maximize": False}
        if decoupled is None:
            defaults["decoupled"] = False
        OPTIMIZERS[name] = Optimizer(name, states, defaults, update, optional, decoupled, own_decay)
        return update

    return declare


def _kind(default: Any) -> Kind:
    return BoolKind() if isinstance(default, bool) else NumbersKind() if isinstance(default, tuple) else NumberKind()


def _parse(algorithm: str, name: str, value: Any, default: Any) -> Any:
    if isinstance(value, TensorScalar):
        return value
    kind = _kind(default)
    if isinstance(default, tuple):
        if not isinstance(value, (list, tuple)) or len(value) != len(default):
            raise InvalidArgument(f"{algorithm}: {name} must be {len(default)} numbers")
        return tuple(_parse(algorithm, name, v, d) for v, d in zip(value, default, strict=True))
    try:
        parsed = kind.parse(value)
    except TypeError:
        raise InvalidArgument(f"{algorithm}: {name} must be {kind.word}, not {type(value).__name__}") from None
    if not isinstance(default, bool):
        _check_number(name, parsed)
    return parsed


def _check_number(name: str, value: float) -> None:
    if not (-math.inf < value < math.inf and (value >= 0 or name in SIGNED)):
        raise InvalidValue(f"Invalid {name} value: {value}")


def get(name: str) -> Optimizer:
    """Return the algorithm of this name, or raise UnknownOp."""
    if name not in OPTIMIZERS:
        raise UnknownOp(f"unknown optimizer {name!r}; known: {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]


def scheduled(name: str, names: Sequence[str], array: Any) -> dict[str, Any]:
    """Return settings of an algorithm from an array of their consecutive numbers, two for each pair.

    Raises InvalidArgument if the names or the size do not match, and InvalidValue if a number is out of range.
    """
    algorithm = get(name)
    kinds = [type(algorithm.defaults.get(key)) for key in names]
    if not {*kinds} <= {float, tuple} or len({*names}) < len(names):
        raise InvalidArgument(f"{name}: {', '.join(names)} are not all different settings that are numbers")
    sizes = [1 if kind is float else len(algorithm.defaults[key]) for key, kind in zip(names, kinds, strict=True)]
    if array.shape != (sum(sizes),) or array.dtype != np.float64:
        raise InvalidArgument(f"{name}: {', '.join(names)} are {sum(sizes)} numbers of float64, one after the other")
    # While a program is traced, a placeholder stands for each number and cannot be compared with zero.
    if namespace().is_invalid((~((array > 0) & (array < math.inf))).any()):
        labels = itertools.chain(*[[key] * size for key, size in zip(names, sizes, strict=True)])
        for key, value in zip(labels, array.tolist(), strict=True):
            _check_number(key, value)
    values = iter([number(array[i]) for i in range(sum(sizes))])
    taken = zip(names, kinds, sizes, strict=True)
    return {key: next(values) if kind is float else tuple(itertools.islice(values, size)) for key, kind, size in taken}


def step(name: str, params: Sequence[Any], states: Sequence[Sequence[Any]], given: Mapping[str, Any]) -> None:
    """Update every parameter that has a gradient. ``states`` has one list of tensors per state of the algorithm."""
    algorithm = get(name)
    settings = algorithm.settings(given)
    labels = algorithm.states_for(settings)
    if len(states) != len(labels):
        raise InvalidArgument(f"{name} needs {len(labels)} lists of state ({', '.join(labels)}), not {len(states)}")
    for label, tensors in zip(labels, states, strict=True):
        if not isinstance(tensors, (list, tuple)) or len(tensors) != len(params):
            raise InvalidArgument(
                f"{name}: state {label!r} is a list of tensors, one for each of the {len(params)} parameters"
            )
    weight_decay, maximize = 0.0 if algorithm.own_decay else settings.pop("weight_decay"), settings.pop("maximize")
    decoupled = settings.pop("decoupled", algorithm.decoupled)
    update = algorithm.update
    if state.memory is not None:
        moving = [i for i, param in enumerate(params) if param._grad is not None]
        state.memory.unshare(tensors[i] for tensors in (params, *states) for i in moving)
    for i, param in enumerate(params):
        if param._grad is None:
            continue
        own = [state[i] for state in states]
        if own:
            _check_states(name, labels, own, param)
        p, g = param._data, param._grad._data
        if weight_decay or maximize:
            p, g = decayed(p, g, settings["lr"], weight_decay, decoupled, maximize)
        try:
            moved = update(p, g, *[s._data for s in own], **settings)
        except ArithmeticError as error:  # a state or a setting that training never reaches
            raise InvalidValue(f"{name}: its states or settings are out of range: {error}") from None
        for tensor, value in zip((param, *own), moved, strict=True):
            if value is not tensor._data:
                tensor._store(value)
            tensor._version_counter[0] += 1


def _check_states(name: str, labels: Sequence[str], own: Sequence[Any], param: Any) -> None:
    for label, tensor in zip(labels, own, strict=True):
        if not hasattr(tensor, "_data"):
            raise InvalidArgument(f"{name}: state {label!r} must be Tensor, not {type(tensor).__name__}")
        shape, scalar = tensor._data.shape, label in SCALARS
        if shape not in ((), (1,)) if scalar else shape != state_shape(label, param._data.shape):
            wanted = "but is one number" if scalar else f"its parameter {tuple(param.shape)}"
            raise InvalidArgument(f"{name}: state {label!r} has shape {tuple(tensor.shape)}, {wanted}")
        if not scalar and tensor._data.dtype not in FLOATING:
            raise DTypeMismatch(
                f"{name}: state {label!r} has dtype {tensor.dtype.name}, its parameter {param.dtype.name}"
            )


def decayed(p: Any, g: Any, lr: float, weight_decay: float, decoupled: bool | None, maximize: bool) -> tuple[Any, Any]:
    """Apply weight decay to the parameter or to the gradient, and negate the gradient to maximize.

    Decoupled weight decay shrinks the parameter directly: Loshchilov and Hutter 2019, algorithm 2.
    """
    if maximize:
        g = -g
    if decoupled:
        p *= factor(1 - lr * weight_decay, p)
    elif weight_decay:
        g = g + weight_decay * p
    return p, g


# The algorithms -----------------------------------------------------------------------------------


def number(array: Any) -> Any:
    """The number in a one-element state, or its placeholder while a program is planned."""
    return float(array) if state.device is None else state.device.backend.number(array)


def factor(value: Any, array: Any) -> Any:
    """A number for an augmented assignment to ``array``, which takes arrays and numbers, but no placeholder."""
    return value.value.astype(array.dtype) if type(value) is TensorScalar else value


def namespace() -> Any:
    """The array namespace of this thread's backend."""
    return NUMPY if state.device is None else state.device.backend


@optimizer("sgd")
def sgd(p: Any, g: Any, *, lr: float = 1e-3) -> Moved:
    """``p -= lr * g``."""
    p -= lr * g
    return (p,)


@optimizer("sgd_momentum", "momentum_buffer", "t")
def sgd_momentum(
    p: Any,
    g: Any,
    *states: Any,
    lr: float = 1e-3,
    momentum: float = 0.9,
    dampening: float = 0.0,
    nesterov: bool = False,
) -> Moved:
    """SGD with momentum: Sutskever et al. 2013, in the form PyTorch uses (the learning rate is outside the buffer)."""
    buffer, t = states
    t += 1
    buffer = namespace().select(t == 1, lambda: g, lambda: _blended(buffer, momentum, (1 - dampening) * g))
    p -= lr * (g + momentum * buffer if nesterov else buffer)
    return p, buffer, t


def _blended(average: Any, weight: Any, value: Any) -> Any:
    """Update ``average`` to ``weight * average + value``."""
    average *= factor(weight, average)
    average += value
    return average


def blend(average: Any, value: Any, weight: Any) -> Any:
    """Update a moving average with ``value``, whose weight is ``weight``."""
    change = value - average
    change *= factor(weight, change)
    average += change
    return average


def blend_square(average: Any, value: Any, beta: Any) -> Any:
    """Update a moving average of squares with the square of ``value``; the old average has the weight ``beta``."""
    square = value * value
    square *= factor(1 - beta, square)
    return _blended(average, beta, square)


def _with_number(array: Any, value: Any) -> Any:
    """Set a one-element state to ``value``."""
    array *= 0
    array += factor(value, array)
    return array


@optimizer("asgd", "ax", "eta", "mu", "t")
def asgd(
    p: Any, g: Any, *states: Any, lr: float = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6
) -> Moved:
    """Averaged SGD: Polyak and Juditsky 1992, with the rates of Bottou 2010, section 4.2; ``ax`` is the average.

    Before the first step the rate ``eta`` is ``lr``, and the weight of the average ``mu`` is 1.
    """
    ax, eta, mu, t = states
    xp = namespace()
    t += 1
    count, rate = number(t), number(eta)
    p *= factor(1 - lambd * rate, p)
    p -= rate * g
    ax = xp.select(mu == 1, lambda: p.copy(), lambda: ax + (p - ax) * number(mu))
    eta = _with_number(eta, lr / (1 + lambd * lr * count) ** alpha)
    mu = _with_number(mu, xp.select(t > t0 + 1, lambda: 1.0 / (count - t0), lambda: 1.0))
    return p, ax, eta, mu, t


@optimizer("adam", "exp_avg", "exp_avg_sq", "t")
@optimizer("adamw", "exp_avg", "exp_avg_sq", "t", weight_decay=1e-2, decoupled=True)
def adam(
    p: Any, g: Any, m: Any, v: Any, t: Any, *, lr: float = 1e-3, betas: Betas = (0.9, 0.999), eps: float = 1e-8
) -> Moved:
    """Adam: Kingma and Ba 2015, algorithm 1. AdamW is the same with decoupled weight decay."""
    beta1, beta2 = betas
    t += 1
    count = number(t)
    m = blend(m, g, 1 - beta1)
    v = blend_square(v, g, beta2)
    # The second bias correction is applied to the scalars, which saves a pass over the array.
    corrected = (1 - beta2**count) ** 0.5
    root = v**0.5
    root += factor(eps * corrected, root)
    change = m / root
    change *= factor(lr * corrected / (1 - beta1**count), change)
    p -= change
    return p, m, v, t
