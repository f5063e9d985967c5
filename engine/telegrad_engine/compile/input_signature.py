"""The inputs of a program in a session, and their signature: everything but values that a plan depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from ..arrays.symbolic import Untraceable
from ..context import state
from ..dtypes import parse
from ..program.instructions import names_in
from ..program.program import BoundProgram, Program
from ..program.template import slot_of
from ..session.session import Session
from ..tensor.conversion import as_array
from ..tensor.eager import Tensor
from ..tensor.execution import is_inference_tensor, memory_owner
from ..tensor.in_place import ONE_OF_SEVERAL
from .graphs import MAX_NODES, MAX_UNVISITED, GraphSignature, InputGraph


class TensorSpec(NamedTuple):
    """One array that a plan is called with."""

    shape: tuple[int, ...]
    dtype: Any
    requires_grad: bool = False
    contiguous: bool = True
    grad: int | None = None
    """The number of the tensor that is its gradient."""
    view: bool = False
    """Whether it is a view of another tensor. Views may only be read."""
    shared: bool = False
    """Whether it shares memory with another input. Such tensors may only be read, too."""


class InputSignature(NamedTuple):
    """The signature for which a plan is made: it accepts all inputs with an equal signature."""

    tensor_specs: tuple[tuple[Any, ...], ...]
    """The specs of the tensors as plain tuples, which take less time to make in every run."""
    uploads: tuple[TensorSpec, ...]
    places: tuple[int, ...]
    """For each id that the program takes, the number of its tensor."""
    functions: tuple[Any, ...] = ()
    """The registered functions that it applies, in the order of their first use."""
    operands: tuple[type, ...] = ()
    """The types of its operands."""
    graph: GraphSignature | None = None
    """The graph behind the tensors, if any of them has a history."""

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """The specs of the tensors."""
        return tuple(map(TensorSpec._make, self.tensor_specs))

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """All arrays that the plan is called with, except those that a graph saved."""
        return self.tensors + self.uploads


class Inputs:
    """The inputs of a program in a session: tensors with their gradients and the graph behind them, and uploads.

    ``taken`` are the tensors that the program names. Raises Untraceable for inputs that a plan cannot take.
    """

    def __init__(
        self, session: Session, program: BoundProgram, taken: Sequence[Any], functions: tuple[Any, ...]
    ) -> None:
        self.session, self._program, self._taken = session, program, taken
        self.ids = program.ids
        places: dict[int, int] = {}
        order = tuple([places.setdefault(id(tensor), len(places)) for tensor in taken])
        self.tensors = [*taken] if len(places) == len(taken) else [*{id(tensor): tensor for tensor in taken}.values()]
        """The tensors and their gradients, each once, and the leaves of their graph."""
        self._places = places
        self._specs: list[tuple[Any, ...]] = []
        self._read()
        graph = None  # of the tensors, if any has a history; its leaves become inputs
        if any(tensor._node is not None for tensor in self.tensors):
            most = MAX_NODES if program.program.visits_graphs else MAX_UNVISITED
            graph = InputGraph(self.tensors, self._place, most)
        self._graph = graph
        self.operands = program.operands if graph is None else [*program.operands, *graph.numbers]
        """The operands of the program, then the numbers in the graph behind the tensors."""
        self.nodes: Sequence[Any] = () if graph is None else graph.nodes
        uploads = program.program.uploads
        self._uploads = [(program.arrays[name], dtype) for name, dtype in uploads]
        self.signature = InputSignature(
            self._tensor_specs(),
            tuple(
                [TensorSpec(x.shape, x.dtype if dtype is None else parse(dtype).numpy) for x, dtype in self._uploads]
            ),
            order,
            functions,
            tuple(map(type, program.operands)),
            None if graph is None else graph.signature,
        )

    @cached_property
    def arrays(self) -> list[Any]:
        """The arrays that the plan is called with. Uploads are in the memory of their message."""
        uploads = [as_array(array, dtype, copy=not array.flags.aligned) for array, dtype in self._uploads]
        saved = () if self._graph is None else self._graph.arrays
        return [*[tensor._data for tensor in self.tensors], *uploads, *saved]

    def unshare(self, written: Sequence[int]) -> None:
        """Copy memory that the session shares with a fork, before the tensors at these positions are written to."""
        if self.session.accounts.unshare([self.tensors[position] for position in written]):
            vars(self).pop("arrays", None)

    def _place(self, tensor: Any) -> int:
        """Return the tensor's position among the inputs, to which it is added if it is new."""
        place = self._places.get(id(tensor))
        if place is None:
            place = self._places[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
            self._read()
        return place

    def _read(self) -> None:
        """Read the specs of the last tensors, and add their gradients."""
        tensors, places, specs = self.tensors, self._places, self._specs
        for tensor in islice(tensors, len(specs), None):  # the list grows during the loop
            data, grad = tensor._data, tensor._grad
            flags = data.flags
            contiguous, is_view = flags.c_contiguous, tensor._base is not None
            if (
                is_view
                or type(tensor) is not Tensor
                or tensor._hooks is not None
                or tensor._sealed is not None
                or type(tensor._version_counter) is not list
                or not (contiguous or flags.f_contiguous)
            ):
                self._check(tensor)
            at = None if grad is None else places.setdefault(id(grad), len(tensors))
            if at == len(tensors):
                tensors.append(grad)
            specs.append((data.shape, data.dtype, tensor._requires_grad, contiguous, at, is_view, False))

    def _check(self, tensor: Any) -> None:
        """Raise Untraceable for a tensor that no plan can take."""
        name = self._name_of(tensor)
        if type(tensor) is not Tensor:
            raise Untraceable(f"{name} is of a class of its own")
        if tensor._base is not None:
            flows = tensor._requires_grad and tensor._node is None
            if tensor._seen_version != tensor._version_counter[0] or flows:
                raise Untraceable(f"{name} is a view")
        if tensor._hooks is not None:
            raise Untraceable(f"{name} has hooks")
        if is_inference_tensor(tensor) or tensor._sealed not in (
            None,
            ONE_OF_SEVERAL,
        ):  # _check_views refuses a change of a view
            raise Untraceable(f"{name} may not be changed")
        flags = tensor._data.flags
        if not flags.c_contiguous and not flags.f_contiguous:
            raise Untraceable(f"{name} has gaps in memory")

    def _name_of(self, tensor: Any) -> str:
        """Return a description of a tensor: its id, or that of the tensor that it is the gradient of."""
        for i, taken in zip(self._program.program.taken, self._taken, strict=True):
            if taken is tensor:
                return self.ids[i]
        return next((f"the gradient of {self._name_of(x)}" for x in self.tensors if x._grad is tensor), "a leaf")

    def _tensor_specs(self) -> tuple[tuple[Any, ...], ...]:
        """Return the specs of all tensors."""
        counters = [id(tensor._version_counter) for tensor in self.tensors]
        arrays = [tensor._data for tensor in self.tensors]
        owners = [id(array if array.base is None else memory_owner(array)) for array in arrays]
        if len({*counters}) == len({*owners}) == len(counters):
            return tuple(self._specs)
        return tuple(
            [
                (*spec[:-1], counters.count(counter) > 1 or owners.count(owner) > 1)
                for spec, counter, owner in zip(self._specs, counters, owners, strict=True)
            ]
        )


def find_inputs(session: Session, program: BoundProgram) -> Inputs | None:
    """Return the program's inputs; None if an instruction will fail, which the interpreter reports best.

    Raises Untraceable for inputs that a plan cannot take.
    """
    if program.program.refusal is not None:
        raise Untraceable(program.program.refusal)
    if session.environment.device is not None:
        raise Untraceable("the session is not on the CPU")
    if session.profile is not None or state.observer is not None:
        raise Untraceable("somebody watches every instruction")
    if session.checkpoints.open:
        raise Untraceable("a checkpoint is open")
    template, names, ids = program.program, session.tensors, program.ids
    try:
        taken = [names[ids[i]] for i in template.taken]
    except KeyError:
        return None
    if (
        not all(name in session.functions for name in template.functions)
        or len({*ids}) < len(ids)
        or not names.keys().isdisjoint([ids[i] for i in template.made])
    ):
        return None
    functions = tuple([session.functions.find(name) for name in template.functions])
    return Inputs(session, program, taken, functions)


WORDS = {
    "shape": "shape",
    "dtype": "dtype",
    "requires_grad": "requires_grad",
    "contiguous": "being in row-major order",
    "grad": "having a gradient",
    "view": "being a view",
    "shared": "sharing its memory",
}
"""The fields of a tensor's spec in words, in the order in which differences are named."""


def difference(program: Program, signature: InputSignature, known: Iterable[InputSignature]) -> str | None:
    """Return the first difference from the most similar known signature of a program; None if none is known."""
    found = [[*_differences(program, signature, other)] for other in known]
    nearest = min(found, key=len, default=None)
    return nearest[0] if nearest else None


def _differences(program: Program, signature: InputSignature, other: InputSignature) -> Iterator[str]:
    for place, (own, before) in enumerate(zip(signature.tensors, other.tensors, strict=False)):
        yield from _between(_name_of_tensor(program, signature, place), own, before)
    uploads = [f"what instruction {i} uploads" for i, step in enumerate(program.steps) if step.data is not None]
    for name, own, before in zip(uploads, signature.uploads, other.uploads, strict=True):
        yield from _between(name, own, before)
    for place, (kind, known) in enumerate(zip(signature.operands, other.operands, strict=True)):
        if kind is not known:
            yield f"number {place} is {kind.__name__}, and was {known.__name__}"
    if signature.places != other.places or len(signature.tensors) != len(other.tensors):
        yield "other tensors are the same, or have gradients"
    if signature.graph != other.graph:
        yield "the graph behind the tensors that it takes is another"
    if signature.functions != other.functions:
        yield "a registered function is another"


def _between(name: str, own: TensorSpec, before: TensorSpec) -> Iterator[str]:
    for field, word in WORDS.items():
        here, there = getattr(own, field), getattr(before, field)
        if field == "grad":
            here, there = here is not None, there is not None
        if here != there:
            yield f"the {word} of {name} is {here}, and was {there}"


def _name_of_tensor(program: Program, signature: InputSignature, place: int) -> str:
    """Return a description of a tensor by the first instruction that takes it."""
    wanted = {number for number, each in zip(program.taken, signature.places, strict=True) if each == place}
    for index, step in enumerate(program.steps):
        if any(slot_of(name) in wanted for name in names_in(step.instruction.inputs)):
            return f"a tensor that instruction {index}, {step.instruction.op}, takes"
    return "a gradient"
