"""Commands and queries: the functions that routes and streams run in a session, by name and with plain data.

A command may change the session, and does so by running programs; a query only reads. A durable session's journal has
the commands, so their names and the meaning of their arguments are part of its format.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from inspect import signature
from time import perf_counter, time
from typing import Any, NamedTuple, TypeVar, get_type_hints

import numpy as np
from pydantic import BaseModel

from telegrad_engine.errors import InternalError, ProgramNotRun, SequenceConflict, TelegradError, TooLarge
from telegrad_engine.program import Instruction, compression, safetensors, wire
from telegrad_engine.program.compression import Body, is_frame
from telegrad_engine.program.overloads import find_op
from telegrad_engine.program.result import Answer, BorrowedAnswer, Value
from telegrad_engine.session.session import NotAtOnce, Session
from telegrad_engine.session.snapshot import undone_on_error

from .. import problems
from ..http.representations import JSON, decompressed
from ..observability import tracing
from ..observability.feed import EndedCall, Feed
from ..observability.request import OVER_STREAM, REQUEST
from .sequence import HostedSession, SequenceRecord, StreamAnswer, digest_of, parse_number

logger = logging.getLogger(__name__)
T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])
COMMANDS: dict[str, Callable[..., Any]] = {}
QUERIES: set[Callable[..., Any]] = set()
NAMES: dict[Callable[..., Any], str] = {}
"""The names of commands in journals."""
KINDS = dict.fromkeys(("run_program", "run_streamed_program", "run_instructions"), "program") | {"run_op": "op"}
"""What calls are for listeners, where it is not the name of the command."""
WORKLOADS: dict[Callable[..., Any], Callable[..., Hashable | None]] = {}
"""The workloads of functions that may run on the event loop; see :func:`brief`."""


def command(name: str) -> Callable[[Function], Function]:
    """Declare a function that may change its session. A journal can hold its other arguments."""

    def declare(function: Function) -> Function:
        if name in COMMANDS:
            raise ValueError(f"there is a command {name} already")
        COMMANDS[name] = function
        NAMES[function] = name
        return function

    return declare


def query(function: Function) -> Function:
    """Declare a function that only reads its session. Like programs, it computes without NumPy's warnings."""
    quiet: Function = np.errstate(all="ignore")(function)
    QUERIES.add(quiet)
    return quiet


def brief(workload: Callable[..., Hashable | None]) -> Callable[[Function], Function]:
    """Declare a command or query that runs on the event loop if its last runs with an equal workload were brief.

    ``workload`` takes the same arguments, and returns what determines how long the function takes, or None if that is
    unknown.
    """

    def declare(function: Function) -> Function:
        WORKLOADS[function] = workload
        return function

    return declare


