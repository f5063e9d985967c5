"""``Function``, the base class of user-defined operations, the node of one call, and how its outputs join the graph.

An input that is returned unmodified becomes a view of itself, an input that forward modified gets a new history, and
non-differentiable outputs stay outside the graph. A view that a Function returns may not be modified in place, because
rewriting its history would bypass the user's backward.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ...context import no_grad, observers, state
from ...dtypes import FLOATING
from ...errors import InplaceOnLeaf, InvalidArgument, InvalidOperation, MethodMissing, ShapeMismatch
from ...graph.backward_pass import _Pass
from ...graph.node import MultiOutputNode, announce, next_sequence
from ...graph.node_evaluation import output_nr_at, spec_at, wants
from ...schema.derivative_plan import DerivativePlan, DerivativeStep
from ...schema.op import NO_ATTRS
from ...tensor.in_place import ONE_OF_SEVERAL
from .ctx import FunctionCtx, is_tensor


@functools.lru_cache(256)
def plan_without_rules(edges: int) -> DerivativePlan:
    """Return a plan with a gradient at every edge and no rule."""
    steps = (DerivativeStep(tuple(range(edges)), _no_rule, (), True),) if edges else ()
    return DerivativePlan((), steps, holds_tensors=False, saves_self=False, direct=None)


def _no_rule(*_: Any) -> Any:
    raise TypeError("a Function has no rule: its node evaluates itself")


class FunctionNode(MultiOutputNode):
    """The node of one call of a Function. Attributes that the node does not have are looked up on the ctx."""

    def __init__(self, ctx: FunctionCtx, outputs: Sequence[Any]) -> None:
        self.ctx = ctx
        self.op = ctx._op  # type: ignore[assignment]
        self.attrs = NO_ATTRS
        self.plan = plan_without_rules(len(ctx._next_edges))
        self.sequence = next_sequence()
        self.next_edges, self.output_nrs = ctx._next_edges, ctx._output_nrs
        self.width = len(outputs)
        self.specs = [(o._data.shape, o._data.dtype) if is_tensor(o) else None for o in outputs]
        self.shape, self.dtype = next((spec for spec in self.specs if spec is not None), ((), None))

    def name(self) -> str:
        """Return the Function's name with ``Backward`` appended."""
        return self.ctx.name()

    def __getattr__(self, name: str) -> Any:
        if name == "ctx":
            raise AttributeError(name)
        return getattr(self.ctx, name)

    # Backward ----------------------------------------------------------------------------

    def evaluate(self, run: _Pass, grads: Sequence[Any]) -> None:
        """Run the user's backward on the outputs' gradients (None if absent), and send its results along the edges."""
        wanted = self._wanted(run)
        if wanted is None:
            return
        values = run.values
        enabled = state.grad_enabled
        try:
            state.grad_enabled = values.recording
            results = self._backward(self._given(values, grads))
        finally:
            state.grad_enabled = enabled
        self._pass_on(run, wanted, results)

    def _wanted(self, run: _Pass) -> list[bool] | None:
        """Return whether each edge's gradient is needed; if none is, mark the targets as done and return None."""
        wanted = [wants(run, target) for target in self.next_edges]
        if any(wanted):
            return wanted
        for target in self.next_edges:
            run._done(target)
        return None

    def _pass_on(self, run: _Pass, wanted: Sequence[bool], results: Sequence[Any]) -> None:
        """Send the results of the user's backward, a tensor or None for each edge."""
        for edge, target in enumerate(self.next_edges):
            if wanted[edge]:
                grad = None if results[edge] is None else run.values.from_tensor(results[edge])
                run.send(target, output_nr_at(self, edge), grad, False)
            else:
                run._done(target)
        if not run.keep_graph:
            self.ctx._free()

    def _given(self, values: Any, grads: Sequence[Any]) -> list[Any]:
        """Return the outputs' gradients as tensors for the user's backward, with zeros or None for absent ones."""
        fill = self.ctx.materialize_grads
        return [
            values.to_tensor(grad) if grad is not None else values.zeros(*spec) if spec is not None and fill else None
            for grad, spec in zip(grads, self.specs, strict=True)
        ]

    def _backward(self, grads: Sequence[Any]) -> list[Any]:
        """Return the gradients from the user's backward, one for each tensor among forward's arguments."""
        if absent := self.ctx._without_gradient:
            grads = [None if i in absent else grad for i, grad in enumerate(grads)]
        results = self.ctx._forward_cls._choose_backward()(self.ctx, *grads)
        return self._checked(list(results) if isinstance(results, tuple) else [results])

    def _checked(self, results: list[Any]) -> list[Any]:
        """Check the results of a backward, and return those for the tensors among forward's arguments."""
        expected = len(self.ctx._specs)
        if len(results) > expected and all(result is None for result in results[expected:]):
            del results[expected:]
        if len(results) != expected:
            raise InvalidOperation(
                f"function {self.name()} returned an incorrect number of gradients "
                f"(expected {expected}, got {len(results)})"
            )
        checked: list[Any] = []
        for position, (result, spec) in enumerate(zip(results, self.ctx._specs, strict=True)):
            if spec is not None:
                self._check(result, len(checked))
                checked.append(result)
            elif result is not None:
                raise InvalidOperation(
                    f"function {self.name()} returned a gradient different than None at position {position + 1}, "
                    "but the corresponding forward input was not a Variable"
                )
        return checked

    def _check(self, grad: Any, edge: int) -> None:
        """Raise unless the gradient is None or a tensor that can be summed to the shape of its edge's target."""
        if grad is not None and not is_tensor(grad):
            raise InvalidOperation(f"expected Variable or None (got {type(grad).__name__})")
        target = self.next_edges[edge]
        if grad is None or target is None:
            return
        shape, _ = spec_at(self, edge)
        given = grad._data.shape
        lead = len(given) - len(shape)
        if lead < 0 or any(n != 1 and n != m for n, m in zip(shape, given[lead:], strict=True)):
            raise ShapeMismatch(
                f"Function {self.name()} returned an invalid gradient at index {edge} - got {list(given)} "
                f"but expected shape compatible with {list(shape)}"
            )


