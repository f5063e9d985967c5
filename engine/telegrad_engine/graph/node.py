"""The graph: nodes, edges and the recording of operations.

A :class:`Node` is data: an op, its attributes, the values saved for the derivative, and its next edges. Edges to a leaf
lead to its :class:`AccumulateGrad`. A node never refers to the tensor that it produced, and a leaf refers to its node
only weakly, so a graph has no cycles.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any
from weakref import ref

from numpy import ndarray

from ..context import MemoryBudget, observers, state
from ..dtypes import FLOATING, from_numpy
from ..errors import VersionConflict
from ..schema.derivative_plan import DerivativePlan
from ..schema.op import NO_ATTRS, Op
from ..schema.signature import flattened
from .hooks import Handle, NodeHooks, around, hooks_of

_sequence = count()
next_sequence = _sequence.__next__
_new = object.__new__
FREED: Any = ("freed",)
"""The value of ``Node.saved`` after the saved tensors were freed."""


FREED_TEXT = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they "
    "have already been freed). Saved intermediate values of the graph are freed when you call "
    ".backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the "
    "graph a second time or if you need to access saved tensors after calling backward."
)

HINT = (
    "enable anomaly detection to find the operation that failed to compute its gradient, with "
    "torch.autograd.set_detect_anomaly(True, check_nan=False)."
)
HINT_WATCHED = (
    "the backtrace further above shows the operation that failed to compute its gradient. The variable in "
    "question was changed in there or anywhere later. Good luck!"
)


def announce(node: Node, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Notify this thread's observer, if any, of a newly recorded node."""
    observer = state.observer
    if observer is not None:
        observer.node(node, inputs, outputs)


def skip_sequence(numbers: int) -> None:
    """Skip this many sequence numbers, so that nodes recorded later are newer than the nodes that use them."""
    deque(islice(_sequence, numbers), maxlen=0)


