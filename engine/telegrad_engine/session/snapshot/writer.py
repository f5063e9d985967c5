"""Walks the state of a session and describes it as JSON and arrays.

Objects are numbered in the order in which the walk finds them, first by name. So equal states have equal descriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from ...autograd.checkpoint import Frame
from ...autograd.client_evaluation import ClientHook, ClientNode
from ...autograd.custom_function.ctx import Saved
from ...autograd.custom_function.function import IN_FUNCTION, Error, FunctionNode
from ...context import generator_to_bytes
from ...errors import NotSupported
from ...graph.data import Numbering
from ...graph.hooks import NodeHooks, TensorHooks
from ...graph.node import FREED
from ...program import json_codec
from ...program.checkpoint_sections import SavedResults, Section
from ...program.instructions import Instruction
from ...program.registered_functions import FunctionProgram
from ...tensor.eager import Tensor
from ...tensor.execution import InferenceVersion
from ...tensor.in_place import IN_INFERENCE, IN_NO_GRAD, ONE_OF_SEVERAL
from ...transforms.saved_tensor_hooks import Packed
from ..session import Session
from .blocks import Arrays
from .values import dtype_name, encode

VERSION = 1
"""The version of the format."""
SEALS = (IN_NO_GRAD, IN_INFERENCE, ONE_OF_SEVERAL, IN_FUNCTION)
"""The reasons why a view may not be modified, which are compared by identity."""
INFERENCE = -1
"""What is written in place of the version of an inference tensor."""
NODE = {"op", "plan", "attrs", "next_edges", "shape", "dtype", "sequence", "saved", "versions", "output_nrs", "width"}
NODE |= {"specs", "hooks", "plain", "many", "_graph", "_edges"}
CTX = {"_specs", "_next_edges", "_output_nrs", "needs_input_grad", "_saved", "_node", "_op", "call"}
CTX |= {"materialize_grads"}

NO_SNAPSHOT = "cannot be saved or forked with its session; free the tensors that depend on it first"


def plan_name(op: str, edges: Sequence[Any]) -> str:
    """Return a name of the plan of an op's derivatives for the inputs that have an edge."""
    return " ".join([op, *["-" if edge is None else "+" for edge in edges]])


def refused(what: str) -> NotSupported:
    """Return the error for an object that has no snapshot."""
    return NotSupported(f"{what} {NO_SNAPSHOT}")


