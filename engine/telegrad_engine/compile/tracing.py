"""Tracing: a program runs once on traced arrays, to record its calls and to find its effects on a session.

:func:`plan_program` makes a plan of both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..arrays.numpy_tracer import TapingBackend
from ..arrays.symbolic import Untraceable, has_traced, is_traced
from ..devices import Device
from ..dtypes import DType
from ..errors import TelegradError
from ..graph.data import NOWHERE, Constant, Container, NodeData, Numbering, Placeholder, folded, node_data, pattern_of
from ..graph.node import FREED, walk
from ..program.instructions import BOUNDS, Instruction, OperandRef, fill
from ..program.program import Program, Step
from ..program.registered_functions import Library, SessionLibrary
from ..program.result import describe
from ..program.template import slot_of, stand_in
from ..program.verbs import VERBS
from ..session.environment import Environment
from ..session.memory_accounting import Accounts
from ..session.session import Session
from .effects import ArraySource, Effects, Fetched, GraphPosition, Made, Save
from .graphs import LEAF, TAKEN, GraphData, rebuild
from .input_signature import Inputs, InputSignature, TensorSpec
from .plan import Plan, Planner


class Trace(Session):
    """A session in which one program runs, on traced arrays."""

    def __init__(
        self,
        program: Program,
        signature: InputSignature,
        device: Device,
        dtype: DType,
        arrays: Sequence[Any],
        operands: Sequence[float],
        numbers: Sequence[Any],
        generator: Any,
    ) -> None:
        """``numbers`` replace the ``operands`` in the program."""
        super().__init__()
        self._operands, self._numbers = operands, numbers
        self.environment = Environment(device, dtype, generator)
        self.accounts = TracedAccounts()
        self.functions = SessionLibrary(Library())
        self.functions.own.update(zip(program.functions, signature.functions, strict=True))
        self.functions.runs_python = False  # it may depend on more than its arguments
        self.program, self.arrays = program, arrays
        self.fetches: list[tuple[int, dict[str, Any], list[int], Any]] = []
        """For each fetched tensor its id, its description at that point, its version counter and its array."""
        self._device = device
        self._uploads = iter(arrays[len(signature.tensors) : len(signature.inputs)])
        self.specs: Sequence[TensorSpec] = signature.tensors
        self.taken = [self._taken(array, spec) for array, spec in zip(arrays, signature.tensors, strict=False)]
        for tensor, spec in zip(self.taken, signature.tensors, strict=True):
            tensor._grad = None if spec.grad is None else self.taken[spec.grad]
        for i, place in zip(program.taken, signature.places, strict=True):
            self.tensors[stand_in(i)] = self.taken[place]
        self.nodes: Sequence[Any] = ()
        self.places: Mapping[int, tuple[int, int]] = {}
        """For each tensor with a history the number of its node, and which of the node's outputs it is."""
        if signature.graph is not None:
            own = [*arrays[len(signature.inputs) :]], numbers[len(signature.operands) :]
            self.nodes = rebuild(signature.graph, self.taken, *own)
            self.places = {tensor: (node, output_nr) for tensor, node, output_nr in signature.graph.roots}

    def _taken(self, array: Any, spec: TensorSpec) -> Any:
        tensor: Any = self._device.Tensor(array)
        tensor._requires_grad = spec.requires_grad
        if not spec.contiguous:
            tensor._strides = np.empty(array.shape, array.dtype, order="F")
        return tensor

    def execute(self) -> None:
        """Run the program. Raises Untraceable, naming the instruction."""
        with self.environment.entered(self.accounts.max_bytes):
            for index, step in enumerate(self.program.steps):
                instruction = step.instruction
                try:
                    if step.refs:
                        self._execute(self._with_numbers(step))
                    elif step.data is not None:
                        self._upload(instruction)
                    elif instruction.op == "fetch":
                        self._note(instruction)
                    elif instruction.op == "free":
                        for name in instruction.inputs[0]:
                            self.tensors.pop(name, None)
                    else:
                        self._execute(instruction)
                except Exception as error:
                    known = isinstance(error, (Untraceable, TelegradError))
                    reason = str(error) if known else f"{type(error).__name__}: {error}".partition("\n")[0]
                    raise Untraceable(f"instruction {index}, {instruction.op}: {reason}") from error

    def _with_numbers(self, step: Step) -> Instruction:
        """Return the checked instruction, with traced numbers in place of its operands."""
        checked = step.with_operands(self._operands).instruction
        if not checked.checked and checked.op not in VERBS:
            raise Untraceable("an operand does not fit")
        inputs, attrs = fill(step.instruction.inputs, self._numbers), checked.attrs
        if step.fills_attrs:
            attrs = self._traced(step.instruction.attrs, attrs)
        return Instruction(checked.op, inputs, checked.outputs, attrs, checked.grad_mode, checked.checked)

    def _traced(self, template: Any, checked: Any) -> Any:
        """Return checked attributes with traced numbers where their template refers to operands."""
        if isinstance(template, OperandRef):
            if repr(checked) != repr(template.value(self._operands)):
                raise Untraceable("an operand stands where none may be")
            return template.value(self._numbers)
        if isinstance(template, dict):
            return {**checked, **{key: self._traced(item, checked[key]) for key, item in template.items()}}
        if isinstance(template, list) and isinstance(checked, (list, tuple)):
            return type(checked)([self._traced(a, b) for a, b in zip(template, checked, strict=True)])
        return checked

    def _upload(self, instruction: Any) -> None:
        tensor: Any = self._device.Tensor(next(self._uploads))
        if instruction.attrs.get("requires_grad"):
            tensor.requires_grad_()
        self._bind(instruction, [tensor])

    def _note(self, instruction: Any) -> None:
        """Record the description and the array of each fetched tensor."""
        wanted = instruction.attrs.get("values", True)
        for name in instruction.inputs[0]:
            tensor = self.tensors[name]
            array = tensor._data if wanted else None
            self.fetches.append((slot_of(name), describe(name, tensor), tensor._version_counter, array))