class Node:
    """One recorded operation; a ``grad_fn`` in PyTorch."""

    # Class-level defaults keep the common node small: an instance sets only what differs.
    leaf: Any = None
    """The leaf whose gradient is accumulated here; None for an operation."""
    hooks: Any = None
    output_nrs: tuple[int, ...] | None = None
    """The output number that each edge leads to; None if all are 0."""
    width = 1
    """Number of outputs."""
    many = False
    plain = True
    """Whether the node has no hooks, so that the fast path of the backward pass can evaluate it."""
    evaluate: Any = None
    """``evaluate(pass, gradients)``, the backward of a ``many`` node that has no derivative rules."""

    op: Op
    attrs: Mapping[str, Any] = NO_ATTRS
    plan: DerivativePlan
    saved: Any = ()
    """The values that the derivative needs, in the plan's order; FREED after they were freed."""
    versions: tuple[tuple[int, list[int], int], ...] = ()
    """For each saved tensor: its position, its version counter and its version when it was saved."""
    next_edges: tuple[Any, ...]
    sequence: int
    shape: tuple[int, ...]
    dtype: Any
    specs: Sequence[Any]
    """The shapes and dtypes of all outputs, for a MultiOutputNode."""

    def _update(self, attributes: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Set these attributes, which are those of another node of this class."""
        self.__dict__.update(attributes)

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The next nodes, each with its output number, as in torch."""
        return following(self.next_edges, self.output_nrs)

    def name(self) -> str:
        """The name torch gives this kind of node, as in ``grad_fn=<AddBackward0>``."""
        name = self.op.node
        if name is None:
            return f"{camel(self.op.name)}Backward0"
        return name if isinstance(name, str) else name(self)

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for the user's own data about the node, as in torch."""
        found: dict[Any, Any] = self.__dict__.setdefault("_metadata", {})
        return found

    def register_prehook(self, fn: Callable[[Any], Any]) -> Handle:
        """Call ``fn(grad_outputs)`` before the derivatives; a tuple that it returns replaces ``grad_outputs``."""
        return around(self).add_before(fn)

    def register_hook(self, fn: Callable[[Any, Any], Any]) -> Handle:
        """Call ``fn(grad_inputs, grad_outputs)`` after the derivatives; a tuple it returns replaces ``grad_inputs``."""
        return around(self).add_after(fn)

    def __repr__(self) -> str:
        return f"<{self.name().rpartition('::')[2]}>"


class MultiOutputNode(Node):
    """The node of an op with several outputs or a list of outputs: its derivatives take a tuple of gradients."""

    many = True


class AccumulateGrad(Node):
    """The node in which all edges to a leaf end. It has no derivatives: the pass adds the gradient to the leaf's."""

    next_edges = ()

    @property
    def variable(self) -> Any:
        """The leaf, by torch's name."""
        return self.leaf

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The leaf's shape, which an assignment to its ``data`` may change."""
        shape: tuple[int, ...] = self.leaf._data.shape
        return shape

    @property
    def dtype(self) -> Any:
        """The leaf's dtype."""
        return self.leaf._data.dtype

    @property
    def hooks(self) -> NodeHooks | None:
        """The node's hooks, which the leaf holds, because the node exists only as long as a graph leads to it."""
        hooks = self.leaf._hooks
        return None if hooks is None else hooks.around

    @hooks.setter
    def hooks(self, value: NodeHooks) -> None:
        hooks_of(self.leaf).around = value

    def name(self) -> str:
        """The name torch gives it."""
        return "torch::autograd::AccumulateGrad"


def accumulator(leaf: Any) -> AccumulateGrad:
    """The node in which edges to this leaf end. A leaf has one at a time, as long as anything refers to it."""
    known = leaf._accumulator
    node: AccumulateGrad | None = None if known is None else known()
    if node is None or node.leaf is not leaf:  # an alias of a tensor begins with the tensor's attributes
        node = _new(AccumulateGrad)
        node.leaf = leaf
        leaf._accumulator = ref(node)
    return node


def following(targets: tuple[Any, ...], output_nrs: tuple[int, ...] | None) -> tuple[tuple[Any, int], ...]:
    """The targets of edges in the form of torch's ``next_functions``."""
    return tuple(zip(targets, output_nrs or (0,) * len(targets), strict=True))


def camel(name: str) -> str:
    """``log_softmax`` as ``LogSoftmax``."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def new_node(
    kind: type[Node],
    op: Op,
    plan: DerivativePlan,
    attrs: Mapping[str, Any],
    next_edges: tuple[Any, ...],
    shape: tuple[int, ...],
    dtype: Any,
) -> Node:
    """Make the node of an operation, with the shape and dtype of its first output."""
    node = _new(kind)
    node.op = op
    node.plan = plan
    node.attrs = attrs
    node.next_edges = next_edges
    node.shape = shape
    node.dtype = dtype
    node.sequence = next_sequence()
    return node


def record(
    op: Op,
    attrs: Mapping[str, Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    hidden: Sequence[Any] = (),
) -> None:
    """Record an operation with an input that requires grad; its outputs get their grad_fn."""
    if not outputs:
        return
    first = outputs[0]._data
    many = op.lists_outputs or len(outputs) > 1
    if not many and first.dtype.kind in "biu":
        return  # a conversion to integers ends the graph
    needs: list[bool] = []
    targets: list[Any] = []
    output_nrs: list[int] | None = None
    for x in flattened(inputs) if op.has_lists else inputs:
        need = getattr(x, "_requires_grad", False)
        needs.append(need)
        if need:
            place = x._node
            targets.append(accumulator(x) if place is None else place)
            if x._output_nr:
                output_nrs = output_nrs or [0] * sum(len(v) if isinstance(v, tuple) else 1 for v in inputs)
                output_nrs[len(targets) - 1] = x._output_nr
        else:
            targets.append(None)
    key = _grouped(needs, inputs) if op.has_lists else tuple(needs)
    plan = op.plans.get(key) or op.plan(key)
    node = new_node(MultiOutputNode if many else Node, op, plan, attrs, tuple(targets), first.shape, first.dtype)
    if output_nrs is not None:
        node.output_nrs = tuple(output_nrs)
    if plan.saves:
        save(node, plan.saves, inputs, outputs, hidden)
    if not many:
        output = outputs[0]
        output._node = node
        output._requires_grad = True
        if observers:
            announce(node, inputs, outputs)
        return
    node.width = len(outputs)
    node.specs = [(o._data.shape, o._data.dtype) for o in outputs]
    for output_nr, output in enumerate(outputs):
        if output._data.dtype in FLOATING and output_nr not in op.constants:
            output._node, output._output_nr = node, output_nr
            output._requires_grad = True
    if observers:
        announce(node, inputs, outputs)


def _grouped(needs: list[bool], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The flags of flattened inputs, with the flags of each list grouped into a tuple."""
    flags = iter(needs)
    return tuple([tuple([next(flags) for _ in x]) if isinstance(x, tuple) else next(flags) for x in inputs])


def save(
    node: Node,
    saves: Sequence[tuple[str, Any]],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    hidden: Sequence[Any] = (),
) -> None:
    """Store in the node the values that its derivative needs, and the versions of the saved tensors.

    ``saves`` is ``node.plan.saves``, in which "constant" and the value may replace what all calls have in common.
    """
    saved: list[Any] = []
    versions: list[tuple[int, list[int], int]] = []
    for source, key in saves:
        if source == "constant":
            saved.append(key)
        elif source == "input" or source == "output":
            value = inputs[key] if source == "input" else outputs[key]
            cell = getattr(value, "_version_counter", None)
            if cell is not None:
                versions.append((len(saved), cell, cell[0]))
                saved.append(value._data)
            elif isinstance(value, tuple):
                versions.extend(
                    [(len(saved), v._version_counter, v._version_counter[0]) for v in value if v is not None]
                )
                saved.append([None if v is None else v._data for v in value])
            else:
                saved.append(value)
        elif source == "hidden":
            saved.append(hidden[key])
        else:
            saved.append(constant(node.op, source, key, inputs, node.attrs))
    node.saved = tuple(saved)
    node.versions = tuple(versions)


def constant(op: Op, source: str, key: Any, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """A saved value that is neither a tensor nor hidden: an attribute, a number, or a shape or dtype."""
    if source == "attr":
        return attrs.get(key, op.defaults.get(key))
    return inputs[key] if source == "input" else metadata_of(inputs[key], source)


def metadata_of(value: Any, which: str) -> Any:
    """The shape or dtype of an input, as ``which`` says; ``()`` or None for a number."""
    if isinstance(value, tuple):
        return tuple([metadata_of(v, which) for v in value])
    data = getattr(value, "_data", None)
    if data is None:
        return () if which == "shape" else None
    return data.shape if which == "shape" else from_numpy(data.dtype)


def count_saved(memory: MemoryBudget, outputs: Iterable[Any], begun: int) -> None:
    """Count the saved arrays in the graph of these tensors, in nodes with a sequence number of at least ``begun``."""
    waiting = [node for output in outputs if (node := getattr(output, "_node", None)) is not None]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node in seen or node.leaf is not None or node.sequence < begun:
            continue
        seen.add(node)
        waiting.extend([target for target in node.next_edges if target is not None])
        for value in node.saved:
            if type(value) is ndarray:
                memory.count(value)


def walk(*roots: Node, known: Collection[Node] = ()) -> Iterator[Node]:
    """All operations reachable from ``roots``, newest first, but not those ``known`` nor what only they reach."""
    seen = {*known}
    order = list({root for root in roots if root.leaf is None and root not in seen})
    seen.update(order)
    for node in order:
        for target in node.next_edges:
            if target is not None and target.leaf is None and target not in seen:
                seen.add(target)
                order.append(target)
    order.sort(key=lambda node: node.sequence, reverse=True)
    return iter(order)


def count_nodes(tensors: Collection[Any]) -> int:
    """The number of nodes in the graphs of these tensors and of their gradients, with one for each leaf."""
    waiting = [node for tensor in tensors if (node := tensor._node) is not None]
    seen = set(waiting)
    waiting = list(seen)
    while waiting:
        for target in waiting.pop().next_edges:
            if target is not None and target not in seen:
                seen.add(target)
                waiting.append(target)
    return len(seen) + sum([tensor._grad is not None for tensor in tensors])


def free(node: Node) -> None:
    """Free the node's saved values; a second backward through it raises GraphFreed."""
    node.saved = FREED
    node.versions = ()


def modified_since(node: Node) -> VersionConflict:
    """The error for the first of a node's saved tensors that was modified after it was saved."""
    position, cell, version = next(entry for entry in node.versions if entry[1][0] != entry[2])
    source, key = node.plan.saves[position]
    data = node.saved[position]
    data = data[0] if isinstance(data, list) else data
    origin = node if source == "output" else node.next_edges[key] if key < len(node.next_edges) else None
    return modified(data, origin, 0, cell[0], version)


def modified(data: Any, origin: Any, output_nr: int, version: int, expected: int) -> VersionConflict:
    """The error for a saved tensor, output ``output_nr`` of ``origin``, that was modified in place."""
    what = f"torch.{from_numpy(data.dtype).kernel_name}Tensor {list(data.shape)}"
    which = "" if origin is None or origin.leaf is not None else f", which is output {output_nr} of {kind(origin)},"
    return VersionConflict(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{what}]{which} is at version {version}; expected version {expected} instead. Hint: "
        + (HINT_WATCHED if state.anomaly is not None else HINT)
    )


def kind(node: Node) -> str:
    """A node's name in the form of some of torch's error texts: ``Sigmoid`` for ``SigmoidBackward0``."""
    return re.sub(r"Backward\d*$", "", node.name())
