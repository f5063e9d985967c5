"""A tracer for NumPy: it computes a program once and records its calls on a tape, from which a plan is made.

Code that depends on values, which can differ in the next run, raises :class:`~.symbolic.Untraceable`. So does a
function unless the shapes and dtypes of its results are known to depend only on those of its arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .base import Backend
from .numpy import NUMPY, SPECIAL
from .symbolic import NEEDED, TensorScalar, TracedNumber, Untraceable, is_traced, value_of


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


KNOWN = _names(
    """
    affine all angle any arange argmax argmin argsort array as_strided asarray ascontiguousarray
    broadcast_arrays broadcast_to clip column_sums concatenate copy cross cumprod cumsum diagonal dot
    einsum expand_dims flip fold full imag index_add index_combine index_set lgamma linspace
    log_softmax matmul_like max mean min moveaxis normal_cdf ones_like outer pad padded polygamma prod real
    repeat reshape reshape_view roll row_sums running searchsorted sinc softmax solve_triangular sort split squeeze
    stack std strided_windows sum swapaxes take take_along_axis tensordot tile trace transpose tril triu unpool var
    where windows zeros_like
    """
) | frozenset(SPECIAL)
"""Functions, besides ufuncs, for which the results' shapes and dtypes depend only on those of the arguments."""
LINEAR = _names("cholesky det eigh eigvalsh inv pinv qr slogdet solve svd")
"""Such functions of ``numpy.linalg``."""
OF_KINDS = _names("can_cast iscomplexobj may_share_memory ndim promote_types result_type shape size")
"""Functions of shapes, dtypes and memory, which do not depend on values."""
METHODS = _names(
    """
    all any argmax argmin argsort astype clip copy cumprod cumsum diagonal dot flatten max mean min prod ravel repeat
    reshape round squeeze std sum swapaxes take trace transpose var view
    """
)
MAKERS = _names("arange eye full linspace ones ones_like zeros zeros_like")
"""Functions that create arrays from few arguments: a plan calls them in each run, unless the array is small."""
SMALL = 2**10
"""The largest size in bytes of an array that is stored in the plan."""
SAME = frozenset(["array", "asarray", "ascontiguousarray", "copy"])
"""Functions and a method that may return the argument itself, because recorded arrays are never written to."""


