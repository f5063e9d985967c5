"""The SDK's tensors inside ``vmap``, and its levels, which also map custom Functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from telegrad_engine.context import below
from telegrad_engine.errors import InvalidOperation
from telegrad_engine.transforms import vmap
from telegrad_engine.transforms.vmap import ESCAPED, NO_STORAGE, BatchedTensor, refuse_mask, refusing

from ..pytree import broadcast_prefix, described, tree_map, tree_structure, tree_unflatten
from ..tape.dispatch import EXTENDING
from .handle import OPS, Tensor, functions


class VmapInfo(NamedTuple):
    """The first argument of a Function's ``vmap``: the batch size, and the behavior of random ops."""

    batch_size: int
    randomness: str


class Batched(BatchedTensor, Tensor):  # type: ignore[override]  # read-only properties in place of attributes
    """One sample of a tensor whose dimension 0 is the batch of a ``vmap`` level."""

    level: Level

    def _show(self, value: Tensor) -> None:
        super()._show(value)
        self._recorder = value._recorder

    def __del__(self) -> None:
        """Free nothing: the session has no tensor for a single sample."""

    @property
    def _id(self) -> str:  # type: ignore[override]
        raise InvalidOperation(ESCAPED)

    @property
    def _memory_id(self) -> str:
        name: str = self.batch._memory_id
        return name

    _fetch = value = refusing(NO_STORAGE)

    def _places_of_true(self) -> Any:
        refuse_mask(self.level.called)


class Level(vmap.Level):
    """One ``vmap`` of the SDK."""

    sample_class = Batched
    F = OPS

    def apply_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Apply a Function by its ``vmap`` method, or to one sample after another."""
        name, own = function.__name__, function._has_vmap()
        if own and function.generate_vmap_rule:
            raise InvalidOperation(
                f"You tried to vmap over {name}, but it has both generate_vmap_rule=True and an overridden vmap "
                "staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid "
                f"ambiguity. {EXTENDING}"
            )
        if not own and not function.generate_vmap_rule:
            raise InvalidOperation(
                f"You tried to vmap over {name}, but it does not have vmap support. Please override and implement the "
                f"vmap staticmethod or set generate_vmap_rule=True. {EXTENDING}"
            )
        if function.generate_vmap_rule:
            return self.loop(name, function.apply, args, kwargs)
        in_dims = tuple([0 if self.owns(x) else None for x in args])
        batches = [x.batch if self.owns(x) else x for x in args]
        with below(self):
            found = function.vmap(VmapInfo(self.size, self.randomness), in_dims, *batches)
            if not (isinstance(found, tuple) and len(found) == 2):
                raise InvalidOperation(
                    "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure "
                    f"compatible with the output. Got a {type(found)} instead"
                )
            return tree_map(self._sample, found[0], self._dims_of(*found))

    def _dims_of(self, output: Any, out_dims: Any) -> Any:
        """The batch dimension of each tensor of a Function's output."""
        structure = tree_structure(output)
        try:
            return tree_unflatten(broadcast_prefix(out_dims, output), structure)
        except ValueError:
            raise InvalidOperation(
                "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected "
                f"out_dims={out_dims} to be compatible with the structure of `output`. out_dims has structure "
                f"{described(tree_structure(out_dims))} but output has structure {described(structure)}. {EXTENDING}"
            ) from None

    def _sample_at(self, value: Any, index: int) -> Any:
        return value.batch.select(0, index) if self.owns(value) else value

    def _sample(self, value: Any, dim: int | None) -> Any:
        """One sample of a tensor with the batch at ``dim``, or the value itself if all samples share it."""
        return value if dim is None else self.sample(functions.movedim(value, dim, 0) if dim else value)

    def loop(self, name: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function for one sample after another, and stack the results."""
        self.note_loop(name)
        with below(self):
            rows = []
            for i in range(self.size):
                named = {key: self._sample_at(x, i) for key, x in kwargs.items()}
                rows.append(call(*[self._sample_at(x, i) for x in args], **named))
            return tree_map(lambda *samples: self.sample(functions.stack(list(samples))), *rows)
