"""CuPy's face over NumPy's arrays: what CuPy would refuse is refused here, where there is no GPU to run it on.

CuPy can be imported without a GPU. So its functions, their parameters and the dtypes of its ufuncs can be read,
while the numbers are NumPy's. An array here is no ``numpy.ndarray``: as with CuPy's, NumPy's functions do not take
it, nothing makes a host array of it unasked, and a sum is an array of no dimensions instead of a number.

Internals: it is the engine's own backend for CuPy, over other arrays.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from telegrad_engine.arrays import NUMPY
from telegrad_engine.arrays.cupy import CupyBackend

from ..fake_gpu.cupy import cuda as fake_cuda
from ..fake_gpu.cupy import wrapped_around

ARRAYS = {
    "A", "a", "a_max", "a_min", "ar", "args", "arr", "array", "array_like", "arrays", "arys", "b", "condition", "dst",
    "element", "fill_value", "indices", "m", "max", "min", "obj", "operands", "prototype", "repeats", "src", "start",
    "stop", "tup", "v", "weights", "x", "x1", "x2", "y",
}  # fmt: skip
"""The parameters of CuPy's functions that an array may be given for; others are read on the host."""

FROM_HOST = {"array", "asarray"}
"""The functions that take NumPy's arrays."""

ATOMIC = {
    "add": {"int32", "uint32", "uint64", "float16", "float32", "float64"},
    "maximum": {"int32", "uint32", "uint64"},
    "minimum": {"int32", "uint32", "uint64"},
}
"""The ufuncs whose ``at`` writes with an atomic operation of the GPU's, and the dtypes for which CuPy 14 does it right.

Extrema of floats are refused, which CuPy would take: it passes over NaN, and rounds float64 to float32.
"""

KINDS = {char: np.dtype(char) for char in "?bBhHiIlLqQefd"} | {"E": np.dtype(ml_dtypes.bfloat16)}
"""The dtypes by the letters that the types of CuPy's ufuncs have for them; complex ones are not used."""


class Array:
    """What stands for ``cupy.ndarray``: its methods and operators, with its parameters."""

    __array_ufunc__ = None  # NumPy's arrays and functions do not take it
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def __array__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __getattr__(self, name: str) -> Any:
        import cupy

        theirs = getattr(cupy.ndarray, name)  # AttributeError where CuPy has no such method
        ours = getattr(self.value, name)
        if not callable(ours):
            return wrapped(ours)
        return checked(f"ndarray.{name}", ours, signature_of(theirs))

    def __dlpack__(self, **options: Any) -> Any:
        return self.value.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.value.__dlpack_device__()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        try:
            shown = self.value.reshape(shape, copy=False)
        except ValueError:
            raise AttributeError("incompatible shape") from None
        self.value = shown

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.value.ctypes.data)

    @property
    def flags(self) -> Any:
        return self.value.flags

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    def set(self, arr: Any, stream: Any = None) -> None:
        self.value[...] = arr

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Any:
        return (wrapped(part) for part in self.value)

    def __getitem__(self, index: Any) -> Array:
        return wrapped(self.value[wrapped_around(unwrapped(index), self.shape)])  # type: ignore[no-any-return]

    def __setitem__(self, index: Any, values: Any) -> None:
        refuse_host(values, "__setitem__")
        self.value[wrapped_around(unwrapped(index), self.shape)] = unwrapped(values)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)


def _operator(name: str) -> Any:
    def apply(self: Array, *others: Any) -> Any:
        if others and not isinstance(others[0], Array) and getattr(others[0], "__array_ufunc__", 0) is None:
            return NotImplemented
        refuse_host(others, name)
        return wrapped(getattr(operator, name)(self.value, *unwrapped(others)))

    return apply


def _reflected(name: str) -> Any:
    def apply(self: Array, other: Any) -> Any:
        refuse_host(other, name)
        return wrapped(getattr(operator, name)(other, self.value))

    return apply


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    setattr(Array, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(Array, f"__r{_name}__", _reflected(f"__{_name}__"))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "invert", "abs", "lshift", "rshift"):
    setattr(Array, f"__{_name}__", _operator(f"__{_name}__"))


class Namespace:
    """What stands for a module of CuPy's: its functions, computed by ``numbers``, NumPy's or SciPy's module."""

    def __init__(self, module: Any, numbers: Any) -> None:
        self.module, self.numbers = module, numbers

    def __getattr__(self, name: str) -> Any:
        theirs = getattr(self.module, name)  # AttributeError where CuPy has no such function
        if inspect.ismodule(theirs):
            found: Any = Namespace(theirs, getattr(self.numbers, name))
        elif inspect.isclass(theirs) or not callable(theirs):
            found = Array if name == "ndarray" else theirs
        elif hasattr(theirs, "types"):
            found = Ufunc(name, theirs.types, getattr(self.numbers, name))
        else:
            found = checked(name, getattr(self.numbers, name), signature_of(theirs))
        setattr(self, name, found)
        return found

    def from_dlpack(self, array: Any) -> Array:
        return Array(np.from_dlpack(array))

    def asnumpy(self, array: Any) -> Any:
        return np.array(unwrapped(array))


