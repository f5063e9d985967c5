"""The machinery that holds an op against PyTorch: the same case run on both, and on value-less tensors.

Internals: values of tensors that require a gradient, on any device, are read without a copy.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch

import telegrad_engine as tg
from telegrad_engine.context import state
from telegrad_engine.memory_layout import MEMORY_FORMATS
from telegrad_engine.schema.op import Op

from ..op_cases.stand_ins import Case, T

ERROR_BASES = (NotImplementedError, RuntimeError, IndexError, TypeError, ValueError)


def beside_on_gpu() -> bool:
    """Whether our tensors are on a GPU now, and torch can use it."""
    return state.device is not None and torch.cuda.is_available()


def on_cpu() -> AbstractContextManager[Any]:
    """Have torch make its tensors on the CPU within the block, in a block in which it makes them on a GPU."""
    return torch.device("cpu") if beside_on_gpu() else nullcontext()


@contextmanager
def same_device() -> Iterator[None]:
    """Have torch make its tensors where ours are, within the block; float32 on a GPU means float32."""
    if not beside_on_gpu():
        yield
        return
    with torch.device("cuda"), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def python_index(items: Sequence[Any]) -> tuple[Any, ...]:
    """An index in the wire's form as Python's."""
    return tuple(slice(*i[1:]) if isinstance(i, (tuple, list)) else ... if i == "..." else i for i in items)


def _whole_index(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i for i in indices)


def _put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    values = values if torch.is_tensor(values) else torch.tensor(values, dtype=x.dtype)
    return torch.ops.aten.index_put(x, indices, values, accumulate)


SPELLED_OTHERWISE: dict[str, Callable[..., Any]] = {
    "getitem": lambda x, index: x[python_index(index)],
    "index": lambda x, indices: x[_whole_index(indices)],
    "index_put": _put,
    "cast": lambda x, dtype: x.to(dtype, copy=True),
    "to": lambda x, *args, **kwargs: x.to(*args, **kwargs),
    "copy": lambda x, src: x.clone().copy_(src if torch.is_tensor(src) else torch.tensor(src)),
    "fill": lambda x, value: torch.fill(x, value),
    "fill_diagonal": lambda x, value, wrap=False: x.clone().fill_diagonal_(value, wrap),
    "unique_dim": torch._VF.unique_dim,
    "zero": lambda x: x.clone().zero_(),
    "tanh_backward": torch.ops.aten.tanh_backward,
    "sigmoid_backward": torch.ops.aten.sigmoid_backward,
    "relu_backward": lambda grad, result: torch.ops.aten.threshold_backward(grad, result, 0),
}
"""Ops that torch has under no function of the same name and arguments."""


def torch_function(op: Op) -> Callable[..., Any]:
    """What torch calls this op."""
    if op.name in SPELLED_OTHERWISE:
        return SPELLED_OTHERWISE[op.name]
    module = importlib.import_module(op.namespace)
    found = getattr(module, op.public, None) or getattr(torch.Tensor, op.public)
    assert callable(found)
    return found  # type: ignore[no-any-return]


def our_function(op: Op, functions: Any = tg.functions) -> Callable[..., Any]:
    """The function a user calls; an op that is not public by its key."""
    return getattr(functions, op.key.replace(".", "_") if op.internal else op.name)  # type: ignore[no-any-return]


class Call(NamedTuple):
    """The arguments of one call in each of the three worlds, and the tensors that can require grad."""

    args: list[Any]
    kwargs: dict[str, Any]
    inputs: list[Any]


def arrays_of(case: Case, dtype: np.dtype[Any]) -> dict[int, np.ndarray]:
    """The array of every placeholder of the case, by its identity.

    Raises ValueError where the dtype can't hold one.
    """
    rng = np.random.default_rng(zlib.crc32(repr(case).encode()))
    found: dict[int, np.ndarray] = {}
    for value in leaves([*case.args, *case.kwargs.values()]):
        if isinstance(value, T):
            if value.values is not None and value.dtype is None and dtype.kind in "iu":
                values = np.asarray(value.values, dtype=float)
                if not np.array_equal(values, np.round(values)):
                    raise ValueError("not whole numbers")
            found[id(value)] = np.asarray(value.make(rng, dtype))
    return found


def leaves(values: Iterable[Any]) -> Iterable[Any]:
    """The values, and those inside lists and tuples."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from leaves(value)
        else:
            yield value


def build(
    case: Case, arrays: dict[int, np.ndarray], make: Callable[[np.ndarray], Any], requires_grad: bool = True
) -> Call:
    """The case's call with ``make(array)`` for every placeholder; floating ones require grad."""
    inputs: list[Any] = []

    def convert(value: Any) -> Any:
        if isinstance(value, T):
            tensor = make(arrays[id(value)])
            if requires_grad and not value.constant and arrays[id(value)].dtype.kind in "fV":
                tensor.requires_grad_()
                inputs.append(tensor)
            return tensor
        if isinstance(value, (list, tuple)):
            return type(value)(convert(v) for v in value)
        return value

    args = [convert(a) for a in case.args]
    kwargs = {k: convert(v) for k, v in case.kwargs.items()}
    return Call(args, kwargs, inputs)


