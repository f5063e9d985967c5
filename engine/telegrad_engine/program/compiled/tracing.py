"""Tracing: a program runs once on traced arrays, and becomes an executable with its effects."""

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
from .effects import Effects, EffectsReader
from .executable import Compiled, CompiledForDevice, Executable, Planned
from .graphs import rebuild
from .input_signature import InputSignature, TensorSpec
from .memory_space import DeviceMemory, memory_space_named
from .plan import Planner


def compile_program(
    analysis: Analysis, signature: InputSignature, dtype: DType, operands: Sequence[float], _: Sequence[Any] = ()
) -> Executable:
    """Trace a program on arrays without values, and have XLA compile it. Raises Untraceable, with the reason."""
    backend = TracingBackend()
    traces: list[Effects] = []

    def traced(*arrays: Any) -> list[Any]:
        trace = Trace(analysis, signature, Device(backend), dtype, arrays, operands, operands)
        trace.execute()
        reader = EffectsReader(trace, keeps_graphs=False)
        traces.append(reader.effects())
        return [*reader.outputs, backend.guard()]

    space = memory_space_named(signature.device)
    function, read = backend.compile(traced, signature.inputs, space.backend)
    if isinstance(space, DeviceMemory):
        return CompiledForDevice(function, traces[-1], space, bool(backend.guards))
    return Compiled(function, traces[-1], signature.inputs, read)


def plan_program(
    analysis: Analysis, signature: InputSignature, dtype: DType, operands: Sequence[float], arrays: Sequence[Any]
) -> Planned:
    """Run a program on these arrays while a tape records it, and plan that. Raises Untraceable, with the reason."""
    backend = TapingBackend()
    tape = backend.tape
    saved = () if signature.graph is None else signature.graph.arrays
    count = len(arrays) - len(saved)
    taped = [tape.input(array) for array in arrays[:count]]
    for array, (*_, owner) in zip(arrays[count:], saved, strict=True):
        taped.append(tape.input(array, () if owner is None else (taped[owner],)))
    own = len(signature.operands)
    numbers = [tape.operand(value, BOUNDS[type(value)]) for value in operands[:own]]
    numbers += [tape.operand(value) for value in operands[own:]]  # from the graph: these may be NaN
    trace = Trace(analysis, signature, Device(backend), dtype, taped, operands, numbers, tape.generator())
    trace.execute()
    reader = EffectsReader(trace, keeps_graphs=True)
    effects = reader.effects()
    sources = [*effects.arrays, *[save.source for save in effects.saves], *[f.source for f in effects.fetched]]
    used = Counter([*sources, *[source for _, source in effects.writes]])
    written = {source.position: target for target, source in effects.writes if source.is_output and used[source] == 1}
    inputs = len(arrays) + len(operands) + 1
    planner = Planner(tape, inputs, reader.outputs, backend.guards, written, reader.numbers)
    return Planned(planner.plan(), effects)


class Trace(Session):
    """A session in which one program runs, on traced arrays."""

    def __init__(
        self,
        analysis: Analysis,
        signature: InputSignature,
        device: Device,
        dtype: DType,
        arrays: Sequence[Any],
        operands: Sequence[float],
        numbers: Sequence[Any],
        generator: Any = None,
    ) -> None:
        """``numbers`` stand for the ``operands`` in the program."""
        super().__init__()
        self._operands, self._numbers = operands, numbers
        self.environment = Environment(device, dtype, generator or NO_NUMBERS)
        self.accounts = Total()
        self.functions = Applied(zip(analysis.functions, signature.functions, strict=True))
        self.analysis, self.arrays = analysis, arrays
        self.fetches: list[tuple[int, dict[str, Any], Any, Any]] = []
        self.device_name = signature.device
        self._device = device
        self._uploads = iter(arrays[len(signature.tensors) : len(signature.inputs)])
        self.specs: Sequence[TensorSpec] = signature.tensors
        self.taken = [self._taken(array, spec) for array, spec in zip(arrays, signature.tensors, strict=False)]
        for tensor, spec in zip(self.taken, signature.tensors, strict=True):
            tensor._grad = None if spec.grad is None else self.taken[spec.grad]
        for i, place in zip(analysis.taken, signature.places, strict=True):
            self.tensors[stand_in(i)] = self.taken[place]
        self.nodes: Sequence[Any] = ()
        self.places: Mapping[int, tuple[int, int]] = {}
        if signature.graph is not None:
            own = [*arrays[len(signature.inputs) :]], numbers[len(signature.operands) :]
            self.nodes = rebuild(signature.graph, self.taken, *own)
            self.places = {tensor: (node, slot) for tensor, node, slot in signature.graph.roots}

    def _taken(self, array: Any, spec: TensorSpec) -> Any:
        tensor: Any = self._device.Tensor(array)
        tensor._requires_grad = spec.requires_grad
        if not spec.contiguous:
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
        """The checked instruction, with traced numbers in place of its operands."""
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
        """Note the description and the array of each fetched tensor."""
        wanted = instruction.attrs.get("values", True)
        for name in instruction.inputs[0]:
            tensor = self.tensors[name]
            array = tensor._data if wanted else None
            self.fetches.append((number_of(name), describe(name, tensor), tensor._cell, array))


class Total(Accounts):
    """The memory of all results together, freed ones included, without a limit."""

    def __init__(self) -> None:
        super().__init__(max_bytes=2**62)

    def count(self, array: Any, lent: bool = False) -> None:
        """Add a result's."""
        self.used_bytes += math.prod(array.shape) * array.dtype.itemsize

    def recount(self, inputs: Sequence[Any]) -> None:
        """Do nothing: traced arrays have no memory."""


class Applied(SessionLibrary):
    """The registered functions of the session."""

    def __init__(self, functions: Iterable[tuple[str, Applicable]]) -> None:
        super().__init__(Library())
        self._functions.update(functions)

    def apply(
        self, name: str, tensors: Sequence[Any], parameters: Mapping[str, Any], accounts: Accounts
    ) -> tuple[Sequence[Any], list[bool]]:
        """Call a function."""
        return self.find(name).call(tensors, parameters, DataAlone()), []


class DataAlone(Budget):
    """The budget of a traced call. It refuses installed Python, which may depend on more than its arguments."""

    __slots__ = ()

    def admit(self, name: str) -> None:
        """Refuse. Raises Untraceable."""
        raise Untraceable(f"{name} is Python that was installed on the server")

    def hold(self, array: Any) -> None:
        """Do nothing."""

    def anew(self) -> Budget:
        """Another one."""
        return DataAlone()


class _NoNumbers:
    """Stands for the generator under XLA, where an executable would draw the same numbers in every run."""

    def __getattr__(self, name: str) -> Any:
        raise Untraceable("it draws random numbers")


NO_NUMBERS: Any = _NoNumbers()
