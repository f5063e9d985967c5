"""Prepared calls: what all calls of an op on tensors of the same shapes, dtypes and ``requires_grad`` have in common.

The first calls of an op are checked: the shape rule is applied, the memory is admitted, the inputs are promoted, and it
is decided what the derivative saves. The second call with the same key prepares the others: they run the kernel and
record the node (see ``eager.apply``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..arrays import NUMPY
from ..context import observers, state
from ..dtypes import FLOATING
from ..errors import TelegradError
from ..graph.node import MultiOutputNode, Node, accumulator, announce, constant, new_node, save
from ..schema.memory_admission import scratch_of
from ..schema.op import Op
from ..shapes import Spec, interned
from .execution import promote

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
