"""The AsyncAPI document of the stream: in step with the app, and with what a stream sends and takes.

Internals: the document is rendered as ``telegrad openapi`` does; what a call has is compared with the engine's codec.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import numpy as np
import pytest
from safetensors.numpy import save

from telegrad_engine.program.wire import CALL_KEYS
from telegrad_service.app import create_app
from telegrad_service.asyncapi import render
from telegrad_service.cli import DOCUMENT, STREAM
from telegrad_service.settings import Settings

from .conftest import SessionClient
from .streams import BAD, UP, Talk, container, fetch

ROOT = Path(__file__).parents[2]
Document = dict[str, Any]


@pytest.fixture(scope="module")
def document() -> Document:
    found: Document = json.loads(render(create_app(Settings())))
    return found


def metadata_of(message: bytes) -> dict[str, str]:
    size = int.from_bytes(message[:8], "little")
    found: dict[str, str] = json.loads(message[8 : 8 + size])["__metadata__"]
    return found


def validate(document: Document, schema: dict[str, Any], value: Any) -> None:
    jsonschema.Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def validate_metadata(document: Document, message: str, metadata: dict[str, str]) -> None:
    """The metadata of a container, and the JSON in it."""
    headers = document["components"]["messages"][message]["headers"]
    validate(document, headers, metadata)
    model = document["components"]["schemas"][headers["$ref"].rpartition("/")[2]]
    for name, text in metadata.items():
        described = model["properties"].get(name, {})
        if "x-contentSchema" in described:
            validate(document, described["x-contentSchema"], json.loads(text))


def test_the_file_is_in_step() -> None:
    file = (ROOT / DOCUMENT).parent / STREAM
    assert file.read_text(encoding="utf-8") == render(create_app(Settings())), "run `make openapi`"


def test_the_server_serves_it(client: httpx.Client, document: Document) -> None:
    assert client.get("/asyncapi.json").json() == document
    assert client.get("/", headers={"accept": "application/json"}).json()["asyncapi"] == "/asyncapi.json"


def test_what_a_stream_sends_and_takes(session: SessionClient, document: Document) -> None:
    messages = document["components"]["messages"]
    talk = Talk(session, "?sender=asyncapi")
    validate(document, messages["greeting"]["payload"], talk.greeting)

    upload = save({"x": np.array([1.0, 2.0], np.float32)}, labels(1, {"instructions": [UP, fetch("x")]}))
    validate_metadata(document, "program", metadata_of(upload))
    talk.socket.send(upload)
    validate_metadata(document, "answer", metadata_of(talk.socket.recv()))

    text = json.dumps({"instructions": [{"op": "mul", "inputs": ["_0", {"operand": 0}], "outputs": ["_1"]}]})
    digest = sha256(text.encode()).hexdigest()
    call = {"template": digest, "ids": ["x", "y"], "operands": [0.5], "fetch": [1], "free": [1]}
    calls = {f"template.{digest}": text, "calls": json.dumps([call]), "free": json.dumps(["x"])}
    called = save({}, {**calls, "sequence": "2", "seen": "1"})
    validate_metadata(document, "program", metadata_of(called))
    talk.socket.send(called)
    validate_metadata(document, "answer", metadata_of(talk.socket.recv()))

    talk.socket.send(container(3, BAD))
    validate(document, messages["problem"]["payload"], json.loads(talk.socket.recv()))
    talk.socket.send(b"junk")
    validate(document, messages["problem"]["payload"], json.loads(talk.socket.recv()))


def labels(number: int, program: Any) -> dict[str, str]:
    return {"program": json.dumps(program), "sequence": str(number), "seen": str(number - 1)}


def test_examples_are_what_their_schemas_say(document: Document) -> None:
    for name, message in document["components"]["messages"].items():
        for example in message.get("examples", ()):
            validate_metadata(document, name, example["headers"])


def test_a_call_has_what_the_engine_reads(document: Document) -> None:
    assert set(document["components"]["schemas"]["Call"]["properties"]) == CALL_KEYS


def test_references_lead_somewhere(document: Document) -> None:
    for reference in set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document))):
        place: Any = document
        for part in reference.split("/"):
            place = place[part]


def test_close_codes_are_those_of_the_guide(document: Document) -> None:
    guide = (ROOT / "docs/reference/stream.md").read_text(encoding="utf-8")
    table = guide[guide.index("## How a stream ends") :]
    told = {int(code) for row in re.findall(r"^\| ([0-9, ]+) \|", table, re.MULTILINE) for code in row.split(",")}
    of_websocket = {1002, 1007, 1013}
    assert {each["code"] for each in document["channels"]["stream"]["x-close-codes"]} == told - of_websocket
