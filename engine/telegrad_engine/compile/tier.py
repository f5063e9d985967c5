"""The tiers above the interpreter: plans for NumPy, and executables that XLA compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..arrays.jax_tracer import TracingBackend
from ..arrays.numpy_tracer import TapingBackend
from ..devices import Device, device
from ..dtypes import DType
from ..program.operands import BOUNDS
from ..program.program_cache import Remembered
from .effects import Effects, Executable
from .input_signature import InputSignature
from .memory_space import DeviceMemory, memory_space_of
from .plan import Planned, Planner
from .tracing import EffectsReader, Trace
from .xla import Compiled, CompiledForDevice


class Tier(NamedTuple):
    """One way to make executables of programs."""

    word: str
    """The participle for a program that runs in this tier."""
    make: Callable[[Remembered, InputSignature, DType, Sequence[float], Sequence[Any]], Executable]
    """Makes an executable for inputs of a signature, from example operands and arrays. Raises Untraceable."""
    below: str
    """How a program runs if it does not run in this tier."""
    after: int
    """The number of runs of a program before its executable is made."""
    longest_s: float
    """Seconds per instruction above which an executable cannot be faster."""
    any_device: bool
    """Whether it also serves devices other than the CPU."""
    in_background: bool
    """Whether executables are made on a separate thread, without the arrays."""
    by_value: bool
    """Whether an executable is made for one value of each operand."""
    max_ratio: float
    """An executable is set aside if it takes more than this many times as long as the tier below."""


def compile_program(
    program: Remembered, signature: InputSignature, dtype: DType, operands: Sequence[float], _: Sequence[Any] = ()
) -> Executable:
    """Trace a program on arrays without values, and compile it with XLA. Raises Untraceable, with the reason."""
    backend = TracingBackend()
    traces: list[Effects] = []

    def traced(*arrays: Any) -> list[Any]:
        trace = Trace(program, signature, Device(backend), dtype, arrays, operands, operands)
        trace.execute()
        reader = EffectsReader(trace, keeps_graphs=False)
        traces.append(reader.effects())
        return [*reader.outputs, backend.guard()]

    space = memory_space_of(device(signature.device))
    function, read = backend.compile(traced, signature.inputs, space.backend)
    if isinstance(space, DeviceMemory):
        return CompiledForDevice(function, traces[-1], space, bool(backend.guards))
    return Compiled(function, traces[-1], signature.inputs, read)


def plan_program(
    program: Remembered, signature: InputSignature, dtype: DType, operands: Sequence[float], arrays: Sequence[Any]
) -> Planned:
    """Run a program on these arrays, record it on a tape, and plan it. Raises Untraceable, with the reason."""
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
    trace = Trace(program, signature, Device(backend), dtype, taped, operands, numbers, tape.generator())
    trace.execute()
    reader = EffectsReader(trace, keeps_graphs=True)
    effects = reader.effects()
    sources = [*effects.arrays, *[save.source for save in effects.saves], *[f.source for f in effects.fetched]]
    used = Counter([*sources, *[source for _, source in effects.writes]])
    written = {source.position: target for target, source in effects.writes if source.is_output and used[source] == 1}
    inputs = len(arrays) + len(operands) + 1
    planner = Planner(tape, inputs, reader.outputs, backend.guards, written, reader.numbers)
    return Planned(planner.plan(), effects)


PLANNED = Tier(
    "planned",
    plan_program,
    "one instruction at a time",
    after=2,
    longest_s=1e-3,
    any_device=False,
    in_background=False,
    by_value=False,
    max_ratio=1.2,
)
"""A list of NumPy calls. The results are bit for bit those of the interpreter."""
COMPILED = Tier(
    "compiled",
    compile_program,
    "without XLA",
    after=20,
    longest_s=float("inf"),
    any_device=True,
    in_background=True,
    by_value=True,
    max_ratio=1.0,
)
"""Compiled by ``jax.jit``, for sessions that ask for it. The results are equal up to rounding."""
