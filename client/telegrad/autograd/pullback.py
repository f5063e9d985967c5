"""The graph of a transformed function, from new tensors in place of its arguments to its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

from telegrad_engine.context import enable_grad, set_grad_enabled, state
from telegrad_engine.dtypes import FLOATING
from telegrad_engine.errors import DTypeMismatch, InvalidOperation, InvalidValue
from telegrad_engine.graph.node import walk
from telegrad_engine.tensor.base import ONLY_FLOATING
from telegrad_engine.transforms.batched_gradients import basis_rows, tracked_gradients
from telegrad_engine.transforms.vmap import BatchedTensor, Level, levels, outside, unwrapped, wrapped

from ..tape.dispatch import active
from ..tensor.handle import Tensor, functions


class Arguments:
    """New tensors in place of a function's arguments, so that only their uses in the function are differentiated.

    They cover all active levels of ``vmap``. The gradients of the samples are independent, so an argument shared by
    all samples is expanded. Raises ValueError for anything but a tensor, RuntimeError for non-floating dtypes.
    """

    def __init__(self, tensors: Sequence[Any]) -> None:
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise InvalidValue(f"Thing passed to transform API must be Tensor, got {type(tensor)}")
            if tensor._data.dtype not in FLOATING:
                raise DTypeMismatch(ONLY_FLOATING)
        self.levels = levels()
        self.recording = state.grad_enabled
        """Whether results computed from these arguments have a history outside the transform."""
        raws = [unwrapped(t, self.levels) for t in tensors]
        with outside(self.levels):
            self.raws = [self._anew(raw) for raw in raws]
        self.connected = any(t.requires_grad for t in raws) and self.recording
        self.tensors = [wrapped(raw, self.levels) for raw in self.raws]

    def _anew(self, raw: Tensor) -> Tensor:
        if raw.requires_grad and self.recording:
            return raw.view(tuple(raw.shape))
        anew = raw.detach().requires_grad_()
        anew._origin = None
        return anew

    @contextmanager
    def differentiated(self) -> Iterator[None]:
        """Within the block, record operations, and refuse in-place changes of all tensors that exist already."""
        before, active.argument = active.argument, next(iter(self.raws), active.argument)
        try:
            with enable_grad():
                yield
        finally:
            active.argument = before


class Outputs:
    """The results of a function of :class:`Arguments`, to be differentiated with respect to them."""

    def __init__(self, arguments: Arguments, tensors: Sequence[Tensor]) -> None:
        self.arguments = arguments
        self.tensors = tensors
        self.raws = [unwrapped(t, arguments.levels) for t in tensors]
        self.connected = arguments.connected or (arguments.recording and self._uses_others())

    def _uses_others(self) -> bool:
        """Whether a gradient depends on tensors that require grad other than the arguments."""
        own = {id(raw) for raw in self.arguments.raws}
        nodes = [raw.grad_fn for raw in self.raws if raw.grad_fn is not None]
        return any(
            target is not None and target.leaf is not None and id(target.leaf) not in own
            for node in walk(*nodes)
            for target in node.next_edges
        )

    def outward(self, value: Any) -> Any:
        """A result as the transform returns it: with a history only if the history leads outside the function."""
        if not isinstance(value, Tensor):
            raise InvalidOperation(f"Expected tensors, got unsupported type {type(value)}")
        return value if self.connected or not value.requires_grad else value.detach()

    def pull(self, cotangents: Sequence[Any] | None, retain: bool, create: bool = False) -> list[Tensor]:
        """Return the gradients of the arguments; the gradient of an unused argument is zeros.

        There is one cotangent per output; cotangents may be batched by levels entered since the call.
        """
        own, arguments = self.arguments.levels, self.arguments
        now = levels()
        rows = tuple([level for level in now if level not in own and _batched_by(cotangents or (), level)])
        first, behind = tuple(range(len(rows))), tuple(range(len(own), len(own) + len(rows)))
        seeds: Any = None if cotangents is None else [unwrapped(c, (*own, *rows)) for c in cotangents]
        create = create or self._needs_history(seeds)
        with outside(now), set_grad_enabled(create):
            if seeds is None:
                seeds = [functions.ones_like(raw) if raw.requires_grad else None for raw in self.raws]
            elif rows:
                seeds = [functions.movedim(seed, behind, first).flatten(0, len(rows) - 1) for seed in seeds]
            options = {"retain_graph": retain or create, "create_graph": create, "is_grads_batched": bool(rows)}
            found = tracked_gradients(self.raws, arguments.raws, seeds, **options)
            results: list[Tensor] = []
            for gradient, raw in zip(found, arguments.raws, strict=True):
                if gradient is None:
                    results.append(wrapped(functions.zeros_like(raw.detach()), own))
                    continue
                if rows:
                    unfolded = gradient.reshape((*[level.size for level in rows], *raw.shape))
                    gradient = functions.movedim(unfolded, first, behind)
                results.append(wrapped(gradient, (*own, *rows)))
        return results

    def _needs_history(self, seeds: Sequence[Tensor] | None) -> bool:
        return state.grad_enabled and (self.connected or any(seed.requires_grad for seed in seeds or ()))

    def pull_basis(self, index: int, chunk: int | None) -> list[Tensor]:
        """Return each argument's gradients of every element of one output, as rows (elements, *argument.shape)."""
        raw, own, count = self.raws[index], len(self.arguments.levels), self.tensors[index].numel()
        create = self._needs_history(None)
        with outside(levels()), set_grad_enabled(create):
            raws, rows = self.arguments.raws, [None] * len(self.arguments.raws)
            if raw.requires_grad and count:
                rows = basis_rows(raw, raws, create, chunk, own)
            blocks = [
                functions.new_zeros(r.detach(), (count, *r.shape)) if g is None else g
                for g, r in zip(rows, raws, strict=True)
            ]
            moved = [functions.movedim(b, 0, own) if own else b for b in blocks]
        return [wrapped(b, self.arguments.levels) for b in moved]


