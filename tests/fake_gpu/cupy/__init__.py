"""What stands for ``cupy``: arrays that are on a GPU, and functions that queue work on its current stream."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from . import cuda

__version__ = "14.2.0"

WAITING = {"nonzero", "flatnonzero", "argwhere", "unique", "bincount", "extract", "compress", "get", "item", "tolist"}
"""The functions whose result depends on values that the host must read first."""
FROM_HOST = {"array", "asarray", "ascontiguousarray"}
"""The functions that take NumPy's arrays."""


class ndarray:
    """An array on a GPU. NumPy's functions do not take it, and nothing makes a host array of it unasked."""

    __array_ufunc__ = None  # NumPy's arrays and functions do not take it
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: np.ndarray[Any, Any], stream: Any, base: ndarray | None = None) -> None:
        self.value, self.stream, self.device = value, stream, cuda.Device()
        self.base = base
        if base is None:
            cuda.allocate(self, value.nbytes)

    def __array__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.value, name)
        if callable(found):
            return on_the_gpu(name, lambda own, *args, **kwargs: getattr(own, name)(*args, **kwargs), self)
        return wrapped(found, [self]) if isinstance(found, np.ndarray) else found

    def __dlpack__(self, **options: Any) -> Any:
        return self.value.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.value.__dlpack_device__()

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.value.shape
        return shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        try:
            self.value = self.value.reshape(shape, copy=False)
        except ValueError:
            raise AttributeError("incompatible shape") from None

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.value.ctypes.data)

    def set(self, arr: Any, stream: Any = None) -> None:
        """Copy from the host: meanwhile the host goes on, if its memory is pinned."""
        assert arr.shape == self.shape
        assert arr.dtype == self.dtype
        cuda.queue("set", [self])
        cuda.uploads.append(("pinned" if cuda.is_pinned(arr) else "pageable", cuda.is_pinned(arr)))
        self.value[...] = arr

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        if _has_mask(index):
            cuda.wait("a mask")
        return on_the_gpu("getitem", lambda own, at: own[wrapped_around(at, own.shape)])(self, index)

    def __setitem__(self, index: Any, values: Any) -> None:
        if _has_mask(index) and getattr(values, "shape", ()):
            cuda.wait("a mask")
        stream = cuda.queue("setitem", arrays_in([self, index, values]))
        self.value[wrapped_around(unwrapped(index), self.shape)] = unwrapped(values)
        self.stream = stream

    def _change(self, name: str, other: Any) -> ndarray:
        if not isinstance(other, (ndarray, np.generic, int, float)):
            raise TypeError(f"{name}: Unsupported type {type(other)}")
        self.stream = cuda.queue(name, arrays_in([self, other]))
        self.value = getattr(operator, name)(self.value, unwrapped(other))
        return self

    def __bool__(self) -> bool:
        return bool(self._read("bool"))

    def __int__(self) -> int:
        return int(self._read("int"))

    def __float__(self) -> float:
        return float(self._read("float"))

    def __index__(self) -> int:
        return operator.index(self._read("index"))

    def _read(self, how: str) -> Any:
        cuda.queue(how, [self])
        cuda.wait(how)
        return self.value


def wrapped_around(index: Any, shape: tuple[int, ...]) -> Any:
    """An index whose arrays are within bounds: a GPU does not check them, and CuPy counts on from the start."""
    parts, axis, found = index if isinstance(index, tuple) else (index,), 0, []
    used = sum(part.ndim if _is_mask(part) else part is not None and part is not ... for part in parts)
    for part in parts:
        if isinstance(part, np.ndarray) and part.dtype.kind in "iu" and shape[axis]:
            part = part % shape[axis]
        found.append(part)
        axis += len(shape) - used if part is ... else part.ndim if _is_mask(part) else part is not None
    return tuple(found)


