"""Makes a session of the description that the writer gave, and of arrays. The description may come from anywhere.

Nothing in it is executed: ops are looked up in the catalogue, and definitions of functions and procedures are checked
as when a client registers them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ... import dtypes
from ...autograd.checkpoint import Frame, RandomState
from ...autograd.client_evaluation import ClientHook, ClientNode
from ...autograd.custom_function.ctx import FunctionCtx, Saved
from ...autograd.custom_function.function import Error, FunctionNode, plan_without_rules
from ...context import generator_from_bytes
from ...errors import InvalidFunction, MalformedRequest, NotSupported, TooLarge
from ...graph.data import NOWHERE, NodeData, Numbering, make_nodes
from ...graph.hooks import Hooks, NodeHooks, TensorHooks
from ...graph.node import FREED, MultiOutputNode, Node, accumulator
from ...program import json_codec
from ...program.checkpoint_sections import Open, SavedResults, Section
from ...program.client_evaluation import _Ctx
from ...program.instructions import Instruction, check_id
from ...program.registered_functions import Budget, FunctionProgram
from ...program.registered_functions.blocks import CallContext
from ...schema.derivative_plan import DerivativePlan, Save
from ...schema.op import CATALOGUE, NO_ATTRS
from ...shapes import Size, Spec
from ...tensor.eager import Tensor
from ...tensor.execution import InferenceVersion
from ...transforms.saved_tensor_hooks import Packed
from ..session import Session
from .blocks import Arrays, ArraySpec, Block, check_bools
from .values import decode, dtype_of, sizes
from .writer import INFERENCE, SEALS, plan_name

_T = TypeVar("_T")
_new: Any = object.__new__
KINDS = ("hook", "post_accumulate_grad_hook", "node_prehook", "node_hook")


def arrays_of(document: Mapping[str, Any], blocks: Sequence[Any]) -> Arrays:
    """Return the arrays of a description in the memory of these blocks. Raises MalformedRequest."""
    arrays = Arrays()
    arrays.blocks = [*map(Block, blocks)]
    for number, (block, offset, shape, strides, dtype, frozen) in enumerate(document["arrays"]):
        spec = ArraySpec(block, _count(offset), sizes(shape), sizes(strides), dtype_of(dtype), frozen is True)
        if len(spec.shape) != len(spec.strides) or any(n < 0 for n in spec.shape):
            raise MalformedRequest("snapshot: an array has no proper shape")
        if not spec.fits(_at(blocks, block).nbytes):
            raise MalformedRequest("snapshot: an array exceeds its memory")
        arrays.specs.append(spec)
        arrays.blocks[block].arrays.append(number)
    for each in arrays.blocks:
        check_bools(each.owner, arrays.specs_in(each))
    return arrays


class Reader:
    """Makes one session; ``arrays`` are those of the description."""

    def __init__(self, session: Session, document: Mapping[str, Any], arrays: Sequence[Any]) -> None:
        self.session, self._document, self._arrays = session, document, arrays
        self._counters = [InferenceVersion([0]) if v == INFERENCE else [_count(v)] for v in document["counters"]]
        self._tensors: list[Any] = [_new(Tensor) for _ in document["tensors"]]
        self._functions = self._make_functions()
        self._sections = [Section(session.checkpoints, (), bool(each["selective"])) for each in document["sections"]]
        self._frames: list[Any] = [_new(Frame) for _ in document["frames"]]
        self._nodes = self._make_nodes(document["nodes"], document["order"])

    def read(self) -> Session:
        """Fill the session."""
        document = self._document
        for tensor, record in zip(self._tensors, document["tensors"], strict=True):
            self._fill_tensor(tensor, *record)
        for node, record in zip(self._nodes, document["nodes"], strict=True):
            if record[0] is None:
                self._fill_function_node(node, record)
        for section, record in zip(self._sections, document["sections"], strict=True):
            self._fill_section(section, record)
        for frame, record in zip(self._frames, document["frames"], strict=True):
            self._fill_frame(frame, record)
        self._fill_session()
        return self.session

    def _fill_session(self) -> None:
        session, document = self.session, self._document
        session.environment.generator = _generator(document["generator"])
        session.programs, session.instructions = _count(document["programs"]), _count(document["instructions"])
        session._last_id = _count(document["last_id"])
        session.suspensions.calls = _count(document["calls"])
        for name, number in document["names"]:
            session.tensors[check_id(name)] = self.tensor(number)
        for name, number in document["own_functions"]:
            function = _at(self._functions, number)
            if function.name != name:
                raise MalformedRequest("snapshot: a function has another name in its definition")
            session.functions.add(function)
        for name, text in document["procedures"]:
            session.procedures.define(name, json_codec.loads(text.encode()))
        checkpoints = session.checkpoints
        for name, section, frame in document["open"]:
            checkpoints.open.append(Open(check_id(name), _at(self._sections, section), _at(self._frames, frame)))
        checkpoints.packed = {_count(number): decode(value, self) for number, value in document["packed"]}

    # Objects by number --------------------------------------------------------------------

    def array(self, number: Any) -> Any:
        """Return the array of this number."""
        return _at(self._arrays, number)

    def tensor(self, number: Any) -> Any:
        """Return the tensor of this number."""
        return _at(self._tensors, number)

    def packed(self, data: Any) -> Packed:
        """Return the saved tensor that a checkpoint recomputes."""
        frame, number = data
        packed: Packed = _new(Packed)
        packed._kept, packed._unpack = _count(number), _at(self._frames, frame)._recall
        return packed

    def _edge(self, data: Any) -> Any:
        if data is None:
            return None
        if type(data) is list:
            (number,) = data
            return accumulator(self.tensor(number))
        return _at(self._nodes, data)

    def _make_functions(self) -> list[Any]:
        found: list[Any] = []
        for record in self._document["functions"]:
            if "installed" in record:
                found.append(self.session.functions.shared.find(record["installed"]))
                continue
            uses = {name: _at(found, number) for name, number in record["uses"].items()}
            definition = json_codec.loads(record["definition"].encode())
            found.append(FunctionProgram(definition, partial(_used, uses)))
        return found

    # Tensors and hooks --------------------------------------------------------------------

    def _fill_tensor(self, tensor: Any, array: Any, counter: Any, more: Mapping[str, Any] = NO_ATTRS) -> None:
        tensor._data, tensor._version_counter = self.array(array), _at(self._counters, counter)
        for key, data in more.items():
            name, read = _TENSOR[key]
            setattr(tensor, name, read(self, data))
        if tensor._requires_grad and tensor._data.dtype.kind in "biu":
            raise MalformedRequest("snapshot: a tensor of integers requires grad")
        if tensor._node is not None and tensor._output_nr >= tensor._node.width:
            raise MalformedRequest("snapshot: a tensor is an output that its node does not have")

    def _chain(self, data: Any) -> tuple[Any, ...]:
        steps = []
        for key, attrs, index in data:
            op = CATALOGUE.get(key)
            if not op.view and key not in ("unstrided", "reshape"):
                raise MalformedRequest(f"snapshot: {key!r:.40} makes no view")
            steps.append((op, decode(attrs, self), _count(index)))
        return tuple(steps)

    def _hooks(self, data: Any) -> TensorHooks:
        own, retain, stored, around = data
        hooks: TensorHooks = self._hook_list(own, TensorHooks())
        if retain:
            tensor = self.tensor(retain[0]) if retain[0] != -1 else _new(Tensor)
            hooks.retain = weakref.ref(tensor)
        if stored is not None:
            hooks.stored = self._hook_list(stored, Hooks())
        if around is not None:
            hooks.around = self._node_hooks(around)
        return hooks

    def _hook_list(self, data: Any, hooks: Any) -> Any:
        for key, client_id, kind in data:
            if kind not in KINDS:
                raise MalformedRequest("snapshot: a hook has an unknown kind")
            hooks[_count(key)] = ClientHook(check_id(client_id), kind)
            self.session.suspensions.hooks[client_id] = hooks
        return hooks

    def _node_hooks(self, data: Any) -> NodeHooks:
        outputs, before, after, packed = data
        hooks = NodeHooks({_count(output_nr): self._hooks(own) for output_nr, own in outputs})
        hooks.before = None if before is None else self._hook_list(before, Hooks())
        hooks.after = None if after is None else self._hook_list(after, Hooks())
        if packed:
            hooks.packed = True
        return hooks

    # Nodes --------------------------------------------------------------------------------

    def _make_nodes(self, records: Sequence[Any], order: Sequence[Any]) -> list[Any]:
        """Return the nodes, those of Functions without a ctx. Raises MalformedRequest if they have no order."""
        if sorted(order) != list(range(len(records))):
            raise MalformedRequest("snapshot: the nodes have no order")
        self._ages = {number: age for age, number in enumerate(order)}
        self._ends = Numbering([None])
        graph = [self._node_data(age, records[number]) for age, number in enumerate(order)]
        made = make_nodes(graph, self._ends, (), {})
        nodes = [made[self._ages[number]] for number in range(len(records))]
        for node in nodes:
            if node.output_nrs is not None:
                _check_output_nrs(node.output_nrs, node.next_edges)
        return nodes

    def _node_data(self, age: int, record: Sequence[Any]) -> NodeData:
        more = record[-1]
        edges = tuple([self._edge_number(age, edge) for edge in record[1]])
        fixed: dict[str, Any] = {"attrs": NO_ATTRS}
        if "specs" in more:
            fixed["specs"] = _specs(more["specs"])
            fixed["width"] = len(fixed["specs"])
        if "nrs" in more:
            fixed["output_nrs"] = sizes(more["nrs"])
        if more.get("hooks") is not None:
            fixed |= {"hooks": self._node_hooks(more["hooks"]), "plain": False}
        if record[0] is None:
            kind: Any = ClientNode if "client" in more else FunctionNode
            fixed["plan"] = plan_without_rules(len(edges))._replace(holds_tensors=more["holds"] is True)
            fixed["shape"], fixed["dtype"] = next((spec for spec in fixed["specs"] if spec is not None), ((), None))
        else:
            kind = MultiOutputNode if "specs" in more else Node
            op = CATALOGUE.get(record[0])
            plan = fixed["plan"] = op.plan(_needs(op, edges))
            fixed["op"], fixed["shape"], fixed["dtype"] = op, sizes(record[2]), dtype_of(record[3])
            if "attrs" in more:
                fixed["attrs"] = decode(more["attrs"], self)
            written = self._document.get("saves", {}).get(plan_name(op.key, record[1]))
            fixed["saved"], fixed["versions"] = self._saved_values(op, plan, written, record[4], record[5])
        return NodeData(kind, fixed, (), (), edges)

    def _edge_number(self, age: int, data: Any) -> int:
        """Return the edge of a node of this age."""
        if data is None:
            return NOWHERE
        if type(data) is list:
            return ~self._ends.of(self._edge(data))
        target = self._ages.get(data, age)
        if target >= age:
            raise MalformedRequest("snapshot: an edge leads to a newer node")
        return target

    def _saved_values(
        self, op: Any, plan: DerivativePlan, written: Any, saved: Any, versions: Any
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return the values that a node saved, and the versions of saved tensors, as this version's plan has them.

        ``written`` are the sources of the values; None in snapshots of 0.1 and of nodes that saved none. Raises
        NotSupported if another version's derivatives needed other values.
        """
        if saved is None:
            return FREED, ()
        if written is not None and saved:
            positions = _positions(op, plan, [Save(source, key) for source, key in written])
            saved = [_at(saved, position) for position in positions]
            versions = [(positions.index(at), *rest) for at, *rest in versions if at in positions]
        if len(saved) not in (0, len(plan.saves)):
            raise MalformedRequest(f"snapshot: {op.key} saves {len(plan.saves)} values, not {len(saved)}")
        values = tuple([decode(value, self) for value in saved])
        for save, value in zip(plan.saves, values, strict=False):
            if save.source == "shape":
                self._check_shape(value)
        return values, tuple(
            [(_below(at, saved), _at(self._counters, counter), version) for at, counter, version in versions]
        )

    def _check_shape(self, value: Any) -> None:
        """Check a saved shape, to which derivatives expand gradients."""
        total = 1
        for size in value if isinstance(value, tuple) else (None,):
            if isinstance(size, tuple):
                self._check_shape(size)
            elif type(size) is not int or size < 0:
                raise MalformedRequest("snapshot: a saved shape is no shape")
            else:
                total *= size
        if total > self.session.accounts.max_bytes:
            raise TooLarge("snapshot: a saved shape is larger than the session may be")

    def _fill_function_node(self, node: Any, record: Sequence[Any]) -> None:
        """Give the node of a Function its ctx."""
        _, _, saved, more = record
        ctx: FunctionCtx
        if "client" in more:
            node.client_id, name = check_id(more["client"][0]), more["client"][1]
            ctx = _Ctx(str(name), ())
        elif "function" in more:
            program = _at(self._functions, more["function"])
            ctx = program.Function._backward_cls(())
            ctx.call = CallContext(decode(more["call"], self), Budget())  # type: ignore[attr-defined]
        else:
            ctx = Error._backward_cls(())
        ctx._specs = tuple([None if spec is None else Spec(*spec) for spec in _specs(more["args"])])
        ctx._next_edges, ctx._output_nrs = tuple([self._edge(edge) for edge in more["targets"]]), sizes(more["nrs"])
        _check_output_nrs(ctx._output_nrs, ctx._next_edges)
        ctx.needs_input_grad = tuple([need is True for need in more["needs"]])
        ctx.materialize_grads = more["fill"] is True
        node.ctx, node.op, ctx._node = ctx, ctx._op, weakref.ref(node)
        ctx._saved = FREED if saved is None else tuple([self._saved(value) for value in saved])

    def _saved(self, data: Any) -> Any:
        if data is None:
            return None
        if type(data) is dict:
            frame, requires_grad, output_nr, place = data["packed"]
            return self._packed_saved(frame, requires_grad, _count(output_nr), self._edge(place))
        tensor, number, version = data
        return _saved_at(self.tensor(tensor), version, None if number is None else _count(number))

    def _packed_saved(self, frame: Any, requires_grad: Any, output_nr: int, place: Any) -> Saved:
        saved: Saved = _new(Saved)
        saved.packed, saved.kind, saved.requires_grad = self.packed(frame), Tensor, requires_grad is True
        saved.output_nr, saved.place = output_nr, place
        return saved

    # Checkpoints --------------------------------------------------------------------------

    def _fill_frame(self, frame: Any, record: Mapping[str, Any]) -> None:
        frame.function = _at(self._sections, record["section"]).run
        frame.args = [self._argument(data) for data in record["args"]]
        frame.kwargs, frame.around = {}, nullcontext()
        frame.random = _new(RandomState)
        generator = record["generator"]
        frame.random._generator = None if generator is None else _generator(generator)
        frame.random._autocast = None
        frame.compare, frame.early_stop = record["compare"] is True, record["early_stop"] is True
        frame.metadata = [
            {"shape": Size(sizes(shape)), "dtype": dtypes.parse(dtype), "device": str(device)}
            for shape, dtype, device in record["metadata"]
        ]
        frame.recomputed = {_count(number): self.tensor(tensor) for number, tensor in record["recomputed"]}

    def _argument(self, data: Any) -> Any:
        if type(data) is dict:
            return self._packed_saved(data["packed"], data["requires_grad"], 0, None)
        value = decode(data[0], self)
        return _saved_at(value, data[1], None) if isinstance(value, Tensor) else value

    def _fill_section(self, section: Section, record: Mapping[str, Any]) -> None:
        section._inputs = [self.tensor(number) for number in record["inputs"]]
        section._arguments = {str(name): _count(place) for name, place in record["arguments"]}
        section._outside = {str(name): self.tensor(number) for name, number in record["outside"]}
        section._made = set(map(str, record["made"]))
        section._steps = [self._instruction(step) for step in record["steps"]]
        section._last_uses = [set(map(str, names)) for names in record["last_uses"]]
        for at, data in record["saved"]:
            key, outputs, versions, hidden, allow = data
            saved: SavedResults = _new(SavedResults)
            saved._op, saved._outputs = CATALOGUE.get(key), [self.tensor(number) for number in outputs]
            saved._versions, saved._hidden = list(versions), decode(hidden, self)
            saved._allow_mutation = allow is True
            section._saved[_below(at, section._steps)] = saved

    def _instruction(self, data: Any) -> Instruction:
        op, inputs, outputs, attrs, grad_mode, checked = data
        values = decode(inputs, self)
        return Instruction(str(op), values, [str(x) for x in outputs], decode(attrs, self), grad_mode, checked is True)


