"""A session: tensors under names, a random number generator, and ``run(program)``.

One program at a time; whoever holds a session sees to that.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import dtypes
from .amp.autocast import autocast_to
from .checkpoint.section import Sections
from .convert import as_array
from .custom import SHARED, Budget, Library, verify
from .devices import device as device_of
from .devices import on
from .errors import (
    InvalidArgument,
    InvalidOperation,
    InvalidValue,
    TelegradError,
    TensorExists,
    TooLarge,
    UnknownResource,
    UnknownTensor,
)
from .modes import state
from .overloads import find_op as find_op
from .program.inlining import Inliner
from .program.instructions import Instruction
from .program.procedures import Procedures
from .program.remembered import MEMORY, Bound, Memory
from .program.uploads import stays
from .program.verbs import VERBS, Verb
from .suspension.waiting import Suspended, Suspensions
from .tensor import Tensor, apply, upload

if TYPE_CHECKING:
    from .profiler import profile, record_function
    from .program.compiled import Compiler

logger = logging.getLogger(__name__)
DEFAULT_BYTES = 2 * 2**30
OUT_OF_MEMORY = "not enough memory for the result"


class Value(NamedTuple):
    """A tensor that a program fetched: what it is, and its array unless only that was asked for."""

    description: dict[str, Any]
    array: Any


class Answer(NamedTuple):
    """What a program brings back: fetched values by id."""

    values: dict[str, Value]
    pending: dict[str, Any] | None = None
    """What the client must evaluate first, where a pass waits for it: the instructions behind did not run."""


class Session:
    """Named tensors and their graph.

    ``device`` says where they live: "cpu" (NumPy), "jax" or "cuda" (CuPy); one that cannot be had here raises
    InvalidOperation with what is missing. ``dtype`` is the default floating dtype, ``seed`` starts the
    generator, ``max_bytes`` bounds the memory of the tensors that ops and uploads make. ``library`` has the
    registered functions and ``memory`` the programs that it shares with other sessions; ``compiler``, if there is
    one, runs those of them that it can as single executables.
    """

    def __init__(
        self,
        *,
        device: str = "cpu",
        dtype: dtypes.DType = dtypes.float32,
        seed: int | None = None,
        max_bytes: int = DEFAULT_BYTES,
        library: Library = SHARED,
        memory: Memory = MEMORY,
        compiler: Compiler | None = None,
    ) -> None:
        self._check_default(dtype)
        self.tensors: dict[str, Tensor] = {}
        self.device = device
        self.dtype = dtype
        self.max_bytes = max_bytes
        self.library = library
        self.functions = Library(library)
        self.memory = memory
        self.compiler = compiler
        self.used_bytes = 0
        self.programs = 0
        self.instructions = 0
        self.profile: profile | None = None
        """Records every program from the next on, if there is one."""
        self.profiled: profile | None = None
        """The last one that has ended."""
        self.ranges: list[record_function] = []
        """The labelled ranges of a profile that have begun and not ended, innermost last."""
        self.suspensions = Suspensions()
        self.checkpoints = Sections(self)
        self.procedures = Procedures()
        self.inliner = Inliner(self.procedures)
        self._device = device_of(device)
        self._generator = np.random.default_rng(seed)
        self._arrays: dict[int, weakref.ref[Any]] = {}
        self._last_id = 0

    # Running -----------------------------------------------------------------------------

    def run(self, program: Sequence[Instruction]) -> Answer:
        """Run the instructions in order.

        A failing instruction raises its TelegradError with ``instruction``, ``op``, ``ids`` and
        ``shapes`` in the context; those before it stand, those after it did not run.
        """
        if self.compiler is not None and isinstance(program, Bound):
            return self.compiler.run(self, self.inliner.written_out(program))
        return self.run_instructions(program)

    def run_instructions(self, program: Sequence[Instruction]) -> Answer:
        """``run``, one instruction at a time whatever the program."""
        values: dict[str, Value] = {}
        self.programs += 1
        unchanging = _tail(program)
        with self._modes(), np.errstate(all="ignore"):
            for index, instruction in enumerate(program):
                self.instructions += 1
                try:
                    self._execute(instruction)
                    if instruction.op == "fetch":
                        self._fetch(instruction, values, copy=index < unchanging)
                    elif instruction.op == "free":
                        # By name: another name of the same tensor stays good.
                        for name in instruction.inputs[0]:
                            self.tensors.pop(name, None)
                except Suspended as stop:
                    return Answer(values, {**stop.pending, "instruction": index})
                except TelegradError as error:
                    raise self._locate(error, index, instruction) from None
                except Exception as error:
                    raise self._locate(self.explained(error, instruction), index, instruction) from error
        return Answer(values)

    def explained(self, error: Exception, instruction: Instruction) -> TelegradError:
        """What to say of an instruction that failed."""
        if isinstance(error, TelegradError):
            return error
        if isinstance(error, MemoryError) or (
            self._device is not None and self._device.backend.is_out_of_memory(error)
        ):
            return TooLarge(OUT_OF_MEMORY)
        # A kernel met values that no rule foresaw: the instruction is at fault, not the server.
        logger.warning("%s failed unforeseen", instruction.op, exc_info=True)
        return InvalidOperation(f"{instruction.op}: {error}")

    def _execute(self, instruction: Instruction) -> None:
        previous = state.grad_enabled
        if instruction.grad_mode is not None:
            state.grad_enabled = instruction.grad_mode == "enable_grad"
        state.room = self.max_bytes - self.used_bytes
        try:
            self._check_names(instruction.outputs or ())
            inputs = [self._resolve(x) for x in instruction.inputs]
            verb = VERBS.get(instruction.op)
            results = self._run_op(instruction, inputs) if verb is None else self._run_verb(verb, instruction, inputs)
            self._bind(instruction, results)
            if self._device is not None:
                self._recount(inputs)
        finally:
            state.grad_enabled = previous

    def _run_verb(self, verb: Verb, instruction: Instruction, inputs: list[Any]) -> Sequence[Any]:
        checked = verb.check_inputs(inputs)
        attrs = verb.check_attrs(instruction.attrs)
        return verb.handler(self, instruction.outputs, *checked, **attrs) or ()

    def _run_op(self, instruction: Instruction, inputs: list[Any]) -> Sequence[Any]:
        if instruction.call is not None:
            result = instruction.call(*inputs)
            return result if isinstance(result, (list, tuple)) else [result]
        if instruction.checked:
            op, in_place = find_op(instruction.op)
            attrs = instruction.attrs
        else:
            op, in_place = find_op(instruction.op, len(inputs), instruction.attrs)
            attrs = op.check_attrs(instruction.attrs)
        arguments = op.check_inputs(inputs)
        if in_place:
            target = arguments[0]
            target._inplace(op, arguments, attrs)
            return [target] if instruction.outputs else ()
        result = apply(op, arguments, attrs)
        return result if isinstance(result, (list, tuple)) else [result]

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, str):
            try:
                return self.tensors[value]
            except KeyError:
                raise UnknownTensor(
                    f"no tensor {value!r:.140} in this session; it was never made, or freed", ids=[value]
                ) from None
        if isinstance(value, tuple):
            return tuple([self._resolve(v) for v in value])
        return value

    def _check_names(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self.tensors:
                raise TensorExists(f"there is a tensor {name!r} already; free it first", ids=[name])
        if len(names) > 1 and len(set(names)) < len(names):
            raise TensorExists("two outputs of one instruction have the same name", ids=list(names))

    def _bind(self, instruction: Instruction, results: Sequence[Any]) -> None:
        names = instruction.outputs
        if names is None:
            names = instruction.outputs = [None if tensor is None else self.new_id() for tensor in results]
        if len(names) > len(results):
            raise InvalidArgument(
                f"{instruction.op} has {len(results)} outputs, but {len(names)} names were given for them"
            )
        for name, tensor in zip(names, results, strict=False):
            if tensor is None or name is None:
                continue  # an unused input's gradient: its name stays free
            self._account(tensor)
            # Ops on equal shapes skip the check before they run: their result is no larger than an input.
            self.check_room(0)
            self.tensors[name] = tensor

    def _fetch(self, instruction: Instruction, values: dict[str, Value], copy: bool) -> None:
        with_values = instruction.attrs.get("values", True)
        for name in instruction.inputs[0]:
            tensor = self.tensors[name]
            if with_values:
                # An expanded tensor takes no memory here, but all of it on the wire.
                fetched = sum(v.array.nbytes for v in values.values() if v.array is not None)
                if fetched + tensor._data.nbytes > self.max_bytes:
                    raise TooLarge(f"the values that the program fetches take more than {self.max_bytes} bytes")
            array = tensor._host(copy) if with_values else None
            values[name] = Value(describe(name, tensor), array)

    # What a program runs in --------------------------------------------------------------

    @contextmanager
    def _modes(self) -> Iterator[None]:
        saved = state.grad_enabled, state.default_dtype, state.generator, state.room, state.largest
        device, state.device = state.device, self._device
        # In this process the recorder's own modes hold too; what they ask for is in the program already.
        outer = state.autocast, state.inference, state.anomaly
        state.autocast, state.inference, state.anomaly = None, False, None
        state.largest = self.max_bytes
        state.grad_enabled, state.default_dtype, state.generator = True, self.dtype.numpy, self._generator
        try:
            if self.profile is not None:
                self.profile.start()
            yield
        finally:
            if self.profile is not None:
                self.profile.pause()
            self._generator = state.generator or self._generator
            state.grad_enabled, state.default_dtype, state.generator, state.room, state.largest = saved
            state.device = device
            state.autocast, state.inference, state.anomaly = outer

    def set_default_dtype(self, dtype: dtypes.DType) -> None:
        """Set the dtype that floating tensors get where none is given. Raises TypeError for one that is not."""
        self._check_default(dtype)
        self.dtype, state.default_dtype = dtype, dtype.numpy

    @staticmethod
    def _check_default(dtype: dtypes.DType) -> None:
        if not dtype.is_floating_point:
            raise InvalidArgument(f"only floating-point types are supported as the default type, got {dtype.name}")

    def seed(self, seed: int) -> None:
        """Start the random numbers anew."""
        self.use_generator(np.random.default_rng(seed & (2**64 - 1)))

    @property
    def generator(self) -> np.random.Generator:
        """What random numbers are drawn from."""
        return self._generator

    def use_generator(self, generator: np.random.Generator) -> None:
        """Draw from this generator from now on."""
        self._generator = state.generator = generator

    def _account(self, tensor: Tensor) -> None:
        """Count the memory of a result until its array dies, whoever holds it: a name or the graph."""
        self._account_array(tensor._data)

    def _account_array(self, array: Any, lent: bool = False) -> None:
        """Count an array's memory, unless it is another's; ``lent`` if it came from outside and is nobody else's."""
        if (getattr(array, "base", None) is not None and not lent) or id(array) in self._arrays:
            return
        key, nbytes = id(array), array.nbytes
        self.used_bytes += nbytes
        session = weakref.ref(self)

        def release(_: Any) -> None:
            owner = session()
            if owner is not None and owner._arrays.pop(key, None) is not None:
                owner.used_bytes -= nbytes

        self._arrays[key] = weakref.ref(array, release)

    def upload(self, array: Any, dtype: dtypes.DType | None) -> Tensor:
        """A tensor of an array that was sent: a copy, or the array itself where it is all but all of its message."""
        if not stays(array, dtype):
            array = as_array(array, dtype)
            self.check_room(array.nbytes)
            return upload(array)
        self.check_room(array.nbytes)
        result = upload(array)
        if result._data is array:
            self._account_array(array.base, lent=True)
        return result

    def _recount(self, inputs: Sequence[Any]) -> None:
        """Count arrays that replaced those of tensors that were written to, where arrays cannot be."""
        for x in inputs:
            if isinstance(x, tuple):
                self._recount(x)
            elif isinstance(x, Tensor):
                self._account(x)

    def check_room(self, nbytes: int) -> None:
        """Raise TooLarge if so many more bytes would pass the session's limit."""
        if self.used_bytes + nbytes > self.max_bytes:
            raise TooLarge(
                f"the session holds {self.used_bytes} bytes of tensors and may hold {self.max_bytes}; "
                f"{nbytes} more are too many. Free tensors that are not needed."
            )

    def _locate(self, error: TelegradError, index: int, instruction: Instruction) -> TelegradError:
        ids = [x for x in _flat(instruction.inputs) if isinstance(x, str)]
        error.context.setdefault("ids", ids)
        known = {name: list(self.tensors[name].shape) for name in ids if name in self.tensors}
        error.context |= {"instruction": index, "op": instruction.op, "shapes": known}
        return error

    # Registered functions ----------------------------------------------------------------

    def register(self, definition: Any, scope: str, verified: bool, shapes: Any) -> None:
        """Keep a function in the library of a scope, once its derivative is right if that is to be verified."""
        library = self.library_of(scope)
        function = library.read(definition)
        if verified:
            with on("cpu"):
                verify(function, shapes)
        library.add(function)

    def apply_function(
        self,
        name: str,
        tensors: Sequence[Tensor],
        parameters: Mapping[str, Any],
        cast_to: dtypes.DType | None,
        decisions: bool,
    ) -> Sequence[Tensor]:
        """Call a registered function; what it made and the graph keeps counts as the session's memory."""
        budget = Budget()
        try:
            with autocast_to(self.device, cast_to):
                outputs = self.functions.find(name).call(tensors, parameters, budget)
            return [*outputs, upload(np.array(budget.decisions, bool))] if decisions else outputs
        finally:
            for array in budget.close():
                self._account_array(array)

    def library_of(self, scope: str) -> Library:
        """The functions of a scope: "session" or "server"."""
        if scope not in ("session", "server"):
            raise InvalidValue(f"a function's scope is session or server, not {scope!r:.40}")
        return self.functions if scope == "session" else self.library

    def last_profile(self) -> profile:
        """The profile that runs, else the last one. Raises UnknownResource if there was none."""
        found = self.profile or self.profiled
        if found is None:
            raise UnknownResource("nothing was profiled in this session; the instruction start_profile begins")
        return found

    # Looking -----------------------------------------------------------------------------

    def new_id(self) -> str:
        """An id that no tensor of this session has."""
        while True:
            self._last_id += 1
            name = f"v{self._last_id}"
            if name not in self.tensors:
                return name

    def keep(self, tensor: Tensor) -> str:
        """Give a tensor a name of the session's choosing."""
        name = self.new_id()
        self._account(tensor)
        self.tensors[name] = tensor
        return name

    def get(self, name: str) -> Tensor:
        """The tensor of this name, or UnknownTensor."""
        tensor: Tensor = self._resolve(name)
        return tensor


def _tail(program: Sequence[Instruction]) -> int:
    """From which instruction on nothing changes any more, so that values need no copy."""
    index = len(program)
    while index and program[index - 1].op in ("fetch", "free"):
        index -= 1
    return index


def describe(name: str, tensor: Tensor) -> dict[str, Any]:
    """What a tensor is: id, shape, dtype, device and its place in the graph."""
    grad_fn = tensor.grad_fn
    return {
        "id": name,
        "shape": list(tensor._data.shape),
        "dtype": tensor.dtype.name,
        "device": tensor.device,
        "requires_grad": tensor.requires_grad,
        "is_leaf": tensor.is_leaf,
        "grad_fn": None if grad_fn is None else grad_fn.name(),
        "version": tensor._version,
    }


def _flat(inputs: Sequence[Any]) -> Iterator[Any]:
    for x in inputs:
        if isinstance(x, tuple):
            yield from _flat(x)
        else:
            yield x