def _is_mask(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == bool


def _has_mask(index: Any) -> bool:
    return any(x.dtype == bool and x.ndim for x in arrays_in(index))


def arrays_in(value: Any) -> list[ndarray]:
    """The arrays in nested lists and dicts."""
    if isinstance(value, ndarray):
        return [value]
    if isinstance(value, dict):
        value = [*value.values()]
    return [x for item in value for x in arrays_in(item)] if isinstance(value, (list, tuple)) else []


def wrapped(value: Any, sources: list[ndarray]) -> Any:
    """NumPy's arrays and scalars as arrays here; those that share memory with a source are views of it."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
        base = next((x for x in sources if np.may_share_memory(x.value, value)), None)
        if base is not None and base.value is value:
            return base
        return ndarray(value, cuda.get_current_stream(), base if base is None or base.base is None else base.base)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[wrapped(v, sources) for v in value])
    return type(value)([wrapped(v, sources) for v in value]) if isinstance(value, (list, tuple)) else value


def unwrapped(value: Any) -> Any:
    """Arrays here as NumPy's, those in lists and dicts too."""
    if isinstance(value, ndarray):
        return value.value
    if isinstance(value, dict):
        return {k: unwrapped(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)([unwrapped(v) for v in value])
    return value


def on_the_gpu(name: str, numbers: Callable[..., Any], *own: Any) -> Callable[..., Any]:
    """A function that queues its work, computed by ``numbers``, on the current stream."""

    def call(*args: Any, **kwargs: Any) -> Any:
        arrays = arrays_in([own, args, kwargs])
        if name not in FROM_HOST and _has_host([args, kwargs]):
            raise TypeError(f"{name}: Unsupported type <class 'numpy.ndarray'>")
        stream = cuda.queue(name, arrays)
        if name in WAITING or (name == "where" and len(args) == 1) or (name == "repeat" and arrays_in(args[1:])):
            cuda.wait(name)
        result = numbers(*unwrapped(own), *unwrapped(args), **unwrapped(kwargs))
        out = kwargs.get("out")
        if isinstance(out, ndarray):
            out.stream = stream
            return out
        if name in ("item", "tolist", "get"):
            return result
        if not arrays and name in FROM_HOST and np.ndim(result):
            cuda.uploads.append(("staged by CuPy", True))
        return wrapped(result, arrays)

    return call


def _has_host(value: Any) -> bool:
    if isinstance(value, dict):
        value = [*value.values()]
    return any(map(_has_host, value)) if isinstance(value, (list, tuple)) else isinstance(value, np.ndarray)


def _operator(name: str) -> Any:
    apply = on_the_gpu(name, getattr(operator, name))

    def method(self: ndarray, *others: Any) -> Any:
        strange = others and not isinstance(others[0], ndarray) and getattr(others[0], "__array_ufunc__", 0) is None
        return NotImplemented if strange else apply(self, *others)

    return method


def _reflected(name: str) -> Any:
    apply = on_the_gpu(name, getattr(operator, name))
    return lambda self, other: apply(other, self)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(ndarray, f"__r{_name}__", _reflected(f"__{_name}__"))
for _name in ("iadd", "isub", "imul", "itruediv", "ipow", "iand", "ior"):
    setattr(ndarray, f"__{_name}__", lambda self, other, name=_name: self._change(name, other))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "invert", "abs", "lshift", "rshift"):
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))


class _Namespace:
    """A module of CuPy's: the functions of NumPy's module of this name."""

    def __init__(self, numbers: Any) -> None:
        self._numbers = numbers

    def __getattr__(self, name: str) -> Any:
        return _found(self._numbers, name)


class _Ufunc:
    """A function of NumPy's with ``at``, which writes in place."""

    def __init__(self, name: str, numbers: Any) -> None:
        self._name, self._numbers = name, numbers
        self._call = on_the_gpu(name, numbers)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def at(self, a: ndarray, indices: Any, b: Any) -> None:
        a.stream = cuda.queue(self._name, arrays_in([a, indices, b]))
        self._numbers.at(a.value, unwrapped(indices), unwrapped(b))


def _found(numbers: Any, name: str) -> Any:
    found = getattr(numbers, name)
    if isinstance(found, np.ufunc):
        return _Ufunc(name, found)
    return found if isinstance(found, type) or not callable(found) else on_the_gpu(name, found)


linalg = _Namespace(np.linalg)


def get_default_memory_pool() -> Any:
    return SimpleNamespace(used_bytes=lambda: cuda.allocated[cuda.Device().id])


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    """A copy on the host, which waits for it."""
    assert blocking
    cuda.queue("asnumpy", [a])
    cuda.wait("asnumpy")
    return np.array(a.value, order="C")


def may_share_memory(a: ndarray, b: ndarray, max_work: Any = None) -> bool:
    return np.may_share_memory(a.value, b.value)


def from_dlpack(array: Any) -> ndarray:
    return ndarray(np.from_dlpack(array), cuda.get_current_stream())


def copyto(dst: ndarray, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    dst.stream = cuda.queue("copyto", arrays_in([dst, src]))
    np.copyto(dst.value, unwrapped(src), casting=casting)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _found(np, name)
