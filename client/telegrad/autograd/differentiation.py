"""``backward`` and ``grad``.

The client graph is walked at once, so that mistakes raise on the caller's line; the session computes the gradients
when a value is requested.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from telegrad_engine.autograd.client_evaluation import new_pass
from telegrad_engine.context import state
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.graph.differentiation import Derivation, listed
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.abstract import Meta
from telegrad_engine.transforms.batched_gradients import check_rows, one_by_one, rows_are_alike
from telegrad_engine.transforms.batched_gradients import grad as grad_in_engine

from ..tape.lazy_graph import run_lazily
from ..tape.recorder import NO_ATTRS, Recorder
from ..tape.segment import Effect
from ..tensor.handle import Tensor, handle, recorder_of, refs
from . import anomaly_mode, client_evaluation

BOTH_NAMES = (
    "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. "
    "Please only use `grad_tensors`."
)


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Accumulate the sum of the tensors' gradients into the leaves, or into ``inputs`` only.

    ``grad_tensors`` has one tensor (or None for a tensor of one element) per tensor; ``grad_variables`` is its
    deprecated name and warns. Raises InvalidOperation if both are given.

    Args:
        tensors: The tensors to differentiate, or one.
        grad_tensors: The gradient of each of them; None is 1 for those with one element.
        retain_graph: Whether the graph can be used again; None is the value of ``create_graph``.
        create_graph: Whether gradients have a graph themselves.
        inputs: The tensors whose gradients are accumulated; None is all leaves.

    Examples:
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> tg.autograd.backward([(x * x).sum()])
        >>> x.grad
        tensor([2., 4.])
    """
    if grad_variables is not None:
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise InvalidOperation(BOTH_NAMES)
        grad_tensors = grad_variables
    tensors, inputs = tensors_of(tensors), None if inputs is None else tensors_of(inputs)
    gradients = None if grad_tensors is None else _seeds(tensors, grad_tensors)
    if not tensors and inputs != []:
        return  # torch does nothing here, either
    recorder = recorder_of(tuple(tensors))
    if inputs is not None:
        client_evaluation.check_partial(recorder, tensors, inputs)

    def record(given: Sequence[str] = (), next_stop: Mapping[str, Any] = NO_ATTRS) -> None:
        names: list[Any] = [refs(tensors)]
        if gradients is not None or inputs is not None:
            names.append(None if gradients is None else refs(gradients))
        if inputs is not None:
            names.append(refs(inputs))
        options = _options({"retain_graph": retain_graph, "create_graph": create_graph})
        with recorder.lock:
            effect, recorder.received = Effect(received=recorder.received), []
            recorder.emit("backward", names, given, {**options, **next_stop}, effect=effect)

    recorder.received = []
    plain = gradients is None and inputs is None and not (retain_graph or create_graph)
    derive = partial(Derivation.of_backward, tensors, gradients, retain_graph, create_graph, inputs)
    _run(recorder, tensors, None, plain, derive, record)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """Return the gradients of ``outputs`` with respect to ``inputs``, without changing ``.grad``.

    There is one tensor per input, of its shape and dtype. For an unused input it is None with ``allow_unused``, or
    zeros with ``materialize_grads``. With ``is_grads_batched`` the ``grad_outputs`` have an extra leading dimension,
    and so do the results: one row each. For a dict of inputs, returns a dict.

    Args:
        outputs: The tensors to differentiate, or one.
        inputs: The tensors to differentiate with respect to, or one.
        grad_outputs: The gradient of each of ``outputs``; None is 1 for those with one element.
        retain_graph: Whether the graph can be used again; None is the value of ``create_graph``.
        create_graph: Whether the results have a graph themselves, for higher derivatives.
        only_inputs: Only True.

    Examples:
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> (first,) = tg.autograd.grad((x**3).sum(), x, create_graph=True)
        >>> tg.autograd.grad(first.sum(), x)
        (tensor([ 6., 12.]),)
    """
    if isinstance(inputs, dict):
        rest = only_inputs, allow_unused, is_grads_batched, materialize_grads
        by_name = grad(outputs, list(inputs.values()), grad_outputs, retain_graph, create_graph, *rest)
        return dict(zip(inputs, by_name, strict=True))
    outs, ins = tensors_of(outputs), tensors_of(inputs)
    grad_outputs = None if grad_outputs is None else _seeds(outs, grad_outputs)
    options: dict[str, Any] = {
        "retain_graph": retain_graph,
        "create_graph": create_graph,
        "allow_unused": allow_unused,
        "materialize_grads": materialize_grads,
        "is_grads_batched": is_grads_batched,
    }
    if state.observer is None:
        return _record_grad(outs, ins, grad_outputs, **options)
    return state.observer.grad(_record_grad, outs, ins, grad_outputs, options)


