"""What routes have a session do: functions that run where the session lives.

Whatever executes does so as a program; the rest only looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from telegrad_engine.errors import TooLarge
from telegrad_engine.program import Instruction, json_codec, wire
from telegrad_engine.session import Answer, Session, Value

from .media import JSON


def run_encoded(session: Session, body: bytes, content_type: str, accept: str, max_depth: int, max_elements: int) -> bytes:
    """Run the program in ``body`` and encode its answer, before another program can change the arrays."""
    program = wire.decode_program(body, content_type, max_depth)
    answer = session.run(program)
    if accept == JSON:
        check_elements(answer, max_elements)
    return wire.encode_answer(answer, accept)


def check_elements(answer: Answer, most: int) -> None:
    """Refuse an answer that is too long for JSON."""
    size = sum(value.array.size for value in answer.values.values() if value.array is not None)
    if size > most:
        raise TooLarge(
            f"the answer has {size} numbers, in JSON at most {most} are served; ask for another media type in Accept"
        )


def fetch(session: Session, ids: Sequence[str], values: bool) -> list[Value]:
    """What the tensors of these ids are, with their values or without."""
    answer = session.run([Instruction("fetch", [tuple(ids)], attrs={"values": values})])
    return [answer.values[name] for name in ids]


def to_json(value: Value) -> dict[str, Any]:
    """A fetched tensor as JSON data; ``data`` is null if only the description was asked for."""
    data = None if value.array is None else json_codec.to_lists(value.array)
    return {**value.description, "data": data}
