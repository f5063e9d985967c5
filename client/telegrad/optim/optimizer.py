"""The base class of all optimizers: checked options, parameter groups, state, one instruction per group and step."""

from __future__ import annotations

import copy
import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from telegrad_engine import dtypes
from telegrad_engine.context import enable_grad, no_grad, state
from telegrad_engine.errors import InvalidArgument, InvalidOperation, InvalidValue, NotSupported
from telegrad_engine.graph.hooks import Handle, Hooks
from telegrad_engine.optim import algorithms

from .. import html_output
from ..nn.parameter import type_name, zero_grads
from ..tape.segment import Effect
from ..tensor.constructors import in_session_of, is_array
from ..tensor.handle import Tensor, functions, recorder_of, upload

STEP = "step"
"""The state that counts steps: a float32 tensor without dimensions, kept in the session like the rest."""


SCALARS = tuple([STEP if label == "t" else label for label in algorithms.SCALARS])
"""The scalar states, by their names in state dicts."""


def settings_of(name: str, group: Mapping[str, Any], **given: Any) -> tuple[str, dict[str, Any]]:
    """Return an engine algorithm's name and its settings: those in ``given``, the others from options of ``group``."""
    options = {key: "decoupled_weight_decay" if key == "decoupled" else key for key in algorithms.get(name).defaults}
    return name, {key: given[key] if key in given else group[option] for key, option in options.items()}


