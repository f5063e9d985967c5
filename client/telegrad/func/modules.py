"""Modules as functions of their parameters: ``functional_call``, and several models stacked; ``functionalize``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from telegrad_engine.errors import InvalidOperation, InvalidValue

from ..nn.modules.batchnorm import _Norm
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
    """``module(*args, **kwargs)`` with these tensors for its parameters and buffers, by dotted name.

    Names that are not given stay the module's own. With ``tie_weights`` a tensor also takes the places of parameters
    that are the same as the one it is given for. What the module assigns to buffers meanwhile is found in the dict.
    A name that the module does not have is an attribute for the time of the call. ``strict`` wants all names and no
    others. Raises ValueError for a name in two dicts or for other tensors under tied names, TypeError for what is no
    tensor, AttributeError for a submodule that there is not, and with ``strict`` RuntimeError.
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
    """The parameters and the buffers of models of one class, each stacked along a new first dimension.

    The stacked parameters are leaves that require grad if the models' do. Raises RuntimeError for models that differ
    in class, mode or in what requires grad.
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
    """Have the batch and instance norms of a model keep no running statistics, which ``vmap`` cannot update."""
    for module in root.modules():
        if isinstance(module, _Norm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """Return a function that does what ``func`` does.

    In torch, too, functionalizing changes no result: it rewrites in-place ops for tracers, and Telegrad traces nothing.
    Raises RuntimeError for an unknown ``remove``.
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
