"""Messages and answers, and their encodings: JSON, or a safetensors container with JSON in its metadata.

A message has a whole program, or calls of templates, as the SDK sends them. A call provides the ids, the operands and
the uploads for one run of a template, and lists the tensors that are fetched and freed afterwards. Fetches and frees
are not part of the template, so a loop that reads its loss only now and then, or frees its tensors in another order,
calls the same templates. The client and the server use this module, so a program means the same in either encoding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from ..errors import LimitExceeded, MalformedRequest, TelegradError
from . import json_codec, safetensors
from .instructions import MAX_INSTRUCTIONS, Instruction, check_all, parse_program, program_of
from .program import MEMORY, NUMBERS, Programs, keep_apart
from .result import LEAST, Answer, BorrowedAnswer, Value
from .template import TAKES_DATA, Ending, Template

JSON, SAFETENSORS = "application/json", safetensors.MEDIA_TYPE
Container = safetensors.Container
MAX_CALLS = 64
"""The maximum number of calls in a message."""
ORIGINS = "origins"
"""The metadata key of the user's lines and modules, which a client sends while its session is observed."""
OBSERVED = "observed"
"""The metadata key of answers while somebody observes the session."""
TEXT = "template."
"""The prefix of the metadata keys of templates' texts; the digest follows it."""
CALL_KEYS = frozenset({"template", "ids", "operands", "fetch", "values", "free"})
INT = frozenset({int})
NO_LABELS: Mapping[str, str] = {}
NOTHING_RAN = "No instruction has run. Correct the program and send it again."
RAN = (
    "The instructions 0 to {last} have run, and their effects remain. Correct the program and send it from instruction "
    '{next} on. With "rollback": true a program that fails has no effects.'
)


class Call(NamedTuple):
    """One run of a template."""

    template: Template
    ids: Sequence[str]
    operands: Sequence[Any] = ()
    arrays: Mapping[str, Any] = {}
    """The arrays that it uploads, by the placeholder ids of the tensors."""
    ending: Ending = Ending()


class Outgoing:
    """A message to send: calls, and ids that are freed after all of them have run.

    ``texts`` are the digests of the templates whose text is sent, because the server does not have it. ``origins`` has
    for each digest the module and the user's line of each instruction, for a session that is observed.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        free: Sequence[str] = (),
        texts: Collection[str] = (),
        origins: Mapping[str, Any] | None = None,
    ) -> None:
        self.calls, self.free, self._texts, self._origins = calls, free, texts, origins

    @property
    def is_whole(self) -> bool:
        """Whether the message has the texts of all its templates."""
        return all(call.template.digest in self._texts for call in self.calls)

    def complete(self) -> None:
        """Send the texts of all templates with the message."""
        self._texts = {call.template.digest for call in self.calls}

    @property
    def origins(self) -> str | None:
        """The modules and lines as JSON."""
        return None if self._origins is None else json_codec.dumps(self._origins).decode()

    def pieces(self, labels: Mapping[str, str] = NO_LABELS) -> list[Container]:
        """Return the message as the pieces of a container, with these labels in its metadata."""
        metadata = {**labels, "calls": json_codec.dumps_plain([*map(_call_data, self.calls)]).decode()}
        if self.free:
            metadata["free"] = json_codec.dumps_plain(self.free).decode()
        if (origins := self.origins) is not None:
            metadata[ORIGINS] = origins
        arrays: dict[str, Any] = {}
        for index, call in enumerate(self.calls):
            if call.template.digest in self._texts:
                metadata[TEXT + call.template.digest] = call.template.text
            if call.arrays:
                arrays.update({f"{index}.{name}": array for name, array in call.arrays.items()})
        return safetensors.pieces(metadata, arrays)


def _call_data(call: Call) -> dict[str, Any]:
    data: dict[str, Any] = {"template": call.template.digest, "ids": call.ids}
    if call.operands:
        data["operands"] = call.operands
    fetch, values, free = call.ending
    if fetch:
        data |= {"fetch": fetch} if values else {"fetch": fetch, "values": False}
    if free:
        data["free"] = free
    return data


class Progress:
    """The progress of a message: how many calls and instructions have run, and the values fetched so far."""

    def __init__(self) -> None:
        self.calls = self.instructions = 0
        self.values: dict[str, Value] = {}


class Message(NamedTuple):
    """A received message: programs that run one after the other, and ids that are freed afterwards."""

    programs: Sequence[Sequence[Instruction]]
    free: Sequence[str] = ()
    rollback: bool = False
    """Whether a failure undoes all that the message did (``session.snapshot.undone_on_error``)."""
    origins: str | None = None
    """Where the client's program has the instructions of templates, as JSON (``inspection.observation``)."""

    def run(self, session: Any, within: float | None = None, progress: Progress | None = None) -> Answer:
        """Run the programs that ``progress`` does not include yet in a session. Return the answer to all programs.

        The instruction index of an error counts from the start of the message; nothing after that instruction runs.
        With ``within``, raises NotAtOnce before a program that may take more than that many seconds.
        """
        if self.origins is not None and session.observation is not None:
            session.observation.add_origins(_loads(self.origins, ORIGINS))
        done = progress or Progress()
        while done.calls < len(self.programs):
            program = self.programs[done.calls]
            try:
                answer = session.run(program, within)
            except TelegradError as error:
                if isinstance(error.context.get("instruction"), int):
                    error.context["instruction"] += done.instructions
                    error.context["progress"] = self.progress(session, error.context["instruction"])
                raise
            if answer.pending is not None:
                where = answer.pending["instruction"] + done.instructions
                return Answer({**done.values, **answer.values}, {**answer.pending, "instruction": where})
            done.calls += 1
            done.instructions += len(program)
            if not done.values and done.calls == len(self.programs):
                done.values = answer.values
            elif answer.values:
                done.values = {**done.values, **_copy_values(answer.values)}
        if self.free:
            session.forget(self.free)
        return Answer(done.values)

    def progress(self, session: Any, ran: int) -> dict[str, Any]:
        """Return what the problem document of a failure says about the first ``ran`` instructions, which have run."""
        made = dict.fromkeys([name for i in islice(chain(*self.programs), ran) for name in i.outputs or ()])
        return {
            "ran": ran,
            "outputs": [name for name in made if name in session.tensors],
            "rolled_back": False,
            "next": RAN.format(last=ran - 1, next=ran) if ran else NOTHING_RAN,
        }


