"""Plans: a program as a flat list of NumPy calls, without names, graph or checks.

A plan is made from the tape of one run (:mod:`telegrad_engine.arrays.numpy_tracer`). Unused calls are left out.
Places are reused, so an array is freed after its last use. An elementwise call overwrites an argument that is not used
again. Writes to tensors are computed directly into their memory at the end, when nothing else can fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import numpy as np

from ..arrays.numpy_tracer import ArrayCall, ArraySpec, Ref, SliceOf, Tape, TapedArray
from ..arrays.symbolic import Untraceable
from ..cancellation import STOPPED, check_cancelled
from .effects import ArraySource, Effects, Save

logger = logging.getLogger(__name__)

PlannedStep = tuple[Callable[..., Any], Callable[[list[Any]], Any] | None, int, int, int, int]
"""A function, a getter of its arguments from the places, three places, and the place of the result.

In the most common case the getter is None and the arguments are in the three places: two arrays, and an array to write
to or None.
"""
COMPARING = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
MAX_CONSTANT_BYTES = 2**20
"""The maximum size of a plan's constants, which are not counted in any session."""
WEAK = frozenset([np.add, np.subtract, np.multiply, np.true_divide, np.maximum, np.minimum, *COMPARING])
"""Functions that convert a Python number to an array's floating dtype, and are faster if it is already an array."""
NAMING = (np.maximum, np.minimum)
"""Functions whose ``out`` must be passed by name."""


class Output(NamedTuple):
    """The place of an array after a run."""

    place: int
    own: bool
    """Whether nothing else has its memory, so that it can be kept without a copy."""
    shape: tuple[int, ...]


class WriteCall(NamedTuple):
    """A call that computes directly into the memory of an input."""

    function: Callable[..., Any]
    arguments: Callable[[list[Any]], Any]


BLOCK = 64
"""The number of steps of a plan between two checks for cancellation."""


class Plan:
    """Calls on numbered places, of which the inputs are first, and their effects on a session.

    Running it changes nothing. It may run on several threads.
    """

    def __init__(
        self,
        places: list[Any],
        steps: Sequence[PlannedStep],
        outputs: Mapping[int, Output],
        writes: Mapping[int, WriteCall],
        guards: Sequence[int],
        draws: bool,
        numbers: Mapping[int, int],
        effects: Effects,
    ) -> None:
        self._places, self._guards, self._draws = places, guards, draws
        self._blocks = [steps[start : start + BLOCK] for start in range(0, len(steps), BLOCK)]
        self.outputs, self.writes = outputs, writes
        """The outputs by position, and the calls that compute one into an input."""
        self.numbers = numbers
        """The places of Python numbers that the program leaves in tensors, by their numbers on the tape."""
        self.effects = effects

    def __len__(self) -> int:
        return sum(map(len, self._blocks)) + len(self.writes)

    @property
    def size(self) -> int:
        """The number of its calls and of the nodes that it leaves."""
        return len(self) + len(self.effects.graph.nodes)

    def run(
        self, arrays: Sequence[Any], operands: Sequence[float], generator: np.random.Generator
    ) -> PlannedRun | None:
        """Return the results for these arrays and numbers; None if a guard does not hold.

        Random numbers are drawn from the generator, which is unchanged if there are no results. Returns None also if a
        call raises: the interpreter reports the error best.
        """
        bits = generator.bit_generator
        before = bits.state if self._draws else None
        places = None
        try:
            with np.errstate(all="ignore"):
                places = self.run_calls((*arrays, *operands, generator))
        except STOPPED:
            raise
        except Exception:
            logger.debug("a planned program failed", exc_info=True)
        finally:
            if places is None and before is not None:
                bits.state = before
        return None if places is None else PlannedRun(self, arrays, places, before)

    def run_calls(self, inputs: Sequence[Any]) -> list[Any] | None:
        """Return the places after a run; None if a guard does not hold."""
        places = self._places.copy()
        places[: len(inputs)] = inputs
        for steps in self._blocks:
            check_cancelled()
            for function, arguments, a, b, out, result in steps:
                if arguments is None:
                    places[result] = function(places[a], places[b], places[out])
                else:
                    places[result] = function(*arguments(places))
        for guard in self._guards:
            holds = places[guard]
            if not (holds.all() if holds.ndim else holds):
                return None
        if any(places[output.place].shape != output.shape for output in self.outputs.values()):
            return None  # a function returned another shape than expected
        return places