class ArrayCall(NamedTuple):
    """One call on the tape."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    """The arguments, with a :class:`Ref` in place of each recorded array."""
    kwargs: dict[str, Any]
    result: int


class Ref(NamedTuple):
    """A reference to the recorded array, or tuple of arrays, with this number."""

    number: int


class SliceOf(tuple[Any, ...]):
    """The start, stop and step of a slice that contains recorded numbers."""


class ArraySpec(NamedTuple):
    """An array without its values."""

    shape: tuple[int, ...]
    dtype: Any
    strides: tuple[int, ...]
    roots: frozenset[int]
    """The numbers of the memory-owning arrays, possibly itself, with which the array may share memory."""


class Tape:
    """The calls that are recorded, and the arrays that they take and return."""

    def __init__(self) -> None:
        self.calls: list[ArrayCall] = []
        self.specs: list[ArraySpec | None] = []
        """The specs of arrays by number; None for a tuple of arrays, a Python number or a generator."""
        self.draws: set[int] = set()
        """The numbers of generators that are drawn from."""
        self.checks: set[int] = set()
        """The numbers of calls that raise if a guard does not hold."""
        self._guarded: set[str] = set()

    def input(self, value: Any, shown: Sequence[TapedArray] = ()) -> TapedArray:
        """Add an array that is an input of the program; it may share memory with the arrays ``shown``."""
        number = len(self.specs)
        roots = frozenset(each.number for each in shown) or frozenset([number])
        self._number(ArraySpec(value.shape, value.dtype, value.strides, roots))
        return TapedArray(self, number, value)

    def generator(self) -> TapedGenerator:
        """Add a random number generator that is an input of the program."""
        return TapedGenerator(self, self._number(None))

    def operand(self, value: float, bounds: tuple[float, float] | None = None) -> TracedNumber:
        """Add a number that is an input of the program, with its smallest and largest possible value."""
        return TracedNumber(self, self._number(None), value, bounds)

    def compute(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Record a call with Python numbers as arguments; return NotImplemented for other arguments."""
        if any(not isinstance(x, (int, float)) for x in args):
            return NotImplemented
        number = self._number(None)
        self.calls.append(ArrayCall(function, tuple([_with_refs(x) for x in args]), {}, number))
        return TracedNumber(self, number, function(*map(value_of, args)))

    def guard(self, check: Callable[..., None], args: Sequence[Any]) -> None:
        """Record a check that passes in this run and raises GuardFailed in a run where it does not."""
        call = ArrayCall(check, tuple([_with_refs(x) for x in args]), {}, len(self.specs))
        text = repr(call[:2])
        if text not in self._guarded:
            self._guarded.add(text)
            self.checks.add(self._number(None))
            self.calls.append(call)

    def record(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], always: bool = False
    ) -> Any:
        """Call the function, and record the call if an argument is a recorded array or number, or if ``always``."""
        own: list[TapedArray] = []
        values = [_values_of(x, own) for x in args]
        settings = {name: _values_of(x, own) for name, x in kwargs.items()}
        result = function(*values, **settings)
        if not own and not always:
            return result
        call_args = tuple([_with_refs(x) for x in args])
        call_kwargs = {name: _with_refs(x) for name, x in kwargs.items()}
        if isinstance(result, (np.ndarray, np.generic)):
            out = self._array(result, own)
            self.calls.append(ArrayCall(function, call_args, call_kwargs, out.number))
            return out
        if not isinstance(result, (tuple, list)):
            raise Untraceable(NEEDED)
        number = self._number(None)
        self.calls.append(ArrayCall(function, call_args, call_kwargs, number))
        outs = []
        for i, item in enumerate(result):
            if not isinstance(item, (np.ndarray, np.generic)):
                raise Untraceable(NEEDED)
            out = self._array(item, own)
            self.calls.append(ArrayCall(operator.getitem, (Ref(number), i), {}, out.number))
            outs.append(out)
        return type(result)(*outs) if hasattr(result, "_fields") else type(result)(outs)

    def draw(self, generator: TapedGenerator, draw: Callable[[Any], Any]) -> TapedArray:
        """Draw from a generator and record the call."""
        out = self._array(np.asarray(draw(generator.example)), ())
        self.draws.add(generator.number)
        self.calls.append(ArrayCall(draw, (Ref(generator.number),), {}, out.number))
        return out

    def _array(self, value: Any, sources: Sequence[TapedArray]) -> TapedArray:
        number = len(self.specs)
        roots: set[int] = set()
        if isinstance(value, np.ndarray) and (value.base is not None or any(value is s.value for s in sources)):
            for source in sources:
                if isinstance(source.value, np.ndarray) and np.may_share_memory(value, source.value):
                    spec = self.specs[source.number]
                    assert spec is not None
                    roots |= spec.roots
        self._number(ArraySpec(value.shape, value.dtype, value.strides, frozenset(roots or {number})))
        return TapedArray(self, number, value)

    def _number(self, spec: ArraySpec | None) -> int:
        self.specs.append(spec)
        return len(self.specs) - 1


def _values_of(x: Any, own: list[TapedArray]) -> Any:
    """Replace the recorded objects in an argument by their values, and append them to ``own``."""
    if isinstance(x, TapedArray) or is_traced(x):
        own.append(x)
        return x.value
    if isinstance(x, (tuple, list)):
        return type(x)([_values_of(item, own) for item in x])
    if isinstance(x, slice):
        return slice(*[_values_of(bound, own) for bound in (x.start, x.stop, x.step)])
    if isinstance(x, TensorScalar):
        raise Untraceable(NEEDED)
    return x