def restored_arguments(function: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
    """The arguments of a command in a journal, where pydantic models are dictionaries."""
    return [
        model.model_validate(value) if model is not None and isinstance(value, dict) else value
        for model, value in zip(_models(function), arguments, strict=False)
    ]


@cache
def _models(function: Callable[..., Any]) -> tuple[type[BaseModel] | None, ...]:
    """For each parameter after the session, its type if that is a pydantic model."""
    hints = get_type_hints(function)
    types = [hints.get(name) for name in signature(function).parameters][1:]
    return tuple(hint if isinstance(hint, type) and issubclass(hint, BaseModel) else None for hint in types)


OBSERVED = {wire.OBSERVED: "true"}
"""The label of answers while somebody observes the session: the client may send lines and modules then."""
MAX_ELEMENTS = 4096
"""The most elements of a tensor with which a call runs on the event loop. Special values, such as NaN, may be slow."""


@command("run_program")
def run_encoded(
    session: Session,
    body: Body,
    content_type: str,
    accept: str,
    max_depth: int,
    max_elements: int,
    most_unpacked: int | None = None,
) -> wire.Container:
    """Run the program in ``body`` and encode its answer, before another program can change the arrays.

    With ``most_unpacked``, ``body`` is a zstd frame that may decompress to at most that many bytes.
    """
    if most_unpacked is not None:
        body = compression.decompress(body, most_unpacked)
    message = wire.decode_message(body, content_type, max_depth, session.memory)
    with undone_on_error(session, message.programs[0]) if message.rollback else nullcontext():
        answer = message.run(session)
        if accept == JSON:
            try:
                check_elements(answer.values.values(), max_elements)
            except TooLarge as error:
                error.context["progress"] = message.progress(session, sum(map(len, message.programs)))
                raise
        return wire.encode_answer(answer, accept)


@command("run_streamed_program")
def run_numbered(
    session: HostedSession, sender: str, message: Body, max_depth: int, most: int, within: float | None = None
) -> StreamAnswer:
    """Run the program in a container and record the answer, or return the recorded answer of a repeated program.

    The container may be in a zstd frame that decompresses to at most ``most`` bytes. The caller must hold the turn of
    the sender's record. Raises NotAtOnce if the program may take longer than ``within`` seconds. When called again
    without ``within``, the program continues where it stopped.
    """
    try:
        body = decompressed(message, most) if is_frame(message) else message
        metadata, arrays = safetensors.decode(body)
        number = parse_number(metadata.get("sequence", ""), "sequence")
        seen = parse_number(metadata.get("seen", ""), "seen", least=0)
    except TelegradError as error:
        return StreamAnswer(None, error=error)
    record = session.senders.of(sender)
    record.forget(seen)
    digest = digest_of(body)
    try:
        repeated: StreamAnswer | None = record.recorded(number, digest)
    except SequenceConflict as conflict:
        return StreamAnswer(number, error=conflict)
    if repeated is not None:
        return repeated
    answer, halts = _numbered_answer(
        session,
        record,
        number,
        metadata,
        arrays,
        max_depth,
        record.failed if record.failed > seen else None,
        within,
    )
    record.record(number, digest, answer, halts)
    return answer


def _numbered_answer(
    session: HostedSession,
    record: SequenceRecord,
    number: int,
    metadata: Mapping[str, str],
    arrays: Mapping[str, Any],
    max_depth: int,
    failed: int | None,
    within: float | None,
) -> tuple[StreamAnswer, bool]:
    """Run the next program. Return its answer, and whether programs that were already sent after it must not run.

    ``failed`` is the number of an earlier program whose failure the sender had not seen. The program does not run then.
    """
    if failed is not None:
        text = f"program {number} did not run: program {failed} before it has not run to its end"
        return StreamAnswer(number, error=ProgramNotRun(text)), False
    try:
        session.source = OVER_STREAM
        progress = record.progress_of(number)
        with nullcontext() if tracing.tracer is None else tracing.program_span(session, metadata):
            answer = _run_message(session, metadata, arrays, max_depth, within, progress)
        observed = session.observation is not None and session.observation.observes
        labels = {"sequence": str(number)} | (OBSERVED if observed else {})
        content = wire.lend_answer(answer, labels)
        if isinstance(content, BorrowedAnswer):
            session.lent.add(content)
    except NotAtOnce:
        raise
    except TelegradError as error:
        return StreamAnswer(number, error=_bare(error)), not isinstance(error, ProgramNotRun)
    except Exception:
        logger.exception("a program of the stream met an error of the server's own")
        return StreamAnswer(number, error=InternalError(problems.OWN_FAULT)), True
    return StreamAnswer(number, content, observed=observed), answer.pending is not None


def _run_message(
    session: HostedSession,
    metadata: Mapping[str, str],
    arrays: Mapping[str, Any],
    max_depth: int,
    within: float | None,
    progress: wire.Progress,
) -> Answer:
    """Run the message in a container.

    With ``within``, raises NotAtOnce for a message with rollback, and for several programs of a durable session, since
    the journal has the message as a whole.
    """
    message = wire.message_of(metadata, arrays, max_depth, session.memory)
    if within is not None and (message.rollback or (session.is_durable and len(message.programs) > 1)):
        raise NotAtOnce
    if not message.rollback:
        return message.run(session, within, progress)
    with undone_on_error(session, message.programs[0]):
        return message.run(session)


def _bare(error: TelegradError) -> TelegradError:
    """Return an error without its traceback and causes, whose frames keep the program's arrays alive."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


class Submission(NamedTuple):
    """A call of a session that somebody listens to."""

    feed: Feed
    loop: asyncio.AbstractEventLoop
    kind: str
    """What the call is, in words of the API."""
    since: float
    """When it was submitted, by ``perf_counter``."""


def kind_of(function: Callable[..., Any]) -> str:
    """What a call of a command or a query is, for listeners."""
    name = NAMES.get(function, function.__name__)
    return KINDS.get(name, name)


class Report:
    """What listeners learn of a call. While it runs, the session has their observation."""

    def __init__(self, submission: Submission, session: Session) -> None:
        self._submission, self._session = submission, session
        self._programs, self._instructions = session.programs, session.instructions
        request = REQUEST.get()
        self._sequence: int | None = None if request is None else request.sequence
        self._request_id: str | None = None if request is None else request.id
        self._error: str | None = None
        observation = session.observation = submission.feed.observation
        assert observation is not None
        self._observation, self._step = observation, observation.step
        self._started = perf_counter()
        self._seconds = 0.0

    def end(self, result: Any = None, error: TelegradError | None = None) -> None:
        """Note the end of the call, with its result or its error."""
        self._seconds, self._session.observation = perf_counter() - self._started, None
        if isinstance(result, StreamAnswer):
            self._sequence, error = result.number, result.error
            self._request_id = f"{self._request_id}-{result.number}"
        self._error = None if error is None else error.slug

    def publish(self, counts_graph: bool = True) -> None:
        """Tell the listeners, if the call ran a program or failed. Its effects must be complete."""
        session, feed = self._session, self._submission.feed
        if session.programs == self._programs and self._error is None:
            return
        observation, step, nodes = self._observation, None, None
        observation.note_planned()
        if observation.observes:
            if observation.step is not None and observation.step is not self._step:
                step, observation.step_sequence = observation.step, self._sequence
            if counts_graph:
                nodes = observation.count_graph(session)
        feed.submit(
            self._submission.loop,
            EndedCall(
                sequence=self._sequence,
                kind=self._submission.kind,
                instructions=session.instructions - self._instructions,
                queued_s=self._started - self._submission.since,
                seconds=self._seconds,
                planned=observation.planned,
                digest=observation.digest,
                used_bytes=session.accounts.used_bytes,
                error=self._error,
                request_id=self._request_id,
                at=time(),
                scalars=observation.taken_scalars() if observation.observes else [],
                step=step,
                revision=session.programs,
                nodes=nodes,
            ),
        )


def run_published(submission: Submission, function: Callable[..., T], session: Session, *arguments: Any) -> T:
    """Return ``function(session, …)``, and publish events if it ran a program or failed."""
    report = Report(submission, session)
    try:
        result = function(session, *arguments)
        report.end(result)
        return result
    except TelegradError as error:
        report.end(error=error)
        raise
    except BaseException:
        report.end()
        raise
    finally:
        report.publish()


@command("run_instructions")
def run_instructions(session: Session, program: Sequence[Instruction]) -> None:
    """Run a program and discard its answer."""
    session.run(program)


def tensor_metadata(session: Session, name: Any) -> Hashable | None:
    """The shape and dtype of a small tensor, which determine how long an op takes; None for anything else."""
    tensor = session.tensors.get(name) if type(name) is str else None
    return None if tensor is None or tensor._data.size > MAX_ELEMENTS else (tensor.shape, tensor.dtype)


def _op_workload(
    session: Session,
    name: str,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
    outputs: Sequence[str] | None,
    with_data: bool,
    *others: object,
) -> Hashable | None:
    known = [float if type(x) is float else x if type(x) is int else tensor_metadata(session, x) for x in inputs]
    dtypes = [x[1] for x in known if type(x) is tuple]
    # The values of integers and booleans may determine the size of a result.
    if None in known or not dtypes or not all(dtype.is_floating_point for dtype in dtypes):
        return None
    return name, *known, repr(attrs), with_data


@brief(_op_workload)
@command("run_op")
def run_op(
    session: Session,
    name: str,
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
    outputs: Sequence[str] | None,
    with_data: bool,
    max_elements: int,
) -> bytes:
    """Run one op and describe its outputs, or the tensor that an in-place op changed."""
    instruction = Instruction(name, inputs, outputs, attrs)
    session.run([instruction])
    in_place = name.endswith("_") and find_op(name, len(inputs), attrs)[1]
    ids = [inputs[0]] if in_place else instruction.outputs
    return outputs_json("outputs", session.read(ids, with_data), max_elements)


def outputs_json(name: str, values: Sequence[Value | None], max_elements: int) -> bytes:
    """Encode ``{name: [tensor or null, …]}`` in JSON."""
    check_elements([value for value in values if value is not None], max_elements)
    items = (b"null" if value is None else wire.encode_value(value) for value in values)
    return b'{"%b":[%b]}' % (name.encode(), b",".join(items))


def _creation_workload(
    session: Session, program: Sequence[Instruction], with_data: bool, *others: object
) -> Hashable | None:
    attrs = {name: value for name, value in program[0].attrs.items() if name != "data"}
    return program[0].op, repr(attrs), len(program), with_data  # a small body has little data


@brief(_creation_workload)
@command("create_tensor")
def create_tensor(
    session: Session, program: Sequence[Instruction], with_data: bool, max_elements: int
) -> tuple[str, bytes]:
    """Run a program whose first instruction creates a tensor. Return its id and description.

    If the program fails, the tensor is freed.
    """
    session.run(program[:1])
    name: str = program[0].outputs[0]
    try:
        if len(program) > 1:
            session.run([Instruction(each.op, [name], each.outputs, each.attrs) for each in program[1:]])
        return name, tensor_json(session.read([name], with_data)[0], max_elements)
    except Exception:
        session.run([Instruction("free", [(name,)])])
        raise


def tensor_json(value: Value, max_elements: int) -> bytes:
    """Encode a fetched tensor in JSON."""
    check_elements([value], max_elements)
    return wire.encode_value(value)


def check_elements(values: Any, most: int) -> None:
    """Raise TooLarge if an answer has more than ``most`` numbers, the limit for JSON."""
    size = sum(value.array.size for value in values if value.array is not None)
    if size > most:
        raise TooLarge(
            f"the answer has {size} numbers, in JSON at most {most} are served; "
            "ask for application/vnd.safetensors in Accept, or for no data"
        )
