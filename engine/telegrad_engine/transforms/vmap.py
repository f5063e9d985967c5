"""``vmap``: tensors with a hidden batch dimension, and the transform that applies ops to them by batching rules.

A level works on any class of tensors: its ``sample_class`` is a subclass of :class:`BatchedTensor` and of that class.
The SDK's are in its ``func/vectorized_map.py``, those of gradients in :mod:`.batched_gradients`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

from ..context import below, chain, observed_by, state
from ..errors import DataDependentShape, GradRequired, InvalidOperation, ShapeMismatch
from ..graph.differentiation import listed
from ..instrumentation import Observer, Run
from ..ops.batching.rules import BatchedCall, BatchedValue, apply_to_batch
from ..schema.op import CATALOGUE, Op
from ..schema.signature import flattened, mapped
from ..shapes import Spec

CONTROL_FLOW = (
    "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that "
    "yet, please file an issue at https://github.com/pytorch/pytorch/issues ."
)
ITEM = (
    "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, "
    "please try to rewrite what you're doing with other operations. If error is occurring somewhere inside PyTorch "
    "internals, please file a bug report."
)
NO_STORAGE = "Cannot access data pointer of Tensor that doesn't have storage"
RANDOM = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
    "randomness flags on vmap or perform the randomness operation out of vmap"
)
SAME_RANDOM = (
    "Vmap does not currently support same randomness with a batched tensor input. Please file an issue with functorch"
)
BACKWARD = (
    "backward() called inside a functorch transform. This is not supported, please use functorch.grad or functorch.vjp "
    "instead or call backward() outside of functorch transforms."
)
_INSIDE = (
    "You are attempting to call Tensor.{0}(){1} inside of a function being transformed by a functorch transform. This "
    "is unsupported, please attempt to use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call "
    "{0}() outside of a function being transformed instead."
)
REQUIRES_GRAD = _INSIDE.format("requires_grad_", " (or perhaps using torch.autograd.functional.* APIs)")
RETAIN_GRAD = _INSIDE.format("retain_grad", "")
SAME_MEMORY = (
    "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same randomness. "
    "If this is necessary for your usage, please file an issue with functorch."
)
ESCAPED = (
    "Either your tensor may have escaped from inside a function being vmapped and this is a user error (see "
    "https://pytorch.org/functorch/stable/ux_limitations.html), or there is an internal functorch error in "
    "`gen_vmap_plumbing` Please file an issue if it looks like the latter"
)
MASK = (
    "vmap: We do not support batching operators that can support dynamic shape. Attempting to batch over indexing "
    "with a boolean mask."
)
STATISTICS = (
    "Batch norm got a batched tensor as input while the running_mean or running_var, which will be updated in place, "
    "were not batched.\nIf you are using a module and do not need eval mode, please set `track_running_stats` to be "
    "False.If you are using a prebuilt module and do not need eval mode, please see the functorch website for "
    "resources on how to patch your module to work with vmap"
)
NORMS = frozenset({"batch_norm", "instance_norm"})
_looping: set[str] = set()
"""The ops for which a warning has been issued."""


def refusing(text: str) -> Any:
    """Return a method that raises InvalidOperation with this text."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise InvalidOperation(text)

    return refuse


