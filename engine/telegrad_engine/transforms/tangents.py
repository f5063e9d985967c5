"""Forward mode: the tangents of tensors, and how they are pushed through each operation.

An op's derivative maps the results' gradients to the inputs' and is linear in them. Differentiating it with respect to
the gradients gives its transpose, which maps the inputs' tangents to the results'. So each op is recorded separately,
on stand-ins for its inputs. For a pointwise op the transpose is the derivative itself. For a Function, its ``jvp``
computes the tangents. docs/decisions/0012 gives the reasons.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..context import below, enable_grad, generator, state
from ..dtypes import FLOATING
from ..errors import InvalidOperation, NotSupported, ShapeMismatch
from ..graph import differentiation
from ..graph.backward_pass import Values
from ..graph.node import Node
from ..graph.node_evaluation import saved_values
from ..instrumentation import Observer, Run
from ..schema.op import CATALOGUE, Op
from ..schema.signature import flattened, nested
from ..tensor.base import TensorBase
from ..tensor.eager import Tensor
from ..tensor.gradient_values import GraphValues
from ..tensor.namespace import Functions

Execute = Callable[[Op, tuple[Any, ...], Mapping[str, Any]], Any]


def check_size(tensor: Any, tangent: Any) -> None:
    """Raise ShapeMismatch unless the tangent has the tensor's shape."""
    if tangent.shape != tensor.shape:
        raise ShapeMismatch(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is "
            f"not supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}."
        )


class _Thread(threading.local):
    enabled = True
    """Whether forward mode is on, even outside a level."""
    level: Level | None = None
    """The level that was entered."""


thread = _Thread()