def _used(uses: Mapping[str, Any], name: str) -> Any:
    if name not in uses:
        raise InvalidFunction(f"snapshot: the function {name!r:.60} is missing")
    return uses[name]


def _check_output_nrs(output_nrs: Sequence[int], targets: Sequence[Any]) -> None:
    for number, target in zip(output_nrs, targets, strict=True):
        if not 0 <= number < (1 if target is None else target.width):
            raise MalformedRequest("snapshot: an edge leads to an output that its node does not have")


def _needs(op: Any, edges: Sequence[int]) -> tuple[Any, ...]:
    """Return which inputs of a node require grad, as its plan is named by: those with an edge."""
    flags = [edge != NOWHERE for edge in edges]
    lists = sum(param.is_list for param in op.tensor_params)
    width = len(flags) - len(op.tensor_params) + lists
    if lists > 1 or width < 0 or (not lists and width):
        raise MalformedRequest(f"snapshot: {op.key} has another number of inputs")
    needs: list[Any] = []
    for param in op.tensor_params:
        taken = width if param.is_list else 1
        needs.append(tuple(flags[:taken]) if param.is_list else flags[0])
        flags = flags[taken:]
    return tuple(needs)


def _positions(op: Any, plan: DerivativePlan, written: Sequence[Save]) -> list[int]:
    """Return where each value that a plan saves was written."""
    missing = [save.source for save in plan.saves if save not in written]
    if missing:
        raise NotSupported(
            f"snapshot: the derivative of {op.key} needs its {missing[0]}, which the version of Telegrad that wrote "
            "the snapshot did not save; call backward there, or save the session without the graph"
        )
    return [written.index(save) for save in plan.saves]