# The outputs ---------------------------------------------------------------------------------------------


IN_FUNCTION = (
    "This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to "
    "handle view+inplace would override the custom backward associated with the custom Function, leading to incorrect "
    "gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function."
)


_NOTHING: set[int] = set()


class Outputs:
    """The results of one call of forward. Like forward, ``enter`` runs without recording."""

    node_class: ClassVar[type[FunctionNode]] = FunctionNode

    def __init__(self, ctx: FunctionCtx, args: tuple[Any, ...], result: Any, recording: bool, separate: bool) -> None:
        self.several = isinstance(result, tuple)
        results: tuple[Any, ...] = result if self.several else (result,)
        self.ctx = ctx
        self.args = args
        self.results = results
        self.recording = recording
        self.inputs = _ids(args)
        self.dirty = _ids(_marked(ctx.dirty_tensors, "mark_dirty can only accept variables, but argument "))
        self.constant = _ids(
            _marked(ctx.non_differentiable, "mark_non_differentiable only accepts variable arguments, but got ")
        )
        self.tensors = [r for r in results if is_tensor(r)]
        self.node = self.node_class(ctx, results) if recording else None
        if recording and separate and any(self._is_plain_input(t) for t in ctx.to_save):
            raise InvalidOperation(
                "An input that has been returned as-is as output is being saved for backward. This is not supported if "
                "you override setup_context. You should return and save a view of the input instead, e.g. with "
                "x.view_as(x) or setup ctx inside the forward function itself."
            )

    def enter(self) -> None:
        """Set ``outputs`` to the tensors that ``apply`` returns, and add them to the graph if the call is recorded."""
        self._note_dirty()
        if not self.ctx._materialize_non_diff_grads:
            self.ctx._without_gradient = frozenset(
                [i for i, r in enumerate(self.results) if not (is_tensor(r) and self._differentiable(r))]
            )
        self.outputs = tuple(
            [self._output(r, output_nr) if is_tensor(r) else r for output_nr, r in enumerate(self.results)]
        )

    def save(self) -> None:
        """Save the tensors that forward requested; it runs in the caller's grad mode, unlike ``enter``."""
        if self.node is not None:
            self.ctx._pack(self.node)
            if observers:
                announce(self.node, self.args, self.tensors)
        self.ctx._forget()

    def _is_plain_input(self, tensor: Any) -> bool:
        """Whether ``tensor`` is an input that was returned unmodified."""
        known = id(tensor)
        return known in self.inputs and known not in self.dirty and any(tensor is t for t in self.tensors)

    def _note_dirty(self) -> None:
        """Bump the versions of the inputs marked as dirty. Raises InvalidOperation unless all of them are outputs."""
        if not self.dirty:
            return
        if not self.dirty <= _ids(self.tensors):
            raise InvalidOperation(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                "are modified inplace must all be outputs of the Function."
            )
        for tensor in {id(t): t for t in self.ctx.dirty_tensors}.values():
            tensor._version_counter[0] += 1
            if id(tensor) not in self.inputs:
                warnings.warn(
                    "ctx.mark_dirty() received a tensor that was not an input. Only input Tensors that have been "
                    "mutated should be passed to ctx.mark_dirty().",
                    UserWarning,
                    stacklevel=5,
                )

    def _differentiable(self, tensor: Any) -> bool:
        return self.recording and id(tensor) not in self.constant and tensor._data.dtype in FLOATING

    def _output(self, tensor: Any, output_nr: int) -> Any:
        is_input, is_dirty = id(tensor) in self.inputs, id(tensor) in self.dirty
        if not self._differentiable(tensor):
            return self._outside(tensor, is_input, is_dirty)
        if is_dirty:
            self._replace_history(tensor, output_nr)
            return tensor
        if is_input:
            tensor = _view_as_self(tensor)
        self._place(tensor, output_nr)
        if tensor._base is not None:
            several = sum(self._differentiable(t) for t in self.tensors) > 1
            tensor._sealed = ONE_OF_SEVERAL if several else IN_FUNCTION
        return tensor

    def _place(self, tensor: Any, output_nr: int) -> None:
        tensor._node, tensor._output_nr, tensor._requires_grad = self.node, output_nr, True

    def _outside(self, tensor: Any, is_input: bool, is_dirty: bool) -> Any:
        """Return a non-differentiable result outside the graph; the object of an input is never changed."""
        if tensor._requires_grad and (is_input or tensor._base is None):
            return tensor.detach() if is_input else tensor.detach_()
        if is_input:
            return tensor if is_dirty else _view_as_self(tensor)
        if self.recording and tensor._base is not None:
            tensor._sealed = IN_FUNCTION
        return tensor

    def _replace_history(self, tensor: Any, output_nr: int) -> None:
        """Set the new history of an input that forward modified in place, and of its base if it is a view."""
        base = tensor._base
        if base is not None and len(self.tensors) > 1:
            raise InvalidOperation(
                "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot "
                "return more than one Tensor. This is not supported by the current autograd engine. You should either "
                "make sure the input is not a view (using .clone() for example) or make your Function only return one "
                "Tensor (potentially splitting it into two Functions: one doing the inplace that returns a single "
                "Tensor and a second one that does the other operations). You can ask on the forum "
                "https://discuss.pytorch.org/ if you need help to do this change."
            )
        if base is not None and base._requires_grad and base._node is None:
            raise InplaceOnLeaf("a view of a leaf Variable that requires grad is being used in an in-place operation.")
        if tensor._requires_grad and tensor._node is None:
            raise InplaceOnLeaf("a leaf Variable that requires grad has been used in an in-place operation.")
        old, base_old = tensor._alias(), None if base is None else base._alias()
        self._place(tensor, output_nr)
        tensor._rewrite_history(old, base_old)


