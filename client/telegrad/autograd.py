"""``telegrad.autograd``: gradients, as ``torch.autograd``.

The shadow graph is walked here and now, so mistakes raise on the caller's line; the gradients
themselves are computed in the session, when a value is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine import autograd as engine_autograd
from telegrad_engine.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from telegrad_engine.specs import Spec

from .tensor import Tensor, handle, recorder_of, refs


def backward(
    tensors: Sequence[Tensor],
    gradients: Sequence[Any] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate the sum of the tensors' gradients into the leaves, or into ``inputs`` alone."""
    recorder = recorder_of(tuple(tensors))
    engine_autograd.backward(tensors, gradients, retain_graph, create_graph, inputs)
    names: list[Any] = [refs(tensors)]
    if gradients is not None or inputs is not None:
        names.append(None if gradients is None else refs(gradients))
    if inputs is not None:
        names.append(refs([inputs] if isinstance(inputs, Tensor) else list(inputs)))
    recorder.emit("backward", names, (), _options(retain_graph=retain_graph, create_graph=create_graph or None))


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, leaving ``.grad`` alone.

    One tensor per input, of its shape and dtype; None for an input that was not used, if
    ``allow_unused``, or zeros, if ``materialize_grads``.
    """
    stand_ins = engine_autograd.grad(
        outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads
    )
    outs = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    ins = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    recorder = recorder_of(outs)
    results = []
    for stand_in in stand_ins:
        result = None
        if stand_in is not None:
            result = handle(recorder, Spec(stand_in._data.shape, stand_in._data.dtype))
            if create_graph:
                result._adopt(stand_in)
        results.append(result)
    # An unused input's name is given out but never bound.
    names = [r._id if r is not None else recorder.new_id() for r in results]
    seeds = None
    if grad_outputs is not None:
        seeds = refs([grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs))
    recorder.emit(
        "grad",
        [refs(outs), refs(ins), seeds],
        names,
        _options(
            retain_graph=retain_graph,
            create_graph=create_graph or None,
            allow_unused=allow_unused,
            materialize_grads=materialize_grads or None,
        ),
    )
    return tuple(results)


def _options(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


__all__ = ["backward", "enable_grad", "grad", "is_grad_enabled", "no_grad", "set_grad_enabled"]