class PlannedRun:
    """The results of one run of a plan: its places."""

    def __init__(self, plan: Plan, called_with: Sequence[Any], places: list[Any], before: Any) -> None:
        self._plan, self.called_with, self._places = plan, called_with, places
        self._before = before
        """The state of the generator before the run; None if nothing was drawn."""
        self._given: set[int] = set()
        """The outputs whose arrays were returned without a copy."""

    def array(self, source: ArraySource) -> Any:
        """Return the array of a source in row-major order, to be kept: nothing else has it or writes to it."""
        return self._output(source, "C") if source.is_output else own_copy(self.called_with[source.position])

    def saved(self, save: Save) -> Any:
        """Return an array for nodes to keep, in its own memory layout. It is never written to."""
        source = save.source
        if source.is_output:
            place = self._plan.outputs[source.position].place
            return self._places[place] if save.shared else self._output(source, "K")
        array = self.called_with[source.position]
        return array if save.shared else own_copy(array, "K")

    def _output(self, source: ArraySource, order: Literal["C", "K"]) -> Any:
        """Return an output in memory of its own: the array itself if it is not shared, otherwise a copy."""
        output = self._plan.outputs[source.position]
        array = self._places[output.place]
        if not output.own or source.position in self._given:
            return own_copy(array, order)
        self._given.add(source.position)
        return array

    def write(self, source: ArraySource, target: Any) -> Callable[[], None]:
        """Return the write of a source's array to a tensor. All writes are created before the first is executed."""
        call = self._plan.writes.get(source.position) if source.is_output else None
        if call is None:
            return partial(np.copyto, target._data, self.array(source))
        return partial(call.function, *call.arguments(self._places), target._data)

    def rewind(self, generator: np.random.Generator) -> None:
        """Restore the state of the generator before the run."""
        if self._before is not None:
            generator.bit_generator.state = self._before

    def numbers(self) -> Mapping[int, Any]:
        """Return the Python numbers that the new tensors and nodes were made with, by their numbers on the tape."""
        return {number: self._places[place] for number, place in self._plan.numbers.items()}


def own_copy(array: Any, order: Literal["C", "K"] = "C") -> Any:
    """Return a copy in row-major order, or in the array's own order; a broadcast array stays broadcast."""
    if 0 in array.strides and array.size > 1:
        first = tuple([slice(0, 1) if step == 0 else slice(None) for step in array.strides])
        return np.broadcast_to(np.array(array[first]), array.shape)
    return np.array(array, order=order)


# Making plans --------------------------------------------------------------------------------