class Writer:
    """The walk over one session."""

    def __init__(self, session: Session) -> None:
        self.arrays = Arrays()
        self.array: Callable[[Any], int] = self.arrays.number
        self.tensors, self.nodes = Numbering(), Numbering()
        self._counters, self._functions = Numbering(), Numbering()
        self._frames, self._sections = Numbering(), Numbering()
        self.tensor, self._counter = self.tensors.of, self._counters.of
        self._retained: list[tuple[list[Any], Any]] = []
        self._saves: dict[str, Any] = {}
        """What the nodes of each plan save, in order: a later version's derivatives may need other values."""
        self._records: dict[str, list[Any]] = {"tensors": [], "nodes": [], "frames": [], "sections": []}
        self._roots = self._describe_session(session)
        self._walk()

    # The document -------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """Return the description of the session as JSON data, without the contents of the arrays."""
        for record, tensor in self._retained:
            record[0] = self.tensors.by_id.get(id(tensor), -1)
        nodes = self.nodes
        return {
            **self._roots,
            **self._records,
            "saves": self._saves,
            "functions": self._function_records(),
            "counters": [INFERENCE if type(c) is InferenceVersion else c[0] for c in self._counters],
            "order": sorted(range(len(nodes)), key=lambda number: nodes[number].sequence),
            "arrays": [
                [spec.block, spec.offset, spec.shape, spec.strides, dtype_name(spec.dtype), spec.frozen]
                for spec in self.arrays.specs
            ],
            "blocks": [block.nbytes for block in self.arrays.blocks],
        }

    def _describe_session(self, session: Session) -> dict[str, Any]:
        sections = session.checkpoints
        return {
            "format": VERSION,
            "device": session.device,
            "dtype": session.environment.dtype.name,
            "generator": generator_to_bytes(session.environment.generator).tobytes().hex(),
            "programs": session.programs,
            "instructions": session.instructions,
            "last_id": session._last_id,
            "calls": session.suspensions.calls,
            "names": [[name, self.tensor(tensor)] for name, tensor in session.tensors.items()],
            "own_functions": [[name, self.function(f)] for name, f in session.functions.own.items()],
            "procedures": [
                [name, json_codec.dumps(procedure.definition).decode()]
                for name, procedure in session.procedures.items()
            ],
            "open": [
                [name, self._sections.of(section), self._frames.of(frame)] for name, section, frame in sections.open
            ],
            "packed": [[number, encode(value, self)] for number, value in sections.packed.items()],
        }

    def _walk(self) -> None:
        found: tuple[tuple[list[Any], list[Any], Callable[[Any], Any]], ...] = (
            (self.tensors, self._records["tensors"], self._describe_tensor),
            (self.nodes, self._records["nodes"], self._describe_node),
            (self._frames, self._records["frames"], self._describe_frame),
            (self._sections, self._records["sections"], self._describe_section),
        )
        while any(len(records) < len(objects) for objects, records, _ in found):
            for objects, records, describe in found:
                while len(records) < len(objects):
                    records.append(describe(objects[len(records)]))

    # Numbers of objects -------------------------------------------------------------------

    def edge(self, target: Any) -> Any:
        """Return the number of a node, the number of a leaf in a list, or None."""
        if target is None:
            return None
        if target.leaf is not None:
            return [self.tensor(target.leaf)]
        return self.nodes.of(target)

    def function(self, function: Any) -> int:
        """Return the number of a registered function; those that it applies come before it."""
        if isinstance(function, FunctionProgram) and id(function) not in self._functions.by_id:
            for other in function.uses.values():
                self.function(other)
        return self._functions.of(function)

    def packed(self, value: Packed) -> list[Any]:
        """Return the checkpoint that recomputes a saved tensor, and the tensor's number there."""
        frame = getattr(value._unpack, "__self__", None)
        if type(frame) is not Frame or type(value.kept) is not int:
            raise refused("a saved tensor that a Python hook packed")
        return [self._frames.of(frame), value.kept]

    def _function_records(self) -> list[Any]:
        records: list[Any] = []
        for function in self._functions:
            if isinstance(function, FunctionProgram):
                uses = {name: self.function(other) for name, other in function.uses.items()}
                records.append({"definition": json_codec.dumps(function.definition).decode(), "uses": uses})
            else:
                records.append({"installed": function.name})
        return records

    # Tensors and hooks --------------------------------------------------------------------

    def _describe_tensor(self, tensor: Any) -> list[Any]:
        if type(tensor) is not Tensor:
            raise refused("a tensor of a class of its own")
        own = vars(tensor)
        record: list[Any] = [self.array(tensor._data), self._counter(tensor._version_counter)]
        if len(own) == 2:
            return record
        _check_attributes("a tensor", own, TENSOR)
        more: dict[str, Any] = {}
        for name, (key, write) in _TENSOR.items():  # in this order, whatever the order of its attributes
            if name in own:
                value, default = own[name], getattr(Tensor, name)
                if value is not default and not (type(value) is type(default) and value == default):
                    more[key] = write(self, value)
        return [*record, more] if more else record

    def _hooks(self, hooks: TensorHooks | None) -> Any:
        if hooks is None:
            return None
        retain: list[Any] = []
        if hooks.retain is not None:
            retain.append(-1)
            self._retained.append((retain, hooks.retain()))
        return [self._hook_list(hooks), retain, self._hook_list(hooks.stored), self._node_hooks(hooks.around)]

    def _hook_list(self, hooks: Any) -> Any:
        if hooks is None:
            return None
        found = []
        for key, hook in hooks.items():
            if type(hook) is not ClientHook:
                raise refused("a hook in Python")
            found.append([key, hook.client_id, hook.kind])
        return found

    def _node_hooks(self, hooks: NodeHooks | None) -> Any:
        if hooks is None:
            return None
        outputs = [[output_nr, self._hooks(own)] for output_nr, own in hooks.items()]
        return [outputs, self._hook_list(hooks.before), self._hook_list(hooks.after), hooks.packed]

    def _chain(self, chain: Sequence[Any]) -> list[Any]:
        return [[op.key, encode(dict(attrs), self), index] for op, attrs, index in chain]

    # Nodes --------------------------------------------------------------------------------

    def _describe_node(self, node: Any) -> Any:
        if isinstance(node, FunctionNode):
            return self._describe_function_node(node)
        _check_attributes("a node", vars(node), NODE)
        edges = [self.edge(target) for target in node.next_edges]
        saved = None if node.saved is FREED else [encode(value, self) for value in node.saved]
        if saved:
            self._saves.setdefault(plan_name(node.op.key, edges), [[*save] for save in node.plan.saves])
        versions = [(at, self._counter(cell), version) for at, cell, version in node.versions]
        more: dict[str, Any] = {}
        if node.attrs:
            more["attrs"] = encode(node.attrs, self)
        if node.output_nrs is not None and any(node.output_nrs):
            more["nrs"] = list(node.output_nrs)
        if node.hooks is not None:
            more["hooks"] = self._node_hooks(node.hooks)
        if node.many:
            more["specs"] = _specs(node.specs)
        return [node.op.key, edges, list(node.shape), dtype_name(node.dtype), saved, versions, more]

    def _describe_function_node(self, node: FunctionNode) -> Any:
        ctx = node.ctx
        cls = getattr(ctx, "_forward_cls", None)
        program = getattr(cls, "program", None)
        more: dict[str, Any] = {}
        if isinstance(node, ClientNode):
            more["client"] = [node.client_id, ctx._op.key]
        elif isinstance(program, FunctionProgram):
            more["function"] = self.function(program)
            more["call"] = encode(dict(vars(ctx)["call"].parameters), self)
        elif cls is not Error:
            raise refused(f"the graph of {getattr(cls, '__name__', 'a Function')}, which is Python,")
        _check_attributes("a Function's ctx", vars(ctx), CTX)
        more["args"] = _specs([spec and (spec.shape, spec.dtype) for spec in ctx._specs])
        more["needs"] = list(ctx.needs_input_grad)
        more["targets"] = [self.edge(target) for target in ctx._next_edges]
        more["nrs"] = list(ctx._output_nrs)
        more["fill"] = ctx.materialize_grads
        more["holds"] = node.plan.holds_tensors
        more["specs"] = _specs(node.specs)
        more["hooks"] = self._node_hooks(node.hooks)
        saved = None if ctx._saved is FREED else [self._saved(value) for value in ctx._saved]
        return [None, [self.edge(target) for target in node.next_edges], saved, more]

    def _saved(self, saved: Any) -> Any:
        if saved is None:
            return None
        if saved.packed is None:
            return [self.tensor(saved.tensor), saved.output_nr, saved.version]
        return {"packed": [self.packed(saved.packed), saved.requires_grad, saved.output_nr, self.edge(saved.place)]}

    # Checkpoints --------------------------------------------------------------------------

    def _describe_frame(self, frame: Frame) -> Any:
        section = getattr(frame.function, "__self__", None)
        if type(section) is not Section or frame.kwargs or type(frame.around) is not nullcontext:
            raise refused("a checkpoint of a Python function")
        random = frame.random
        if random._autocast is not None:
            raise refused("a checkpoint under autocast")
        generator = random._generator
        return {
            "section": self._sections.of(section),
            "args": [self._argument(value) for value in frame.args],
            "generator": None if generator is None else generator_to_bytes(generator).tobytes().hex(),
            "compare": frame.compare,
            "early_stop": frame.early_stop,
            "metadata": [[list(each["shape"]), each["dtype"].name, each["device"]] for each in frame.metadata],
            "recomputed": [[number, self.tensor(tensor)] for number, tensor in frame.recomputed.items()],
        }

    def _argument(self, value: Any) -> Any:
        if type(value) is not Saved:
            return [encode(value, self), 0]
        if value.packed is not None:
            return {"packed": self.packed(value.packed), "requires_grad": value.requires_grad}
        return [encode(value.tensor, self), value.version]

    def _describe_section(self, section: Section) -> Any:
        return {
            "selective": section.selective,
            "inputs": [self.tensor(tensor) for tensor in section._inputs],
            "arguments": list(section._arguments.items()),
            "outside": [[name, self.tensor(tensor)] for name, tensor in section._outside.items()],
            "made": sorted(section._made),
            "steps": [self._instruction(step) for step in section._steps],
            "last_uses": [sorted(names) for names in section._last_uses],
            "saved": [[at, self._saved_results(saved)] for at, saved in section._saved.items()],
        }

    def _instruction(self, step: Instruction) -> Any:
        inputs, attrs = encode(list(step.inputs), self), encode(dict(step.attrs), self)
        return [step.op, inputs, list(step.outputs), attrs, step.grad_mode, step.checked]

    def _saved_results(self, saved: SavedResults) -> Any:
        outputs, hidden = [self.tensor(tensor) for tensor in saved._outputs], encode(saved._hidden, self)
        return [saved._op.key, outputs, saved._versions, hidden, saved._allow_mutation]


