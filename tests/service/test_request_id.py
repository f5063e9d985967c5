"""The id of a request: in every response, in problem documents, on streams, and in what the SDK raises."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import httpx
import pytest

import telegrad as tg
from telegrad_engine.errors import InternalError, LinAlgError, UnknownSession, from_slug

from ..servers import STOP_S
from .conftest import SessionClient
from .raw_http import ask, document, request, upgrade
from .streams import BAD, Talk

OWN = re.compile("[0-9a-f]{16}")


def test_every_response_has_an_id(client: httpx.Client, session: SessionClient) -> None:
    answers = [
        client.get("/healthz"),
        client.get("/nowhere"),
        client.put("/healthz"),
        client.head(session.path),
        client.get("/docs"),
        client.options("/v1/sessions"),
        session.run(BAD),
        session.get("/events", headers={"accept": "image/png"}),
    ]
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == len(answers) and all(map(OWN.fullmatch, ids))
    for answer in answers:
        if answer.is_error and answer.request.method != "HEAD":
            assert answer.json()["request_id"] == answer.headers["x-request-id"]


@pytest.mark.full
@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        request("GET", "/healthz", "A: " + "a" * 100_000),
        request("GET", "/healthz", host="evil.example"),
        upgrade("/nowhere"),
        upgrade("/v1/sessions/vanished/stream"),
    ],
)
def test_refusals_have_an_id(url: str, data: bytes) -> None:
    answer = ask(url, data)
    found = re.search(rb"(?i)\r\nx-request-id: ([0-9a-f]{16})\r\n", answer)
    assert found is not None, answer
    assert document(answer)["request_id"] == found[1].decode()
    assert answer.lower().count(b"x-request-id:") == 1


@pytest.mark.full
def test_a_client_may_name_its_request(client: httpx.Client) -> None:
    for name in ("a", "018f3c2e-7b1d-7c3a-9f10-2b6d1e5a4c77", "A.b_c-9", "x" * 64):
        answer = client.get("/nowhere", headers={"X-Request-ID": name})
        assert answer.headers["x-request-id"] == answer.json()["request_id"] == name
    for name in ("", "x" * 65, "a b", "-a", "\u00e9", "<script>", "a,b", "${jndi:ldap://x}"):
        answer = client.get("/healthz", headers={"X-Request-ID": name.encode("latin-1")})
        assert OWN.fullmatch(answer.headers["x-request-id"]), name
    twice = client.get("/healthz", headers=[("X-Request-ID", "a"), ("X-Request-ID", "b")])
    assert OWN.fullmatch(twice.headers["x-request-id"])


@pytest.mark.full
def test_a_repeated_request_is_answered_with_its_own_id(session: SessionClient) -> None:
    first, again = (
        session.run({"op": "neg"}, headers={"Telegrad-Sequence": "1", "X-Request-ID": name}) for name in ("one", "two")
    )
    assert first.status_code == again.status_code == 422
    assert (first.headers["x-request-id"], again.headers["x-request-id"]) == ("one", "two")


def test_a_stream_has_one_id_and_its_programs_a_number(session: SessionClient) -> None:
    talk = Talk(session)
    name = talk.greeting["request_id"]
    assert OWN.fullmatch(name)
    assert talk.socket.response is not None and talk.socket.response.headers["x-request-id"] == name
    assert talk.ask(1, BAD)["request_id"] == f"{name}-1"
    assert talk.ask(2, BAD)["request_id"] == f"{name}-2"
    assert talk.say(b"nonsense")["request_id"] == name
    talk.socket.close()


@pytest.mark.parametrize("stream", [True, False])
def test_errors_of_the_sdk_have_the_id(url: str, stream: bool) -> None:
    with pytest.raises(UnknownSession) as unknown:
        tg.connect(url, session="vanished")
    assert unknown.value.request_id is not None and OWN.fullmatch(unknown.value.request_id)
    with tg.connect(url, stream=stream):
        x = tg.tensor([[2.0, 1.0], [4.0, 2.0]])
        with pytest.raises(LinAlgError) as wrong:
            tg.linalg.inv(x).tolist()
    name = wrong.value.request_id
    assert name is not None and re.fullmatch(OWN.pattern + (r"-\d+" if stream else ""), name)
    assert name not in str(wrong.value)


@pytest.mark.full
def test_an_unforeseen_error_has_the_id_in_its_answer_and_in_the_log() -> None:
    script = """
from telegrad_service.app import create_app
from telegrad_service.observability import logs
from telegrad_service.server import serve
from telegrad_service.settings import Settings

settings = Settings(port=0)
app = create_app(settings)

@app.get("/fails")
async def fails():
    raise KeyError("inside")

logs.configure("warning", "json")
serve(app, settings, lambda url: print(url, flush=True))
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            answer = httpx.get(f"{process.stdout.readline().strip()}/fails", headers={"X-Request-ID": "mine"})
        finally:
            process.terminate()
            log = process.communicate(timeout=STOP_S)[1]
    assert (answer.status_code, answer.headers["x-request-id"], answer.json()["request_id"]) == (500, "mine", "mine")
    assert "inside" not in answer.text
    records = [json.loads(line) for line in log.splitlines()]
    assert [record["request_id"] for record in records] == ["mine"] and "KeyError" in records[0]["error"]


@pytest.mark.full
def test_an_internal_error_says_its_id() -> None:
    error = from_slug("internal-error", "it is in the log", {"request_id": "abc-7"})
    assert isinstance(error, InternalError) and error.request_id == "abc-7"
    assert str(error) == "it is in the log (request abc-7)"
    assert str(InternalError("words")) == "words" and InternalError("words").request_id is None
