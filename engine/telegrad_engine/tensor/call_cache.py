"""A cache of prepared calls, so that repeated calls skip the checks on their arguments.

A call sorts its arguments, chooses the overload, applies the shape rule, checks the memory, casts its inputs and
decides what to save for the derivative. All of that depends only on the key of the call: the arguments' shapes, dtypes
and ``requires_grad``, and the numbers among them. The second call with the same key is cached as a function that runs
the kernel, adds the result to the graph and does nothing else. :func:`remember` puts the cache in front of the
functions and methods of a class of tensors: the engine's with calls that :func:`prepare` prepares for ``eager.apply``,
the SDK's with calls that it records.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..arrays import NUMPY
from ..context import observers, state
from ..dtypes import FLOATING, DType
from ..errors import TelegradError
from ..graph.node import MultiOutputNode, Node, accumulator, announce, constant, new_node, save
from ..lru import LRU
from ..schema.memory_admission import scratch_of
from ..schema.op import CATALOGUE, NO_ATTRS, Op
from ..shapes import Size, Spec, interned
from .execution import Enter, promote
from .indexing import getitem, resolve_getitem
from .methods import SORTING, TensorMethods, plain_methods, reflected_methods
from .namespace import Apply, Functions, Resolve, resolver

Ready = Callable[[list[Any]], Any]
"""A prepared call: applies an op to tensors like those that it was prepared for."""

Prepare = Callable[[Op, tuple[Any, ...], Mapping[str, Any], Sequence[Any]], Ready | None]

CALLS = 512
"""The number of most recent calls that are remembered for each function."""

CONSTANTS = frozenset({int, bool, str, type(None), DType})
_BOUNDS = frozenset({int, type(None)})
SEQUENCES = frozenset({tuple, list, Size})
_NEW, _ONCE, _UNFIT = "new", "once", "unfit"
"""The state of a call that is new, was made once, or cannot be cached."""


class CallSignature(NamedTuple):
    """A call that is being prepared, described by what all calls with its key have in common."""

    op: Op
    inputs: tuple[Any, ...]
    """The op's inputs. The tensors among them belong to this call only."""
    attrs: Mapping[str, Any]
    specs: list[Spec]
    """The shapes and dtypes of the outputs, from the op's rule."""
    order: list[int | None] | None
    """For each input, its position among the call's tensors, or None for a constant; None if both lists are equal."""

    @property
    def many(self) -> bool:
        """Whether the op has several outputs or returns a list."""
        return self.op.lists_outputs or len(self.op.outputs) > 1


def cached_calls(
    otherwise: Callable[..., Any],
    resolve: Resolve,
    prepare: Prepare,
    kinds: Container[type[Any]],
    calls: int = CALLS,
) -> Callable[..., Any]:
    """Return ``otherwise`` with a cache of prepared calls for tensors of ``kinds``.

    ``otherwise`` resolves its arguments and applies the op. ``prepare(op, inputs, attrs, tensors)`` returns a function
    that applies the op to tensors like these, or None. The cache holds at least the last ``calls`` calls, and at most
    twice as many.
    """
    known: LRU[Any, Any] = LRU(calls)

    def call(*args: Any, **kwargs: Any) -> Any:
        modes = state.__dict__
        if modes["autocast"] is not None or (observers and modes["ops_observed"]):
            return otherwise(*args, **kwargs)
        key: list[Any] = [modes["grad_enabled"], *kwargs]
        tensors: list[Any] = []
        for value in (*args, *kwargs.values()) if kwargs else args:
            kind = type(value)
            if kind in kinds:
                if value._base is not None and value._seen_version != value._version_counter[0]:
                    return otherwise(*args, **kwargs)  # the view's history must be rebuilt
                data = value._data
                key += (data.shape, data.dtype, value._requires_grad)
                tensors.append(value)
            elif kind in CONSTANTS:
                key += (kind, value)
            elif kind is float:
                key += (kind, value or repr(value))  # 0.0 and -0.0 compare equal but give different results
            else:
                parts = key_parts(value if kind in SEQUENCES else (value,))
                if parts is None:
                    return otherwise(*args, **kwargs)
                key += (kind, parts)
        if not tensors:
            return otherwise(*args, **kwargs)
        found = tuple(key)
        try:
            ready = known[found]
        except KeyError:
            ready = _NEW
        if type(ready) is not str:
            return ready(tensors)
        result = otherwise(*args, **kwargs)
        if ready is _NEW:
            known[found] = _ONCE
        elif ready is _ONCE:
            args, kwargs, tensors = with_stand_ins(args, kwargs, kinds)
            resolved = resolve(args, kwargs)
            known[found] = (resolved and prepare(*resolved, tensors)) or _UNFIT
        return result

    return functools.wraps(otherwise)(call)


