"""A traced run of a compiled function: its guards, the instructions to record again, and its changes to handles.

The changes that a trace makes to its inputs are known from their state before and after it. A call records the
instructions again as one block (:mod:`..tape.step`), and makes the same changes to the handles of its own tensors.

In the shadow graph, a call has one node for each result, with edges to the call's inputs. The nodes in between are not
built again. The trace tells where gradients arrive, what is freed and which versions were saved; the session has the
real graph, and makes the final checks. A call's nodes are built if they are read.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from telegrad_engine.autograd.custom_function.ctx import FunctionOp
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.graph.data import NOWHERE, NodeData
from telegrad_engine.graph.node import FREED, Node
from telegrad_engine.schema.derivative_plan import DerivativePlan, DerivativeStep, Save
from telegrad_engine.shapes import Spec
from telegrad_engine.tensor.execution import is_inference_tensor, mark_as_inference

from ..pytree import tree_flatten, tree_unflatten
from ..tape.dispatch import raise_here
from ..tape.lazy_graph import Pattern, Unrepeatable, join, pattern_since
from ..tape.segment import Effect
from ..tensor.handle import Tensor, handle
from .guards import Guards, Settings
from .trace_recorder import Inputs, State, TraceRecorder, version_of

CONSTANTS = (int, bool, float, complex, str, bytes, type(None))


class Output(NamedTuple):
    """The properties of a result's handle."""

    data: Any
    requires_grad: bool
    shared: int | None
    """The place of the tensor whose version it shares; None for its own version."""
    version: int
    inference: bool