def with_dtypes(call: Call, namespace: Any) -> Call:
    """The names of dtypes as dtypes of ``torch`` or ``telegrad_engine.dtypes``, those of memory formats as torch's."""

    def convert(value: Any) -> Any:
        if namespace is torch and isinstance(value, str) and value in MEMORY_FORMATS:
            return getattr(torch, value)
        return dtype_of(namespace, value) if isinstance(value, str) and value in DTYPE_NAMES else value

    return Call([convert(a) for a in call.args], {k: convert(v) for k, v in call.kwargs.items()}, call.inputs)


DTYPE_NAMES = {"bool", "int64", "float32", "float64"}


def dtype_of(namespace: Any, name: str) -> Any:
    """The dtype of this name."""
    return getattr(namespace, name, None) or namespace.parse(name)


class Failure(NamedTuple):
    """An exception, as a result to compare."""

    kind: type[BaseException]
    text: str


def attempt(function: Callable[[], Any]) -> Any:
    """The result as a list of tensors, or the Failure."""
    try:
        return as_list(function())
    except ERROR_BASES as error:
        kind = next(base for base in ERROR_BASES if isinstance(error, base))
        return Failure(kind, str(error))


def as_list(result: Any) -> list[Any]:
    """One tensor, or several, as a list."""
    return list(result) if isinstance(result, (list, tuple)) else [result]


WITH_SIGNS = {"linalg_eigh": (1,), "linalg_svd": (0, 2), "svd": (0, 2)}
"""Ops with vectors that could as well have the other sign: which of the outputs; with a second, its own go with it."""


def with_known_signs(op: Op, outputs: Any, make: Callable[[np.ndarray], Any]) -> Any:
    """What an op gives, its vectors with the sign that brings them nearer to a fixed one.

    LAPACK, which computes them for torch, and a GPU's library may each choose another.
    """
    which = WITH_SIGNS.get(op.key)
    if which is None or isinstance(outputs, Failure):
        return outputs
    vectors = numpy(outputs[which[0]])
    if not vectors.size:
        return outputs
    fixed = np.sqrt(np.arange(1, vectors.shape[-2] + 1))  # at right angles to none of the vectors in the cases
    signs = np.sign(fixed @ vectors)[..., None, :].astype(vectors.dtype)
    known = list(outputs)
    for i in which:
        across = i == 2 and op.key == "linalg_svd"  # whose vectors are the rows of Vh
        known[i] = outputs[i] * make(np.swapaxes(signs, -1, -2) if across else signs)
    return known


def numpy(value: Any) -> Any:
    """The value of either's tensor, or of what is no tensor."""
    if isinstance(value, tg.Tensor):
        return value._host()
    if not torch.is_tensor(value):
        return np.asarray(value)
    return (value.float() if value.dtype is torch.bfloat16 else value).detach().numpy(force=True)


def dtype_name(value: Any) -> str:
    """The dtype as both name it."""
    return str(value.dtype).rpartition(".")[2]


TOLERANCE = {"float64": 1e-9, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Error allowed, relative to the largest magnitude in the tensor: a sum of large terms may cancel."""


FLOOR = {"float64": 1e-3, "float32": 1.0, "float16": 1.0, "bfloat16": 1.0}
"""The magnitude below which errors are measured as if it were this: in few digits, small results cancel."""


def assert_close(ours: Any, theirs: Any, what: str, magnitude: float = 0.0) -> None:
    """Both tensors have the same shape, dtype and, to rounding, values.

    ``magnitude`` is that of the terms that the values are sums of, where they may cancel.
    """
    assert tuple(ours.shape) == tuple(theirs.shape), f"{what}: shape {tuple(ours.shape)} != {tuple(theirs.shape)}"
    assert dtype_name(ours) == dtype_name(theirs), f"{what}: dtype {ours.dtype} != {theirs.dtype}"
    a, b = numpy(ours), numpy(theirs)
    if a.dtype.kind not in "fV" and b.dtype.kind not in "fV":
        np.testing.assert_array_equal(a, b, err_msg=what)
        return
    a, b = a.astype(np.float64), b.astype(np.float64)
    tolerance = TOLERANCE[dtype_name(ours)]
    finite = np.abs(b[np.isfinite(b)])
    scale = min(max(float(finite.max()) if finite.size else 0.0, magnitude), 1e30)
    np.testing.assert_allclose(
        a, b, rtol=tolerance, atol=tolerance * max(scale, FLOOR[dtype_name(ours)]) * 0.3, err_msg=what
    )


def make_torch(array: np.ndarray) -> torch.Tensor:
    """torch's tensor of an array, which may be of a dtype that torch does not take from NumPy."""
    if array.dtype.name == "bfloat16":
        return torch.tensor(array.astype(np.float32)).to(torch.bfloat16)
    return torch.tensor(array)


def random_like(tensors: Sequence[Any], seed: int) -> list[np.ndarray]:
    """An array of normal numbers in the shape and dtype of each."""
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(tuple(t.shape))).astype(dtype_name(t)) for t in tensors]


class Derivatives(NamedTuple):
    """What differentiating one call twice gives."""

    outputs: list[Any]
    first: list[Any]
    second: list[Any]


def zero_or(grad: Any, like: Any) -> np.ndarray:
    """A gradient's value; one that is absent is zero."""
    return np.zeros(tuple(like.shape)) if grad is None else numpy(grad)
