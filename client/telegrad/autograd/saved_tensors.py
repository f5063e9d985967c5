"""Hooks on tensors saved for backward, and saved copies of tensors that are modified afterwards.

The session keeps what its nodes save. An op recorded while hooks are active becomes a client operation: forward packs
the tensors that the op's derivative needs, and backward unpacks them and applies the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, lru_cache
from types import FunctionType
from typing import Any, NamedTuple

from telegrad_engine.context import below, observed_by, observer_of, state
from telegrad_engine.dtypes import FLOATING
from telegrad_engine.errors import GradRequired, InvalidOperation
from telegrad_engine.graph.node import camel, metadata_of
from telegrad_engine.instrumentation import Observer, Run
from telegrad_engine.schema.derivative_plan import DerivativePlan
from telegrad_engine.schema.op import CATALOGUE, Op
from telegrad_engine.schema.signature import flattened, mapped, nested
from telegrad_engine.tensor.gradient_values import GraphValues
from telegrad_engine.transforms import saved_tensor_hooks as engine_saved
from telegrad_engine.transforms.saved_tensor_hooks import Packed, Packing

from ..tensor.handle import OPS, Tensor
from .function import Function

Hook = Callable[[Any], Any]


@cache
def _uses_private_ops(op: Op) -> bool:
    """Whether a derivative of the op calls an op that programs may not contain."""
    rules = [rule for rule in (*op.rules.values(), op.joint_rule) if isinstance(rule, FunctionType)]
    called = [CATALOGUE.identified(name) for rule in rules for name in rule.__code__.co_names]
    return any(other is not None and other.private for other in called)


def _plan(op: Op, inputs: tuple[Any, ...]) -> DerivativePlan | None:
    """The op's plan if it is recorded and saves inputs or results that a client operation can use, else None."""
    if not state.grad_enabled or not op.differentiable or op.composite or _uses_private_ops(op):
        return None
    needs = mapped(_needs, inputs)
    if not any(flattened(needs)):
        return None
    try:
        plan = op.plan(needs)
    except GradRequired:
        return None  # the op raises this error itself
    kinds = {save.source for save in plan.saves}
    return plan if kinds & {"input", "output"} and "hidden" not in kinds else None


def _needs(value: Any) -> bool:
    return type(value)._apply is Tensor._apply and value.requires_grad if isinstance(value, Tensor) else False


