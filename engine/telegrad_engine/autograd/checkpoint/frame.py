"""One checkpointed call without reentrance: what it takes to run it again, and what running it again saved."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ...context import enable_grad, generator, state
from ...errors import CheckpointError
from ...graph.node import modified
from ...graph.saved_tensor_hooks import Packed, saved_tensors_hooks


class RandomState:
    """The random numbers and the precision that a function had, to run it alike a second time."""

    def __init__(self, preserve: bool) -> None:
        self._generator = copy.deepcopy(generator()) if preserve else None
        self._autocast = state.autocast

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Within, things are as they were; afterwards as they are now."""
        before = state.generator, state.autocast
        state.autocast = self._autocast
        if self._generator is not None:
            state.generator = copy.deepcopy(self._generator)
        try:
            yield
        finally:
            state.generator, state.autocast = before


class _Done(BaseException):
    """Everything that is needed was computed. No Exception, so that the function's own handlers let it pass."""


class Kept:
    """An argument: as it is, and unmodified; or as an enclosing checkpoint keeps it, that is, by its number."""

    def __init__(self, value: Any) -> None:
        pair = state.saved_hooks
        self.is_tensor = hasattr(value, "_version_counter")
        self.packed = None
        if not self.is_tensor or pair is None:
            self.value, self.version = value, value._version if self.is_tensor else 0
            return
        state.saved_hooks = None
        try:
            self.packed = Packed(value, *pair)
        finally:
            state.saved_hooks = pair
        self.like, self.requires_grad = type(value), value.requires_grad

    def restore(self) -> Any:
        """The argument. Raises VersionConflict if it was modified in place since."""
        if self.packed is not None:
            tensor = object.__new__(self.like)
            tensor._data, tensor._version_counter = self.packed.unpack(), [0]
            tensor._lie_as(tensor._strided())
            return tensor.requires_grad_(self.requires_grad)
        if self.is_tensor and self.value._version != self.version:
            value = self.value
            raise modified(value._data, value._node, value._output_nr, value._version, self.version)
        return self.value


class Frame:
    """A call whose saved tensors are numbered, not kept."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        around: AbstractContextManager[Any],
        preserve: bool,
        compare: bool,
        early_stop: bool,
    ) -> None:
        self.function = function
        self.args = [Kept(a) for a in args]
        self.kwargs = {name: Kept(value) for name, value in kwargs.items()}
        self.around = around
        self.random = RandomState(preserve)
        self.compare = compare
        self.early_stop = early_stop
        self.metadata: list[dict[str, Any]] = []
        """Of each tensor that forward would have saved, by its number."""
        self.recomputed: dict[int, Any] = {}
        """Those that were recomputed and not asked for yet."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The first run: each saved tensor becomes its number."""
        with self.numbering():
            return function(*args, **kwargs)

    def numbering(self) -> AbstractContextManager[None]:
        """Within, each tensor that would be saved becomes its number."""
        return saved_tensors_hooks(self._number, self._recall)

    def _number(self, tensor: Any) -> int:
        self.metadata.append(_metadata(tensor))
        return len(self.metadata) - 1

    def _recall(self, number: int) -> Any:
        """The saved tensor of this number, for which the function is run again if need be."""
        if number not in self.recomputed:
            self._recompute()
        return self.recomputed.pop(number)

    def _recompute(self) -> None:
        args = [a.restore() for a in self.args]
        kwargs = {name: value.restore() for name, value in self.kwargs.items()}
        self.recomputed = {}
        again = _Again(self)
        hooks = saved_tensors_hooks(again.collect, lambda tensor: tensor)
        try:
            with enable_grad(), self.random.restored(), self.around, hooks:
                self.function(*args, **kwargs)
        except _Done as done:
            if done.args[0] is not again:
                raise
        again.check()


class _Again:
    """The second run of a frame, whose saved tensors are kept until backward asks for them."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.count = 0

    def collect(self, tensor: Any) -> Any:
        """Keep a tensor under its number; stop after the last."""
        frame, number = self.frame, self.count
        self.count += 1
        if number >= len(frame.metadata):
            raise CheckpointError(
                "torch.utils.checkpoint: trying to save more tensors during recomputation than during the original "
                "forward pass."
            )
        kept = tensor.detach()
        frame.recomputed[number] = kept
        if frame.early_stop and self.count == len(frame.metadata):
            raise _Done(self)
        return kept

    def check(self) -> None:
        """Raise CheckpointError unless the second run saved what the first one did."""
        before, found = self.frame.metadata, self.frame.recomputed
        if self.count != len(before):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(before)}\n"
                f"Number of tensors saved during recomputation: {self.count}."
            )
        if not self.frame.compare:
            return
        different = "".join(
            f"tensor at position {number}:\nsaved metadata: {saved}\nrecomputed metadata: {_metadata(found[number])}\n"
            for number, saved in enumerate(before)
            if saved != _metadata(found[number])
        )
        if different:
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than "
                f"during the forward pass.\n{different}."
            )


def _metadata(tensor: Any) -> dict[str, Any]:
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}