def remember(
    cls: type[Any],
    functions: Functions,
    prepare: Prepare,
    kinds: Container[type[Any]],
    cached: Callable[..., Callable[..., Any]] = cached_calls,
    operators: bool = True,
) -> None:
    """Put a call cache for tensors of ``kinds`` in front of the methods of ``cls`` and of ``functions``.

    ``cached`` makes the wrappers, with the arguments of :func:`cached_calls`. Calls of random ops are not cached.
    Without ``operators``, neither are those of operators and of methods that take only the tensor.
    """

    def sorting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        resolve = resolver(name)
        if resolve is None or all(op.random for op in CATALOGUE.overloads.get(name, ())):
            return function
        return cached(function, resolve, prepare, kinds)

    for name, op in plain_methods() if operators else ():
        setattr(cls, name, cached(getattr(TensorMethods, name), _operator(op), prepare, kinds))
    for name, op in reflected_methods() if operators else ():
        setattr(cls, name, cached(getattr(TensorMethods, name), _operator(op, reflected=True), prepare, kinds))
    for name in SORTING:
        setattr(cls, name, sorting(name, getattr(TensorMethods, name)))
    cls._cast = sorting("cast", TensorMethods._cast)
    cls.__getitem__ = cached(getitem, resolve_getitem, prepare, kinds)
    functions.add_wrapper(sorting)


def _operator(op: Op, reflected: bool = False) -> Resolve:
    """Return the resolver of an operator, ``reflected`` as in ``2 * x``, or of a method without options."""

    def resolve(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Op, tuple[Any, ...], Mapping[str, Any]]:
        return op, tuple(args[::-1] if reflected else args), NO_ATTRS

    return resolve


def with_stand_ins(
    args: tuple[Any, ...], kwargs: dict[str, Any], kinds: Container[type[Any]]
) -> tuple[tuple[Any, ...], dict[str, Any], list[Any]]:
    """Return the arguments of a call, and the tensors among them, with a stand-in for each that comes again.

    So a resolver shows where each of them goes, also in ``x * x``.
    """
    tensors: list[Any] = []

    def other(value: Any) -> Any:
        if type(value) not in kinds:
            return value
        if any(value is tensor for tensor in tensors):
            value = value._without_value()
        tensors.append(value)
        return value

    return tuple([other(x) for x in args]), {name: other(x) for name, x in kwargs.items()}, tensors