class BatchedTensor:
    """One sample of ``batch``, whose dimension 0 is the batch of a ``vmap`` level: a part of such tensors' classes."""

    batch: Any
    level: Level
    _data: Spec
    _differs_by_sample = True
    """As an index, a 0-dim tensor is not a single number here."""

    def __new__(cls, value: Any, level: Level) -> Any:
        """Return one sample of ``value``."""
        tensor = object.__new__(cls)
        tensor.level = level
        tensor._show(value)
        return tensor

    def __init__(self, value: Any, level: Level) -> None:
        pass

    def _show(self, value: Any) -> None:
        self.batch = value
        self._data = Spec(tuple(value._data.shape[1:]), value._data.dtype)

    @property
    def _version_counter(self) -> list[int]:
        counter: list[int] = self.batch._version_counter
        return counter

    @property
    def requires_grad(self) -> bool:
        """Whether a transform within the mapped function computes gradients for this tensor."""
        return bool(self.batch.requires_grad)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def _requires_grad(self) -> bool:
        return bool(self.batch._requires_grad)

    @property
    def _is_contiguous(self) -> bool:
        return bool(self.batch._is_contiguous)

    @property
    def grad_fn(self) -> Any:
        """The node that made this tensor's batch, or None."""
        return self.batch.grad_fn

    @property
    def grad(self) -> Any:
        """Always None: gradients inside a mapped function come from ``tg.func.grad``."""
        return None

    @grad.setter
    def grad(self, value: Any) -> None:
        raise InvalidOperation("the grad of a tensor cannot be set inside a mapped function")

    def __repr__(self) -> str:
        value = "\n".join(f"    {line}" for line in repr(self.batch).splitlines())
        return f"BatchedTensor(lvl={self.level.number}, bdim=0, value=\n{value}\n)"

    # Conversions that need the value of one sample -------------------------------------------------------

    numpy = tolist = refusing(NO_STORAGE)
    item = __float__ = __int__ = __index__ = refusing(ITEM)
    __bool__ = refusing(CONTROL_FLOW)

    def _places_of_true(self) -> NoReturn:
        refuse_mask(self.level.called)

    # The graph --------------------------------------------------------------------------------

    def detach(self) -> Any:
        """Return the tensor outside the graph."""
        return self.level.sample(self.batch.detach())

    @property
    def data(self) -> Any:
        """The tensor outside the graph, sharing the memory."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        raise InvalidOperation("the data of a tensor cannot be set inside a mapped function")

    requires_grad_ = refusing(REQUIRES_GRAD)
    backward = refusing(BACKWARD)

    def retain_grad(self) -> NoReturn:
        """Raise InvalidOperation: not supported inside a mapped function."""
        if not self.requires_grad:
            raise InvalidOperation("can't retain_grad on Tensor that has requires_grad=False")
        raise InvalidOperation(RETAIN_GRAD)

    def register_hook(self, hook: Any) -> Any:
        """Call ``hook(grad)`` once for the batch, where ``grad`` stands for the gradient of each sample."""

        def wrapped(grad: Any) -> Any:
            with observed_by(self.level):
                replaced = hook(self.level.sample(grad))
            return replaced if replaced is None else self.level.lift(replaced)

        return self.batch.register_hook(wrapped)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = self.clone()  # type: ignore[attr-defined]  # of the tensors' class
        memo[id(self)] = copied
        return copied


class Level(Observer):
    """One ``vmap``: its batch size, and the behavior of random ops."""

    sees_ops = True
    sample_class: ClassVar[type[Any]]
    """The class of the tensors that this level batches."""
    F: ClassVar[Any]
    """The functions that compute on batches."""

    def __init__(self, size: int, randomness: str = "error") -> None:
        self.size = size
        self.randomness = randomness
        self.number = 1 + len(levels())
        self.called: Op | None = None
        """The op that the user called, while the ops it consists of are applied."""

    # Tensors ----------------------------------------------------------------------------------

    def sample(self, batch: Any) -> Any:
        """Return one sample of a tensor whose dimension 0 is the batch."""
        return self.sample_class(batch, self)

    def owns_any(self, values: Iterable[Any]) -> bool:
        """Whether one of the values, or a tensor in a tuple of them, is batched by this level."""
        return any(map(self.owns, flattened(values)))

    def owns(self, value: Any) -> bool:
        """Whether a value is batched by this level."""
        return type(value) is self.sample_class and value.level is self

    def lanes(self, value: Any) -> Any:
        """Convert an input for batching rules: to BatchedValue if this level batches it."""
        return BatchedValue(value.batch) if self.owns(value) else value

    def lift(self, tensor: Any) -> Any:
        """Return the batch of a tensor, expanded if all samples share the tensor."""
        if self.owns(tensor):
            return tensor.batch
        with below(self):
            return self.F.expand(self.F.unsqueeze(tensor, 0), (self.size, *tensor.shape))

    # Ops --------------------------------------------------------------------------------------

    def op(self, run: Run, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Apply a random op, or an op on an input that this level batches, to the whole batch by its batching rule."""
        if op.pointwise and op.batching.rule is None and (batches := self._alike(inputs)) is not None:
            with below(self):
                return mapped(self.sample, self.F._apply(op, batches, attrs))
        if not (op.random or self.owns_any(inputs)):
            return super().op(run, op, inputs, attrs)
        if op.batching.refusal:
            raise InvalidOperation(op.batching.refusal)
        if op.composite:
            return self._compose(op, op.kernel, inputs, attrs)
        if op.random:
            return self._draw(op, inputs, attrs)
        return self._batch(op, inputs, attrs)

    def _alike(self, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Replace samples by their batches if all tensors have one shape, not (): batches then broadcast as they do.

        Return None if they do not, and if there is no sample.
        """
        sample_class, shape, owns, found = self.sample_class, None, False, []
        for x in inputs:
            if hasattr(x, "_data"):
                own = x._data.shape
                if not own or own != (shape or own):
                    return None
                shape = own
                if type(x) is sample_class and x.level is self:
                    x, owns = x.batch, True
            found.append(x)
        return tuple(found) if owns else None

    def _compose(self, op: Op, parts: Callable[..., Any], inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Apply an op as the ops that it consists of."""
        outer, self.called = self.called, self.called or op
        try:
            return parts(self.F, *inputs, **attrs)
        finally:
            self.called = outer

    def _batch(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        specs = self._specs(op, inputs, attrs)
        if op.batching.parts is not None:
            return self._compose(op, op.batching.parts, inputs, {**op.defaults, **attrs})
        if specs is None:
            refuse_dynamic_shape(self.called or op)
        with below(self):
            call = BatchedCall(self.F, self.size, op, mapped(self.lanes, inputs), attrs, specs)
            results = apply_to_batch(call, lambda: self.note_loop((self.called or op).name))
        return op.bundle(list(map(self.sample, results)))

    def _specs(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Sequence[Spec] | None:
        """The op's output specs for one sample, or None if they depend on values. Raises the op's own errors."""
        try:
            specs = op.rule(*mapped(lambda x: x._data if hasattr(x, "_data") else x, inputs), **attrs)
        except DataDependentShape:
            return None
        return specs if isinstance(specs, list) else [specs]

    def note_loop(self, name: str) -> None:
        """Warn, once, that an op is applied to one sample after another."""
        if name not in _looping:
            _looping.add(name)
            warnings.warn(
                f"vmap has no batching rule for {name}: it is applied to one sample after another, which is slow for "
                "large batches.",
                UserWarning,
                stacklevel=2,
            )

    def _draw(self, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Apply a random op: all samples get the same numbers, or each gets its own."""
        if self.randomness == "error":
            raise InvalidOperation(RANDOM)
        batched = any(map(self.owns, inputs))
        if self.randomness == "different":
            return self._batch(op, inputs, attrs)
        if not batched:
            with below(self):
                return self.F._apply(op, inputs, attrs)
        if op.key == "drop":
            return inputs[0] * self._draw(op, (self._one_like(inputs[0], self.F.ones),), attrs)
        if op.factory or op.inplace:  # neither a size nor an in-place fill reads values of the tensor
            return self._draw(op, (self._one_like(inputs[0], self.F.empty),), attrs)
        raise InvalidOperation(SAME_RANDOM)

    def _one_like(self, tensor: Any, make: Callable[..., Any]) -> Any:
        """A tensor of one sample's shape and dtype that all samples share."""
        with below(self):
            return make(tuple(tensor.shape), dtype=tensor.dtype)

    # Gradients --------------------------------------------------------------------------------

    def grad(self, run: Run, outputs: Any, inputs: Any, grad_outputs: Any, options: Mapping[str, Any]) -> Any:
        """``autograd.grad`` of a graph that all samples share, with one row of gradients per sample."""
        seeds = [] if grad_outputs is None else listed(grad_outputs)
        if self.owns_any((*outputs, *inputs)):
            raise GradRequired("element 0 of tensors does not require grad and does not have a grad_fn")
        if not self.owns_any(seeds):
            return super().grad(run, outputs, inputs, grad_outputs, options)
        rows = [None if seed is None else self.lift(seed) for seed in seeds]
        with below(self):
            lead: tuple[int, ...] = (self.size,)
            if options["is_grads_batched"]:
                lead = (self.size, next(r.shape[1] for r in rows if r is not None))
                rows = [None if r is None else r.flatten(0, 1) for r in rows]
            found = super().grad(run, outputs, inputs, rows, {**options, "is_grads_batched": True})
            found = [None if f is None else f.reshape((*lead, *f.shape[1:])) for f in found]
        return tuple([None if f is None else self.sample(f) for f in found])

    # In place ---------------------------------------------------------------------------------

    def in_place(self, run: Run, tensor: Any, op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any]) -> Any:
        """Write an op's result to the whole batch of ``tensor``."""
        if not self.owns(tensor):
            if not self.owns_any(inputs):
                if op.random and self.randomness != "same":
                    raise InvalidOperation(RANDOM if self.randomness == "error" else SAME_MEMORY)
                return super().in_place(run, tensor, op, inputs, attrs)
            refuse_to_write(op, self.called or op, tuple(tensor.shape), self.size, self.number)
        if op.view:
            with below(self):
                tensor._show(self.op(run, op, inputs, attrs).batch)
            return tensor
        result = self.op(run, op, inputs, attrs)
        tensor._check_result(result._data, attrs)
        with below(self):
            value = self.lift(result)
            tensor.batch._inplace(CATALOGUE.get("copy"), (tensor.batch, value))
        return tensor


# All levels --------------------------------------------------------------------------------------


def levels() -> tuple[Any, ...]:
    """Return the active levels of ``vmap`` of this thread, from the outermost to the innermost."""
    return tuple([observer for observer in chain(state.observer) if isinstance(observer, Level)])[::-1]


def unwrapped(tensor: Any, within: Sequence[Level]) -> Any:
    """Return the batch of a tensor over all of these levels, which become its first dimensions in their order."""
    for level in reversed(within):
        tensor = level.lift(tensor)
    return tensor


def wrapped(tensor: Any, within: Sequence[Level]) -> Any:
    """Return one sample of a tensor whose first dimensions are the batches of these levels."""
    for level in within:
        tensor = level.sample(tensor)
    return tensor


@contextmanager
def outside(within: Sequence[Level]) -> Iterator[None]:
    """In the block, apply ops without these levels, which must be the innermost active ones."""
    if not within:
        yield
        return
    with below(within[0]):
        yield


def refuse_dynamic_shape(op: Op) -> NoReturn:
    """Raise InvalidOperation for an op whose result's shape would differ between samples."""
    name = "_unique2" if op.key == "unique" else op.public
    raise InvalidOperation(
        op.batching.dynamic
        or "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over "
        f"aten::{name}. Please file an issue at https://github.com/pytorch/pytorch/issues if you need this feature."
    )


def refuse_mask(called: Op | None) -> NoReturn:
    """Raise InvalidOperation for a batched mask as an index; ``called`` is the user's op, None for indexing."""
    raise InvalidOperation((called and called.batching.dynamic) or MASK)


def refuse_to_write(op: Op, called: Op, shape: tuple[int, ...], size: int, level: int) -> NoReturn:
    """Raise an error for an in-place op that would write different values per sample to a tensor shared by all samples.

    ``called`` is the op that the user called: ``op`` itself or one that consists of it.
    """
    if called.key in NORMS:
        raise InvalidOperation(STATISTICS)
    if op.key in ("add", "atan2"):
        raise ShapeMismatch(f"output with shape {list(shape)} doesn't match the broadcast shape {[size, *shape]}")
    name, where = f"aten::{op.name}_", f"at level {level}"
    if op.batching.in_place:
        name, where = op.batching.in_place, "in a vmap"
    raise InvalidOperation(
        f"vmap: {name}(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has "
        "more elements than `self`. This happened due to `other` being vmapped over but `self` not being vmapped over "
        f"{where}. Please try to use out-of-place operators instead of {name}. If said operator is being called inside "
        "the PyTorch framework, please file a bug report instead."
    )
