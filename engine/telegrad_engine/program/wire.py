"""Programs and answers as bytes: JSON, or a safetensors container with the JSON in its metadata.

Both sides use this module, so a program means the same whichever encoding it travelled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import MalformedRequest
from ..params import encode_number
from ..session import Answer, Value, find_op
from . import json_codec, safetensors
from .instructions import Instruction, parse_program
from .verbs import VERBS

JSON = "application/json"
SAFETENSORS = safetensors.MEDIA_TYPE

TAKES_DATA = frozenset(name for name, verb in VERBS.items() if any(p.name == "data" for p in verb.attr_params))
"""Verbs whose ``data`` may come as an array of the container."""


def encode_program(program: Sequence[Instruction], media_type: str = SAFETENSORS) -> bytes:
    """A program as bytes. In a container, uploaded arrays are its tensors."""
    arrays: dict[str, Any] | None = {} if media_type == SAFETENSORS else None
    text = json_codec.dumps({"instructions": [_instruction_data(i, arrays) for i in program]})
    return text if arrays is None else safetensors.encode({"program": text.decode()}, arrays)


def _instruction_data(instruction: Instruction, arrays: dict[str, Any] | None) -> dict[str, Any]:
    data: dict[str, Any] = {"op": instruction.op}
    if instruction.inputs:
        data["in"] = _encode_inputs(instruction.inputs)
    if instruction.outputs:
        data["out"] = list(instruction.outputs)
    attrs = instruction.attrs
    if arrays is not None and instruction.op in TAKES_DATA:
        name = instruction.outputs[0] if instruction.outputs else instruction.inputs[0]
        arrays[name] = attrs["data"]
        attrs = {k: v for k, v in attrs.items() if k != "data"}
    if attrs:
        data["attrs"] = _encode_attrs(instruction.op, attrs)
    if instruction.grad_mode:
        data["grad_mode"] = instruction.grad_mode
    return data


def _encode_inputs(inputs: Sequence[Any]) -> list[Any]:
    return [
        x if type(x) is str else _encode_inputs(x) if isinstance(x, (list, tuple)) else encode_number(x) for x in inputs
    ]


def _encode_attrs(name: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    verb = VERBS.get(name)
    return verb.encode_attrs(attrs) if verb is not None else find_op(name)[0].encode_attrs(attrs)


def decode_program(body: bytes, media_type: str, max_depth: int = json_codec.MAX_DEPTH) -> list[Instruction]:
    """The program in a body. Raises MalformedRequest, naming the instruction, for anything else."""
    if media_type == JSON:
        return parse_program(json_codec.loads(body, max_depth))
    metadata, arrays = safetensors.decode(body)
    if "program" not in metadata:
        raise MalformedRequest('safetensors: the metadata has no "program"')
    program = parse_program(json_codec.loads(metadata["program"].encode(), max_depth))
    for index, instruction in enumerate(program):
        if instruction.op in TAKES_DATA and "data" not in instruction.attrs:
            _attach(instruction, arrays, index)
    return program


def _attach(instruction: Instruction, arrays: Mapping[str, Any], index: int) -> None:
    """Give an upload the container's array of its own id, or of the name in ``attrs.array``."""
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


def encode_answer(answer: Answer, media_type: str = SAFETENSORS) -> bytes:
    """An answer as bytes. In JSON, ``data`` is null where only the description was asked for."""
    if media_type == JSON:
        members = (json_codec.dumps(name) + b":" + encode_value(value) for name, value in answer.values.items())
        return b'{"values":{' + b",".join(members) + b'},"pending":' + json_codec.dumps(answer.pending) + b"}"
    data: dict[str, Any] = {"values": {name: value.description for name, value in answer.values.items()}}
    if answer.pending is not None:
        data["pending"] = answer.pending
    text = json_codec.dumps(data)
    arrays = {name: value.array for name, value in answer.values.items() if value.array is not None}
    return safetensors.encode({"answer": text.decode()}, arrays)


def encode_value(value: Value) -> bytes:
    """One fetched tensor in JSON: its description, and ``data``, null where only that was asked for."""
    data = b"null" if value.array is None else json_codec.dumps_array(value.array)
    return json_codec.dumps(value.description)[:-1] + b',"data":' + data + b"}"


def decode_answer(body: bytes) -> Answer:
    """The answer in a safetensors body; its arrays are views of the body."""
    metadata, arrays = safetensors.decode(body)
    if "answer" not in metadata:
        raise MalformedRequest('safetensors: the metadata has no "answer"')
    data = json_codec.loads(metadata["answer"].encode())
    values = {name: Value(description, arrays.get(name)) for name, description in data["values"].items()}
    return Answer(values, data.get("pending"))