def _copy_values(values: Mapping[str, Value]) -> dict[str, Value]:
    """Copy fetched values, so that no later program changes them."""
    return {
        name: value if value.array is None else Value(value.description, value.array.copy())
        for name, value in values.items()
    }


# Received messages ---------------------------------------------------------------------------


def decode_message(
    body: Container, media_type: str, max_depth: int = json_codec.MAX_DEPTH, memory: Programs = MEMORY
) -> Message:
    """Return the message in a body. Raises MalformedRequest, naming the instruction, if it is invalid.

    A container has a whole program, or calls of templates.
    """
    if media_type == JSON:
        program, rollback = program_of(json_codec.loads(bytes(body), max_depth))
        return Message([program], rollback=rollback)
    return message_of(*safetensors.decode(body), max_depth, memory)


def message_of(metadata: Mapping[str, str], arrays: Mapping[str, Any], max_depth: int, memory: Programs) -> Message:
    """Return the message of a container with this metadata and these arrays. Raises MalformedRequest."""
    if "calls" in metadata:
        return _parse_message(metadata, arrays, max_depth, memory)
    if "program" not in metadata:
        raise MalformedRequest('safetensors: the metadata has neither "calls" nor "program"')
    data = json_codec.loads(metadata["program"].encode(), max_depth)
    program, rollback = program_of(data) if isinstance(data, dict) else (parse_program(data), False)
    for index, instruction in enumerate(program):
        if instruction.op in TAKES_DATA and "data" not in instruction.attrs:
            _attach(instruction, arrays, index)
    keep_apart(i.attrs["data"] for i in program if i.op in TAKES_DATA)
    return Message([program], rollback=rollback)


def _attach(instruction: Instruction, arrays: Mapping[str, Any], index: int) -> None:
    """Give an upload the container's array with its own id, or with the name in ``attrs.array``."""
    attrs = dict(instruction.attrs)
    own = [*instruction.outputs, *(x for x in instruction.inputs if isinstance(x, str))]
    name = attrs.pop("array", own[0] if own else None)
    if not isinstance(name, str) or name not in arrays:
        raise MalformedRequest(
            f"instruction {index} uploads {name!r:.60}, but the container has no such tensor",
            instruction=index,
        )
    attrs["data"] = arrays[name]
    instruction.attrs = attrs


def _parse_message(metadata: Mapping[str, str], arrays: Mapping[str, Any], max_depth: int, memory: Programs) -> Message:
    """Return the message of a container with ``calls``. Raises MalformedRequest, LimitExceeded or UnknownProgram."""
    calls = _loads(metadata["calls"], "calls")
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise MalformedRequest("calls is a list of objects {template, ids, operands?, fetch?, values?, free?}")
    if len(calls) > MAX_CALLS:
        raise LimitExceeded(f"a message has at most {MAX_CALLS} calls, this one has {len(calls)}")
    free = _loads(metadata["free"], "free") if "free" in metadata else []
    if not isinstance(free, list):
        raise MalformedRequest("free is a list of tensor ids")
    check_all(free)
    uploads = _by_call(arrays, len(calls))
    programs = []
    for call, own in zip(calls, uploads, strict=True):
        known_by = call.get("template")
        if not CALL_KEYS.issuperset(call) or not isinstance(known_by, str):
            raise MalformedRequest(
                f"a call has template, ids, operands, fetch, values and free, not {min(call, default='nothing')!r:.60}"
            )
        text = metadata.get(TEXT + known_by)
        template = memory.find(known_by) if text is None else memory.read(text, known_by, max_depth)
        ids = _list(call, "ids", "tensor ids")
        check_all(ids)
        operands = _list(call, "operands", "numbers and ids")
        if not NUMBERS.issuperset(map(type, operands)):
            template.check_ids(operands)
        fetch, released = _slots(call, "fetch", len(ids)), _slots(call, "free", len(ids))
        ending = Ending(fetch, call.get("values", True) is not False, released)
        programs.append(template.with_ending(ending).bind(ids, own, operands))
    if sum(map(len, programs)) > MAX_INSTRUCTIONS:
        raise LimitExceeded(f"the calls of a message have at most {MAX_INSTRUCTIONS} instructions together")
    return Message(programs, free, origins=metadata.get(ORIGINS))