def _ids(values: Any) -> set[int]:
    return {id(v) for v in values if is_tensor(v)} if values else _NOTHING


def _marked(tensors: tuple[Any, ...], text: str) -> tuple[Any, ...]:
    """Return the arguments of a ctx method. Raises InvalidOperation with ``text`` unless all are tensors."""
    if tensors and not all(is_tensor(t) for t in tensors):
        raise InvalidOperation(text)
    return tensors


def _view_as_self(tensor: Any) -> Any:
    """Return another tensor object that is a view of the whole of ``tensor``."""
    view = tensor.detach()
    view._become_view(tensor)
    view._view_chain = tensor._view_chain
    view._seen_version = view._version_counter[0]
    return view


class Function:
    """Base class of operations with a custom derivative: subclass it, and call ``apply`` on the subclass.

    The subclass defines static methods: ``forward(ctx, *args)``, or ``forward(*args)`` and
    ``setup_context(ctx, inputs, output)``; ``backward(ctx, *grads)``, which returns a gradient or None for each
    of forward's arguments; and, for forward mode, ``jvp(ctx, *tangents)``.
    """

    _backward_cls: ClassVar[type[FunctionCtx]]
    _outputs_cls: ClassVar[type[Outputs]] = Outputs

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._backward_cls = FunctionCtx._of(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself. Instantiating an autograd function will raise an error in a future "
            "version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise InvalidOperation: a Function is called by ``apply``."""
        raise InvalidOperation(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method. (Example: "
            "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    # Methods that subclasses define ------------------------------------------------------

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the operation, without recording. Returns a tensor, or a tuple of tensors and other values."""
        raise MethodMissing("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save values for backward on ``ctx``, if forward does not take a ctx."""
        raise MethodMissing("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Return the gradients of forward's arguments from those of its outputs; recorded under ``create_graph``."""
        raise MethodMissing(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Return the tangents of forward's outputs from those of its arguments."""
        raise MethodMissing(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @classmethod
    def _choose_backward(cls) -> Callable[..., Any]:
        """Return ``vjp`` if the subclass defines it, else ``backward``. Raises InvalidOperation if it defines both."""
        if cls.vjp is Function.vjp:
            return cls.backward
        if cls.backward is not Function.backward:
            raise InvalidOperation(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                "implement one of them."
            )
        return cls.vjp

    # Methods that users call -------------------------------------------------------------

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward, and record it as one node if gradients are enabled and an argument requires grad.

        Only tensors that are arguments themselves are differentiated, not those in lists. Raises InplaceOnLeaf or
        InvalidOperation for a wrong use of ``ctx.mark_dirty``, and any error of forward.
        """
        separate = cls.setup_context is not Function.setup_context
        if separate:
            args = _with_defaults(cls.forward, args, kwargs)
        elif kwargs:
            args = _in_order(cls.forward, args, kwargs)
        ctx, observer = cls._backward_cls(args), state.observer
        if observer is None:
            entry = cls._enter(ctx, args, separate)
        else:
            entry = observer.function(cls._enter, ctx, args, separate)
        entry.save()
        return entry.outputs if entry.several else entry.outputs[0]

    @classmethod
    def _enter(cls, ctx: FunctionCtx, args: tuple[Any, ...], separate: bool) -> Outputs:
        """Run forward, and add its outputs to the graph."""
        recording = state.grad_enabled and any(ctx.needs_input_grad)
        enabled = state.grad_enabled
        try:
            state.grad_enabled = False
            if separate:
                result = cls.forward(*args)
                cls.setup_context(ctx, args, result)
            else:
                result = cls.forward(ctx, *args)
            entry = cls._outputs_cls(ctx, args, result, recording, separate)
            entry.enter()
        finally:
            state.grad_enabled = enabled
        return entry


Function._backward_cls = FunctionCtx._of(Function)


def _with_defaults(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return forward's arguments with defaults filled in, because ``setup_context`` gets all of them."""
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    for name in bound.kwargs:
        raise InvalidArgument(f"forward() got an unexpected keyword argument '{name}'")
    return bound.args


def _in_order(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return keyword arguments as positional ones, because gradients are returned by position."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    params = inspect.signature(forward).parameters.values()
    names = [p.name for p in params if p.kind in positional][1:]
    for name in kwargs:
        if name not in names:
            raise InvalidArgument(f"forward() got an unexpected keyword argument '{name}'")
        if names.index(name) < len(args):
            raise InvalidArgument(f"forward() got multiple values for argument '{name}'")
    last = max(names.index(name) for name in kwargs)
    for position in range(len(args), last + 1):
        if names[position] not in kwargs:
            raise InvalidArgument(f"forward() missing required argument: '{names[position]}' (position {position})")
    return (*args, *[kwargs[name] for name in names[len(args) : last + 1]])


class Error(Function):
    """The Function of gradients that cannot be differentiated again: its backward raises InvalidOperation."""

    @staticmethod
    def forward(*grads: Any) -> Any:
        """Return the gradients unchanged."""
        return grads

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Raise InvalidOperation."""
        raise InvalidOperation("trying to differentiate twice a function that was marked with @once_differentiable")


Error._backward_cls.__name__ = "Error"  # torch's name for this node


def once_differentiable(backward: Callable[..., Any], error: type[Function] = Error) -> Callable[..., Any]:
    """Decorate a backward that is not recorded; differentiating its results raises InvalidOperation.

    ``error`` is the Function that raises it.
    """

    @functools.wraps(backward)
    def once(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            results = backward(ctx, *grads)
        if not (state.grad_enabled and any(is_tensor(g) and g.requires_grad for g in grads)):
            return results
        if not isinstance(results, tuple):
            results = (results,)
        return error.apply(*[r.detach().requires_grad_() if is_tensor(r) else r for r in results])

    once.is_once_differentiable = True  # type: ignore[attr-defined]  # read by code that traces the backward
    return once
