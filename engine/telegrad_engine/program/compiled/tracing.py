"""Running a program once on tensors without values: JAX learns what it computes, and we what it leaves behind."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...accounts import Accounts
from ...answer import describe
from ...backends.jax_tracer import TracingBackend
from ...backends.numpy_tracer import TapingBackend
from ...backends.symbolic import NEEDED, Untraceable
from ...custom import Applicable, Budget, Library, SessionLibrary
from ...devices import Device
from ...dtypes import DType
from ...environment import Environment
from ...errors import TelegradError
from ...session import Session
from ..canonical import stand_in
from ..instructions import Instruction
from ..operands import BOUNDS, fill, look_up
from ..remembered import Step
from ..verbs import VERBS
from .analysis import Analysis, number_of
from .effects import Effects
from .executable import Compiled, CompiledElsewhere, Executable, Planned
from .graphs import rebuilt
from .input_signature import InputSignature, TensorSpec
from .memory_space import DeviceMemory, memory_space_named
from .plan import Planner
from .harvest import EffectsReader


def compile_program(
    analysis: Analysis, kinds: InputSignature, dtype: DType, operands: Sequence[float], _: Sequence[Any] = ()
) -> Executable:
    """Trace a program for inputs of these kinds, and have JAX compile it. Raises Untraceable, with the reason."""
    backend = TracingBackend()
    all_effects: list[Effects] = []

    def traced(*arrays: Any) -> list[Any]:
        trace = Trace(analysis, kinds, Device(backend), dtype, arrays, operands, operands)
        trace.execute()
        reader = EffectsReader(trace, keeps_graphs=False)
        all_effects.append(reader.effects())
        return [*reader.outputs, backend.guard()]

    space = memory_space_named(kinds.device)
    executable, read = backend.compile(traced, kinds.inputs, space.backend)
    if isinstance(space, DeviceMemory):
        return CompiledElsewhere(executable, space, all_effects[-1], bool(backend.guards))
    return Compiled(executable, kinds.inputs, read, all_effects[-1])


def plan_program(
    analysis: Analysis, kinds: InputSignature, dtype: DType, operands: Sequence[float], arrays: Sequence[Any]
) -> Planned:
    """Run a program on a tape for inputs of these kinds, and plan it for NumPy. Raises Untraceable, with the reason."""
    backend = TapingBackend()
    taped = _taped(backend, kinds, arrays)
    own = len(kinds.operands)
    numbers = [backend.tape.operand(value, BOUNDS[type(value)]) for value in operands[:own]]
    numbers += [backend.tape.operand(value) for value in operands[own:]]  # from the graph: NaN, too
    trace = Trace(analysis, kinds, Device(backend), dtype, taped, operands, numbers, backend.tape.generator())
    trace.execute()
    reader = EffectsReader(trace, keeps_graphs=True)
    effects = reader.effects()
    used = Counter(
        [
            *effects.arrays,
            *[save.source for save in effects.saves],
            *[f.source for f in effects.fetched],
            *[s for _, s in effects.writes],
        ]
    )
    written = {source.position: target for target, source in effects.writes if source.is_output and used[source] == 1}
    inputs = len(arrays) + len(operands) + 1
    planner = Planner(backend.tape, inputs, reader.outputs, backend.guards, written, reader.numbers)
    return Planned(planner.plan(), effects)


def _taped(backend: TapingBackend, kinds: InputSignature, arrays: Sequence[Any]) -> list[Any]:
    """What the program is called with, on the tape; some of what a graph saved shows memory of a tensor."""
    saved = () if kinds.graph is None else kinds.graph.arrays
    count = len(arrays) - len(saved)
    taped = [backend.tape.input(array) for array in arrays[:count]]
    for array, (*_, tensor) in zip(arrays[count:], saved, strict=True):
        taped.append(backend.tape.input(array, () if tensor is None else (taped[tensor],)))
    return taped


class Trace(Session):
    """A session whose tensors have no values, and in which one program runs."""

    def __init__(
        self,
        analysis: Analysis,
        kinds: InputSignature,
        device: Device,
        dtype: DType,
        arrays: Sequence[Any],
        operands: Sequence[float],
        numbers: Sequence[Any],
        generator: Any = None,
    ) -> None:
        """``numbers`` are what the program meets in place of its ``operands``."""
        super().__init__()
        self._operands, self._numbers = operands, numbers
        self.environment = Environment(device, dtype, generator or NO_NUMBERS)
        self.accounts = Total()
        self.functions = Applied(zip(analysis.functions, kinds.functions, strict=True))
        self.analysis, self.arrays = analysis, arrays
        self.fetches: list[tuple[int, dict[str, Any], Any, Any]] = []
        self.device_name = kinds.device
        self._device = device
        self._uploads = iter(arrays[len(kinds.tensors) : len(kinds.inputs)])
        self.kinds: Sequence[TensorSpec] = kinds.tensors
        self.taken = [self._taken(array, kind) for array, kind in zip(arrays, kinds.tensors, strict=False)]
        for tensor, kind in zip(self.taken, kinds.tensors, strict=True):
            tensor._grad = None if kind.grad is None else self.taken[kind.grad]
        for i, place in zip(analysis.taken, kinds.places, strict=True):
            self.tensors[stand_in(i)] = self.taken[place]
        self.nodes: Sequence[Any] = ()
        self.places: Mapping[int, tuple[int, int]] = {}
        if kinds.graph is not None:
            own = [*arrays[len(kinds.inputs) :]], numbers[len(kinds.operands) :]
            self.nodes = rebuilt(kinds.graph, self.taken, *own)
            self.places = {tensor: (node, slot) for tensor, node, slot in kinds.graph.roots}

    def _taken(self, array: Any, kind: TensorSpec) -> Any:
        tensor: Any = self._device.Tensor(array)
        tensor._requires_grad = kind.requires_grad
        if not kind.contiguous:
            tensor._strides = np.empty(array.shape, array.dtype, order="F")
        return tensor

    def execute(self) -> None:
        """Run the program. Raises Untraceable, with the instruction."""
        with self.environment.entered(self.accounts.max_bytes):
            for index, step in enumerate(self.analysis.program.steps):
                instruction = step.instruction
                try:
                    if step.holes:
                        self._execute(self._with_numbers(step))
                    elif step.data is not None:
                        self._upload(instruction)
                    elif instruction.op == "fetch":
                        self._note(instruction)
                    elif instruction.op == "free":
                        for name in instruction.inputs[0]:
                            self.tensors.pop(name, None)
                    else:
                        self._execute(instruction)
                except Exception as error:
                    raise Untraceable(f"instruction {index}, {instruction.op}: {self._reason(error)}") from error

    def _with_numbers(self, step: Step) -> Instruction:
        """The instruction, checked, with numbers in place of its operands."""
        checked = step.with_operands(self._operands).instruction
        if not checked.checked and checked.op not in VERBS:
            raise Untraceable("an operand does not fit")
        inputs, attrs = list(checked.inputs), checked.attrs
        for hole in step.holes:
            value, number = hole.value(self._operands), hole.value(self._numbers)
            if hole.path[0] == "in":
                inputs = fill(inputs, hole.path[1:], number)
            elif repr(look_up(attrs, hole.path[1:])) != repr(value):
                raise Untraceable("an operand stands where none may be")
            else:
                attrs = fill(attrs, hole.path[1:], number)
        return Instruction(checked.op, inputs, checked.outputs, attrs, checked.grad_mode, checked.checked)

    def _reason(self, error: Exception) -> str:
        if isinstance(error, (Untraceable, TelegradError)):
            return str(error)
        if self._device.backend.asks_for_values(error):
            return NEEDED
        return f"{type(error).__name__}: {error}".partition("\n")[0]

    def _upload(self, instruction: Any) -> None:
        tensor: Any = self._device.Tensor(next(self._uploads))
        if instruction.attrs.get("requires_grad"):
            tensor.requires_grad_()
        self._bind(instruction, [tensor])

    def _note(self, instruction: Any) -> None:
        """Take down what is fetched, as it is now."""
        wanted = instruction.attrs.get("values", True)
        for name in instruction.inputs[0]:
            tensor = self.tensors[name]
            array = tensor._data if wanted else None
            self.fetches.append((number_of(name), describe(name, tensor), tensor._cell, array))


class Total(Accounts):
    """The bytes of all results together, those that were freed included: nothing is held to a limit here."""

    def __init__(self) -> None:
        super().__init__(max_bytes=2**62)

    def count(self, array: Any, lent: bool = False) -> None:
        """Add a result's."""
        self.used_bytes += math.prod(array.shape) * array.dtype.itemsize

    def recount(self, inputs: Sequence[Any]) -> None:
        """Nothing: no memory is taken where there are no values."""


class Applied(SessionLibrary):
    """The functions that the session had; one that decides by values cannot be traced, so none did."""

    def __init__(self, functions: Iterable[tuple[str, Applicable]]) -> None:
        super().__init__(Library())
        self._functions.update(functions)

    def apply(
        self, name: str, tensors: Sequence[Any], parameters: Mapping[str, Any], accounts: Accounts
    ) -> tuple[Sequence[Any], list[bool]]:
        """Call a function."""
        return self.find(name).call(tensors, parameters, DataAlone()), []


class DataAlone(Budget):
    """The budget of a call that is traced: Python that an operator installed may depend on more than its arguments."""

    __slots__ = ()

    def admit(self, name: str) -> None:
        """Refuse. Raises Untraceable."""
        raise Untraceable(f"{name} is Python that was installed on the server")

    def hold(self, array: Any) -> None:
        """Nothing is held to a limit here."""

    def anew(self) -> Budget:
        """Another one."""
        return DataAlone()


class _NoNumbers:
    """In place of a generator: what is compiled would draw the same numbers on every run."""

    def __getattr__(self, name: str) -> Any:
        raise Untraceable("it draws random numbers")


NO_NUMBERS: Any = _NoNumbers()