def _check_attributes(what: str, own: Mapping[str, Any], known: set[str]) -> None:
    if unknown := own.keys() - known:
        raise refused(f"{what} with the attribute {min(unknown)}")


def _specs(specs: Iterable[Any]) -> list[Any]:
    return [None if spec is None else [list(spec[0]), dtype_name(spec[1])] for spec in specs]


def _as_it_is(_: Writer, value: Any) -> Any:
    return value


_TENSOR: dict[str, tuple[str, Callable[[Writer, Any], Any]]] = {
    "_requires_grad": ("requires_grad", _as_it_is),
    "_output_nr": ("output_nr", _as_it_is),
    "_seen_version": ("seen", _as_it_is),
    "_plain": ("shaped", lambda _, plain: not plain),
    "_node": ("node", Writer.edge),
    "_grad": ("grad", lambda writer, tensor: writer.tensor(tensor)),
    "_base": ("base", lambda writer, tensor: writer.tensor(tensor)),
    "_layout": ("layout", lambda writer, array: writer.array(array)),
    "_memory_owner": ("memory", lambda writer, counter: writer._counter(counter)),
    "_sealed": ("sealed", lambda _, reason: SEALS.index(reason)),
    "_hooks": ("hooks", Writer._hooks),
    "_view_chain": ("chain", Writer._chain),
    "_inverse_chain": ("inverse", Writer._chain),
}
"""For each attribute that not every tensor has, its key in the record, and a function that writes it."""
TENSOR = {"_data", "_version_counter", "_accumulator", "_spec", *_TENSOR}
