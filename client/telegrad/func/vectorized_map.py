"""``vmap``: a function of one sample is applied to all samples of a batch at once; and the tensors that it sees."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from telegrad_engine.context import below, observed_by
from telegrad_engine.errors import IndexOutOfRange, InvalidArgument, InvalidOperation, InvalidValue
from telegrad_engine.transforms import vmap as transform
from telegrad_engine.transforms.vmap import ESCAPED, NO_STORAGE, BatchedTensor, outside, refusing

from ..pytree import TreeSpec, broadcast_prefix, described, tree_flatten, tree_map, tree_structure, tree_unflatten
from ..tape.dispatch import EXTENDING
from ..tensor.handle import OPS, Tensor, functions

RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Map ``func`` over a dimension of its tensors: ``func`` sees one sample, and each op computes all of them.

    ``in_dims`` is the mapped dimension of each input, None for an input that all samples share: one int for all inputs,
    or ints in the inputs' structure. ``out_dims`` is the position of the batch in the outputs. Keyword arguments are
    not mapped. With ``randomness``, random ops raise an ``"error"``, or draw the ``"same"`` or ``"different"`` numbers
    for each sample. ``chunk_size`` is the maximum number of samples computed together. Raises ValueError for dimensions
    that do not fit the inputs or outputs, RuntimeError for control flow that depends on a sample's value.

    Examples:
        >>> dot = tg.vmap(tg.dot)
        >>> dot(tg.tensor([[1.0, 2.0], [3.0, 4.0]]), tg.ones(2, 2))
        tensor([3., 7.])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise InvalidValue(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    check_randomness(randomness)

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        inputs = _Inputs(func, in_dims, args, kwargs)
        return _in_chunks(func, inputs, out_dims, randomness, chunk_size or max(inputs.size, 1))

    return mapped


def check_randomness(randomness: Any) -> None:
    """Raise InvalidOperation unless ``randomness`` is a valid value of that argument."""
    if randomness not in RANDOMNESS:
        raise InvalidOperation(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}"
        )


def name_of(func: Any) -> str:
    """The name of a function in error texts."""
    if isinstance(func, functools.partial):
        return f"functools.partial({name_of(func.func)}, ...)"
    return getattr(func, "__name__", None) or repr(func)


class _Inputs:
    """The arguments of a mapped call: their leaves, the mapped dimension of each, and the batch size."""

    def __init__(self, func: Any, in_dims: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = f"vmap({name_of(func)}, in_dims={in_dims}, ...)(<inputs>)"
        if not isinstance(in_dims, (int, tuple)) or isinstance(in_dims, bool):
            raise InvalidValue(
                f"{call}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of "
                f"inputs, got: {type(in_dims)}."
            )
        positional, spec = tree_flatten(args)
        if not positional:
            raise InvalidValue(
                f"vmap({name_of(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to "
                "vmap over a function with no inputs. The latter is unsupported."
            )
        try:
            dims = [in_dims] * len(positional) if isinstance(in_dims, int) else broadcast_prefix(in_dims, args)
        except ValueError:
            raise InvalidValue(
                f"{call}: in_dims is not compatible with the structure of `inputs`. in_dims has structure "
                f"{described(tree_flatten(in_dims)[1])} but inputs has structure {described(spec)}."
            ) from None
        self.kwargs = kwargs
        self.leaves, self.spec = positional, spec
        self.dims = [self._checked(call, leaf, dim) for leaf, dim in zip(positional, dims, strict=True)]
        sizes = [x.shape[d] for x, d in zip(self.leaves, self.dims, strict=True) if d is not None]
        if not sizes:
            raise InvalidValue("vmap: Expected at least one Tensor to vmap over")
        if len(set(sizes)) > 1:
            raise InvalidValue(
                f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the "
                "mapped dimension"
            )
        self.size: int = sizes[0]

    def _checked(self, call: str, leaf: Any, dim: Any) -> int | None:
        if dim is not None and not isinstance(dim, int):
            raise InvalidValue(
                f"{call}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
            )
        if dim is None:
            return None
        if not isinstance(leaf, Tensor):
            raise InvalidValue(
                f"{call}: Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over "
                "non-Tensor arguments, please use None as the respective in_dim"
            )
        if not -leaf.dim() <= dim < leaf.dim():
            raise InvalidValue(
                f"{call}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {leaf.dim()} "
                f"so expected in_dim to satisfy -{leaf.dim()} <= in_dim < {leaf.dim()}."
            )
        return dim % leaf.dim()

    def chunk(self, start: int, length: int) -> list[Any]:
        """Return the leaves with a part of their mapped dimension."""
        return [
            x if d is None else functions.narrow(x, d, start, length)
            for x, d in zip(self.leaves, self.dims, strict=True)
        ]


def _in_chunks(func: Callable[..., Any], inputs: _Inputs, out_dims: Any, randomness: str, chunk_size: int) -> Any:
    """Process the batch in chunks, one after the other."""
    parts = []
    for start in range(0, inputs.size, chunk_size) or [0]:
        length = min(chunk_size, inputs.size - start)
        leaves = inputs.leaves if length == inputs.size else inputs.chunk(start, length)
        parts.append(_values(func, inputs, leaves, length, out_dims, randomness))
    _, dims, spec = parts[0]
    whole = []
    for column, dim in zip(zip(*(values for values, _, _ in parts), strict=True), dims, strict=True):
        value = column[0] if dim is None or len(column) == 1 else functions.cat(list(column))
        whole.append(value if dim is None else _moved(value, dim))
    return tree_unflatten(whole, spec)


def _values(
    func: Callable[..., Any], inputs: _Inputs, leaves: Sequence[Any], size: int, out_dims: Any, randomness: str
) -> tuple[list[Any], list[int | None], TreeSpec]:
    """The outputs' leaves with the batch at dimension 0, the final batch dimension of each, and their structure."""
    level = Level(size, randomness)
    fronts = [
        x if d is None else level.sample(x if d == 0 else functions.movedim(x, d, 0))
        for x, d in zip(leaves, inputs.dims, strict=True)
    ]
    args = tree_unflatten(fronts, inputs.spec)
    with observed_by(level):
        outputs = func(*args, **inputs.kwargs)
        found, spec = tree_flatten(outputs)
        dims = _out_dims(func, out_dims, outputs, found, spec)
        for value, dim in zip(found, dims, strict=True):
            _check_output(func, level, value, dim)
    with outside((level,)):
        values = [level.lift(v) if d is not None else v for v, d in zip(found, dims, strict=True)]
    return values, dims, spec


