"""What a program finds in a session, as far as what is compiled depends on it: the kinds of its tensors, not values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ... import graph
from ...backends.symbolic import Untraceable
from ...convert import as_array
from ...dtypes import DType, parse
from ...inference import is_marked
from ...session import Session
from ...tensor import Tensor
from ..remembered import Bound
from .analysis import Analysis
from .graphs import GraphSignature, InputGraph, read
from .memory_space import MemorySpace, memory_space_of


class TensorSpec(NamedTuple):
    """The kind of one array that an executable is called with."""

    shape: tuple[int, ...]
    dtype: Any
    requires_grad: bool = False
    contiguous: bool = True
    grad: int | None = None
    """Which of the tensors is this one's gradient."""
    view: bool = False
    """Whether it shows a part of another tensor's memory, and so may only be read."""
    shared: bool = False
    """Whether another tensor that the program takes shows some of the same memory; then, too."""


class InputSignature(NamedTuple):
    """What a program finds, as far as an executable depends on it; equal where the same one will do."""

    tensors: tuple[TensorSpec, ...]
    uploads: tuple[TensorSpec, ...]
    places: tuple[int, ...]
    """For each id that the program takes which of the tensors it is."""
    functions: tuple[Any, ...] = ()
    """The registered functions that it applies, in the order of their names in the analysis."""
    device: str = "cpu"
    operands: tuple[Any, ...] = ()
    """The types of its operands, or, where an executable is for one value each, what these print as."""
    graph: GraphSignature | None = None
    """What is behind the tensors, if any of them has a history."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """All that the executable is called with."""
        return self.tensors + self.uploads


class Inputs:
    """A session's tensors that a program takes, their gradients and what is behind them, and what it uploads."""

    def __init__(
        self,
        tensors: list[Tensor],
        uploads: list[tuple[Any, DType | None]],
        operands: Sequence[float],
        kinds: InputSignature,
        space: MemorySpace,
        behind: InputGraph | None = None,
    ) -> None:
        self.tensors, self.kinds, self.space, self.behind = tensors, kinds, space, behind
        self.operands = operands if behind is None else [*operands, *behind.numbers]
        """The program's, and then the numbers in the graph behind the tensors."""
        self.nodes: Sequence[Any] = () if behind is None else behind.nodes
        self._uploads = uploads

    @cached_property
    def arrays(self) -> list[Any]:
        """What the executable is called with; uploads where they are in their message."""
        uploads = [as_array(array, dtype, copy=not array.flags.aligned) for array, dtype in self._uploads]
        saved = () if self.behind is None else self.behind.arrays
        return [*[tensor._data for tensor in self.tensors], *map(self.space.upload, uploads), *saved]


def look(session: Session, analysis: Analysis, program: Bound, by_value: bool) -> Inputs | None:
    """What the program finds; None where an instruction will fail, which eager execution says best.

    ``by_value`` tells operands of other values apart, and not only those of other types, and takes no histories.

    Raises Untraceable for what cannot be an input of an executable.
    """
    _check_session(session)
    space = memory_space_of(session.environment.device)
    names, ids = session.tensors, program.ids
    if not program.distinct or not names.keys().isdisjoint(analysis.ids_made(ids)):
        return None
    uploads = [(program.arrays[upload.array], upload.attrs.get("dtype")) for upload in analysis.uploads]
    if not all(name in session.functions for name in analysis.functions):
        return None
    functions = tuple([session.functions.find(name) for name in analysis.functions])
    operands = tuple(map(repr if by_value else type, program.operands))
    latest: InputSignature | None = analysis.latest
    here = (functions, space.device, operands)
    if latest is not None and (latest.functions, latest.device, latest.operands) == here:
        tensors = _as_before(latest, [names.get(ids[i]) for i in analysis.taken], space)
        if tensors is not None and _uploads_as_before(latest, uploads):
            return Inputs(tensors, uploads, program.operands, latest, space)
    found = _gathered(names, ids, analysis, space)
    if found is None:
        return None
    behind = found.behind
    if behind is not None and by_value:
        raise Untraceable("a tensor that it takes has a history, from an earlier program")
    graph = None if behind is None else behind.kind
    kinds = tuple([TensorSpec(array.shape, _dtype_of(array, dtype)) for array, dtype in uploads])
    own = InputSignature(tuple(found.kinds), kinds, tuple(found.order), functions, space.device, operands, graph)
    if graph is None and not any(kind.shared for kind in own.tensors):
        analysis.latest = own
    return Inputs(found.tensors, uploads, program.operands, own, space, behind)


def _dtype_of(uploaded: Any, dtype: Any) -> Any:
    """The dtype of an upload in the session, for which its instruction may have a word."""
    return uploaded.dtype if dtype is None else parse(dtype).numpy


def _uploads_as_before(kinds: InputSignature, uploads: Sequence[tuple[Any, Any]]) -> bool:
    """Whether these uploads are of the kinds that were found before."""
    for (array, dtype), kind in zip(uploads, kinds.uploads, strict=True):
        if array.shape != kind.shape or _dtype_of(array, dtype) != kind.dtype:
            return False
    return True