def _by_call(arrays: Mapping[str, Any], calls: int) -> list[dict[str, Any]]:
    """Group the uploads by call."""
    found: list[dict[str, Any]] = [{} for _ in range(calls)]
    for name, array in arrays.items():
        index, dot, slot = name.partition(".")
        if not dot or not index.isdecimal() or int(index) >= calls:
            raise MalformedRequest(
                f"tensor {name!r:.60} is of no call: its name is the call's index, a dot, and a slot"
            )
        found[int(index)][slot] = array
    return found


def _slots(call: Mapping[str, Any], name: str, ids: int) -> tuple[int, ...]:
    slots = _list(call, name, "slots")
    if slots and (not INT.issuperset(map(type, slots)) or min(slots) < 0 or max(slots) >= ids):
        wrong = next(slot for slot in slots if type(slot) is not int or not 0 <= slot < ids)
        raise MalformedRequest(f"{name} is a list of slots, each the position of one of the {ids} ids: {wrong!r:.60}")
    return tuple(slots)


def _list(call: Mapping[str, Any], name: str, of: str) -> list[Any]:
    found = call.get(name, [])
    if not isinstance(found, list):
        raise MalformedRequest(f"{name} is a list of {of}")
    return found


def _loads(text: str, name: str) -> Any:
    try:
        return json_codec.loads_plain(text.encode())
    except ValueError as error:
        raise MalformedRequest(f"{name} is not JSON: {error}") from None


# Answers -------------------------------------------------------------------------------------


def encode_answer(answer: Answer, media_type: str = SAFETENSORS) -> Container:
    """Encode an answer as bytes. In JSON, ``data`` is null if only the description was requested."""
    if media_type == JSON:
        members = (json_codec.dumps_ascii(name) + b":" + encode_value(value) for name, value in answer.values.items())
        return b'{"values":{' + b",".join(members) + b'},"pending":' + json_codec.dumps(answer.pending) + b"}"
    return safetensors.joined(_answer_pieces(answer, NO_LABELS))


def lend_answer(answer: Answer, labels: Mapping[str, str]) -> Container | BorrowedAnswer:
    """Return an answer as a container. A long one refers to the tensors' memory until its session materializes it."""
    pieces = _answer_pieces(answer, labels)
    return safetensors.joined(pieces) if sum(map(len, pieces)) < LEAST else BorrowedAnswer(pieces)


def _answer_pieces(answer: Answer, labels: Mapping[str, str]) -> list[Container]:
    data: dict[str, Any] = {"values": {name: value.description for name, value in answer.values.items()}}
    if answer.pending is not None:
        data["pending"] = answer.pending
    text = json_codec.dumps_plain(data)
    arrays = {name: value.array for name, value in answer.values.items() if value.array is not None}
    return safetensors.pieces({**labels, "answer": text.decode()}, arrays)


def encode_value(value: Value) -> bytes:
    """Encode a fetched tensor as JSON: its description, and ``data``, null if only the description was requested."""
    data = b"null" if value.array is None else json_codec.dumps_array(value.array)
    return json_codec.dumps_ascii(value.description)[:-1] + b',"data":' + data + b"}"


def decode_answer(body: bytes | memoryview, labels: Mapping[str, str] = NO_LABELS) -> Answer:
    """Return the answer in a safetensors body; its arrays are views of the body.

    Raises MalformedRequest unless the metadata has the ``labels`` and an answer.
    """
    metadata, arrays = safetensors.decode(body)
    if not labels.items() <= metadata.items():
        raise MalformedRequest(f"safetensors: the metadata is not that of the expected answer, {dict(labels)}")
    if "answer" not in metadata:
        raise MalformedRequest('safetensors: the metadata has no "answer"')
    data = json_codec.loads_plain(metadata["answer"].encode())
    values = {name: Value(description, arrays.get(name)) for name, description in data["values"].items()}
    return Answer(values, data.get("pending"), OBSERVED in metadata)