def _record_grad(
    outs: list[Any], ins: list[Any], grad_outputs: Any, is_grads_batched: bool, **options: Any
) -> tuple[Any, ...]:
    """Go over the client graph, and record the instruction that computes the gradients in the session.

    The ``options`` are ``retain_graph``, ``create_graph``, ``allow_unused`` and ``materialize_grads``.
    """
    if is_grads_batched:
        return _grad_rows(outs, ins, grad_outputs, **options)
    recorder = recorder_of(outs or ins)
    client_evaluation.check_partial(recorder, outs, ins)
    # An unused input's id is allocated but never bound.
    names = [recorder.new_id() for _ in ins]

    def record(given: Sequence[str] = (), next_stop: Mapping[str, Any] = NO_ATTRS) -> None:
        seeds = None if grad_outputs is None else refs(listed(grad_outputs))
        recorder.emit("grad", [refs(outs), refs(ins), seeds], [*names, *given], {**_options(options), **next_stop})

    plain = grad_outputs is None and not any(options.values())
    derive = partial(Derivation.of_grad, outs, ins, grad_outputs, **options)
    found = _run(recorder, outs, ins, plain, derive, record)
    history = options["create_graph"]
    return tuple([_result(recorder, name, stand_in, history) for name, stand_in in zip(names, found, strict=True)])


def _grad_rows(
    outs: list[Any],
    ins: list[Any],
    grad_outputs: Any,
    retain_graph: bool | None,
    create_graph: bool,
    **unused: Any,
) -> tuple[Any, ...]:
    """``grad`` for a batch of gradients: one instruction, unless it meets Python code."""
    recorder = recorder_of(outs or ins)
    gradients: list[Any] = [None] * len(outs) if grad_outputs is None else listed(grad_outputs)
    count = check_rows(outs, gradients)
    client_evaluation.check_partial(recorder, outs, ins)
    one = [Meta(Spec(g._data.shape[1:], g._data.dtype)) for g in gradients]
    derive = partial(Derivation.of_grad, outs, ins, one, retain_graph, False, **unused)
    stops = bool(recorder.python_hooks) and new_pass(derive()).may_stop
    if stops or state.anomaly is not None or (create_graph and not rows_are_alike(outs, ins)):
        keep = create_graph if retain_graph is None else retain_graph
        return tuple(one_by_one(outs, ins, gradients, count, keep, create_graph, **unused))
    seeds = [g._without_value() for g in gradients]
    found = grad_in_engine(outs, ins, seeds, retain_graph, create_graph, **unused, is_grads_batched=True)
    names = [recorder.new_id() for _ in ins]
    given = {"retain_graph": retain_graph, "create_graph": create_graph, **unused, "is_grads_batched": True}
    recorder.emit("grad", [refs(outs), refs(ins), refs(gradients)], names, _options(given))
    return tuple([_result(recorder, name, rows, create_graph) for name, rows in zip(names, found, strict=True)])


def _run(
    recorder: Recorder,
    tensors: Sequence[Any],
    inputs: Sequence[Any] | None,
    plain: bool,
    derive: Callable[[], Derivation],
    record: Callable[..., None],
) -> tuple[Any, ...]:
    """Run a pass in the client graph and in the session, and return stand-ins for the results of ``grad``.

    A lazy graph handles a ``plain`` pass, which has no options, if it starts at one tensor whose graph is not built
    yet. The stand-ins are then the ``inputs``.
    """
    with nullcontext() if state.anomaly is None else anomaly_mode.explained(recorder, tensors):
        if plain and len(tensors) == 1 and run_lazily(tensors[0], inputs):
            found = tuple(inputs or ())
        elif recorder.python_hooks:
            return client_evaluation.run(recorder, derive(), record)
        else:
            found = derive().run()
        record()
    return found


def _seeds(outputs: Sequence[Any], gradients: Any) -> list[Any]:
    """The gradients that a pass starts with; integers and bools are cast to the outputs' floating dtypes."""
    seeds = listed(gradients)
    for i, (output, seed) in enumerate(zip(outputs, seeds, strict=False)):
        if isinstance(seed, Tensor) and not seed.is_floating_point() and output.is_floating_point():
            seeds[i] = seed.to(dtype=output.dtype)
    return seeds


def tensors_of(value: Any) -> list[Any]:
    """One tensor or several as a list; a gradient edge is replaced by its tensor."""
    if not isinstance(value, Tensor) and hasattr(value, "_tensor"):
        return [value._tensor]
    return [x if isinstance(x, Tensor) else getattr(x, "_tensor", x) for x in listed(value)]


def _result(recorder: Recorder, name: str, stand_in: Any, create_graph: bool) -> Tensor | None:
    """A handle for a gradient that the session computes, described by the client graph's stand-in."""
    if stand_in is None:
        return None
    result = handle(recorder, Spec(stand_in._data.shape, stand_in._data.dtype), name=name)
    if create_graph:
        result._adopt(stand_in)
    return result


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of an instruction for these options, without those that have their default."""
    given = {name: x for name, x in options.items() if x or (x is False and name in ("retain_graph", "allow_unused"))}
    return given if state.anomaly is None else given | anomaly_mode.attributes(state.anomaly)