def _gathered(
    names: Mapping[str, Tensor], ids: Sequence[str], analysis: Analysis, space: MemorySpace
) -> _Gathered | None:
    """The tensors that a program takes and what is behind them, None if one is not there."""
    gathered = _Gathered(space)
    for i in analysis.taken:
        tensor = names.get(ids[i])
        if tensor is None:
            return None
        gathered.order.append(gathered.place(tensor, ids[i]))
    gathered.look_behind()
    for place, shared in enumerate(_shared(gathered.tensors, space)):
        if shared:
            gathered.kinds[place] = gathered.kinds[place]._replace(shared=True)
    return gathered


def _as_before(kinds: InputSignature, taken: Sequence[Any], space: MemorySpace) -> list[Tensor] | None:
    """The tensors that a program takes, and their gradients, if they are what it found before; else None.

    A quick answer for what is most likely; what else there may be, :class:`_Gathered` finds out.
    """
    found: list[Tensor] = []
    expected = kinds.tensors
    for tensor, place in zip(taken, kinds.places, strict=True):
        if place < len(found):
            if found[place] is not tensor:
                return None
            continue
        at: int | None = place
        while at is not None and at == len(found):
            if not _is(tensor, expected[at], space):
                return None
            found.append(tensor)
            at, tensor = expected[at].grad, tensor._grad
        if (tensor is None) != (at is None) or (at is not None and found[at] is not tensor):
            return None
    return found if len(found) == len(expected) and _are_apart(found, space) else None


def _are_apart(tensors: Sequence[Tensor], space: MemorySpace) -> bool:
    """Whether no two tensors have one version or memory in common."""
    count = len(tensors)
    return count < 2 or (
        len({id(tensor._cell) for tensor in tensors}) == count and len({*map(id, space.owners(tensors))}) == count
    )


def _shared(tensors: Sequence[Tensor], space: MemorySpace) -> list[bool]:
    """For each tensor whether another one has its version or its memory."""
    if _are_apart(tensors, space):
        return [False] * len(tensors)
    cells, owners = [id(tensor._cell) for tensor in tensors], [*map(id, space.owners(tensors))]
    return [cells.count(cell) > 1 or owners.count(owner) > 1 for cell, owner in zip(cells, owners, strict=True)]


def _is(tensor: Any, kind: TensorSpec, space: MemorySpace) -> bool:
    """Whether this can be taken for a tensor of the kind."""
    if (
        type(tensor) is not space.Tensor
        or tensor._node is not None
        or (tensor._base is not None) is not kind.view
        or tensor._hooks is not None
    ):
        return False
    data = tensor._data
    flags = space.flags(tensor)
    return (
        data.shape == kind.shape
        and data.dtype == kind.dtype
        and tensor._requires_grad is kind.requires_grad
        and flags.c_contiguous == kind.contiguous
        and (flags.c_contiguous or flags.f_contiguous)
        and not (kind.view and tensor._seen != tensor._cell[0])
        and not is_marked(tensor)
        and tensor._sealed is None
    )


class _Gathered:
    """Tensors, each once, and their kinds."""

    def __init__(self, space: MemorySpace) -> None:
        self._space = space
        self.tensors: list[Tensor] = []
        self.kinds: list[Any] = []
        self.order: list[int] = []
        """For each id that the program takes which of the tensors it is."""
        self._places: dict[int, int] = {}
        self.behind: InputGraph | None = None

    def look_behind(self) -> None:
        """Read the graph behind the tensors, if any of them has a history; its leaves join them."""
        if any(tensor._node is not None for tensor in self.tensors):
            self.behind = read(self.tensors, lambda leaf: self.place(leaf, "a leaf"), self._space.memory_owner)

    def place(self, tensor: Tensor, name: str) -> int:
        """Where the tensor is among them, from now on with its gradient."""
        place = self._places.get(id(tensor))
        if place is None:
            place = self._places[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
            self.kinds.append(None)
            grad = tensor._grad
            at = None if grad is None else self.place(grad, f"the gradient of {name}")
            self.kinds[place] = _kind(tensor, name, at, self._space)
        return place


def _check_session(session: Session) -> None:
    if session.profile is not None or graph.watchers is not None:
        raise Untraceable("somebody watches every instruction")
    if session.suspensions.expected:
        raise Untraceable("a pass may wait for the client")
    if "_execute" in vars(session):
        raise Untraceable("a checkpoint is open")


def _kind(tensor: Any, name: str, grad: int | None, space: MemorySpace) -> TensorSpec:
    if type(tensor) is not space.Tensor:
        raise Untraceable(f"{name} is of a class of its own")
    view = tensor._base is not None
    flows = tensor._requires_grad and tensor._node is None
    if view and (tensor._seen != tensor._cell[0] or flows or space.device != "cpu"):
        raise Untraceable(f"{name} is a view")
    if tensor._hooks is not None:
        raise Untraceable(f"{name} has hooks")
    if is_marked(tensor) or tensor._sealed is not None:
        raise Untraceable(f"{name} may not be changed")
    data, flags = tensor._data, space.flags(tensor)
    if not flags.c_contiguous and not flags.f_contiguous:
        raise Untraceable(f"{name} has gaps in memory")
    return TensorSpec(data.shape, data.dtype, tensor._requires_grad, flags.c_contiguous, grad, view)