HOOKS = ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post")
"""The points at which an optimizer calls hooks."""
_pre_hooks_of_all, _post_hooks_of_all = Hooks(), Hooks()
"""The hooks around the steps of all optimizers."""


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> Handle:
    """Call ``hook(optimizer, args, kwargs)`` before each step of every optimizer; it may return new arguments."""
    return _pre_hooks_of_all.add(hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> Handle:
    """Call ``hook(optimizer, args, kwargs)`` after each step of every optimizer."""
    return _post_hooks_of_all.add(hook)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a class's ``step`` so that it calls the hooks."""

    @functools.wraps(step)
    def hooked(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        # A step that calls the base class's step counts as one step.
        hooks = self._hooks or len(_pre_hooks_of_all) or len(_post_hooks_of_all)
        if not hooks or type(self).step is not hooked:
            return step(self, *args, **kwargs)
        for hook in [*_pre_hooks_of_all.values(), *self._hooks_at("step_pre")]:
            given = hook(self, (self, *args), kwargs)
            if given is not None:
                if not (isinstance(given, tuple) and len(given) == 2):
                    raise InvalidOperation(
                        f"{step} must return None or a tuple of (new_args, new_kwargs), but got {given}."
                    )
                (_, *args), kwargs = given
        result = step(self, *args, **kwargs)
        for hook in [*self._hooks_at("step_post"), *_post_hooks_of_all.values()]:
            hook(self, (self, *args), kwargs)
        return result

    return hooked


class Optimizer:
    """Base class of the optimizers, which update parameters in place by their gradients.

    ``params`` is an iterable of leaf tensors, or of dicts with ``params`` and the options that differ
    from ``defaults``. Raises TypeError and ValueError, with torch's texts, for anything else.

    The options ``foreach``, ``fused`` and ``capturable`` of its subclasses are torch's and change nothing.

    ``step()`` moves the parameters, ``zero_grad()`` clears the gradients, and ``state_dict()`` and
    ``load_state_dict()`` save and restore states and options.

    Examples:
        >>> w = tg.tensor([1.0], requires_grad=True)
        >>> optimizer = tg.optim.SGD([{"params": [w], "lr": 0.5}], lr=0.1)
        >>> optimizer.param_groups[0]["lr"]
        0.5
    """

    unsaved: ClassVar[tuple[str, ...]] = ()
    """State that torch's optimizer of this name does not have; the state dict omits it."""
    algorithm_name: ClassVar[str | None] = None
    """The name of the engine's algorithm, if its settings are exactly the options; the class statement's keyword
    ``algorithm``."""
    initial: Mapping[str, float | str] = algorithms.INITIAL
    """The initial values of states that do not start at 0: a number, or the name of an option."""
    _opt_called = False
    """Whether a step was made since a scheduler started to record steps."""
    _hooks: dict[str, Hooks] = {}  # replaced, never modified
    """The hooks of this optimizer, by the point at which they are called."""
    _condition: Tensor | None = None
    """The tensor that decides in the session whether the recorded step is applied."""

    def __init_subclass__(cls, algorithm: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if algorithm is not None:
            cls.algorithm_name = algorithm
        if "step" in vars(cls):
            cls.step = _with_hooks(cls.step)  # type: ignore[method-assign]

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

    def algorithm(self, group: Mapping[str, Any], params: Sequence[Tensor]) -> tuple[str, dict[str, Any]]:
        """Return the name of the engine's algorithm for some parameters of a group, and its settings."""
        if self.algorithm_name is None:
            raise NotImplementedError
        return settings_of(self.algorithm_name, group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with its own options, for example for layers that are unfrozen.

        ``param_group`` is a dict with ``params`` and options.

        Examples:
            >>> first, second = tg.zeros(1, requires_grad=True), tg.zeros(1, requires_grad=True)
            >>> optimizer = tg.optim.SGD([first], lr=0.1)
            >>> optimizer.add_param_group({"params": [second], "lr": 0.01})
            >>> [group["lr"] for group in optimizer.param_groups]
            [0.1, 0.01]
        """
        if not isinstance(param_group, dict):
            raise InvalidArgument(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, set):
            raise InvalidArgument(
                "optimizer parameters need to be organized in ordered collections, but the ordering of "
                "tensors in sets will change between runs. Please use a list instead."
            )
        params = [params] if isinstance(params, Tensor) else list(params)
        param_names = [param[0] for param in params if isinstance(param, tuple)]
        if param_names and len(param_names) != len(params):
            raise InvalidValue("all optimizer params should be with/without names. Some param names are missing")
        if param_names:
            params = [param for _, param in params]
        for param in params:
            if not isinstance(param, Tensor):
                raise InvalidArgument(
                    f"optimizer can only optimize Tensors, but one of the params is {type_name(param)}"
                )
            if not param.is_leaf and not param.retains_grad:
                raise InvalidValue("can't optimize a non-leaf Tensor")
        if len(set(params)) != len(params):
            warnings.warn("optimizer contains a parameter group with duplicate parameters", stacklevel=3)
        if any(("param_names" in group) != bool(param_names) for group in self.param_groups):
            raise InvalidValue(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with' if param_names else 'without'} names to the optimizer"
            )
        if any(not set(params).isdisjoint(group["params"]) for group in self.param_groups):
            raise InvalidValue("some parameters appear in more than one parameter group")
        names = {"param_names": param_names} if param_names else {}
        group = {**param_group, "params": params, **names}
        group |= {name: value for name, value in self.defaults.items() if name not in group}
        _check_flags(group)
        self.param_groups.append(group)

    # Stepping ----------------------------------------------------------------------------

    @_with_hooks
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; the step is recorded, not sent.

        ``closure`` recomputes the gradients and returns the loss, which is then returned.

        ``closure`` computes the loss and its gradients, and its result is returned; LBFGS needs one.

        Examples:
            >>> w = tg.tensor([1.0], requires_grad=True)
            >>> optimizer = tg.optim.SGD([w], lr=0.1)
            >>> w.sum().backward()
            >>> optimizer.step()
            >>> w.detach()
            tensor([0.9000])
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        before = state.grad_enabled
        try:  # not with no_grad(): a KeyboardInterrupt before its __exit__ would leave the mode on
            state.grad_enabled = False
            for group in self.param_groups:
                self._step(group)
        finally:
            state.grad_enabled = before
        return loss

    def step_if(self, condition: Tensor) -> bool:
        """Record a step that the session applies if a one-element bool tensor is true. Return whether it was recorded.

        It is not recorded for an optimizer with hooks or its own ``step``, which need to know the value.
        """
        if self._hooks or len(_pre_hooks_of_all) or len(_post_hooks_of_all) or type(self).step is not Optimizer.step:
            return False
        self._condition = condition
        try:
            self.step()
        finally:
            self._condition = None
        return True

    def _step(self, group: dict[str, Any]) -> None:
        params: list[Tensor] = [p for p in group["params"] if p._has_grad]
        for portion in self._portions(params):
            if portion:
                self._emit_step(group, portion)

    def _portions(self, params: list[Tensor]) -> list[list[Tensor]]:
        """Split a group's parameters by the algorithm that updates them."""
        return [params]

    def _emit_step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """Update parameters by one instruction."""
        name, given = self.algorithm(group, params)
        algorithm = algorithms.get(name)
        tensors = {key: value for key, value in given.items() if has_tensors(value)}
        settings = algorithm.settings({key: value for key, value in given.items() if key not in tensors})
        labels = algorithm.states_for({**settings, **tensors})
        # The order of torch's state dicts: the step count, other scalars, then states of the parameter's shape.
        ordered = dict.fromkeys([*[label for label in algorithms.SCALARS if label in labels], *labels])
        made = {label: [self._state(p, label, group) for p in params] for label in ordered}
        states = [made[label] for label in labels]
        ids = tuple([tuple([t._id for t in own]) for own in states])
        recorder = recorder_of(params)
        inputs: list[Any] = [tuple([p._id for p in params]), ids]
        attrs = {"algorithm": name, "settings": settings}
        if tensors:
            for label in tensors:
                settings.pop(label)
            numbers = _as_numbers(list(tensors.values()), recorder)
            inputs.append(numbers._id)
            attrs["scheduled"] = list(tensors)
        if self._condition is not None:
            inputs += [*([] if tensors else [None]), self._condition._id]
        changed = list(chain(params, *states))
        effect = Effect([(tensor._version_counter, tensor._version_counter[0]) for tensor in changed])
        recorder.emit("optim_step", inputs, (), attrs, effect=effect)
        for tensor in changed:
            tensor._version_counter[0] += 1

    def _state(self, param: Tensor, label: str, group: Mapping[str, Any]) -> Tensor:
        """Return a state tensor of the algorithm, creating it before the first step."""
        own = self.state[param]
        name = STEP if label == "t" else label
        if name not in own:
            start: Any = self.initial.get(label, 0.0)
            if isinstance(start, str):
                start = group[start]
            shape = algorithms.state_shape(label, tuple(param.shape))
            dtype = dtypes.float32 if label in algorithms.SCALARS else param.dtype
            if isinstance(start, Tensor):
                start = start.detach().to(dtype).reshape(()).expand(shape).clone()
                own[name] = start
            else:
                own[name] = param.detach().new_full(shape, start, dtype=dtype)
        tensor: Tensor = own[name]
        return tensor

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters, or fill them with zeros.

        ``set_to_none`` says that they are cleared.

        Examples:
            >>> w = tg.tensor([1.0], requires_grad=True)
            >>> w.sum().backward()
            >>> tg.optim.SGD([w]).zero_grad()
            >>> w.grad is None
            True
        """
        zero_grads(self._params(), set_to_none)

    # Hooks -------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; a pair that it returns replaces the arguments."""
        return self._register("step_pre", hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return self._register("step_post", hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call ``hook(optimizer)`` before a state dict is made."""
        return self._register("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call ``hook(optimizer, state_dict)`` on each state dict; a result other than None replaces it."""
        return self._register("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call ``hook(optimizer, state_dict)`` before a state dict is loaded; a result other than None replaces it."""
        return self._register("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call ``hook(optimizer)`` after a state dict has been loaded."""
        return self._register("load_state_dict_post", hook, prepend)

    def _register(self, place: str, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        if not self._hooks:
            self._hooks = {name: Hooks() for name in HOOKS}
        return self._hooks[place].add(hook, prepend)

    def _hooks_at(self, place: str) -> list[Callable[..., Any]]:
        return list(self._hooks[place].values()) if self._hooks else []

    # Saving ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return ``{"state": {index: {name: tensor}}, "param_groups": […]}``, as in torch, without copying tensors.

        Examples:
            >>> w = tg.tensor([1.0], requires_grad=True)
            >>> tg.optim.SGD([w], lr=0.1).state_dict()["param_groups"][0]["lr"]
            0.1
        """
        for hook in self._hooks_at("state_dict_pre"):
            hook(self)
        index = {param: i for i, param in enumerate(self._params())}
        state = {
            index[param]: {name: value for name, value in own.items() if name not in self.unsaved}
            for param, own in self.state.items()
            if own and param in index
        }
        groups = [{**group, "params": [index[p] for p in group["params"]]} for group in self.param_groups]
        for group in groups:
            group["params"] = group.pop("params")  # last, as in torch
        made: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._hooks_at("state_dict_post"):
            replaced = hook(self, made)
            made = made if replaced is None else replaced
        return made

    @no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the options and a copy of the state from a state dict of this library or of torch.

        Raises ValueError if the groups or their sizes differ.
        """
        state_dict = dict(state_dict)
        for hook in self._hooks_at("load_state_dict_pre"):
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
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
                **{k: _own_option(own["params"], v) for k, v in group.items() if k != "params"},
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
        self._loaded()
        for hook in self._hooks_at("load_state_dict_post"):
            hook(self)

    def _loaded(self) -> None:
        """Complete a state that was just loaded."""

    def __getstate__(self) -> dict[str, Any]:
        """Omit hooks and what a scheduler added: a copy's ``step`` must update the copy."""
        return {name: value for name, value in self.__dict__.items() if name not in ("step", "_opt_called", "_hooks")}

    def _params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def __repr__(self) -> str:
        groups = [
            "\n".join(
                [f"Parameter Group {i}", *(f"    {key}: {group[key]}" for key in sorted(group) if key != "params")]
            )
            for i, group in enumerate(self.param_groups)
        ]
        return f"{type(self).__name__} (\n" + "\n\n".join(groups) + "\n)"

    def _repr_html_(self) -> str:
        """Show the options of the groups side by side."""
        groups = self.param_groups
        parameters = [f"{sum(p.numel() for p in group['params']):,} in {len(group['params'])}" for group in groups]
        names = sorted({name for group in groups for name in group} - {"params"})
        rows = [("parameters", *parameters)]
        rows += [(name, *(repr(group[name]) if name in group else "" for group in groups)) for name in names]
        header = ("option", *(f"group {index}" for index in range(len(groups))))
        title = html_output.properties(type(self).__name__, [("parameters with a state", str(len(self.state)))])
        return html_output.block("optimizer", title, html_output.table(header, rows))


def has_tensors(value: Any) -> bool:
    """Whether an option is a tensor, or a tuple that contains one."""
    return isinstance(value, Tensor) or (isinstance(value, tuple) and any(isinstance(v, Tensor) for v in value))


def _as_numbers(values: list[Any], recorder: Any) -> Tensor:
    """Concatenate numbers, pairs of numbers and one-element tensors to one float64 tensor."""
    flat = [v for value in values for v in (value if isinstance(value, (tuple, list)) else (value,))]
    if not any(isinstance(v, Tensor) for v in flat):
        return upload(recorder, np.array(flat, np.float64))
    parts = [
        v.detach().reshape((1,)).to(dtypes.float64) if isinstance(v, Tensor) else upload(recorder, np.array([v]))
        for v in flat
    ]
    return functions.cat(parts) if len(parts) > 1 else parts[0]


def _own_option(params: list[Tensor], value: Any) -> Any:
    """An option of a loaded state dict; a tensor is copied to the parameters' session."""
    if is_array(value) and not isinstance(value, np.generic):
        return in_session_of(params[0], value).detach().clone()
    return copy.deepcopy(value)


def _copied(param: Tensor, label: str, value: Any) -> Any:
    """A copy of one state of a loaded state dict, with tensors and lists of tensors in the session of ``param``."""
    if isinstance(value, list):
        return [_copied(param, label, item) for item in value]
    if not is_array(value):
        return param.new_tensor(float(value), dtype="float32") if label == STEP else value
    tensor = in_session_of(param, value).detach()
    scalar = label in SCALARS
    return tensor.to(dtype="float32" if scalar else param.dtype, copy=True)


def _check_flags(options: Mapping[str, Any]) -> None:
    """Raise an error for unsupported flags; foreach, fused and capturable affect only speed and are ignored."""
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


CHECKS = {
    "lr": "learning rate",
    "lr_decay": "lr_decay value",
    "rho": "rho value",
    "eps": "epsilon value",
    "betas": "beta parameter at index",
    "momentum": "momentum value",
    "weight_decay": "weight_decay value",
    "momentum_decay": "momentum_decay value",
    "initial_accumulator_value": "initial_accumulator_value value",
    "alpha": "alpha value",
}
"""The options that may not be negative, and what error texts call them.

They are checked in torch's order, so that the same error is reported first; only Adagrad differs in torch (eps last).
"""


def _check(name: str, value: Any) -> None:
    """Raise ValueError for an invalid value of an option; the check is the same for every optimizer."""
    if name == "lr" and isinstance(value, Tensor) and value.numel() != 1:
        raise InvalidValue("Tensor lr must be 1-element")
    if name == "betas":
        for index in range(2):
            if not 0.0 <= value[index] < 1.0:
                raise InvalidValue(f"Invalid {CHECKS[name]} {index}: {value[index]}")
    elif not value >= 0.0 or (name == "rho" and value > 1.0):  # rejects NaN, too
        raise InvalidValue(f"Invalid {CHECKS[name]}: {value}")


def options_in(arguments: Mapping[str, Any], unchecked: Collection[str] = ()) -> dict[str, Any]:
    """Return the options in the ``locals()`` of a constructor that starts with this call, checked except ``unchecked``.

    All arguments except the parameters are options, so only the constructor's signature names them. Raises ValueError
    for values that torch rejects; to check a tensor, its value is fetched.
    """
    options = {name: value for name, value in arguments.items() if name not in ("self", "params", "__class__")}
    for name in CHECKS:
        if name in options and name not in unchecked:
            _check(name, options[name])
    return options


def require(condition: bool, text: str) -> None:
    """Raise ValueError with ``text`` unless the condition holds."""
    if not condition:
        raise InvalidValue(text)


def require_rate(lr: Any) -> None:
    """Raise ValueError for a negative learning rate, with the text of torch's newer optimizers."""
    require(not isinstance(lr, Tensor) or lr.numel() == 1, "Tensor lr must be 1-element")
    require(bool(lr >= 0.0), f"Learning rate should be >= 0 but is: {lr}")
