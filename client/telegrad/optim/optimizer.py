"""What all optimizers share: groups of parameters, state, and the step as one instruction a group."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from telegrad_engine import optim as algorithms
from telegrad_engine.errors import InvalidArgument, InvalidOperation, InvalidValue, NotSupported
from telegrad_engine.modes import enable_grad, no_grad

from ..nn.parameter import type_name, zero_grads
from ..nn.state_dict import in_session_of, is_array
from ..tensor import Tensor, recorder_of, upload

STEP = "step"
"""The state that counts steps: a float32 tensor without dimensions, kept in the session as the rest."""


SCHEDULED = (float, tuple)
"""The kinds of settings that a schedule may change without changing the program: numbers, and pairs of them."""
_schedules: weakref.WeakKeyDictionary[Any, dict[int, tuple[Mapping[str, Any], frozenset[str]]]]
_schedules = weakref.WeakKeyDictionary()
"""Of each optimizer's groups the settings of the last step, and which have ever changed. Not the optimizer's own, for
tg.compile looks at what a function changes."""
SCALARS = tuple([STEP if label == "t" else label for label in algorithms.SCALARS])
"""The states that are one number, as state dicts name them."""


def settings_of(name: str, group: Mapping[str, Any], **given: Any) -> tuple[str, dict[str, Any]]:
    """An algorithm of the engine and its settings: those that ``group`` has under the same names, and ``given``."""
    return name, {key: given[key] if key in given else group[key] for key in algorithms.get(name).defaults}


class Optimizer:
    """Base of the optimizers: moves parameters by their gradients, in place.

    ``params`` is an iterable of leaf tensors, or of dicts with ``params`` and the options that differ
    from ``defaults``. Raises TypeError and ValueError, in torch's words, for anything else.
    """

    unsaved: ClassVar[tuple[str, ...]] = ()
    """State that torch's optimizer of this name does not have, and that the state dict leaves out."""
    initial: Mapping[str, float] = {}
    """What states of the algorithm hold before the first step, if not zeros."""
    _opt_called = False
    """Whether a step was made since a scheduler began to watch."""

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        _check_flags(defaults)
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        if isinstance(params, Tensor):
            raise InvalidArgument(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                f"torch.{params.dtype.kernel_name}Tensor"
            )
        groups = list(params)
        if not groups:
            raise InvalidValue("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def algorithm(self, group: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The algorithm that the session runs for a group, and its settings."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimize more parameters, with options of their own: layers that are unfrozen, for example."""
        if not isinstance(param_group, dict):
            raise InvalidArgument(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, set):
            raise InvalidArgument(
                "optimizer parameters need to be organized in ordered collections, but the ordering of "
                "tensors in sets will change between runs. Please use a list instead."
            )
        params = [params] if isinstance(params, Tensor) else list(params)
        for param in params:
            if not isinstance(param, Tensor):
                raise InvalidArgument(
                    f"optimizer can only optimize Tensors, but one of the params is {type_name(param)}"
                )
            if not param.is_leaf and not param.retains_grad:
                raise InvalidValue("can't optimize a non-leaf Tensor")
        if len(set(params)) != len(params):
            warnings.warn("optimizer contains a parameter group with duplicate parameters", stacklevel=3)
        if any(not set(params).isdisjoint(group["params"]) for group in self.param_groups):
            raise InvalidValue("some parameters appear in more than one parameter group")
        group = {**self.defaults, **param_group, "params": params}
        _check_flags(group)
        self.param_groups.append(group)

    # Stepping ----------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient; nothing is sent.

        ``closure`` computes the gradients anew and returns the loss, which is then returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for index, group in enumerate(self.param_groups):
                self._step(index, group)
        return loss

    def _step(self, index: int, group: Mapping[str, Any]) -> None:
        params: list[Tensor] = [p for p in group["params"] if p._has_grad]
        if not params:
            return
        name, given = self.algorithm(group)
        algorithm = algorithms.get(name)
        settings = algorithm.settings(given)
        # The count first: in torch's state dicts it is.
        labels = algorithm.states_for(settings)
        made = {label: [self._state(p, label) for p in params] for label in sorted(labels, key=_scalars_first)}
        states = [made[label] for label in labels]
        ids = tuple([tuple([t._id for t in tensors]) for tensors in states])
        recorder = recorder_of(params)
        inputs: list[Any] = [tuple([p._id for p in params]), ids]
        numbers, scheduled = self._take_scheduled(index, settings, recorder)
        attrs = {"algorithm": name, "settings": settings, **scheduled}
        recorder.emit("optim_step", [*inputs, *numbers], (), attrs)
        for tensors in (params, *states):
            for tensor in tensors:
                tensor._cell[0] += 1

    def _take_scheduled(self, index: int, settings: dict[str, Any], recorder: Any) -> tuple[list[Any], dict[str, Any]]:
        """What a schedule changes among the settings of a group, taken out of them, as an input and an attribute.

        So the program stays the same, whatever the schedule makes of them.
        """
        if recorder.captured or not recorder.transport.remote:
            return [], {}  # what tg.compile looks at has a way of its own for numbers that change
        before, changed = _schedules.setdefault(self, {}).get(index, (settings, frozenset()))
        changed |= {n for n, value in settings.items() if type(value) in SCHEDULED and value != before.get(n, value)}
        _schedules[self][index] = {**settings}, changed
        names = sorted(changed & settings.keys())
        if not names:
            return [], {}
        numbers = np.hstack([np.float64(settings.pop(name)) for name in names])
        return [upload(recorder, numbers)._id], {"scheduled": names}

    def _state(self, param: Tensor, label: str) -> Tensor:
        """A state tensor of the algorithm, made before the first step."""
        own = self.state[param]
        name = STEP if label == "t" else label
        if name not in own:
            start = self.initial.get(label, 0.0)
            scalar = label in algorithms.SCALARS
            own[name] = param.detach().new_full(
                () if scalar else param.shape, start, dtype="float32" if scalar else param.dtype
            )
        tensor: Tensor = own[name]
        return tensor

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters, or fill them with zeros."""
        zero_grads([p for group in self.param_groups for p in group["params"]], set_to_none)

    # Saving ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """``{"state": {index: {name: tensor}}, "param_groups": […]}``, as torch's; the tensors are live."""
        index = {param: i for i, param in enumerate(self._params())}
        state = {
            index[param]: {name: value for name, value in own.items() if name not in self.unsaved}
            for param, own in self.state.items()
            if own and param in index
        }
        groups = [{**group, "params": [index[p] for p in group["params"]]} for group in self.param_groups]
        for group in groups:
            group["params"] = group.pop("params")  # last, as torch has it
        return {"state": state, "param_groups": groups}

    @no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over options and a copy of the state, from this library or from torch.

        Raises ValueError if the groups or their sizes differ.
        """
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise InvalidValue("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(own["params"]) for g, own in zip(groups, self.param_groups, strict=True)):
            raise InvalidValue(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        names = [name for group in groups for name in group["params"]]
        params = dict(zip(names, self._params(), strict=True))
        self.param_groups = [
            {
                **own,
                **copy.deepcopy({k: v for k, v in group.items() if k != "params"}),
                "params": own["params"],
            }
            for own, group in zip(self.param_groups, groups, strict=True)
        ]
        self.state = defaultdict(dict)
        for name, values in state_dict["state"].items():
            if name in params:
                self.state[params[name]] = {
                    label: _copied(params[name], label, value) for label, value in values.items() if value is not None
                }

    def __getstate__(self) -> dict[str, Any]:
        """Without what a scheduler put there: a copy's ``step`` must move the copy."""
        return {name: value for name, value in self.__dict__.items() if name not in ("step", "_opt_called")}

    def _params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def __repr__(self) -> str:
        groups = [
            "\n".join(
                [
                    f"Parameter Group {i}",
                    *(f"    {key}: {group[key]}" for key in sorted(group) if key != "params"),
                ]
            )
            for i, group in enumerate(self.param_groups)
        ]
        return f"{type(self).__name__} (\n" + "\n\n".join(groups) + "\n)"


def _copied(param: Tensor, label: str, value: Any) -> Any:
    """One state of a loaded state dict: tensors, and lists of them, as tensors of their own beside ``param``."""
    if isinstance(value, list):
        return [_copied(param, label, item) for item in value]
    if not is_array(value):
        return param.new_tensor(float(value), dtype="float32") if label == STEP else value
    tensor = in_session_of(param, value).detach()
    scalar = label in SCALARS
    return tensor.to(dtype="float32" if scalar else param.dtype, copy=True)


def _scalars_first(label: str) -> int:
    """The order of torch's state dicts: the count, other numbers, then what has the parameter's shape."""
    return algorithms.SCALARS.index(label) if label in algorithms.SCALARS else len(algorithms.SCALARS)


def _check_flags(options: Mapping[str, Any]) -> None:
    """Refuse what is not there; foreach, fused and capturable only say how fast, and are ignored."""
    if options.get("fused"):
        if options.get("differentiable"):
            raise InvalidOperation("`fused` does not support `differentiable`")
        if options.get("foreach"):
            raise InvalidOperation("`fused` and `foreach` cannot be `True` together.")
    if options.get("differentiable"):
        raise NotSupported(
            "differentiable=True is not supported: a step runs in the session, outside the graph. Write the update "
            "with tensors to differentiate through it."
        )