def _with_refs(x: Any) -> Any:
    if isinstance(x, TapedArray) or is_traced(x):
        return Ref(x.number)
    if isinstance(x, slice) and any(map(is_traced, (x.start, x.stop, x.step))):
        return SliceOf(map(_with_refs, (x.start, x.stop, x.step)))
    return type(x)([_with_refs(item) for item in x]) if isinstance(x, (tuple, list)) else x


class TapedGenerator:
    """A generator that records its draws. It draws from a generator of its own, so the session's does not advance."""

    METHODS = frozenset(["integers", "permutation", "random", "standard_exponential", "standard_normal"])

    def __init__(self, tape: Tape, number: int) -> None:
        self._tape, self.number = tape, number
        self.example = np.random.default_rng(0)

    def __getattr__(self, name: str) -> Any:
        if name not in self.METHODS:
            raise Untraceable(f"draws numbers by {name}")

        def draw(*args: Any, **kwargs: Any) -> TapedArray:
            if any(isinstance(x, TapedArray) or is_traced(x) for x in (*args, *kwargs.values())):
                raise Untraceable(NEEDED)
            return self._tape.draw(self, operator.methodcaller(name, *args, **kwargs))

        return draw


class TapedArray:
    """An array that records its uses. It cannot be written to, and its values cannot be read."""

    __slots__ = ("__weakref__", "number", "tape", "value")
    __hash__ = object.__hash__

    def __init__(self, tape: Tape, number: int, value: Any) -> None:
        self.tape, self.number, self.value = tape, number, value

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"TapedArray(number={self.number}, shape={self.shape}, dtype={self.dtype})"

    @property
    def roots(self) -> frozenset[int]:
        """See :class:`ArraySpec`."""
        spec = self.tape.specs[self.number]
        return frozenset() if spec is None else spec.roots

    # Recorded operations --------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        if any(
            isinstance(i, TapedArray) and i.dtype == bool for i in (index if isinstance(index, tuple) else (index,))
        ):
            raise Untraceable(NEEDED)
        return self.tape.record(operator.getitem, (self, index), {})

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __getattr__(self, name: str) -> Any:
        if name not in METHODS:
            # AttributeError, because some code checks with hasattr.
            raise AttributeError(f"a planned program knows no {name} of an array")
        method = getattr(type(self.value), name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if (name == "astype" and np.dtype(args[0] if args else kwargs["dtype"]) == self.dtype) or name in SAME:
                return self
            return self.tape.record(method, (self, *args), kwargs)

        return call

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "at" or kwargs.get("out") is not None:
            raise Untraceable("writes to an array")
        return self.tape.record(ufunc if method == "__call__" else getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name, module = function.__name__, function.__module__
        return recorded(self.tape, name, function, LINEAR if module == "numpy.linalg" else KNOWN)(*args, **kwargs)

    # Operations that need values ------------------------------------------------------------

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise Untraceable(NEEDED)

    __array__ = __bool__ = __float__ = __int__ = __index__ = __complex__ = item = tolist = __setitem__ = _refuse


for _name in ("shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides", "flags"):
    setattr(TapedArray, _name, property(attrgetter(f"value.{_name}")))
TapedArray.T = property(lambda self: self.transpose())  # type: ignore[attr-defined]
TapedArray.mT = property(lambda self: self.swapaxes(-1, -2))  # type: ignore[attr-defined]
TapedArray.real = property(lambda self: self.tape.record(np.real, (self,), {}))  # type: ignore[attr-defined]
for _name, _method in vars(NDArrayOperatorsMixin).items():
    # In-place operators are left out, so that they rebind a name.
    if callable(_method) and (_name == "__invert__" or not _name.startswith("__i")):
        setattr(TapedArray, _name, _method)


def _power(self: Any, other: Any) -> Any:
    """The operator ``**``, which differs from ``numpy.power`` for some exponents."""
    return NotImplemented if isinstance(other, TensorScalar) else self.tape.record(operator.pow, (self, other), {})


def _reflected_power(self: Any, other: Any) -> Any:
    return self.tape.record(operator.pow, (other, self), {})


setattr(TapedArray, "__pow__", _power)  # noqa: B010
setattr(TapedArray, "__rpow__", _reflected_power)  # noqa: B010


# Functions -----------------------------------------------------------------------------------


def recorded(tape: Tape, name: str, function: Any, known: frozenset[str]) -> Any:
    """Wrap a function of NumPy or the NumPy backend to record its calls."""

    def call(*args: Any, **kwargs: Any) -> Any:
        own: list[TapedArray] = []
        values = [_values_of(x, own) for x in args]
        if name in OF_KINDS:
            return function(*values, **kwargs)
        if name in SAME and isinstance(args[0], TapedArray) and isinstance(args[0].value, np.ndarray):
            dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None)
            same = name != "ascontiguousarray" or args[0].flags.c_contiguous
            if same and (dtype is None or np.dtype(dtype) == args[0].dtype):
                return args[0]
        if name in ("broadcast_to", "reshape") and own and np.shape(values[0]) == values[1]:
            return args[0]
        if (own or any(isinstance(x, TapedArray) or is_traced(x) for x in kwargs.values())) and (
            name not in known or _counting(name, args)
        ):
            raise Untraceable(NEEDED)
        result = tape.record(function, args, kwargs)
        if name in MAKERS and isinstance(result, np.ndarray) and result.nbytes > SMALL:
            return tape.record(function, args, kwargs, always=True)
        return result

    return call


def _counting(name: str, args: Sequence[Any]) -> bool:
    """Whether the shape of the result depends on values."""
    return (name == "where" and len(args) < 3) or (name == "repeat" and isinstance(args[1], TapedArray))


class _Linalg:
    """``numpy.linalg`` on the tape."""

    LinAlgError = np.linalg.LinAlgError

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def __getattr__(self, name: str) -> Any:
        return recorded(self._tape, name, getattr(NUMPY.linalg, name), LINEAR)


class TapingBackend(Backend):
    """The NumPy backend, with its calls recorded on a tape."""

    name, library = "cpu", "numpy"
    aliases = False
    namespace = np

    def __init__(self) -> None:
        super().__init__()
        self.tape = Tape()
        self.guards: list[TapedArray] = []
        """The conditions that hold in this run and must hold in others."""
        self.linalg = _Linalg(self.tape)
        # __getattr__ is not called for functions that a base class has.
        for name in KNOWN | OF_KINDS:
            if hasattr(NUMPY, name):
                self.__dict__[name] = self._function(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = self.__dict__[name] = self._function(name)
        return found

    def _function(self, name: str) -> Any:
        found = getattr(NUMPY, name)
        if isinstance(found, (np.ufunc, type)):
            return found  # ufuncs are recorded by __array_ufunc__; types create no arrays
        if callable(found):
            return recorded(self.tape, name, found, KNOWN)
        if isinstance(found, ModuleType):
            raise Untraceable(f"uses numpy.{name}")
        return found

    def number(self, array: Any) -> Any:
        """The element of a one-element array, or a stand-in if the array is recorded."""
        return TensorScalar(array.astype(np.float64)) if isinstance(array, TapedArray) else float(array)

    def wrapped(self, number: float, dtype: Any) -> Any:
        """A 0-dim array of a number."""
        return self.tape.record(NUMPY.wrapped, (number, dtype), {})

    def holds(self, condition: Any) -> bool:
        """Whether the condition holds in this run; the answer becomes a guard."""
        if not isinstance(condition, TapedArray):
            return bool(condition)
        holds = bool(condition.value)
        self.guards.append(condition if holds else np.logical_not(condition))  # type: ignore[arg-type]
        return holds

    def download(self, array: Any) -> Any:
        """Return a constant array. Raises Untraceable for a recorded one."""
        if isinstance(array, TapedArray):
            raise Untraceable(NEEDED)
        return array
