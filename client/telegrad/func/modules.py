"""Modules as functions of their parameters: ``functional_call``, stacked models and ``functionalize``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from telegrad_engine.errors import InvalidOperation, InvalidValue

from ..nn.modules.batchnorm import _NormBase
from ..nn.modules.module import Module
from ..nn.utils.stateless import call_with
from ..tensor.handle import Tensor, functions


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Return ``module(*args, **kwargs)`` with other tensors as its parameters and buffers.

    ``parameter_and_buffer_dicts`` has the tensors by dotted name: a dict, or several.

    Other parameters and buffers stay the module's own. With ``tie_weights`` a tensor also replaces the parameters tied
    to the one it is given for. Values that the module assigns to buffers during the call are stored in the dict.
    A name that the module does not have becomes an attribute during the call. ``strict`` requires exactly the module's
    names. Raises ValueError for a name in two dicts or different tensors under tied names, TypeError for a value that
    is not a tensor, AttributeError for a missing submodule, and with ``strict`` RuntimeError.

    Examples:
        >>> layer = tg.nn.Linear(2, 1, bias=False)
        >>> tg.func.functional_call(layer, {"weight": tg.ones(1, 2)}, (tg.ones(3, 2),)).flatten()
        tensor([2., 2., 2.])
    """
    return call_with(module, _merged(parameter_and_buffer_dicts), args, kwargs, tie_weights, strict)


def _merged(dicts: Any) -> dict[str, Tensor]:
    if isinstance(dicts, dict):
        return dicts
    if not isinstance(dicts, (list, tuple)):
        raise InvalidValue(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(dicts)}"
        )
    if not all(isinstance(d, dict) for d in dicts):
        raise InvalidValue("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    names = [name for d in dicts for name in d]
    repeated = [name for i, name in enumerate(names) if name in names[:i]]
    if repeated:
        raise InvalidValue(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
    return {name: value for d in dicts for name, value in d.items()}


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters and the buffers of models of one class, each stacked along a new first dimension.

    The stacked parameters are leaves that require grad if the models' do. Raises RuntimeError for models that differ
    in class, mode or in what requires grad.

    Examples:
        >>> parameters, buffers = tg.func.stack_module_state([tg.nn.Linear(2, 1) for _ in range(3)])
        >>> parameters["weight"].shape
        telegrad.Size([3, 1, 2])
    """
    models = list(models)
    if not models:
        raise InvalidOperation("stack_module_state: Expected at least one model, got 0.")
    if not all(m.training == models[0].training for m in models):
        raise InvalidOperation("stack_module_state: Expected all models to have the same training/eval mode.")
    if not all(type(m) is type(models[0]) for m in models):
        raise InvalidOperation("stack_module_state: Expected all models to be of the same class.")
    parameters, buffers = [
        {
            name: _stacked(name, [dict(getattr(m, kind)())[name] for m in models])
            for name, _ in getattr(models[0], kind)()
        }
        for kind in ("named_parameters", "named_buffers")
    ]
    return parameters, buffers


def _stacked(name: str, tensors: Sequence[Tensor]) -> Tensor:
    needs = tensors[0].requires_grad
    if any(t.requires_grad != needs for t in tensors):
        raise InvalidOperation(f"Expected {name} from each model to have the same .requires_grad")
    stacked: Tensor = functions.stack([t.detach() for t in tensors])
    return stacked.requires_grad_(needs)


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Remove the running statistics of a model's batch and instance norms, which ``vmap`` cannot update.

    ``root`` is the model, which is changed and returned.

    Examples:
        >>> model = tg.func.replace_all_batch_norm_modules_(tg.nn.Sequential(tg.nn.BatchNorm1d(2)))
        >>> model[0].running_mean is None
        True
    """
    for module in root.modules():
        if isinstance(module, _NormBase):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """Return a function that does what ``func`` does.

    Functionalizing changes no result in torch, either: it rewrites in-place ops for tracers, which Telegrad does not
    need. Raises RuntimeError for an unknown ``remove``.

    ``remove`` is "mutations" or "mutations_and_views".

    Examples:
        >>> tg.func.functionalize(lambda x: x.add_(1))(tg.zeros(2))
        tensor([1., 1.])
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise InvalidOperation(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are:\n"
            "     remove='mutations': all inplace and out= operators will be removed from the program, and replaced "
            "with their out-of-place equivalents.\n"
            "     remove='mutations_and_views': In addition to the above, all aliasing operators {view} will be "
            "replaced with their non-aliasing counterparts, {view}_copy.\n"
        )
    return functools.wraps(func)(lambda *args, **kwargs: func(*args, **kwargs))