class Planner:
    """Makes a plan from a tape.

    ``inputs`` is the number of arrays, operands and generators that the tape began with. ``written`` maps the position
    of each output that is written to an input to that input. ``numbers`` are the Python numbers that are outputs, too.
    """

    def __init__(
        self,
        tape: Tape,
        inputs: int,
        outputs: Sequence[Any],
        guards: Sequence[TapedArray],
        written: Mapping[int, int],
        numbers: Sequence[int] = (),
    ) -> None:
        self._numbers, self._checks = numbers, tape.checks
        self._specs, self._inputs, self._outputs, self._guards = tape.specs, inputs, outputs, guards
        self._generators = tape.draws
        self._ends = [*[x.number for x in (*outputs, *guards) if isinstance(x, TapedArray)], *numbers]
        self._calls = self._needed(tape.calls)
        self._made = {call.result: call for call in self._calls}
        self._deferred = self._deferrable(written)
        self._last = self._last_uses()
        self._last_of_memory = self._last_uses_of_memory()
        self._initial_values: list[Any] = [None] * inputs
        self._places = {number: number for number in range(inputs)}
        self._constants: dict[int, int] = {}
        self._held = 0

    # Calls to keep -----------------------------------------------------------------------

    def _needed(self, calls: Sequence[ArrayCall]) -> list[ArrayCall]:
        """Return the calls without the unused ones."""
        needed, kept = set(self._ends), []
        for call in reversed(calls):
            # If a draw is left out, later draws return other numbers.
            kept_anyway = call.result in self._checks or not self._generators.isdisjoint(_refs(call))
            if call.result in needed or kept_anyway:
                needed.update(_refs(call))
                kept.append(call)
        return kept[::-1]

    def _deferrable(self, written: Mapping[int, int]) -> dict[int, ArrayCall]:
        """Return, by output position, the calls that can compute an output in the memory that it is written to."""
        uses: dict[int, int] = {}
        for number in [*self._ends, *[n for call in self._calls for n in _refs(call)]]:
            uses[number] = uses.get(number, 0) + 1
        found = {}
        for position, target in written.items():
            x = self._outputs[position]
            call = self._made.get(x.number) if isinstance(x, TapedArray) else None
            if call is None or not _elementwise(call) or uses[call.result] > 1:
                continue
            others = {root for n in _refs(call) for root in self._roots(n)} & set(written.values()) - {target}
            if not others:  # those inputs may be overwritten first
                found[position] = call
        return found

    def _last_uses(self) -> dict[int, float]:
        """Return the index of the last call that uses each array; infinity if it is needed at the end."""
        late = {id(call) for call in self._deferred.values()}
        last = {n: float(i) for i, call in enumerate(self._calls) for n in _refs(call)}
        last |= dict.fromkeys([n for call in self._deferred.values() for n in _refs(call)], inf)
        return last | dict.fromkeys([n for n in self._ends if id(self._made.get(n)) not in late], inf)

    def _last_uses_of_memory(self) -> dict[int, float]:
        """Return the same for each array and its views together."""
        last: dict[int, float] = {}
        for number, index in self._last.items():
            for root in self._roots(number):
                last[root] = max(index, last.get(root, -1))
        return last

    def _roots(self, number: int) -> frozenset[int]:
        kept = self._specs[number]
        return frozenset() if kept is None else kept.roots

    # Places ------------------------------------------------------------------------------

    def plan(self, effects: Effects) -> Plan:
        """Return the plan with these effects, which has a place for each argument and result."""
        late = {id(call) for call in self._deferred.values()}
        ending: dict[float, list[int]] = {}
        for number, index in self._last.items():
            ending.setdefault(index, []).append(number)
        steps: list[PlannedStep] = []
        free: list[int] = []
        for index, call in enumerate(self._calls):
            if id(call) in late:
                continue
            overwritten = self._overwritten(call, index)
            into = None if overwritten is None else self._places[overwritten]
            function, places = self._prepared(call, into)
            ended = [self._places[n] for n in ending.get(index, ()) if n != overwritten]
            if into is None:
                into = free.pop() if free else self._place(None)
            self._places[call.result] = into
            free += ended
            steps.append(self._step(function, places, into))
        writes = {position: self._write(call) for position, call in self._deferred.items()}
        outputs = {p: self._output(x) for p, x in enumerate(self._outputs) if p not in writes}
        guards = [self._places[guard.number] for guard in self._guards]
        numbers = {number: self._places[number] for number in self._numbers}
        return Plan(self._initial_values, steps, outputs, writes, guards, bool(self._generators), numbers, effects)

    def _step(self, function: Callable[..., Any], places: Sequence[int], result: int) -> PlannedStep:
        if isinstance(function, np.ufunc) and function.nin == 2 and function not in NAMING:
            first, second, *out = places
            return function, None, first, second, out[0] if out else self._constant(None), result
        return function, _taking(places), 0, 0, 0, result

    def _place(self, value: Any) -> int:
        self._initial_values.append(value)
        return len(self._initial_values) - 1

    def _overwritten(self, call: ArrayCall, index: int) -> int | None:
        """Return the number of an argument that the result can overwrite, or None."""
        if not _elementwise(call):
            return None
        result = self._spec(call.result)
        for x in call.args:
            if not isinstance(x, Ref) or x.number < self._inputs:
                continue
            made, kept = self._made.get(x.number), self._specs[x.number]
            own = made is not None and isinstance(made.function, np.ufunc) and kept is not None
            alike = own and kept._replace(roots=result.roots) == result and bool(result.shape)  # type: ignore[union-attr]
            if alike and self._last_of_memory[x.number] == index:
                return x.number
        return None

    def _spec(self, number: int) -> ArraySpec:
        kept = self._specs[number]
        assert kept is not None, "a tuple is not an argument of elementwise functions"
        return kept

    def _output(self, x: Any) -> Output:
        if not isinstance(x, TapedArray):
            return Output(self._constant(x), False, x.shape)
        # NumPy scalars become arrays when they are kept, and views are copied.
        own = isinstance(x.value, np.ndarray) and self._roots(x.number) == {x.number} and x.number >= self._inputs
        sharing = [n for n in self._ends if x.number in self._roots(n)]
        return Output(self._places[x.number], own and len(sharing) == 1, x.shape)

    def _write(self, call: ArrayCall) -> WriteCall:
        function, places = self._prepared(call)
        return WriteCall(_writing(function), _taking(places))

    # Calls -------------------------------------------------------------------------------

    def _prepared(self, call: ArrayCall, into: int | None = None) -> tuple[Callable[..., Any], list[int]]:
        """Return a function of arrays only, and their places."""
        call = _as_reduction(call, self._specs)
        function, args = call.function, self._numbers_as_arrays(call)
        inner = [x for x in args if not isinstance(x, Ref)], tuple(call.kwargs.values())
        if any(True for _ in _within(inner)):
            numbers = list(dict.fromkeys(_refs(call)))
            return BoundCall(function, args, call.kwargs, numbers), [self._places[n] for n in numbers]
        if call.kwargs:
            function = partial(function, **call.kwargs)
        places = [self._places[x.number] if isinstance(x, Ref) else self._constant(x) for x in args]
        return (function, places) if into is None else (_writing(function), [*places, into])

    def _numbers_as_arrays(self, call: ArrayCall) -> tuple[Any, ...]:
        if call.function not in WEAK:
            return call.args
        specs = [self._specs[x.number] for x in call.args if isinstance(x, Ref)]
        kinds = [spec.dtype for spec in specs if spec is not None]
        if len(kinds) != 1 or kinds[0] not in (np.float32, np.float64):
            return call.args
        return tuple([np.asarray(x, kinds[0]) if type(x) in (int, float) else x for x in call.args])

    def _constant(self, value: Any) -> int:
        place = self._constants.get(id(value))
        if place is None:
            self._held += value.nbytes if isinstance(value, np.ndarray) else 0
            if self._held > MAX_CONSTANT_BYTES:
                raise Untraceable("it has large constants")
            # The initial values keep it alive, so that its id is not reused.
            place = self._constants[id(value)] = self._place(value)
        return place


