"""A graph as data: vertices with their inputs, oldest first. It refers to none of the session's tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary, ref

from numpy import ndarray

from ..dtypes import from_numpy
from ..graph.node import Node, walk
from .statistics import number_of, sample_of

MAX_VERTICES = 200_000
"""The most operations that a record has."""
NORM_SAMPLE = 4096
"""The most elements of a gradient from which its norm is computed."""
MAX_NUMBERS = 2000
"""The most tensors of one element whose numbers are read."""


class Origin(NamedTuple):
    """Where the client's program made a node."""

    module: str | None = None
    """The path of the module, such as ``encoder.0``."""
    line: str | None = None
    """The file and line of the user's code, such as ``train.py:12``."""


NOWHERE = Origin()


class Known(NamedTuple):
    """What observing a session told about its nodes, which nodes do not hold, for as long as these exist."""

    origins: MutableMapping[Node, Origin]
    """Where the client's program made operations."""
    constants: MutableMapping[Node, Sequence[ref[Any]]]
    """The inputs of operations that need no gradient."""

    @classmethod
    def nothing(cls) -> Known:
        """What is known of a session at its start."""
        return cls(WeakKeyDictionary(), WeakKeyDictionary())


class GraphRecord:
    """The vertices of a graph by order: operations, leaves, and tensors without a history. Each list has a column.

    A column for each property takes a fraction of the time and memory of an object for each vertex.
    """

    def __init__(self) -> None:
        self.ops: list[str | None] = []
        """The keys of ops; None for a leaf or a tensor."""
        self.orders: list[int] = []
        """Vertices are ordered by the time at which they were made, a leaf before its first user."""
        self.inputs: list[Sequence[int]] = []
        """The positions of inputs in the record, which come before the vertex."""
        self.shapes: list[tuple[int, ...]] = []
        self.dtypes: list[Any] = []
        """NumPy dtypes; None for the output of a Function that is not a tensor."""
        self.nbytes: list[int] = []
        """The bytes that nodes save for their derivatives."""
        self.kinds: dict[int, Literal["leaf", "tensor"]] = {}
        """The kinds of those that are no operations, by position."""
        self.tensors: dict[int, Sequence[str]] = {}
        """The ids of tensors, by position."""
        self.grad_norms: dict[int, float] = {}
        """The norms of gradients, by position."""
        self.numbers: dict[int, float] = {}
        """The numbers in tensors of one element, by position, where they are known."""
        self.origins: dict[int, Origin] = {}
        """Where the client's program made operations, by position, if that is known."""
        self.omitted = 0
        """The number of older operations that the record does not have."""

    def __len__(self) -> int:
        return len(self.ops)

    def id_of(self, position: int) -> str:
        """The id of a vertex, which stays the same as long as its node exists or its tensor has its id."""
        if position not in self.kinds:
            return node_id(self.orders[position] // 2)
        names = self.tensors.get(position)
        return f"t:{names[0]}" if names else f"l{self.orders[position] // 2}_{position - self._first_at(position)}"

    def _first_at(self, position: int) -> int:
        """The position of the first leaf with the same first user."""
        while position and self.orders[position - 1] == self.orders[position]:
            position -= 1
        return position

    def copied(self) -> GraphRecord:
        """A copy that does not change when this record grows."""
        copy = GraphRecord()
        for name, value in vars(self).items():
            setattr(copy, name, value if isinstance(value, int) else value.copy())
        return copy

    def origin_of(self, position: int) -> Origin:
        """Where the client's program made an operation."""
        return self.origins.get(position, NOWHERE)


def node_id(sequence: int) -> str:
    """The id of an operation with this sequence number."""
    return f"n{sequence}"


def order_of(sequence: int) -> int:
    """The order of an operation with this sequence number; the number before it is that of a leaf."""
    return 2 * sequence + 1


def name_of_dtype(dtype: Any) -> str | None:
    """A dtype's name in torch."""
    return None if dtype is None else from_numpy(dtype).name


def saved_bytes(node: Any) -> int:
    """The bytes of the arrays that a node saves for its derivative."""
    total = 0
    for value in node.saved:
        if type(value) is ndarray:
            total += value.nbytes
        elif type(value) is list:
            total += sum([getattr(each, "nbytes", 0) for each in value])
        else:
            total += getattr(value, "nbytes", 0)
    return total


def gradient_norm(grad: Any) -> float:
    """The norm of a gradient's array, estimated for a large one."""
    return sample_of(grad, NORM_SAMPLE).norm()


class Names:
    """The ids of a session's tensors, and the gradients of those that have one, by node or leaf."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self.ids: dict[Any, list[str]] = {}
        self.grads: dict[Any, Any] = {}
        for name, tensor in tensors.items():
            node = tensor._last_grad_fn
            place = tensor if node is None else node
            self.ids.setdefault(place, []).append(name)
            if tensor._grad is not None:
                self.grads[place] = tensor._grad._data

    def norm_at(self, place: Any) -> float | None:
        """The norm of the gradient that was accumulated at a node or a leaf."""
        grad = self.grads.get(place)
        return None if grad is None else gradient_norm(grad)


def is_constant(tensor: Any) -> bool:
    """Whether a tensor is outside the graph: it requires no grad."""
    return not getattr(tensor, "_requires_grad", True)


class Constants:
    """Finds the inputs of operations that need no gradient, to which a graph has no edges."""

    def __init__(self, tensors: Iterable[Any], known: Known) -> None:
        self._observed = dict(known.constants)
        self._by_array = {id(tensor._data): tensor for tensor in tensors if is_constant(tensor)}

    def may_have(self, node: Node) -> bool:
        """Whether :meth:`of` may find any. It is called for each node of large graphs."""
        if None not in node.next_edges:
            return False
        return node in self._observed or not self._by_array.keys().isdisjoint(map(id, node.saved))

    def of(self, node: Node) -> Sequence[Any]:
        """Those of an operation that still exist: all that were observed, else those that it saves."""
        observed = self._observed.get(node)
        if observed is not None:
            return [tensor for each in observed if (tensor := each()) is not None and is_constant(tensor)]
        found = [(index, value) for index, value in enumerate(node.saved) if id(value) in self._by_array]
        return [self._by_array[id(value)] for index, value in found if _is_constant_input(node, index)]


def _is_constant_input(node: Node, index: int) -> bool:
    """Whether a saved value is an input that needs no gradient. A tensor in the graph may share the array of one."""
    source, key = node.plan.saves[index]
    return source == "input" and not node.op.has_lists and node.next_edges[key] is None


def live_graph(
    tensors: Mapping[str, Any], roots: Iterable[Any], known: Known, most: int = MAX_VERTICES
) -> tuple[GraphRecord, Mapping[Any, int]]:
    """The graph behind ``roots``, and the positions of its nodes and leaves; ``tensors`` are the session's by id.

    It has at most the ``most`` newest operations, with the leaves that they use. A tensor that needs no gradient has
    edges where it is known that an operation used it.
    """
    constants = Constants(tensors.values(), known)
    roots, names, found = list(roots), Names(tensors), GraphRecord()
    nodes = [*walk(*[node for root in roots if (node := root._last_grad_fn) is not None])]
    found.omitted = max(0, len(nodes) - most)
    del nodes[most:]
    nodes.reverse()
    positions: dict[Any, int] = {}
    for node in nodes:
        order = order_of(node.sequence)
        inputs = []
        for target in node.next_edges:
            if target is None:
                continue
            place = target if target.leaf is None else target.leaf
            position = positions.get(place)
            if position is None and place is not target:
                position = positions[place] = add_leaf(found, place, order - 1, names)
            if position is not None:  # None for an operation that is omitted
                inputs.append(position)
        for constant in constants.of(node) if constants.may_have(node) else ():
            if constant not in positions:
                positions[constant] = add_leaf(found, constant, order - 1, names)
            inputs.append(positions[constant])
        positions[node] = len(found.ops)
        add_operation(found, node, tuple(inputs))
    for node, ids in names.ids.items():
        if (position := positions.get(node)) is not None:
            found.tensors[position] = ids
            if (norm := names.norm_at(node)) is not None:
                found.grad_norms[position] = norm
    for node, origin in known.origins.items():
        if (position := positions.get(node)) is not None:
            found.origins[position] = origin
    for root in roots:
        if root._last_grad_fn is None and root not in positions:
            after = found.orders[-1] + 1 if found.orders else 0
            positions[root] = add_leaf(found, root, after, names)
    _read_numbers(found, tensors.values(), positions)
    return found, positions


def _read_numbers(record: GraphRecord, tensors: Iterable[Any], positions: Mapping[Any, int]) -> None:
    for tensor in tensors:
        if tensor._data.size != 1 or len(record.numbers) >= MAX_NUMBERS:
            continue
        node = tensor._last_grad_fn
        position = positions.get(tensor if node is None else node)
        if position is not None and not tensor._output_nr:
            record.numbers[position] = number_of(tensor._data)


def add_operation(record: GraphRecord, node: Any, inputs: Sequence[int]) -> None:
    """Add the vertex of a node."""
    record.ops.append(node.op.key)
    record.orders.append(order_of(node.sequence))
    record.inputs.append(inputs)
    record.shapes.append(node.shape)
    record.dtypes.append(node.dtype)
    record.nbytes.append(saved_bytes(node))


def add_leaf(record: GraphRecord, leaf: Any, order: int, names: Names) -> int:
    """Add a leaf, or a tensor that requires no grad, and return its position."""
    position = len(record.ops)
    record.ops.append(None)
    record.orders.append(order)
    record.inputs.append(())
    record.shapes.append(leaf._data.shape)
    record.dtypes.append(leaf._data.dtype)
    record.nbytes.append(0)
    record.kinds[position] = "leaf" if leaf._requires_grad else "tensor"
    if (ids := names.ids.get(leaf)) is not None:
        record.tensors[position] = ids
    if leaf._grad is not None:
        record.grad_norms[position] = gradient_norm(leaf._grad._data)
    return position
