"""Programs and answers as bytes: JSON, or a safetensors container with the JSON in its metadata.

The client and the server use this module, so a program means the same in either encoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import MalformedRequest
from . import json_codec, safetensors
from .instructions import Instruction, parse_program
from .message import NO_LABELS, Message, parse_message
from .program_cache import MEMORY, Memory
from .result import LEAST, Answer, Lent, Value
from .template import TAKES_DATA
from .uploads import keep_apart

JSON = "application/json"
SAFETENSORS = safetensors.MEDIA_TYPE
Container = safetensors.Container


def decode_message(
    body: Container, media_type: str, max_depth: int = json_codec.MAX_DEPTH, memory: Memory = MEMORY
) -> Message:
    """Return the message in a body. Raises MalformedRequest, naming the instruction, if it is invalid.

    A container has a whole program, or calls of templates (:mod:`.message`).
    """
    if media_type == JSON:
        return Message([parse_program(json_codec.loads(bytes(body), max_depth))])
    return message_of(*safetensors.decode(body), max_depth, memory)


def message_of(metadata: Mapping[str, str], arrays: Mapping[str, Any], max_depth: int, memory: Memory) -> Message:
    """Return the message of a container with this metadata and these arrays. Raises MalformedRequest."""
    if "calls" in metadata:
        return parse_message(metadata, arrays, max_depth, memory)
    if "program" not in metadata:
        raise MalformedRequest('safetensors: the metadata has neither "calls" nor "program"')
    program = parse_program(json_codec.loads(metadata["program"].encode(), max_depth))
    for index, instruction in enumerate(program):
        if instruction.op in TAKES_DATA and "data" not in instruction.attrs:
            _attach(instruction, arrays, index)
    keep_apart(i.attrs["data"] for i in program if i.op in TAKES_DATA)
    return Message([program])


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


def encode_answer(answer: Answer, media_type: str = SAFETENSORS) -> Container:
    """Encode an answer as bytes. In JSON, ``data`` is null if only the description was requested."""
    if media_type == JSON:
        members = (json_codec.dumps(name) + b":" + encode_value(value) for name, value in answer.values.items())
        return b'{"values":{' + b",".join(members) + b'},"pending":' + json_codec.dumps(answer.pending) + b"}"
    return safetensors.joined(_answer_pieces(answer, NO_LABELS))


def lend_answer(answer: Answer, labels: Mapping[str, str]) -> Container | Lent:
    """Return an answer as a container. A long one refers to the tensors' memory until its session materializes it."""
    pieces = _answer_pieces(answer, labels)
    return safetensors.joined(pieces) if sum(map(len, pieces)) < LEAST else Lent(pieces)


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
    return json_codec.dumps(value.description)[:-1] + b',"data":' + data + b"}"


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
    return Answer(values, data.get("pending"))