def _writing(function: Any) -> Callable[..., Any]:
    """Return an elementwise function that writes to its last argument."""
    if function in NAMING:
        return lambda *args: function(*args[:-1], out=args[-1])
    return function  # type: ignore[no-any-return]


def _refs(call: ArrayCall) -> Iterator[int]:
    """Yield the numbers of all arrays that a call takes."""
    yield from _within(call.args)
    yield from _within(tuple(call.kwargs.values()))


def _within(x: Any) -> Iterator[int]:
    if isinstance(x, Ref):
        yield x.number
    elif isinstance(x, (tuple, list)):
        for item in x:
            yield from _within(item)


def _elementwise(call: ArrayCall) -> bool:
    """Return whether a call computes each element from the same elements of its arguments."""
    function = call.function
    return isinstance(function, np.ufunc) and function.signature is None and function.nout == 1 and not call.kwargs


def _taking(places: Sequence[int]) -> Callable[[list[Any]], Any]:
    """Return a getter of the values in these places, as a sequence."""
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))


# Reductions ----------------------------------------------------------------------------------
#
# np.sum processes its arguments in Python, which takes as long as a small kernel. A plan calls the C function that it
# would call, with the same result.

_REDUCTIONS: dict[Any, Callable[..., Any]] = {
    np.all: np.logical_and.reduce,
    np.any: np.logical_or.reduce,
    np.max: np.maximum.reduce,
    np.min: np.minimum.reduce,
    np.prod: np.multiply.reduce,
    np.sum: np.add.reduce,
}
"""Functions that reduce an array with a ufunc."""


def _as_reduction(call: ArrayCall, specs: Sequence[ArraySpec | None]) -> ArrayCall:
    """Return the call with its ufunc's ``reduce``, if it has one; ``specs`` describes each array by its number."""
    reduce, settings = _REDUCTIONS.get(call.function), call.kwargs
    array = call.args[0] if call.args else None
    spec = specs[array.number] if isinstance(array, Ref) else None
    if reduce is None or spec is None or not spec.shape:  # without dimensions it may be a NumPy scalar
        return call
    if len(call.args) > 2 or not settings.keys() <= {"axis", "dtype", "keepdims"}:
        return call
    axis = call.args[1] if len(call.args) > 1 else settings.get("axis")
    return call._replace(function=reduce, args=call.args[:1], kwargs={**settings, "axis": axis})


class BoundCall:
    """A call with arrays nested in its arguments, as a function of these arrays, which have the ``numbers``."""

    def __init__(self, function: Any, args: Any, kwargs: Mapping[str, Any], numbers: Sequence[int]) -> None:
        self._function, index = function, {number: i for i, number in enumerate(numbers)}
        self._args = _filling(args, index)
        self._kwargs = {name: _filling(x, index) for name, x in kwargs.items()}

    def __call__(self, *arrays: Any) -> Any:
        """Call the function on these arrays, one for each number."""
        kwargs = {name: fill(arrays) for name, fill in self._kwargs.items()} if self._kwargs else {}
        return self._function(*self._args(arrays), **kwargs)


def _filling(x: Any, index: Mapping[int, int]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that makes an argument from the arrays that its references stand for."""
    if isinstance(x, Ref):
        return itemgetter(index[x.number])
    if not isinstance(x, (tuple, list)):
        return lambda arrays: x
    if type(x) is tuple and len(x) > 1 and all(isinstance(item, Ref) for item in x):
        return itemgetter(*[index[item.number] for item in x])
    fills = [_filling(item, index) for item in x]
    if isinstance(x, SliceOf):
        return lambda arrays: slice(*[fill(arrays) for fill in fills])
    kind = type(x)
    return lambda arrays: kind([fill(arrays) for fill in fills])
