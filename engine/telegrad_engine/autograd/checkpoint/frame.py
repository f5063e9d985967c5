"""One checkpointed call without reentrance: the state for running it again, and the recomputed tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ...context import enable_grad, generator, state
from ...errors import CheckpointError
from ...graph.node import modified
from ...transforms.saved_tensor_hooks import Packed, saved_tensors_hooks


class RandomState:
    """The random generator and autocast state of a function's first run, restored for the second."""

    def __init__(self, preserve: bool) -> None:
        self._generator = copy.deepcopy(generator()) if preserve else None
        self._autocast = state.autocast

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore the state inside the block."""
        before = state.generator, state.autocast
        state.autocast = self._autocast
        if self._generator is not None:
            state.generator = copy.deepcopy(self._generator)
        try:
            yield
        finally:
            state.generator, state.autocast = before


class _Done(BaseException):
    """Stops the recomputation early. It is not an Exception, so that the function's own handlers do not catch it."""


class Kept:
    """An argument of a checkpointed call, kept as it is, or packed by the saved tensor hooks of an outer checkpoint."""

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
        """Return the argument. Raises VersionConflict if it was modified in place since."""
        if self.packed is not None:
            tensor = object.__new__(self.like)
            tensor._data, tensor._version_counter = self.packed.unpack()._data, [0]
            tensor._lie_as(tensor._strided())
            return tensor.requires_grad_(self.requires_grad)
        if self.is_tensor and self.value._version != self.version:
            value = self.value
            raise modified(value._data, value._node, value._output_nr, value._version, self.version)
        return self.value


class Frame:
    """A checkpointed call, whose saved tensors are replaced by numbers."""

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
        """The metadata of each tensor that forward would have saved, by number."""
        self.recomputed: dict[int, Any] = {}
        """The recomputed tensors that were not requested yet, by number."""

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run the function the first time, with each saved tensor replaced by its number."""
        with self.numbering():
            return function(*args, **kwargs)

    def numbering(self) -> AbstractContextManager[None]:
        """Return a context in which each saved tensor is replaced by its number."""
        return saved_tensors_hooks(self._number, self._recall)

    def _number(self, tensor: Any) -> int:
        self.metadata.append(_metadata(tensor))
        return len(self.metadata) - 1

    def _recall(self, number: int) -> Any:
        """Return the saved tensor of this number, running the function again if necessary."""
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
    """The second run of a frame, which collects the saved tensors for backward."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.count = 0

    def collect(self, tensor: Any) -> Any:
        """Keep a tensor under its number; with early stop, end the run after the last one."""
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
        """Raise CheckpointError unless the second run saved tensors like those of the first run."""
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