def _batched_by(values: Sequence[Any], level: Level) -> bool:
    return any(level.owns(v) or (isinstance(v, BatchedTensor) and _batched_by((v.batch,), level)) for v in values)


class Pullback:
    """The gradients of outputs as a linear function of their cotangents, which can be differentiated by them.

    A Jacobian-vector product is the derivative of the vector-Jacobian product. That product is linear, so the point at
    which it is differentiated does not matter.
    """

    def __init__(self, outputs: Outputs) -> None:
        self.outputs = outputs
        arguments = outputs.arguments
        with outside(levels()), enable_grad():  # whatever the outer grad mode
            self.chosen = [i for i, raw in enumerate(outputs.raws) if raw.requires_grad]
            duals: list[Any] = [
                functions.zeros_like(raw.detach()).requires_grad_() if raw.requires_grad else None
                for raw in outputs.raws
            ]
            found = tracked_gradients(outputs.raws, arguments.raws, duals, create_graph=True)
        self.used = [i for i, g in enumerate(found) if g is not None and g.requires_grad]
        dual, self.graph = copy(arguments), copy(outputs)
        dual.raws, dual.connected = [duals[i] for i in self.chosen], outputs.connected
        dual.tensors = [wrapped(raw, dual.levels) for raw in dual.raws]
        self.graph.arguments, self.graph.raws = dual, [found[i] for i in self.used]
        self.graph.tensors = [wrapped(raw, dual.levels) for raw in self.graph.raws]

    def push(self, tangents: Sequence[Tensor], retain: bool) -> list[Tensor]:
        """Return the outputs' tangents for the arguments' tangents."""
        pushed = self.graph.pull([tangents[i] for i in self.used], retain) if self.used else []
        return self._whole(pushed, lambda i: functions.zeros_like(self.outputs.tensors[i].detach()))

    def push_basis(self, index: int) -> list[Tensor] | None:
        """Return for each output its derivatives by every element of one argument, as rows; None if it was not used."""
        if index not in self.used:
            return None
        columns = self.graph.pull_basis(self.used.index(index), None)
        count = columns[0].shape[0]

        def zeros(i: int) -> Any:
            output = self.outputs.tensors[i].detach()
            return functions.new_zeros(output, (count, *output.shape))

        return self._whole(columns, zeros)

    def _whole(self, found: Sequence[Tensor], missing: Callable[[int], Tensor]) -> list[Tensor]:
        """The found value for each output, or a default for an output that does not depend on the arguments."""
        known = dict(zip(self.chosen, found, strict=False))
        return [known[i] if i in known else missing(i) for i in range(len(self.outputs.raws))]