def _specs(data: Any) -> list[tuple[tuple[int, ...], np.dtype[Any]] | None]:
    return [None if spec is None else (sizes(spec[0]), dtype_of(spec[1])) for spec in data]


def _generator(text: Any) -> np.random.Generator:
    return generator_from_bytes(np.frombuffer(bytes.fromhex(text), np.uint8))


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise MalformedRequest("snapshot: a number is not a whole number of at least 0")
    return value


def _saved_at(tensor: Tensor, version: int, output_nr: int | None) -> Saved:
    """Return the record of a tensor that was saved at this version."""
    saved: Saved = _new(Saved)
    saved.packed, saved.tensor, saved.version, saved.output_nr = None, tensor, version, output_nr
    return saved


def _below(value: Any, items: Sequence[Any]) -> int:
    if _count(value) >= len(items):
        raise MalformedRequest("snapshot: a number is out of range")
    return int(value)


def _at(items: Sequence[_T], number: Any) -> _T:
    if type(number) is not int or not 0 <= number < len(items):
        raise MalformedRequest("snapshot: an object has a number that does not exist")
    return items[number]


_TENSOR: dict[str, tuple[str, Callable[[Reader, Any], Any]]] = {
    "requires_grad": ("_requires_grad", lambda _, data: data is True),
    "output_nr": ("_output_nr", lambda _, data: _count(data)),
    "seen": ("_seen_version", lambda _, data: data if data == -1 else _count(data)),
    "shaped": ("_plain", lambda _, data: not data),
    "node": ("_node", Reader._edge),
    "grad": ("_grad", Reader.tensor),
    "base": ("_base", Reader.tensor),
    "layout": ("_layout", Reader.array),
    "memory": ("_memory_owner", lambda reader, data: _at(reader._counters, data)),
    "sealed": ("_sealed", lambda _, data: _at(SEALS, data)),
    "hooks": ("_hooks", Reader._hooks),
    "chain": ("_view_chain", Reader._chain),
    "inverse": ("_inverse_chain", Reader._chain),
}