def key_parts(items: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return sizes or an index as part of a key; None if an item is anything but an int, None, ``...`` or a slice."""
    parts: list[Any] = []
    for item in items:
        if type(item) is int or item is None or item is Ellipsis:
            parts.append(item)
        elif type(item) is slice and {type(item.start), type(item.stop), type(item.step)} <= _BOUNDS:
            parts.append((item.start, item.stop, item.step))
        else:
            return None
    return tuple(parts)


def op_function(
    op: Op,
    attrs: Mapping[str, Any],
    apply: Apply,
    prepare: Prepare,
    kinds: Container[type[Any]],
    calls: int = CALLS,
) -> Any:
    """Return the op with these attributes as a function of its inputs, with a cache of prepared calls."""

    def resolve(inputs: Sequence[Any], _: Mapping[str, Any]) -> tuple[Op, tuple[Any, ...], Mapping[str, Any]]:
        return op, op.check_inputs(inputs), attrs

    def call(*inputs: Any) -> Any:
        return apply(op, op.check_inputs(inputs), attrs)

    return cached_calls(call, resolve, prepare, kinds, calls)


def preparer(make: Callable[[CallSignature], Ready | None], apply: Apply) -> Prepare:
    """Return a ``prepare`` for :func:`cached_calls`; ``make`` prepares the calls of ops that are not composite."""

    def prepare(op: Op, inputs: tuple[Any, ...], attrs: Mapping[str, Any], tensors: Sequence[Any]) -> Ready | None:
        order = _order(inputs, tensors)
        if order is None or op.random or op.has_lists:
            return None
        if op.composite:
            blank = [None if hasattr(x, "_data") else x for x in inputs]  # keep no tensor alive
            return lambda tensors: apply(op, tuple(bind_inputs(blank, order, tensors)), attrs)
        specs = infer_specs(op, inputs, attrs)
        if not specs or not _same_dtype(op, inputs):
            return None
        straight = order == list(range(len(tensors)))
        return make(CallSignature(op, inputs, attrs, specs, None if straight else order))

    return prepare


def _order(inputs: tuple[Any, ...], tensors: Sequence[Any]) -> list[int | None] | None:
    """For each input, return its position among the call's tensors, or None for a constant.

    Return None if a tensor is not an input, or is one more than once.
    """
    positions = {id(tensor): i for i, tensor in enumerate(tensors)}
    order = [positions.get(id(x)) for x in inputs]
    taken = [i for i in order if i is not None]
    return order if len(taken) == len(set(taken)) == len(tensors) else None


def bind_inputs(constants: Sequence[Any], order: Sequence[int | None], tensors: Sequence[Any]) -> list[Any]:
    """Return an op's inputs from its constants and a call's tensors."""
    return [constant if i is None else tensors[i] for constant, i in zip(constants, order, strict=True)]


def _same_dtype(op: Op, inputs: tuple[Any, ...]) -> bool:
    """Whether the op computes without casting any input tensor."""
    if op.common is None:
        return True
    datas = [x._data if hasattr(x, "_data") else x for x in inputs]
    dtype = op.common(tuple(datas))
    return all(x._data.dtype == dtype for x in inputs[op.unpromoted :] if hasattr(x, "_data"))


def node_maker(call: CallSignature) -> Enter | None:
    """Return a function that records calls like this one and notifies the observer; None if they are not recorded."""
    op, inputs, attrs, specs, _ = call
    recorded = RecordedCall(op, inputs, attrs, specs)
    return None if recorded.plan is None else recorded.record


ndarray = np.ndarray
ROOM = 1 << 20
"""The largest result in bytes of a prepared call; for a larger one there may not be enough memory the next time."""
WEAK = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
"""The dtypes in which NumPy and torch compute the same with a Python number."""
NUMBERS = frozenset({float, int, bool})
"""The types of numbers among the inputs, which differ from call to call."""
SCRATCH_ROOM = 1 << 24
"""The largest scratch memory in bytes of a prepared call's kernel."""


class RecordedCall:
    """The node of an op with attributes, on inputs of these shapes, dtypes and ``requires_grad``."""

    __slots__ = ("attrs", "dtype", "edges", "many", "op", "pairs", "plan", "saves", "shape", "tracked", "width")

    def __init__(self, op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any], specs: Sequence[Spec]) -> None:
        self.op, self.attrs, self.shape, self.dtype = op, attrs, specs[0].shape, specs[0].dtype
        self.pairs = [(spec.shape, spec.dtype) for spec in specs]
        self.many = op.lists_outputs or len(specs) > 1
        needs = tuple([getattr(x, "_requires_grad", False) for x in inputs])
        self.width, self.edges = len(needs), [i for i, need in enumerate(needs) if need]
        """The number of the node's edges, and those that lead anywhere."""
        self.tracked = [i for i, spec in enumerate(specs) if spec.dtype in FLOATING and i not in op.constants]
        """The outputs that get a ``grad_fn``."""
        recorded = state.grad_enabled and op.differentiable and any(needs) and (self.many or self.tracked)
        self.plan = op.plan(needs) if recorded else None
        """What the derivative needs; None if calls are not recorded."""
        saves = () if self.plan is None else self.plan.saves
        self.saves: list[tuple[str, Any]] = [
            ("constant", constant(op, source, key, inputs, attrs)) if source in ("attr", "shape", "dtype")
            else (source, key)
            for source, key in saves
        ]  # fmt: skip

    def record(self, inputs: Sequence[Any], outputs: Sequence[Any], hidden: Sequence[Any]) -> None:
        """Record a call on these inputs; its outputs get their ``grad_fn``."""
        assert self.plan is not None
        kind = MultiOutputNode if self.many else Node
        node = new_node(kind, self.op, self.plan, self.attrs, (), self.shape, self.dtype)
        node.next_edges = self.targets(inputs, node)
        if self.many:
            node.width, node.specs = len(outputs), self.pairs
        if self.saves:
            save(node, self.saves, inputs, outputs, hidden)
        for i in self.tracked:
            output = outputs[i]
            output._node, output._requires_grad = node, True
            if i:
                output._output_nr = i
        if observers:
            announce(node, inputs, outputs)

    def targets(self, inputs: Sequence[Any], node: Node) -> tuple[Any, ...]:
        """Return the targets of the node's edges, and set its output numbers if they are not all 0."""
        targets: list[Any] = [None] * self.width
        for i in self.edges:
            x = inputs[i]
            targets[i] = accumulator(x) if x._node is None else x._node
            if x._output_nr:
                node.output_nrs = self.output_nrs(inputs)
        return tuple(targets)

    def output_nrs(self, inputs: Sequence[Any]) -> tuple[int, ...]:
        """Return the output number that each edge leads to."""
        return tuple([inputs[i]._output_nr if i in self.edges else 0 for i in range(self.width)])