class Cuda:
    """What stands for ``cupy.cuda``: that of the stand-in for a machine with GPUs, if CuPy has the name too."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        getattr(self.module, name)  # AttributeError where CuPy has no such function
        return getattr(fake_cuda, name)


class Ufunc:
    """What stands for a ufunc of CuPy's: its dtypes, and ``at`` where the GPU can."""

    def __init__(self, name: str, types: list[str], numbers: Any) -> None:
        self.name, self.numbers = name, numbers
        self.loops = [
            [KINDS[char] for char in kinds.partition("->")[0]] for kinds in types if KINDS.keys() >= {*kinds} - {*"->"}
        ]

    def __call__(self, *args: Any, out: Any = None, dtype: Any = None, casting: str = "same_kind") -> Any:
        strange = next((a for a in args if not isinstance(a, (Array, np.generic, int, float))), None)
        if strange is not None:
            raise TypeError(f"{self.name}: Unsupported type {type(strange)}")
        given = [(i, a.dtype) for i, a in enumerate(args) if isinstance(a, Array)]
        if not any(all(np.can_cast(dtype, loop[i]) for i, dtype in given) for loop in self.loops):
            raise TypeError(f"{self.name}: CuPy has none for {given}")
        options = {name: unwrapped(v) for name, v in (("out", out), ("dtype", dtype)) if v is not None}
        return wrapped(self.numbers(*unwrapped(args), **options))

    def at(self, a: Array, indices: Any, b: Any) -> None:
        if a.dtype.name not in ATOMIC.get(self.name, ()):
            raise TypeError(f"{self.name}.at does not support {a.dtype}")
        refuse_host(b, self.name)
        self.numbers.at(a.value, unwrapped(indices), unwrapped(b))


def checked(name: str, numbers: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    """A function that takes what CuPy's of this signature would take, and gives arrays here."""

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)  # TypeError for a parameter that CuPy's has not
        for param, value in bound.arguments.items():
            if name not in FROM_HOST:
                refuse_host(value, name)
            if param not in ARRAYS and param not in ("self", "axes") and holds(value, Array):
                raise TypeError(f"{name}: CuPy reads {param} on the host")
        first = next(iter(signature.parameters.values()), None)
        if name not in FROM_HOST and first is not None and first.name in ("a", "x", "ar", "m", "condition"):
            value = bound.arguments[first.name]
            if not isinstance(value, Array):
                raise TypeError(f"{name}: {type(value).__name__} is no array of CuPy's")
        return wrapped(numbers(*unwrapped(args), **unwrapped(kwargs)))

    return call


def signature_of(function: Any) -> inspect.Signature:
    """The parameters of a function or method; what is compiled has them in the first line of its documentation."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        line = (function.__doc__ or "").partition("\n")[0]
        found = re.search(r"\((.*?)\)", line)
        if found is None:
            return inspect.Signature([_REST, _OPTIONS])
        text = re.sub(r"\b\w+\s+(\w+)", r"\1", found[1])
        names: dict[str, Any] = {}
        exec(f"def method({text}): ...", names)
        signature = inspect.signature(names["method"])
    return signature.replace(parameters=[p for p in signature.parameters.values() if p.name != "self"])


_REST = inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)
_OPTIONS = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)


def holds(value: Any, kind: type) -> bool:
    """Whether a value is of this class, or a list with one that is."""
    if isinstance(value, (list, tuple, dict)):
        return any(holds(v, kind) for v in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, kind)


def refuse_host(value: Any, name: str) -> None:
    """Raise for NumPy's arrays, as CuPy's functions do."""
    if holds(value, np.ndarray):
        raise TypeError(f"{name}: Unsupported type <class 'numpy.ndarray'>")


def wrapped(value: Any) -> Any:
    """NumPy's arrays and scalars as arrays here, those in lists too."""
    if isinstance(value, (np.ndarray, np.generic)):
        return Array(np.asarray(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[wrapped(v) for v in value])
    if isinstance(value, (list, tuple)):
        return type(value)(wrapped(v) for v in value)
    return value


def unwrapped(value: Any) -> Any:
    """Arrays here as NumPy's, those in lists too."""
    if isinstance(value, Array):
        return value.value
    if isinstance(value, dict):
        return {k: unwrapped(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(unwrapped(v) for v in value)
    return value


def solve_triangular(
    a: Any,
    b: Any,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = False,
) -> Array:
    """What stands for cupyx.scipy.linalg's, which cannot be imported without CUDA's libraries."""
    assert a.shape[:-2] == b.shape[:-2], "CuPy: incompatible batch count"
    return Array(NUMPY.solve_triangular(a.value, b.value, not lower, unit_diagonal))


class Facade(CupyBackend):
    """The backend, over CuPy's face."""

    def load(self) -> None:
        import cupy
        import cupyx.scipy.special
        import scipy.special

        self.namespace = Namespace(cupy, np)
        self.namespace.cuda = Cuda(cupy.cuda)
        self.special = Namespace(cupyx.scipy.special, scipy.special)
        self.triangular = SimpleNamespace(solve_triangular=solve_triangular)