class TracedAccounts(Accounts):
    """Counts the memory of all results, including freed ones, without a limit."""

    def __init__(self) -> None:
        super().__init__(max_bytes=2**62)

    def count(self, array: Any, lent: bool = False) -> None:
        """Add the memory of a result."""
        self.used_bytes += math.prod(array.shape) * array.dtype.itemsize


# Effects --------------------------------------------------------------------------------------

VIEW_ATTRIBUTES = ("_view_chain", "_seen_version", "_sealed")


class EffectsReader:
    """Reads the effects of a trace, and collects the arrays that the plan must return."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.outputs: list[Any] = []
        self._sources = {id(array): ArraySource(False, i) for i, array in reversed([*enumerate(trace.arrays)])}
        self._tensors = Numbering(trace.taken)
        """All tensors that can be reached from a name."""
        self._memories = Numbering([tensor._memory for tensor in trace.taken])
        self._counters = Numbering([tensor._version_counter for tensor in trace.taken])
        self._nodes: dict[int, int] = {}
        """The numbers of the nodes that it leaves."""
        self._taken = {id(node): number for number, node in enumerate(trace.nodes)}
        self._ends: dict[tuple[str, int], int] = {}
        """The edges to the ends of its graph."""
        self._freed_before = [number for number, node in enumerate(trace.nodes) if node.saved is FREED]
        self._saves: list[Save] = []
        self._reachable: dict[tuple[int, int], Any] = {}
        """The memories of tensors that can be reached from a name, by version counter and array."""
        self.numbers: list[int] = []
        """The Python numbers that the tensors and nodes it leaves were made with, as numbers on the tape."""

    def effects(self) -> Effects:
        """Return the program's effects. Raises Untraceable for an effect that a run cannot repeat."""
        trace = self._trace
        ids = {name: slot_of(name) for name in trace.tensors}
        new = {i: trace.tensors[name] for name, i in ids.items() if i not in trace.program.taken}
        names = [(i, self._tensors.of(tensor)) for i, tensor in new.items()]
        grads = [self._number(tensor._grad) for tensor in trace.taken]
        for tensor in self._tensors:  # the list grows during the loop
            self._check(tensor)
            self._number(tensor._base)
            self._number(tensor._grad)
        self._check_views()
        graph = self._graph()
        count = len(trace.taken)
        made = [self._made(tensor) for tensor in self._tensors[count:]]
        placed = [(number, self._place(tensor)) for number, tensor in enumerate(self._tensors)]
        arrays = [self._source(memory.array) for memory in self._memories[count:]]
        fetched = [self._fetched(arrays, *fetch) for fetch in trace.fetches]
        before = [spec.grad for spec in trace.specs]
        return Effects(
            program=trace.program,
            arrays=arrays,
            writes=self._writes(),
            increases=[counter[0] for counter in self._counters],
            made=made,
            placed=[(number, place) for number, place in placed if number >= count or self._is_moved(number, place)],
            grads=[(number, grad) for number, grad in enumerate(grads) if grad != before[number]],
            names=names,
            graph=graph,
            saves=self._saves,
            freed_nodes=self._freed_nodes(),
            fetched=fetched,
            needs=trace.accounts.used_bytes,
        )

    def _number(self, tensor: Any) -> int | None:
        return None if tensor is None else self._tensors.of(tensor)

    def _check(self, tensor: Any) -> None:
        if tensor._hooks is not None:
            raise Untraceable("a tensor that it leaves has hooks")
        if tensor._inverse_chain:
            raise Untraceable("it changes the geometry of a tensor in place")

    def _check_views(self) -> None:
        """Raise Untraceable if a view that the program takes is not only read."""
        nodes, places = self._trace.nodes, self._trace.places
        for number, (tensor, spec) in enumerate(zip(self._trace.taken, self._trace.specs, strict=True)):
            before = nodes[places[number][0]] if number in places else None
            same = tensor._version_counter[0] == 0 and tensor._base is None and tensor._node is before
            shown = any(x is not tensor and x._version_counter is tensor._version_counter for x in self._tensors)
            flows = tensor._requires_grad and before is None
            if (spec.view or spec.shared) and (shown or not same or flows or tensor._grad is not None):
                raise Untraceable("a view that it takes is changed, or shown by another")

    # Arrays and versions -------------------------------------------------------------------

    def _source(self, array: Any) -> ArraySource:
        """Return the source of an array after a run. A computed array becomes an output."""
        source = self._sources.get(id(array))
        if source is None:
            source = self._sources[id(array)] = ArraySource(True, len(self.outputs))
            self.outputs.append(array)
        return source

    def _writes(self) -> list[tuple[int, ArraySource]]:
        """Return the taken arrays that are overwritten, each with the source of the new values."""
        taken, before = self._trace.taken, self._trace.arrays
        changed = [i for i, tensor in enumerate(taken) if tensor._memory.array is not before[i]]
        return [(i, self._source(taken[i]._memory.array)) for i in changed]

    def _fetched(
        self, made: list[ArraySource], i: int, description: dict[str, Any], counter: Any, array: Any
    ) -> Fetched:
        source = None if array is None else self._source(array)
        kept = None if source is None or source not in made else made.index(source)
        return Fetched(i, description, self._counters.of(counter), source, kept)

    # Tensors -------------------------------------------------------------------------------

    def _made(self, tensor: Any) -> Made:
        own = {name: getattr(tensor, name) for name in VIEW_ATTRIBUTES if name in vars(tensor)}
        return Made(
            array=self._memories.of(tensor._memory),
            view=self._pattern((tensor._path, own)),
            version_counter=self._counters.of(tensor._version_counter),
            base=self._number(tensor._base),
            grad=self._number(tensor._grad),
        )

    def _pattern(self, value: Any) -> Any:
        """Return the pattern of a value; parts without traced numbers keep their identity."""
        return pattern_of(value, lambda part: self._number_at(part) if has_traced(part) else Constant(type(part), part))

    def _number_at(self, value: Any) -> Placeholder | None:
        if not is_traced(value):
            return None
        self.numbers.append(value.number)
        return Placeholder("numbers", value.number)

    def _is_moved(self, number: int, place: GraphPosition) -> bool:
        """Return whether a taken tensor gets another place in the graph."""
        tensor, spec = self._trace.taken[number], self._trace.specs[number]
        if self._memories.of(tensor._memory) != number or self._counters.of(tensor._version_counter) != number:
            raise Untraceable("a tensor that it takes shows other memory afterwards")
        node, output_nr = self._trace.places.get(number, (None, 0))
        before = GraphPosition(spec.requires_grad, NOWHERE if node is None else self._end(TAKEN, node), output_nr)
        return place != before or tensor._base is not None

    def _place(self, tensor: Any) -> GraphPosition:
        return GraphPosition(tensor._requires_grad, self._edge(tensor._node), tensor._output_nr)

    # The graph -----------------------------------------------------------------------------

    def _graph(self) -> GraphData:
        """Return the graph behind the tensors that it leaves."""
        roots = [x._node for x in self._tensors if x._node is not None]
        if any(root.leaf is not None for root in roots):
            raise Untraceable("what it leaves stands in for another tensor")
        nodes = [*reversed([*walk(*roots, known=self._trace.nodes)])]
        self._nodes = {id(node): number for number, node in enumerate(nodes)}
        ends = [target for node in nodes for target in node.next_edges if target is not None]
        for leaf in [target.leaf for target in ends if target.leaf is not None]:
            self._check(leaf)
            self._tensors.of(leaf)
        self._reachable = {(id(x._version_counter), id(x._memory.array)): x._memory for x in self._tensors}
        keeps_arrays = any(_keeps_arrays(node) for node in nodes)
        data = [self._node(node) for node in nodes]
        return GraphData(data, self._ends, keeps_arrays)

    def _node(self, node: Any) -> NodeData:
        keeps_arrays = _keeps_arrays(node)
        if not node.plain or node.hooks is not None or node.evaluate is not None:
            raise Untraceable(f"it leaves a graph with hooks, on {node.name()}")
        if keeps_arrays:
            counters = {position: id(counter) for position, counter, _ in node.versions}
            values = [pattern_of(x, partial(self._saved, of=counters.get(at))) for at, x in enumerate(node.saved)]
            saved = Container(tuple, tuple(values))
        else:
            saved = self._pattern(node.saved)
        versions = tuple([(at, self._counters.of(counter), version) for at, counter, version in node.versions])
        edges = tuple([self._edge(target) for target in node.next_edges])
        return folded(node_data(node, self._pattern(node.attrs), saved, versions, edges))

    def _saved(self, value: Any, of: int | None) -> Placeholder | None:
        """Return the placeholder of a saved value; ``of`` is the id of its version counter."""
        if not hasattr(value, "shape"):
            return self._number_at(value)
        memory = self._reachable.get((of or 0, id(value)))
        if memory is not None:
            return Placeholder("memories", self._memories.of(memory))
        save = Save(self._source(value), self._shares_memory(value, of))
        if save not in self._saves:
            self._saves.append(save)
        return Placeholder("arrays", self._saves.index(save))

    def _shares_memory(self, array: Any, counter: int | None) -> bool:
        """Return whether an array shares memory with a reachable tensor that has this version counter."""
        roots = getattr(array, "roots", None)
        return roots is not None and any(
            roots == x._memory.array.roots for x in self._tensors if id(x._version_counter) == counter
        )

    def _freed_nodes(self) -> list[int]:
        """Return the numbers of the existing nodes that are freed."""
        nodes = self._trace.nodes
        if any(not node.plain or node.hooks is not None for node in nodes):
            raise Untraceable("it puts hooks on a graph from an earlier program")
        return [n for n, node in enumerate(nodes) if node.saved is FREED and n not in self._freed_before]

    def _edge(self, target: Any) -> int:
        if target is None:
            return NOWHERE
        if target.leaf is not None:
            return self._end(LEAF, self._tensors.of(target.leaf))
        number = self._nodes.get(id(target))
        return self._end(TAKEN, self._taken[id(target)]) if number is None else number

    def _end(self, where: str, number: int) -> int:
        return self._ends.setdefault((where, number), NOWHERE - 1 - len(self._ends))