class PreparedCall(RecordedCall):
    """A call of an op on arrays of these shapes and dtypes, without checks."""

    __slots__ = (
        *("constants", "first", "fresh", "hidden", "kernel", "only", "promote", "second", "single", "spec", "specs"),
        *("takes", "view"),
    )

    def __init__(self, op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any], specs: Sequence[Spec]) -> None:
        super().__init__(op, inputs, attrs, specs)
        self.specs = [interned(spec.shape, spec.dtype) for spec in specs]
        self.spec, self.view = self.specs[0], op.view
        self.hidden = len(op.outputs) if op.hidden else 0
        """The number of visible results of a kernel that also returns hidden ones, else 0."""
        self.single = not (self.many or self.hidden)
        datas = [x._data if hasattr(x, "_data") else x for x in inputs]
        direct = op.kernel_for(NUMPY, datas, attrs)
        self.kernel: Callable[..., Any] = direct or partial(op.kernel, NUMPY, **attrs)
        self.fresh = direct is not None
        """Whether the results have memory of their own, in row-major order if the inputs are."""
        self.promote = _promotion(op, datas)
        """The function that casts the arrays and numbers; None if none is to be cast."""
        self.first, self.second = 0 in self.edges, 1 in self.edges
        """Whether the first two edges lead anywhere."""
        self.constants = tuple([key if source == "constant" else None for source, key in self.saves])
        """The saved values that are the same for all calls, and None for the others."""
        self.takes = [(i, -1 if x[0] == "output" else x[1]) for i, x in enumerate(self.saves) if x[0] != "constant"]
        """For each other saved value its position, and the position of the input that it is, or -1 for the output."""
        self.only = self.takes[0][1] if len(self.takes) == len(self.constants) == 1 else None
        """The same for a single saved value; None if there are several or none."""


def prepare(op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> PreparedCall | None:
    """Prepare calls like this one; None if each of them must be checked."""
    if op.composite or op.random or op.has_lists:
        return None
    specs = infer_specs(op, inputs, attrs)
    if not specs:
        return None
    datas = [x._data if hasattr(x, "_data") else x for x in inputs]
    results = sum([spec.nbytes for spec in specs])
    if results > ROOM or (not op.view and scratch_of(op, datas, attrs, results) > SCRATCH_ROOM):
        return None
    dtypes = [x.dtype for x in datas if hasattr(x, "dtype")]
    if any(spec.dtype in FLOATING for spec in specs) and not any(dtype in FLOATING for dtype in dtypes):
        return None  # the result has the default dtype, which may change
    if any(type(x) in NUMBERS for x in datas) and not WEAK.issuperset(dtypes):
        return None  # what the op does, or whether it raises, may depend on the number
    return PreparedCall(op, inputs, attrs, specs)


def infer_specs(op: Op, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> list[Spec] | None:
    """Return the output specs that the rule gives for these shapes and dtypes; None if the rule needs values."""
    datas = [Spec(x._data.shape, x._data.dtype) if hasattr(x, "_data") else x for x in inputs]
    try:
        specs = op.rule(*datas, **attrs)
    except (TelegradError, AttributeError, TypeError):
        return None
    return specs if isinstance(specs, list) else [specs]


def _promotion(op: Op, datas: Sequence[Any]) -> Callable[[Sequence[Any]], list[Any]] | None:
    if op.common is None:
        return None
    kept, dtype = op.unpromoted, op.common(tuple(datas))
    if all(_fits(x, dtype) for x in datas[kept:]):
        return None
    return lambda datas: [*datas[:kept], *promote([*datas[kept:]], dtype, NUMPY)]


def _fits(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a kernel that computes in ``dtype`` takes this array or number as it is."""
    if type(value) is ndarray:
        return value.dtype is dtype
    return value is None or (type(value) in (float, int) and dtype in WEAK)