def _out_dims(func: Any, out_dims: Any, outputs: Any, found: Sequence[Any], spec: Any) -> list[int | None]:
    name = name_of(func)
    if not all(d is None or (isinstance(d, int) and not isinstance(d, bool)) for d in tree_flatten(out_dims)[0]):
        raise InvalidValue(
            f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints "
            "representing where in the outputs the vmapped dimension should appear."
        )
    if isinstance(out_dims, int) or out_dims is None:
        return [out_dims] * len(found)
    if isinstance(out_dims, tuple) and len(out_dims) == 1 and isinstance(outputs, Tensor):
        return [out_dims[0]]
    try:
        return broadcast_prefix(out_dims, outputs)
    except ValueError:
        raise InvalidValue(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
            f"`outputs`. out_dims has structure {described(tree_flatten(out_dims)[1])} but outputs has structure "
            f"{described(spec)}."
        ) from None


def _check_output(func: Any, level: Level, value: Any, dim: int | None) -> None:
    name = name_of(func)
    if dim is None and level.owns(value):
        raise InvalidValue(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
    if dim is not None and not isinstance(value, Tensor):
        raise InvalidValue(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(value)}. Did you mean to set "
            "out_dims= to None for output?"
        )


def _moved(value: Any, dim: int | None) -> Any:
    """Move dimension 0 to ``dim``."""
    if not dim:
        return value
    ndim = value.dim()
    if not -ndim <= dim < ndim:
        raise IndexOutOfRange(
            f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}], but got {dim})"
        )
    return functions.movedim(value, 0, dim)


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """Return the whole batch of a tensor inside ``vmap``: of all levels or, without ``recurse``, of its own level.

    This is for debugging: a result must not depend on it.

    ``tensor`` is the tensor.

    Examples:
        >>> tg.func.debug_unwrap(tg.ones(2))
        tensor([1., 1.])
    """
    if not isinstance(tensor, Tensor):
        raise InvalidArgument(f"debug_unwrap(): argument 'tensor' must be Tensor, not {type(tensor).__name__}")
    while isinstance(tensor, Batched):
        tensor = tensor.batch
        if not recurse:
            break
    return tensor


# The tensors that the function sees, and the levels ---------------------------------------------------------------


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


class Level(transform.Level):
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