class CacheEntry:
    """A traced function that can be called again. Raises Unrepeatable if it cannot.

    A tensor's place is its index among the inputs, followed by the results: the tensors that the function returns, and
    the gradients that it makes.
    """

    def __init__(self, trace: TraceRecorder, guards: Guards, settings: list[tuple[int, Settings]], result: Any) -> None:
        """Describe a trace. ``settings`` are those of optimizer steps; ``result`` is what the traced run returned."""
        self.recorder, self.guards, self.calls = trace.recorder, guards, 0
        self._signature, self._settings = trace.signature, settings
        places, results = {**trace.inputs.places}, list[Tensor]()

        def place(tensor: Tensor) -> int:
            if id(tensor) not in places:
                places[id(tensor)] = len(trace.before) + len(results)
                results.append(tensor)
            return places[id(tensor)]

        self._rebuild = _rebuilding(result, place)
        self._find_changes(trace, place)
        self._find_effects(trace)
        self._describe(trace, results)
        self._make_block(trace, [made._id for made in results])
        _check_leaks(trace, results)

    @property
    def length(self) -> int:
        """The number of instructions that a call records."""
        return len(self._block)

    # What a trace did ------------------------------------------------------------------------

    def _find_changes(self, trace: TraceRecorder, place_of: Callable[[Tensor], int]) -> None:
        """Find the changes to the inputs, whose new gradients become results."""
        self._bumps: dict[int, int] = {}
        self._grads: list[tuple[int, bool, int | None]] = []
        for place, (tensor, before) in enumerate(zip(trace.inputs.tensors, trace.before, strict=True)):
            now = State.of(tensor)
            if now.history != before.history:
                raise Unrepeatable("it changes the history of a tensor from outside")
            same_spec = (now.data.shape, now.data.dtype) == (before.data.shape, before.data.dtype)
            if now.version_counter is not before.version_counter or not same_spec:
                raise Unrepeatable("it gives a tensor from outside other memory or another shape")
            if tensor._hooks is not None or tensor._grad_history is not None:
                raise Unrepeatable("a tensor from outside has a hook, or a gradient with a history")
            written = now.version - before.version
            if written and tensor._base is not None:
                raise Unrepeatable("it writes to a view from outside")
            if written and trace.inputs.counters[id(before.version_counter)] == place:
                self._bumps[place] = written
            if now.has_grad != before.has_grad or now.grad is not before.grad:
                self._grads.append((place, now.has_grad, None if now.grad is None else place_of(now.grad)))

    def _find_effects(self, trace: TraceRecorder) -> None:
        """Find the effects of the instructions on the inputs, to be undone if they never run."""
        counters, places = trace.inputs.counters, trace.inputs.places
        self._changes: dict[int, tuple[list[tuple[int, int]], list[tuple[int, bool, int | None]]]] = {}
        """By instruction: places of tensors, with their versions before it, counted from the call's start; and places
        of tensors that get gradients, whether each had one before, and the places of the gradients added to."""
        for index, effect in trace.segment.effects.items():
            versions = [
                (place, version - trace.before[place].version)
                for counter, version in effect.versions
                if (place := counters.get(id(counter))) is not None
            ]
            received = []
            for reference, had, counter in effect.received:
                tensor = reference()
                if id(tensor) in places:
                    received.append((places[id(tensor)], had, None if counter is None else counters.get(id(counter))))
                elif tensor is not None and tensor._id not in trace.made:
                    raise Unrepeatable("it gives a gradient to a tensor that it finds where the guards do not look")
            self._changes[index] = versions, received

    def _describe(self, trace: TraceRecorder, results: list[Tensor]) -> None:
        """Find the properties of the results' handles."""
        inputs = trace.inputs.tensors
        self._graph = CompiledGraph(trace.start, inputs, results)
        tensors, first = [*inputs, *results], dict[int, int]()
        for place, tensor in enumerate(tensors):
            first.setdefault(id(tensor._version_counter), place)
        self._outputs = []
        for place, result in enumerate(results, len(inputs)):
            if type(result) is not Tensor:
                raise Unrepeatable(f"it makes a {type(result).__name__}")
            if result._id not in trace.made:
                raise Unrepeatable("it gives back a tensor that it finds where the guards do not look")
            if result._base is not None and any(result._base is tensor for tensor in tensors):
                raise Unrepeatable("it gives back a view of an argument or of another result")
            if result._hooks is not None or result._has_grad:
                raise Unrepeatable("a result has a hook or a gradient")
            shared = first[id(result._version_counter)]
            at, marked = None if shared == place else shared, is_inference_tensor(result)
            self._outputs.append(Output(result._data, result._requires_grad, at, version_of(result), marked))

    # What is recorded again -------------------------------------------------------------------

    def _make_block(self, trace: TraceRecorder, results: Sequence[str]) -> None:
        """Make the block, and find which inputs it takes and which of the created tensors are results."""
        places = {tensor._id: place for place, tensor in reversed(list(enumerate(trace.inputs.tensors)))}
        self._block, ids = trace.segment.block, [*trace.segment.slots]
        unbound = {name for i, *_ in trace.segment.program() if i.op == "grad" for name in i.outputs}
        unbound -= trace.handles.keys()
        """Ids that were assigned to gradients that do not exist."""
        taken = [name for name in ids if name not in trace.made]
        if not places.keys() >= {*taken}:
            raise Unrepeatable("it uses a tensor that it finds where the guards do not look")
        self._takes = [None if name in trace.made else places[name] for name in ids]
        """For each id of the block, the place of the tensor from outside; None for one that it makes."""
        numbers = trace.segment.slots
        self._dropped = [numbers[name] for name in trace.made.difference(results, unbound)]
        """The ids of tensors that are not used after the call, as indices into those of the block."""
        self._results = [numbers[name] for name in results]

    # Calling ---------------------------------------------------------------------------------

    def numbers(self, inputs: Inputs) -> list[float] | None:
        """The optimizers' numbers for a call on these inputs; None if the trace is not valid for it."""
        if inputs.signature() != self._signature or self.guards.changed() is not None:
            return None
        found: list[float] = []
        for _, settings in self._settings:
            now = settings.now()
            if now is None:
                return None
            found += now
        return found

    def run(self, inputs: Inputs, numbers: Sequence[float]) -> Any:
        """Run one call: record its instructions, and make their changes to the handles."""
        recorder, tensors = self.recorder, inputs.tensors
        with recorder.lock:
            ids = tuple([recorder.new_id() if place is None else tensors[place]._id for place in self._takes])
            dropped = [ids[index] for index in self._dropped]
            block = self._block.with_attrs(self._attrs(numbers))
            recorder.emit_block(block, ids, dropped, self._effects(tensors))
            results = [
                handle(recorder, output.data, ids[index])
                for output, index in zip(self._outputs, self._results, strict=True)
            ]
            self.calls += 1
            tensors = [*tensors, *results]
            self._repeat(tensors, results)
            raise_here(recorder, self._block)
        return self._rebuild(tensors)

    def _attrs(self, numbers: Sequence[float]) -> Mapping[int, Mapping[str, Any]]:
        """The attributes of the optimizer steps, with these numbers among their settings."""
        found, given = {}, iter(numbers)
        for index, step in self._settings:
            attrs = self._block.steps[index].attrs
            found[index] = {**attrs, "settings": {**attrs["settings"], **{name: next(given) for name in step.numbers}}}
        return found

    def _effects(self, tensors: Sequence[Tensor]) -> Mapping[int, Effect]:
        """The effects of the instructions on these tensors, to be undone if they never run."""
        found: dict[int, Effect] = {}
        for index, (versions, received) in self._changes.items():
            counters = [(tensors[place]._version_counter, later) for place, later in versions]
            found[index] = Effect(
                [(counter, counter[0] + later) for counter, later in counters],
                received=[
                    (weakref.ref(tensors[place]), had, None if grad is None else tensors[grad]._version_counter)
                    for place, had, grad in received
                ],
            )
        return found

    def _repeat(self, tensors: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Make the changes to these handles that the trace made to its own. ``results`` are the last of them."""
        graph, segment = self._graph, self.recorder.segment
        for place, written in self._bumps.items():
            tensors[place]._version_counter[0] += written
        for result, output in zip(results, self._outputs, strict=True):
            if output.shared is not None:
                other = tensors[output.shared]
                result._version_counter = other._version_counter
                self.recorder.sharing.add(result, other)
            elif output.inference:
                mark_as_inference([result])
            else:
                result._version_counter[0] = output.version
            result._requires_grad = output.requires_grad
        if graph.made:
            taken = [tensors[place] for place in graph.taken]
            join(segment, graph.builder, taken, [results[index] for index in graph.made], segment.lazy)
        for place, has_grad, grad in self._grads:
            tensors[place]._has_grad, tensors[place]._grad = has_grad, None if grad is None else tensors[grad]


def _rebuilding(result: Any, place: Callable[[Tensor], int]) -> Callable[[Sequence[Tensor]], Any]:
    """Return the function that makes a result like this one from the tensors at the same places.

    Raises Unrepeatable for an object that only the function's own code can make.
    """
    leaves, structure = tree_flatten(result)
    parts: list[tuple[int | None, Any]] = []
    for leaf in leaves:
        kind = type(leaf)
        if not isinstance(leaf, Tensor) and kind not in CONSTANTS:
            raise Unrepeatable(f"it gives back a {kind.__name__}, which is not made of tensors")
        parts.append((place(leaf), None) if isinstance(leaf, Tensor) else (None, leaf))
    return lambda tensors: tree_unflatten([leaf if at is None else tensors[at] for at, leaf in parts], structure)


def _check_leaks(trace: TraceRecorder, results: list[Tensor]) -> None:
    """Raise Unrepeatable if a tensor that the function made is still alive and is not a result."""
    kept = {t._id for t in results} | {t._base._id for t in results if isinstance(t._base, Tensor)}
    left = [handle for name, handle in trace.handles.items() if name in trace.made and name not in kept]
    if any(handle() is not None for handle in left):
        gc.collect()  # frees tensors that only reference cycles keep
    if any(handle() is not None for handle in left):
        raise Unrepeatable("it keeps a tensor that it makes")


class CompiledOp(FunctionOp):
    """The op of a compiled node."""

    has_lists = False


OP: Any = CompiledOp("CompiledFunction")
NO_SECOND = "torch.compile with aot_autograd does not currently support double backward"
"""torch's error text. A second derivative depends on the nodes in between, which are not built."""


class CompiledNode(Node):
    """Stands for all nodes that led to a result of a compiled call."""

    def name(self) -> str:
        """The node's name in torch."""
        return "CompiledFunctionBackward"


class CompiledMultiOutputNode(CompiledNode):
    """A :class:`CompiledNode` for an operation with several results."""

    many = True


def _plan(edges: int, sources: tuple[int, ...], holds_tensors: bool) -> DerivativePlan:
    steps = (DerivativeStep(tuple(range(edges)), _refuse, (), True),) if edges else ()
    saves = tuple([Save("shape", source) for source in sources])  # what is saved is a shape, which nothing unpacks
    return DerivativePlan(saves, steps, holds_tensors, saves_self=False, direct=None)


def _refuse(*_: Any) -> Any:
    raise InvalidOperation(NO_SECOND)


class CompiledGraph:
    """The graph of a trace, condensed into a pattern of the results' nodes. Raises Unrepeatable if that is not all."""

    def __init__(self, start: int, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """``start`` is the sequence number of the first node of the trace."""
        leaves = [index for index, result in enumerate(results) if result._node is None]
        traced = pattern_since(start, [*inputs, *[results[index] for index in leaves]], results)
        if any("hooks" in node.fixed for node in traced.nodes):
            raise Unrepeatable("it keeps the gradient of something in between, or hooks into it")
        tops = sorted({root[0] for _, root in traced.results if root is not None})
        nodes = [_condensed(traced.nodes, top, tops, len(results)) for top in tops]
        counters = {counter for node in nodes for _, counter, _ in node.versions}
        ends = {edge for node in nodes for edge in node.edges if edge < NOWHERE}
        taken = sorted({-2 - edge for edge in ends} | {~counter for counter in counters if counter < 0})
        self.taken = [place if place < len(inputs) else len(inputs) + leaves[place - len(inputs)] for place in taken]
        """The places of the tensors that the pattern takes, among the inputs followed by the results."""
        self.made = [index for index, (_, root) in enumerate(traced.results) if root is not None or index in counters]
        """The indices of the results that are the pattern's outputs."""
        edges = {top: index for index, top in enumerate(tops)} | {-2 - place: -2 - i for i, place in enumerate(taken)}
        numbers = {made: i for i, made in enumerate(self.made)} | {~place: ~i for i, place in enumerate(taken)}
        self.builder = Pattern(
            [
                node._replace(
                    edges=tuple([edges[edge] for edge in node.edges]),
                    versions=tuple([(i, numbers[counter], version) for i, counter, version in node.versions]),
                )
                for node in nodes
            ],
            (),
            [(spec, root and (edges[root[0]], root[1])) for spec, root in map(traced.results.__getitem__, self.made)],
        )


def _condensed(nodes: Sequence[Any], top: int, tops: Sequence[int], results: int) -> NodeData:
    """The node of a result, which stands for all nodes that lead to it, up to those of ``results`` and to inputs."""
    due, reached = [top], {top}
    edges, saved = dict[tuple[int, int], None](), dict[tuple[int, int], Spec]()
    for number in due:
        node = nodes[number]
        for edge, output_nr in zip(node.edges, node.fixed.get("output_nrs") or (0,) * len(node.edges), strict=True):
            if edge < NOWHERE or edge in tops:
                edges[edge, output_nr] = None
            elif edge != NOWHERE and edge not in reached:
                reached.add(edge)
                due.append(edge)
        for position, counter, version in node.versions:
            if counter < results:
                data = node.fixed["saved"][position]
                data = data[0] if isinstance(data, list) else data
                saved[counter, version] = Spec(data.shape, data.dtype)
    inner, own = [nodes[number].fixed for number in due], nodes[top]
    freed, ends = any(node.get("saved") is FREED for node in inner), [edge for edge, _ in edges]
    # An edge to tensor i leads to end i + 1, and its counter is ~i.
    sources = tuple([ends.index(c - 1) if c < 0 and c - 1 in ends else len(ends) for c, _ in saved])
    fixed = {name: own.fixed[name] for name in ("shape", "dtype", "width", "specs") if name in own.fixed}
    fixed["op"], fixed["plan"] = OP, _plan(len(ends), sources, any(node["plan"].holds_tensors for node in inner))
    fixed["saved"] = FREED if freed else tuple(saved.values())
    if any(output_nr for _, output_nr in edges):
        fixed["output_nrs"] = tuple([output_nr for _, output_nr in edges])
    versions = () if freed else tuple([(i, counter, version) for i, (counter, version) in enumerate(saved)])
    return NodeData(CompiledMultiOutputNode if own.kind.many else CompiledNode, fixed, (), versions, tuple(ends))