class _HookedOp(NamedTuple):
    """An op with all but its inputs, which forward takes one by one."""

    op: Op
    attrs: Mapping[str, Any]
    plan: DerivativePlan
    pair: tuple[Hook, Hook]
    structure: tuple[Any, ...]
    """The structure of the op's inputs."""

    def inputs(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return the op's inputs from the arguments of forward."""
        return nested(iter(values), self.structure)


class _Packed(Function):
    """An op whose saved tensors are packed."""

    @staticmethod
    def forward(call: _HookedOp, *values: Any) -> Any:
        result = OPS._apply(call.op, call.inputs(values), call.attrs)
        return tuple(result) if isinstance(result, tuple) else result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.call = call = inputs[0]
        inputs = call.inputs(inputs[1:])
        outputs = output if isinstance(output, tuple) else (output,)
        fixed = [o for i, o in enumerate(outputs) if o._data.dtype not in FLOATING or i in call.op.constants]
        ctx.mark_non_differentiable(*fixed)
        ctx.kept = [_kept(call, save, inputs, outputs) for save in call.plan.saves]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        call: _HookedOp = ctx.call
        saved = [_unpacked(kept) for kept in ctx.kept]
        many = call.op.lists_outputs or len(call.op.outputs) > 1
        specs = ctx._specs[1:]
        found: list[Any] = [None] * len(specs)
        for edges, rule, arguments, lists in call.plan.steps:
            result = rule(OPS, grads if many else grads[0], *[saved[i] for i in arguments])
            for edge, grad in zip(edges, result if lists else (result,), strict=True):
                found[edge] = grad
        fit = GraphValues(Tensor).unbroadcast
        return None, *[
            None if grad is None or spec is None else fit(grad, tuple(spec.shape), spec.dtype)
            for grad, spec in zip(found, specs, strict=True)
        ]


@lru_cache(256)
def _packed_as(name: str) -> type[_Packed]:
    kind: Any = type(name, (_Packed,), {})
    kind._backward_cls.__name__ = name
    packed: type[_Packed] = kind
    return packed


def _kept(call: _HookedOp, save: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """The saved form of a value that the derivative needs."""
    source, key = save
    if source == "attr":
        return call.attrs.get(key, call.op.defaults.get(key))
    if source in ("shape", "dtype"):
        return metadata_of(inputs[key], source)
    value = inputs[key] if source == "input" else outputs[key]
    if isinstance(value, tuple):
        return [Packed(v, *call.pair) if isinstance(v, Tensor) else v for v in value]
    return Packed(value, *call.pair) if isinstance(value, Tensor) else value


def _unpacked(kept: Any) -> Any:
    if isinstance(kept, list):
        return [_unpacked(k) for k in kept]
    return kept.unpack() if isinstance(kept, Packed) else kept


class _Hooks(Packing):
    """The transform that packs the tensors ops save."""

    sees_ops = True

    def __init__(self, pair: tuple[Hook, Hook]) -> None:
        self.pair = pair

    def op(self, run: Run, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Apply an op that saves tensors as a client operation that packs them."""
        plan = _plan(op, inputs)
        if plan is None:
            return super().op(run, op, inputs, attrs)
        name = op.node if isinstance(op.node, str) else f"{camel(op.name)}Backward0"
        structure = mapped(lambda _: None, inputs)
        with below(self):
            result = _packed_as(name).apply(_HookedOp(op, attrs, plan, self.pair, structure), *flattened(inputs))
        return op.bundle(list(result) if isinstance(result, tuple) else [result])

    def in_place(self, run: Run, tensor: Any, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Apply the in-place op unchanged: its saved tensors are not packed."""
        with nullcontext() if _plan(op, inputs) is None else below(self):
            return super().in_place(run, tensor, op, inputs, attrs)


class saved_tensors_hooks(engine_saved.saved_tensors_hooks):
    """Within the block, save ``pack_hook(tensor)`` for each saved tensor; backward uses ``unpack_hook(packed)``.

    ``unpack_hook`` must return a tensor of the same shape and dtype. The innermost pair applies. Both hooks run on the
    client, so a backward waits for the session at each op recorded in the block.

    Examples:
        >>> x = tg.ones(2, requires_grad=True)
        >>> with tg.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True), tg.from_numpy):
        ...     y = (x * x).sum()
        >>> y.backward()
        >>> x.grad
        tensor([2., 2.])
    """

    def _packing(self) -> AbstractContextManager[Any]:
        return observed_by(_Hooks((self.pack_hook, self.unpack_hook)))


class save_on_cpu(saved_tensors_hooks):
    """Accepted without effect: torch moves saved tensors to host memory, here they stay in the session.

    ``pin_memory`` and ``device_type`` have no effect.

    Examples:
        >>> x = tg.ones(2, requires_grad=True)
        >>> with tg.autograd.graph.save_on_cpu():
        ...     (x * x).sum().backward()
        >>> x.grad
        tensor([2., 2.])
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda tensor: tensor, lambda tensor: tensor)

    def _packing(self) -> AbstractContextManager[None]:
        return nullcontext()


# Mutation ------------------------------------------------------------------------------------------------


class _AllowMutationOnSavedContext(Observer):
    """The transform that makes ops save copies, so that their inputs and results may be modified afterwards."""

    sees_ops = True

    def op(self, run: Run, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Apply an op to copies of the tensors that it saves."""
        plan = _plan(op, inputs)
        if plan is None:
            return super().op(run, op, inputs, attrs)
        with below(self):
            result = super().op(run, op, _copied(plan, inputs), attrs)
            outputs = list(result) if isinstance(result, tuple) else [result]
            saved = {save.key for save in plan.saves if save.source == "output"}
            return op.bundle([output.clone() if i in saved else output for i, output in enumerate(outputs)])

    def in_place(self, run: Run, tensor: Any, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Apply the in-place op with copies of the other inputs that it saves; its own old value is copied anyway."""
        plan = _plan(op, inputs)
        if plan is None:
            return super().in_place(run, tensor, op, inputs, attrs)
        with below(self):
            return super().in_place(run, tensor, op, (tensor, *_copied(plan, inputs)[1:]), attrs)

    def clear(self) -> None:
        """Do nothing: the graph owns the copies."""


def _copied(plan: DerivativePlan, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    saved = {save.key for save in plan.saves if save.source == "input"}

    def copy(value: Any) -> Any:
        return value.clone() if isinstance(value, Tensor) else value

    return tuple([mapped(copy, x) if i in saved else x for i, x in enumerate(inputs)])


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_AllowMutationOnSavedContext]:
    """Within the block, make ops save copies, so that saved tensors may be modified in place afterwards.

    Examples:
        >>> x = tg.ones(2, requires_grad=True)
        >>> with tg.autograd.graph.allow_mutation_on_saved_tensors():
        ...     y = x * 3
        ...     z = y * y
        ...     _ = y.detach().zero_()
        ...     z.sum().backward()
        >>> x.grad
        tensor([18., 18.])
    """
    if observer_of(_AllowMutationOnSavedContext) is not None:
        raise InvalidOperation("allow_mutation_on_saved_tensors contexts cannot be nested")
    context = _AllowMutationOnSavedContext()
    with observed_by(context):
        yield context
