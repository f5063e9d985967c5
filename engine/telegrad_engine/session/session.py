"""A session: named tensors, a random number generator, and ``run(program)``.

A session runs one program at a time, which its owner must ensure.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np

from .. import dtypes
from ..cancellation import CancellationToken, check_cancelled, running
from ..context import observed_by, state
from ..devices import device as device_of
from ..errors import (
    InternalError,
    InvalidArgument,
    InvalidOperation,
    TelegradError,
    TensorExists,
    TooLarge,
    UnknownResource,
    UnknownTensor,
)
from ..graph.node import count_nodes, next_sequence
from ..inspection.observation import Observation
from ..instrumentation import Observer
from ..profiler import profile, record_function
from ..program.checkpoint_sections import Sections
from ..program.client_evaluation import Suspended, Suspensions
from ..program.hints import hint_for
from ..program.instructions import Instruction, names_in
from ..program.overloads import find_op
from ..program.procedures import Procedures
from ..program.program import MEMORY, BoundProgram, Programs
from ..program.registered_functions import SHARED, Library, SessionLibrary
from ..program.registered_functions.limits import WEIGHT_BYTES
from ..program.result import Answer, BorrowedAnswer, Value, fetch, last_change
from ..program.verbs import VERBS, Verb
from ..tensor.eager import Tensor, apply
from .environment import Environment
from .memory_accounting import NODE_BYTES, Accounts, Quota
from .statistics import INTERPRETED, Statistics

logger = logging.getLogger(__name__)


class NotAtOnce(Exception):
    """Raised if a program may take longer than its sender can wait. Nothing was done."""


class ProgramCompiler(Protocol):
    """Runs cached programs as plans where possible: ``compile.Compiler``."""

    def run(self, session: Session, program: BoundProgram, within: float | None = None) -> Answer:
        """Run a program of the session.

        With ``within`` raise NotAtOnce, with nothing done, if it may take more than so many seconds.
        """

    def reports(self, session: Session) -> Sequence[Any]:
        """Return how the cached programs of a session ran."""


OnInstruction = Callable[[Callable[[Instruction], None], Instruction], None]
"""Is given the function that executes an instruction, and the instruction, and calls the one with the other."""
DEFAULT_BYTES = 2 * 2**30
FREE_NODES = 2**12
"""The number of new nodes that are not counted before the next census."""
EVENT_BYTES = 320
"""The bytes that an event of a profile takes."""
NOT_INTACT = (
    "the session cannot be used any more: an error of the server's own kept an earlier program from completing its "
    "changes after its answer; it is in the server's log. Other sessions are not affected; create a new one."
)
OUT_OF_MEMORY = "not enough memory for the result"


class Session:
    """Named tensors and their graph.

    ``device`` is where they are stored: "cpu" (NumPy), "cuda" or "cuda:1" (a GPU, by CuPy), or "gpu" (any GPU);
    an unavailable one raises InvalidOperation that says what is missing or lists the devices. ``dtype`` is the default
    floating dtype, ``seed`` seeds the generator, ``max_bytes`` limits the memory of the tensors that ops and uploads
    make. ``library`` has the registered functions and ``memory`` the cached programs that sessions share; ``compiler``,
    if given, runs programs as plans where it can. ``max_program_s`` and ``max_program_instructions`` limit
    one program, ``quota`` limits the memory of several sessions together.
    """

    def __init__(
        self,
        *,
        device: str = "cpu",
        dtype: dtypes.DType = dtypes.float32,
        seed: int | None = None,
        max_bytes: int = DEFAULT_BYTES,
        library: Library = SHARED,
        memory: Programs = MEMORY,
        compiler: ProgramCompiler | None = None,
        max_program_s: float = math.inf,
        max_program_instructions: float = math.inf,
        quota: Quota | None = None,
    ) -> None:
        self.tensors: dict[str, Tensor] = {}
        there = device_of(device)
        self.device = "cpu" if there is None else there.name
        self.environment = Environment(there, dtype, np.random.default_rng(seed))
        self.accounts = Accounts(max_bytes, self.tensors, quota)
        self.functions = SessionLibrary(library)
        self.memory = memory
        self.compiler = compiler
        self.max_program_s, self.max_program_instructions = max_program_s, max_program_instructions
        self._nodes, self._census_at = 0, next_sequence()
        """The number of nodes that the last census found, and the sequence number when it was taken."""
        self._overhead_due = 0
        """The sequence number at which the memory of other objects is estimated again."""
        self._token = CancellationToken()
        """The token for the deadline of programs, if this thread has no token of its own."""
        self.last_s = math.inf
        """The seconds that the last program took as a plan; infinity if it did not run as one."""
        self.programs = 0
        self.instructions = 0
        self.statistics = Statistics()
        self.source = ""
        """Where programs come from, by which the statistics count them; the owner of the session sets it."""
        self.on_instruction: OnInstruction | None = None
        """Called around each instruction that the interpreter runs; set by the owner to trace a program."""
        self.observation: Observation | None = None
        """The observation of its programs, while somebody listens; set by the owner."""
        self.profile: profile | None = None
        """The running profile, if any, which records every program from the next one on."""
        self.profiled: profile | None = None
        """The last profile that has ended."""
        self.ranges: list[record_function] = []
        """The open labelled ranges of a profile, innermost last."""
        self.suspensions = Suspensions()
        self.checkpoints = Sections(self)
        self.procedures = Procedures()
        self._last_id = 0
        self._rest: Callable[[], None] | None = None
        """The deferred effects of the last program."""
        self._intact = True
        """Whether the effects of every answered program were completed."""
        self.run_reports: dict[str, Any] = {}
        """How its cached programs ran, by digest, as its compiler notes it."""
        self.lent: WeakSet[BorrowedAnswer] = WeakSet()
        """The answers that are still alive and refer to the memory of its tensors."""

    # Running -----------------------------------------------------------------------------

    def run(self, program: Sequence[Instruction], within: float | None = None) -> Answer:
        """Run the instructions in order.

        A failing instruction raises its TelegradError with ``instruction``, ``op``, ``ids`` and ``shapes`` in the
        context; the effects of those before it remain, those after it do not run. Raises TimeLimitExceeded after
        ``max_program_s``, Cancelled if this thread's cancellation token is cancelled, and InternalError as
        :meth:`check_intact`.

        With ``within``, run a program only if it is planned and its last run took at most so many seconds, and return
        its answer before its effects are complete: :meth:`flush` completes them before the session is used again.
        Raises NotAtOnce, with nothing done, in any other case.
        """
        self.flush()
        self.check_intact()
        if within is not None:
            if self.lent or self._is_overhead_due or self.compiler is None or not isinstance(program, BoundProgram):
                raise NotAtOnce
            if self.observation is None:
                with self.environment.stream:
                    return self.compiler.run(self, program, within)
            if self.observation.observer_of(program) is not None:
                raise NotAtOnce
            with self.environment.stream:
                return self.observation.run_planned(program, partial(self.compiler.run, self, program, within))
        if self._is_overhead_due:
            self.note_overhead()
        if self.lent:
            for answer in [*self.lent]:  # an answer that is still in use keeps the old values
                answer.materialize()
            self.lent.clear()
        outer = token = running.token
        if token is not None:
            token.check()
        if self.max_program_s < math.inf or self.max_program_instructions < math.inf:
            if token is None:
                running.token = token = self._token
                token.reset()
            token.limit(self.max_program_s, self.max_program_instructions)
        try:
            with self.environment.stream:
                if self.observation is not None:
                    return self.observation.run(self, program, self._run)
                return self._run(program)
        finally:
            running.token = outer
            self.accounts.settle()

    def _run(self, program: Sequence[Instruction]) -> Answer:
        if self.compiler is not None and isinstance(program, BoundProgram):
            return self.compiler.run(self, program)
        return self.run_instructions(program)

    def run_nested(self, program: BoundProgram, names: dict[str, Any]) -> Answer:
        """Run a program inside an instruction of another program, on its own names; it counts as part of that program.

        Errors are as in :meth:`run`.
        """
        programs, last_s = self.programs, self.last_s
        with self.checkpoints.elsewhere(names):
            try:
                return self._run(program)
            finally:
                self.programs, self.last_s = programs, last_s

    def read(self, names: Sequence[str], values: bool = True) -> list[Value]:
        """Return tensors as a program that fetches them does, without one. Raises the same errors."""
        self.flush()
        self.check_intact()
        check_cancelled()
        found: dict[str, Value] = {}
        instruction = Instruction("fetch", [tuple(names)], attrs={"values": values})
        try:
            self._resolve(instruction.inputs[0])
            with self.environment.stream:
                fetch(instruction, self.tensors, found, self.accounts.max_bytes, self.accounts)
        except Exception as error:
            raise self._locate(self.explained(error, instruction), 0, instruction) from None
        return [found[name] for name in names]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Within the block, tensors and the graph can be read outside of a program. Raises as :meth:`check_intact`."""
        self.flush()
        self.check_intact()
        with self.environment.stream, self.environment.entered(self.accounts.max_bytes, self.accounts):
            yield

    def defer(self, rest: Callable[[], None]) -> None:
        """Defer the rest of the running program to :meth:`flush`; it cannot fail for lack of memory."""
        self._rest = rest

    def forget(self, names: Sequence[str]) -> None:
        """Free the tensors of these names that exist, after the deferred effects of the last program."""
        rest = self._rest

        def free() -> None:
            if rest is not None:
                rest()
            for name in names:
                self.tensors.pop(name, None)

        self._rest = free
        if rest is None:
            self.flush()

    @property
    def defers(self) -> bool:
        """Whether effects of the last program are deferred to :meth:`flush`."""
        return self._rest is not None

    def flush(self) -> None:
        """Complete the deferred effects of the last program, if any.

        Never raises, because the program may have been answered: an error is logged, and :meth:`check_intact` raises
        it for later programs.
        """
        rest, self._rest = self._rest, None
        if rest is None:
            return
        try:
            with self.environment.stream:
                rest()
        except Exception:
            self._intact = False
            logger.exception("a session is lost: a program was answered, but its effects were not completed")

    def check_intact(self) -> None:
        """Raise InternalError if the effects of an answered program could not be completed."""
        if not self._intact:
            raise InternalError(NOT_INTACT)

    def run_instructions(self, program: Sequence[Instruction], observer: Observer | None = None) -> Answer:
        """Run any program one instruction at a time, like :meth:`run`, observed by ``observer`` if there is one."""
        if state.memory is self.accounts:  # a nested program: the environment is entered, and the profile runs
            return self._run_each(program)
        self.programs += 1
        self.last_s = math.inf
        before, started = self.instructions, perf_counter()
        with self.environment.entered(self.accounts.max_bytes, self.accounts):
            if self.profile is not None:
                self.profile.start()
            try:
                if observer is None:
                    return self._run_each(program)
                with observed_by(observer):
                    return self._run_each(program)
            finally:
                if self.profile is not None:
                    self.profile.pause()
                ran = min(self.instructions - before, len(program))  # procedures count their own instructions too
                self.statistics.add(self.source, INTERPRETED, perf_counter() - started, program, ran)

    def _run_each(self, program: Sequence[Instruction]) -> Answer:
        values: dict[str, Value] = {}
        unchanging = last_change(program)
        for index, instruction in enumerate(program):
            self.instructions += 1
            try:
                if self.on_instruction is None:
                    self.execute_instruction(instruction)
                else:
                    self.on_instruction(self.execute_instruction, instruction)
                if instruction.op == "fetch":
                    fetch(instruction, self.tensors, values, self.accounts.max_bytes, self.accounts, index < unchanging)
                elif instruction.op == "free":
                    # Only the name is removed: other names of the tensor stay valid.
                    for name in instruction.inputs[0]:
                        self.tensors.pop(name, None)
            except Suspended as stop:
                if self.suspensions.is_known(self, stop.pending, instruction):
                    continue
                return Answer(values, {**stop.pending, "instruction": index})
            except TelegradError as error:
                raise self._locate(error, index, instruction) from None
            except Exception as error:
                raise self._locate(self.explained(error, instruction), index, instruction) from error
        return Answer(values)

    # One instruction -----------------------------------------------------------------------

    def execute_instruction(self, instruction: Instruction) -> None:
        """Execute an instruction, and record it in the open checkpoints, if there are any."""
        if self.checkpoints.open:
            self.checkpoints.execute(instruction)
        else:
            self._execute(instruction)

    def _execute(self, instruction: Instruction) -> None:
        check_cancelled()
        if state.device is not None:
            self.environment.stream.keep_up()
        previous = state.grad_enabled
        if instruction.grad_mode is not None:
            state.grad_enabled = instruction.grad_mode == "enable_grad"
        state.room = self.accounts.room
        try:
            if instruction.outputs:
                self._check_names(instruction.outputs)
            tensors = self.tensors
            inputs = [tensors[x] if type(x) is str and x in tensors else self._resolve(x) for x in instruction.inputs]
            verb = VERBS.get(instruction.op)
            if verb is None:
                if next_sequence() > self._overhead_due:
                    self.note_overhead()
                    if self.accounts.room < self.accounts.floor:  # in-place ops make nodes, but bind no names
                        self.accounts.check_room(0)
                results = self._run_op(instruction, inputs)
            elif state.observer is None:
                results = self._run_verb(verb, instruction, inputs)
            else:
                results = state.observer.verb(self._run_verb, verb, instruction, inputs)
            self._bind(instruction, results)
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
        arguments = op.check_inputs(inputs, in_place)
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
                continue  # the gradient of an unused input: its name stays free
            self.accounts.count(tensor._data)
            # Ops on equal shapes are not checked before they run: their result is no larger than an input.
            if self.accounts.room < self.accounts.floor:
                self.accounts.check_room(0)
            self.tensors[name] = tensor

    # Memory of other objects ---------------------------------------------------------------

    @property
    def _is_overhead_due(self) -> bool:
        """Whether so many nodes were made that :meth:`note_overhead` must be called, which may take long."""
        return next_sequence() > self._overhead_due

    @property
    def has_small_graphs(self) -> bool:
        """Whether the graphs have so few nodes that a thread is not needed to count or to free them."""
        return self._nodes <= FREE_NODES and not self._is_overhead_due

    def note_overhead(self) -> None:
        """Count the nodes made since the last census; take another census when they are as many as it found.

        A node is not counted when it is freed, which would slow down every op. So until the next census the count
        includes freed nodes, and those that other sessions make. Registered functions are counted as they are.
        """
        now = next_sequence()
        if now - self._census_at > max(self._nodes, FREE_NODES):
            self._nodes, self._census_at = count_nodes(self.tensors.values()), now
        self._overhead_due = now + FREE_NODES
        profile = self.profile or self.profiled
        self.accounts.overhead_bytes = (
            NODE_BYTES * (self._nodes + max(0, now - self._census_at - FREE_NODES))
            + EVENT_BYTES * (0 if profile is None else profile.size)
            + WEIGHT_BYTES * self.functions.weight
            + (0 if self.observation is None else self.observation.nbytes)
        )

    # Errors -------------------------------------------------------------------------------

    def explained(self, error: Exception, instruction: Instruction) -> TelegradError:
        """Return the TelegradError for a failed instruction."""
        if isinstance(error, TelegradError):
            return error
        device = self.environment.device
        if isinstance(error, MemoryError) or (device is not None and device.backend.is_out_of_memory(error)):
            return TooLarge(OUT_OF_MEMORY)
        # A kernel failed on values that no rule covers: the instruction is at fault, not the server.
        logger.warning("%s failed unforeseen", instruction.op, exc_info=True)
        return InvalidOperation(f"{instruction.op}: {error}")

    def _locate(self, error: TelegradError, index: int, instruction: Instruction) -> TelegradError:
        ids = list(names_in(instruction.inputs))
        error.context.setdefault("ids", ids)
        known = {name: list(self.tensors[name].shape) for name in ids if name in self.tensors}
        error.context |= {"instruction": index, "op": instruction.op, "shapes": known}
        if (hint := hint_for(error, instruction, self.tensors)) is not None:
            error.context["hint"] = hint
        return error

    # Lookup ------------------------------------------------------------------------------

    def new_id(self) -> str:
        """Return an id that no tensor of this session has."""
        while True:
            self._last_id += 1
            name = f"v{self._last_id}"
            if name not in self.tensors:
                return name

    def keep(self, tensor: Tensor) -> str:
        """Give a tensor a new name, and return the name."""
        name = self.new_id()
        self.accounts.count(tensor._data)
        self.tensors[name] = tensor
        return name

    def get(self, name: str) -> Tensor:
        """Return the tensor of this name. Raises UnknownTensor."""
        tensor: Tensor = self._resolve(name)
        return tensor

    def last_profile(self) -> profile:
        """Return the running profile, or else the last one. Raises UnknownResource if there was none."""
        found = self.profile or self.profiled
        if found is None:
            raise UnknownResource("nothing was profiled in this session; the instruction start_profile begins")
        return found