class Level(Observer):
    """The tangents by tensor, and the observer that pushes them through each operation.

    A tangent is discarded with its tensor, and all tangents when the level ends. The tangents of saved tensors are
    restored for a backward inside the level.
    """

    sees_ops = True

    def __init__(self) -> None:
        self._tangents: dict[int, tuple[weakref.ref[Any], Any]] = {}
        self._suspended = 0
        self._saved: weakref.WeakKeyDictionary[Node, Mapping[int, Any]] = weakref.WeakKeyDictionary()
        """The tangents of a node's saved tensors by their positions, and of a Function's outputs by their numbers."""

    # Operations --------------------------------------------------------------------------

    def op(self, run: Run, op: Any, inputs: tuple[Any, ...], attrs: Any) -> Any:
        """Execute an op, and set the tangents of its results."""
        execute = super().op
        if not self.has_tangents(inputs):
            return execute(run, op, inputs, attrs)
        if state.autocast is not None:
            op, inputs, attrs = state.autocast.cast(op, inputs, attrs)
        if op.composite:
            return execute(run, op, inputs, attrs)
        return self._push(lambda *call: execute(run, *call), op, inputs, attrs)

    def in_place(self, run: Run, tensor: Any, op: Any, inputs: tuple[Any, ...], attrs: Any) -> Any:
        """Modify a tensor in place, and its tangent too, so that the tangents of views change with it."""
        if op.composite or not self.has_tangents(inputs):
            return super().in_place(run, tensor, op, inputs, attrs)
        target = self.of(tensor)
        with self.suspended():
            if op.view:
                if target is not None:
                    target._inplace(op, (target, *inputs[1:]), attrs)
                return super().in_place(run, tensor, op, inputs, attrs)
            tangents = (None if target is None else target.clone(), *self._tangents_of(inputs[1:]))
            tangent: Any = None
            if op.differentiable:
                tangent = self._pushed(tensor._apply, op, inputs, attrs, tangents)[0][0]
            if tangent is None:
                tangent = tensor.detach().new_zeros(tuple(tensor.shape))
            super().in_place(run, tensor, op, inputs, attrs)
            if target is None and tensor._base is not None:
                self.give(tensor._base, tensor._base.detach().new_zeros(tuple(tensor._base.shape)))
                target = self.of(tensor)
            if target is None:
                self.give(tensor, tangent)
            else:
                target._inplace(CATALOGUE.get("copy"), (target, tangent))
        self._remember((tensor,), tangents, (tangent,))
        return tensor

    def function(self, run: Run, ctx: Any, args: tuple[Any, ...], separate: bool) -> Any:
        """Run a custom Function's forward without tangents, and push the tangents by its ``jvp``.

        Raises MethodMissing if the Function has no ``jvp``, and InvalidOperation for an invalid result of it.
        """
        if not self.has_tangents(args):
            return super().function(run, ctx, args, separate)
        with self.suspended():
            entry = super().function(run, ctx, args, separate)
        tangents = self._tangents_of(args)
        with self.suspended():
            given = _materialized(entry, tangents) if ctx.materialize_grads else tangents
            results = ctx._push_forward(given, len(entry.outputs))
            for index, (output, tangent) in enumerate(zip(entry.outputs, results, strict=True)):
                if tangent is not None:
                    _check(entry, index, tangent, tangents)
                    self.give(output, tangent)
        if entry.node is not None:
            self._saved[entry.node] = {nr: tangent for nr, tangent in enumerate(results) if tangent is not None}
        return entry

    def tangent(self, tensor: Any) -> Any:
        """Return the current tangent of a tensor, or None."""
        return self.of(tensor) if self.enabled else None

    def _push(self, execute: Execute, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Execute an op with an input that has a tangent, and set the tangents of its results."""
        tangents = self._tangents_of(inputs)
        result: Any = None
        pushed: Sequence[Any] = ()
        with self.suspended():
            if op.view:
                pushed = as_tuple(execute(op, (tangents[0], *inputs[1:]), attrs))
            elif op.differentiable:
                pushed, result = self._pushed(execute, op, inputs, attrs, tangents)
            if result is None:
                result = execute(op, inputs, attrs)
        outputs = as_tuple(result)
        pushed = pushed or (None,) * len(outputs)
        for output, tangent in zip(outputs, pushed, strict=True):
            if tangent is not None:
                self.give(output, tangent)
        self._remember(outputs, tangents, pushed)
        return result

    def _pushed(
        self, execute: Execute, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], tangents: Sequence[Any]
    ) -> tuple[Any, Any]:
        """Return what ``push_tangents`` for these inputs does.

        Raises NotSupported if the op's derivative cannot be differentiated.
        """
        kind = next(type(x) for x, _ in moving(inputs, tangents))
        try:
            found: tuple[Any, Any] = kind._autograd().forward_ad.push_tangents(execute, op, inputs, attrs, tangents)
            return found
        except InvalidOperation as error:
            if "not implemented" not in str(error):
                raise
            raise NotSupported(
                f"Trying to use forward AD with {op.name} that does not support it because it has not been "
                "implemented yet.\nPlease file an issue to PyTorch at https://github.com/pytorch/pytorch/issues/new?"
                "template=feature-request.yml so that we can prioritize its implementation or submit a PR adding the "
                "implementation to derivatives.yaml"
            ) from error

    # Backward passes inside the level ------------------------------------------------------

    def grad(self, run: Run, outputs: Any, inputs: Any, grad_outputs: Any, options: Mapping[str, Any]) -> Any:
        """``autograd.grad`` for outputs or ``grad_outputs`` with tangents: the results have tangents, too."""
        grad = super().grad
        if not self.enabled:
            return grad(run, outputs, inputs, grad_outputs, options)
        seeds = [None] * len(outputs) if grad_outputs is None else differentiation.listed(grad_outputs)
        given = list(zip(outputs, seeds, strict=False))
        pairs = [(self.of(output), seed) for output, seed in given]
        pairs += [(output, t) for output, seed in given if seed is not None and (t := self.of(seed)) is not None]
        pairs = [(root, seed) for root, seed in pairs if root is not None and root.requires_grad]
        if not pairs:
            return grad(run, outputs, inputs, grad_outputs, options)
        with below(self):
            found = grad(run, outputs, inputs, grad_outputs, {**options, "retain_graph": True})
            options = {**options, "allow_unused": True, "materialize_grads": False}
            pushed = grad(run, [root for root, _ in pairs], inputs, [seed for _, seed in pairs], options)
        for result, tangent in zip(found, pushed, strict=True):
            if result is not None and tangent is not None:
                self.give(result, tangent)
        return found

    def gradients(self, values: Any, tensor: Any) -> Any:
        """Return Values whose gradients are tensors if tangents are enabled, because gradients have tangents too."""
        return super().gradients(DualValues(tensor) if self.enabled else values, tensor)

    def _remember(self, outputs: Sequence[Any], tangents: Sequence[Any], results: Sequence[Any]) -> None:
        """Store the tangents of a node's saved inputs and results."""
        node = outputs[0]._node if outputs and isinstance(outputs[0], Tensor) else None
        if node is None:  # not recorded, or in a session, which has the saved tensors
            return
        found: dict[int, Any] = {}
        for position, (source, key) in enumerate(node.plan.saves):
            tangent = tangents[key] if source == "input" else results[key] if source == "output" else None
            if tangent is not None:
                found[position] = tangent
        if found:
            self._saved[node] = found

    def unpacked(self, node: Any, values: Sequence[Any]) -> None:
        """Restore the tangents of saved tensors."""
        if self.enabled:
            for position, tangent in self._saved.get(node, {}).items():
                value = values[position]
                for tensor, own in zip(value, tangent, strict=True) if isinstance(value, list) else [(value, tangent)]:
                    if own is not None and isinstance(tensor, TensorBase):
                        self.give(tensor, own)
        super().unpacked(node, values)

    def unpacked_output(self, node: Node | None, output_nr: int, output: Any) -> None:
        """Restore the tangent of an output that a custom Function saved."""
        tangent = self._saved.get(node, {}).get(output_nr) if self.enabled and node is not None else None
        if tangent is not None:
            self.give(output, tangent)
        super().unpacked_output(node, output_nr, output)

    # Tangents ----------------------------------------------------------------------------

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Return a context in which tensors have no tangents."""
        self._suspended += 1
        try:
            yield
        finally:
            self._suspended -= 1

    @property
    def enabled(self) -> bool:
        """Whether results currently get tangents."""
        return thread.enabled and not self._suspended and not state.inference

    def end(self) -> None:
        """Discard all tangents."""
        self._tangents.clear()
        self._saved.clear()

    def of(self, tensor: Any) -> Any:
        """Return the tangent of a tensor, or None. A view's tangent is a view of its base's tangent."""
        entry = self._tangents.get(id(tensor))
        if entry is not None:
            return entry[1]
        base: Any = tensor._base
        if base is None or (tangent := self.of(base)) is None:
            return None
        with self.suspended():
            for op, attrs, index in (*base._inverse_chain, *tensor._view_chain):
                result = tangent._apply(op, (tangent,), attrs)
                tangent = result[index] if isinstance(result, (list, tuple)) else result
        self.give(tensor, tangent)
        return tangent

    def give(self, tensor: Any, tangent: Any) -> None:
        """Set the tangent of a tensor."""
        check_size(tensor, tangent)
        self._put(tensor, tangent)

    def strip(self, tensor: Any) -> None:
        """Make a tensor have no tangent, even if its base has one."""
        self._put(tensor, None)

    def _put(self, tensor: Any, tangent: Any) -> None:
        key, tangents = id(tensor), self._tangents
        tangents[key] = weakref.ref(tensor, lambda _: tangents.pop(key, None)), tangent

    def has_tangents(self, values: Iterable[Any]) -> bool:
        """Whether any of an operation's arguments currently has a tangent."""
        return self.enabled and any(isinstance(x, TensorBase) and self.of(x) is not None for x in flattened(values))

    def _tangents_of(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return the tangent or None for each input; a tuple of them for a list of tensors."""
        return tuple(
            [
                self._tangents_of(x) if isinstance(x, tuple) else self.of(x) if isinstance(x, TensorBase) else None
                for x in values
            ]
        )


class DualValues(GraphValues):
    """Gradients as tensors that are not recorded, but have tangents. ``.grad`` gets values without tangents."""

    def __init__(self, like: Any) -> None:
        super().__init__(like._graph_class, recording=False)

    def accumulate(self, tensor: Any, grad: Any, may_mutate: bool) -> None:
        """Add a gradient to ``tensor.grad`` as a pass on arrays does."""
        values: Values = tensor._array_values()
        values.accumulate(tensor, grad._data, False)


def push_tangents(
    execute: Execute, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], tangents: Sequence[Any]
) -> tuple[Sequence[Any], Any]:
    """Return the tangents of an op's results (None for results without a derivative).

    The second result is that of the op if this executed it on these inputs, or else None: the tangents are computed
    on stand-ins for the inputs, so that the graph of the results does not show it.
    """
    before = copy.deepcopy(generator()) if op.random else None
    found = transposed(execute, op, inputs, attrs, tangents)
    if before is not None:
        state.generator = before  # the op draws the same numbers
    return found, None


def transposed(
    execute: Execute, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], tangents: Sequence[Any]
) -> tuple[Any, ...]:
    """Compute the results' tangents from the inputs' by the op's transposed derivative.

    It is None for a result without a derivative. The tangents have a history if an input or a tangent requires grad.
    """
    tracked = state.grad_enabled and (_requires_grad(inputs) or _requires_grad(tangents))
    with enable_grad():
        pairs = moving(inputs, tangents)
        # New tensors for those with a tangent, so that only this use of them is differentiated.
        anew = [
            x.view(tuple(x.shape)) if tracked and x.requires_grad else x.detach().requires_grad_() for x, _ in pairs
        ]
        results = as_tuple(execute(op, replaced(inputs, tangents, iter(anew)), attrs))
        if op.pointwise and results[0].requires_grad and results[0]._node.plan.direct is not None:
            return (_pointwise(results[0], tangents, tracked),)
        return _transposed(results, anew, [tangent for _, tangent in pairs], tracked)


def _pointwise(result: Any, tangents: Sequence[Any], tracked: bool) -> Any:
    """Return the tangent of a pointwise op's result; its derivative is a factor per element, so its own transpose."""
    node, values = result._node, result._values(tracked)
    shape, dtype = result._data.shape, result._data.dtype
    total = None
    with values:
        saved = saved_values(values, node)
        for edge, rule, _, arguments in node.plan.direct:
            tangent = tangents[edge]
            if tangent is not None:
                given = values.seed(result, _as_wide(tangent, result))
                pushed = rule(values.F, given, *[saved[i] for i in arguments])
                total = pushed if total is None else total + pushed
        return values.wrap(values.unbroadcast(total, shape, dtype))


def _as_wide(tangent: Any, result: Any) -> Any:
    """Return an input's tangent, cast and broadcast to the result's dtype and shape as the input was."""
    if tangent._data.dtype != result._data.dtype:
        tangent = tangent.to(dtype=result.dtype)
    return tangent if tangent._data.shape == result._data.shape else tangent.expand(tuple(result.shape))


def _transposed(
    results: Sequence[Any], stand_ins: Sequence[Any], tangents: Sequence[Any], tracked: bool
) -> tuple[Any, ...]:
    """Return, for each result, the product of its derivatives by the stand-ins with the stand-ins' tangents."""
    live = [out for out in results if out.requires_grad]
    if not live:
        return (None,) * len(results)
    seeds = [out._zeros_like().requires_grad_() for out in live]
    pulled = differentiation.grad(live, stand_ins, seeds, create_graph=True, allow_unused=True)
    linear = [
        (grad, tangent.to(dtype=grad.dtype))
        for grad, tangent in zip(pulled, tangents, strict=True)
        if grad is not None and grad.requires_grad
    ]
    products: Sequence[Any] = [None] * len(live)
    if linear:
        grads, vectors = zip(*linear, strict=True)
        products = differentiation.grad(grads, seeds, vectors, create_graph=tracked, allow_unused=True)
    found = iter([seed._zeros_like() if p is None else p for p, seed in zip(products, seeds, strict=True)])
    return tuple([next(found) if out.requires_grad else None for out in results])


def moving(inputs: Sequence[Any], tangents: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the inputs that have a tangent, with it."""
    pairs = zip(flattened(inputs), flattened(tangents), strict=True)
    return [(x, tangent) for x, tangent in pairs if tangent is not None]


def replaced(inputs: Sequence[Any], tangents: Sequence[Any], anew: Iterator[Any]) -> tuple[Any, ...]:
    """Return the inputs, with the next of ``anew`` for each one that has a tangent."""
    pairs = zip(flattened(inputs), flattened(tangents), strict=True)
    return nested((x if tangent is None else next(anew) for x, tangent in pairs), inputs)


def _requires_grad(values: Sequence[Any]) -> bool:
    return any(isinstance(x, TensorBase) and x.requires_grad for x in flattened(values))


def as_tuple(result: Any) -> tuple[Any, ...]:
    """Return the results of an op."""
    return tuple(result) if isinstance(result, (list, tuple)) else (result,)


def _materialized(entry: Any, tangents: Sequence[Any]) -> list[Any]:
    """Return the tangents, with zeros for floating-point tensors without one."""
    zeros = Functions(type(next(t for t in tangents if t is not None))._apply).zeros
    return [
        zeros(arg.shape, dtype=arg.dtype)
        if tangent is None and isinstance(arg, TensorBase) and arg.is_floating_point()
        else tangent
        for arg, tangent in zip(entry.args, tangents, strict=True)
    ]


def _check(entry: Any, index: int, tangent: Any, tangents: Sequence[Any]) -> None:
    """Raise InvalidOperation unless a tangent from ``jvp`` is valid for its output.

    The output must be differentiable. The tangent of a modified input must be modified in place, and that of a view
    must be a view.
    """
    result, output = entry.results[index], entry.outputs[index]
    if not isinstance(result, TensorBase) or id(result) in entry.constant or result._data.dtype not in FLOATING:
        raise InvalidOperation(
            f"Function's jvp returned a gradient at position {index}, but  the corresponding forward output is not a "
            "differentiable Tensor.You should return None at that position instead."
        )
    if id(result) in entry.dirty:
        place = next(i for i, arg in enumerate(entry.args) if arg is result)
        if tangents[place] is not None and tangent is not tangents[place]:
            raise InvalidOperation(
                "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is "
                "modifying an input inplace, then the jvp function must modify the corresponding gradient inplace."
            )
    elif output._base is not None and tangent._base is None:
        raise InvalidOperation(
            "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view."
        )