def _keeps_arrays(node: Any) -> bool:
    """Return whether a node has saved arrays."""
    return any(hasattr(value, "shape") for value in _leaves(node.saved))


def _leaves(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _leaves(value)
        else:
            yield value


# Plans ----------------------------------------------------------------------------------------


def plan_program(program: Program, inputs: Inputs) -> Plan:
    """Run a program on these inputs, record it on a tape, and plan it. Raises Untraceable, with the reason."""
    signature, arrays, operands = inputs.signature, inputs.arrays, inputs.operands
    backend = TapingBackend()
    tape = backend.tape
    saved = () if signature.graph is None else signature.graph.arrays
    count = len(arrays) - len(saved)
    taped = [tape.input(array) for array in arrays[:count]]
    for array, (*_, owner) in zip(arrays[count:], saved, strict=True):
        taped.append(tape.input(array, () if owner is None else (taped[owner],)))
    own = len(signature.operands)
    numbers = [tape.operand(value, BOUNDS[type(value)]) for value in operands[:own]]
    numbers += [tape.operand(value) for value in operands[own:]]  # from the graph: these may be NaN
    dtype = inputs.session.environment.dtype
    trace = Trace(program, signature, Device(backend), dtype, taped, operands, numbers, tape.generator())
    trace.execute()
    reader = EffectsReader(trace)
    effects = reader.effects()
    sources = [*effects.arrays, *[save.source for save in effects.saves], *[f.source for f in effects.fetched]]
    used = Counter([*sources, *[source for _, source in effects.writes]])
    written = {source.position: target for target, source in effects.writes if source.is_output and used[source] == 1}
    planner = Planner(tape, len(arrays) + len(operands) + 1, reader.outputs, backend.guards, written, reader.numbers)
    return planner.plan(effects)
