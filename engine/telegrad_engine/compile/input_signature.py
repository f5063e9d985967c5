"""The inputs of a program in a session, and their signature: everything but values that an executable depends on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

from ..arrays.symbolic import Untraceable
from ..context import state
from ..dtypes import DType, parse
from ..program.program_cache import Bound
from ..session.session import Session
from ..tensor.conversion import as_array
from ..tensor.eager import Tensor
from ..tensor.inference import is_marked
from .analysis import Analysis
from .graphs import GraphReader, GraphSignature, InputGraph
from .memory_space import MemorySpace, memory_space_of


class TensorSpec(NamedTuple):
    """One array that an executable is called with."""

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
    """The signature for which an executable is made: it accepts all inputs with an equal signature."""

    tensors: tuple[TensorSpec, ...]
    uploads: tuple[TensorSpec, ...]
    places: tuple[int, ...]
    """For each id that the program takes, the number of its tensor."""
    functions: tuple[Any, ...] = ()
    """The registered functions that it applies, in the order of their names in the analysis."""
    device: str = "cpu"
    operands: tuple[Any, ...] = ()
    """The types of its operands, or their values as text if an executable is made for one value of each."""
    graph: GraphSignature | None = None
    """The graph behind the tensors, if any of them has a history."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """All arrays that the executable is called with, except those that a graph saved."""
        return self.tensors + self.uploads


class Inputs:
    """The inputs of a program in a session: tensors with their gradients and the graph behind them, and uploads."""

    def __init__(
        self,
        session: Session,
        program: Bound,
        space: MemorySpace,
        tensors: list[Tensor],
        uploads: list[tuple[Any, DType | None]],
        signature: InputSignature,
        graph: InputGraph | None = None,
    ) -> None:
        self.session, self.ids, self.space = session, program.ids, space
        self.tensors, self.signature, self._uploads, self._graph = tensors, signature, uploads, graph
        self.operands = program.operands if graph is None else [*program.operands, *graph.numbers]
        """The operands of the program, then the numbers in the graph behind the tensors."""
        self.nodes: Sequence[Any] = () if graph is None else graph.nodes

    @cached_property
    def arrays(self) -> list[Any]:
        """The arrays that the executable is called with. Uploads are in the memory of their message."""
        uploads = [as_array(array, dtype, copy=not array.flags.aligned) for array, dtype in self._uploads]
        saved = () if self._graph is None else self._graph.arrays
        return [*[tensor._data for tensor in self.tensors], *map(self.space.upload, uploads), *saved]


def find_inputs(session: Session, analysis: Analysis, program: Bound, by_value: bool) -> Inputs | None:
    """Return the program's inputs; None if an instruction will fail, which the interpreter reports best.

    With ``by_value`` the signature includes the values of operands, and tensors with a history are not allowed. Raises
    Untraceable for inputs that an executable cannot take.
    """
    _check_session(session)
    space = memory_space_of(session.environment.device)
    names, ids = session.tensors, program.ids
    if not program.distinct or not names.keys().isdisjoint(analysis.ids_made(ids)):
        return None
    uploads = [(program.arrays[name], dtype) for name, dtype in analysis.uploads]
    if not all(name in session.functions for name in analysis.functions):
        return None
    functions = tuple([session.functions.find(name) for name in analysis.functions])
    operands = tuple(map(repr if by_value else type, program.operands))
    latest: InputSignature | None = analysis.latest
    if latest is not None and (latest.functions, latest.device, latest.operands) == (functions, space.device, operands):
        tensors = _tensors_as_before(latest, [names.get(ids[i]) for i in analysis.taken], space)
        if tensors is not None and _uploads_as_before(latest, uploads):
            return Inputs(session, program, space, tensors, uploads, latest)
    collected = _Collector(space)
    for i in analysis.taken:
        tensor = names.get(ids[i])
        if tensor is None:
            return None
        collected.order.append(collected.place(tensor, ids[i]))
    input_graph = collected.read_graph()
    if input_graph is not None and by_value:
        raise Untraceable("a tensor that it takes has a history, from an earlier program")
    signature = InputSignature(
        collected.specs(),
        tuple([TensorSpec(array.shape, _dtype_of(array, dtype)) for array, dtype in uploads]),
        tuple(collected.order),
        functions,
        space.device,
        operands,
        None if input_graph is None else input_graph.signature,
    )
    if input_graph is None and not any(spec.shared for spec in signature.tensors):
        analysis.latest = signature
    return Inputs(session, program, space, collected.tensors, uploads, signature, input_graph)


def _check_session(session: Session) -> None:
    if session.profile is not None or state.observer is not None:
        raise Untraceable("somebody watches every instruction")
    if session.suspensions.expected:
        raise Untraceable("a pass may wait for the client")
    if "_execute" in vars(session):
        raise Untraceable("a checkpoint is open")


def _dtype_of(uploaded: Any, dtype: Any) -> Any:
    """Return the dtype of an upload in the session; its instruction may name one."""
    return uploaded.dtype if dtype is None else parse(dtype).numpy


# Inputs like those of the last run -----------------------------------------------------------


def _uploads_as_before(signature: InputSignature, uploads: Sequence[tuple[Any, Any]]) -> bool:
    found = [(array.shape, _dtype_of(array, dtype)) for array, dtype in uploads]
    return found == [spec[:2] for spec in signature.uploads]


def _tensors_as_before(signature: InputSignature, taken: Sequence[Any], space: MemorySpace) -> list[Tensor] | None:
    """Return the tensors that a program takes, and their gradients, if they have this signature; else None.

    The fast path for most runs; :class:`_Collector` handles every other case.
    """
    found: list[Tensor] = []
    expected = signature.tensors
    for tensor, place in zip(taken, signature.places, strict=True):
        if place < len(found):
            if found[place] is not tensor:
                return None
            continue
        at: int | None = place
        while at is not None and at == len(found):
            if not _has_spec(tensor, expected[at], space):
                return None
            found.append(tensor)
            at, tensor = expected[at].grad, tensor._grad
        if (tensor is None) != (at is None) or (at is not None and found[at] is not tensor):
            return None
    return found if len(found) == len(expected) and _are_apart(found, space) else None


def _has_spec(tensor: Any, spec: TensorSpec, space: MemorySpace) -> bool:
    if (
        type(tensor) is not space.Tensor
        or tensor._node is not None
        or (tensor._base is not None) is not spec.view
        or tensor._hooks is not None
    ):
        return False
    data = tensor._data
    flags = space.flags(tensor)
    return (
        data.shape == spec.shape
        and data.dtype == spec.dtype
        and tensor._requires_grad is spec.requires_grad
        and flags.c_contiguous == spec.contiguous
        and (flags.c_contiguous or flags.f_contiguous)
        and not (spec.view and tensor._seen_version != tensor._version_counter[0])
        and not is_marked(tensor)
        and tensor._sealed is None
    )


def _are_apart(tensors: Sequence[Tensor], space: MemorySpace) -> bool:
    """Return whether no two tensors share a version counter or memory."""
    count = len(tensors)
    return count < 2 or (
        len({id(tensor._version_counter) for tensor in tensors}) == count
        and len({*map(id, space.owners(tensors))}) == count
    )


# Inputs of any kind -------------------------------------------------------------------------


class _Collector:
    """Collects tensors, each once, and their specs."""

    def __init__(self, space: MemorySpace) -> None:
        self._space = space
        self.tensors: list[Tensor] = []
        self.order: list[int] = []
        """For each id that the program takes, the number of its tensor."""
        self._specs: list[Any] = []
        self._places: dict[int, int] = {}

    def read_graph(self) -> InputGraph | None:
        """Return the graph behind the tensors, or None if none has a history. Its leaves become inputs."""
        if all(tensor._node is None for tensor in self.tensors):
            return None
        place = partial(self.place, name="a leaf")
        return GraphReader(self.tensors, place, self._space.memory_owner).read()

    def place(self, tensor: Tensor, name: str) -> int:
        """Return the tensor's position among the inputs, to which it is added with its gradient if it is new."""
        place = self._places.get(id(tensor))
        if place is None:
            place = self._places[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
            self._specs.append(None)
            grad = tensor._grad
            at = None if grad is None else self.place(grad, f"the gradient of {name}")
            self._specs[place] = _spec(tensor, name, at, self._space)
        return place

    def specs(self) -> tuple[TensorSpec, ...]:
        """Return the specs of all tensors."""
        if _are_apart(self.tensors, self._space):
            return tuple(self._specs)
        counters = [id(tensor._version_counter) for tensor in self.tensors]
        owners = [*map(id, self._space.owners(self.tensors))]
        return tuple(
            [
                spec._replace(shared=counters.count(counter) > 1 or owners.count(owner) > 1)
                for spec, counter, owner in zip(self._specs, counters, owners, strict=True)
            ]
        )


def _spec(tensor: Any, name: str, grad: int | None, space: MemorySpace) -> TensorSpec:
    if type(tensor) is not space.Tensor:
        raise Untraceable(f"{name} is of a class of its own")
    view = tensor._base is not None
    flows = tensor._requires_grad and tensor._node is None
    if view and (tensor._seen_version != tensor._version_counter[0] or flows or space.device != "cpu"):
        raise Untraceable(f"{name} is a view")
    if tensor._hooks is not None:
        raise Untraceable(f"{name} has hooks")
    if is_marked(tensor) or tensor._sealed is not None:
        raise Untraceable(f"{name} may not be changed")
    data, flags = tensor._data, space.flags(tensor)
    if not flags.c_contiguous and not flags.f_contiguous:
        raise Untraceable(f"{name} has gaps in memory")
    return TensorSpec(data.shape, data.dtype, tensor._requires_grad, flags.c_contiguous, grad, view)
