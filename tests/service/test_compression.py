"""Bodies in zstd frames, by requests and by the stream: the same programs, the same answers, the same limits."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from backports import zstd
from safetensors.numpy import load, save
from websockets.exceptions import ConnectionClosed, InvalidStatus

from ..frames import bomb, hiding, unsized
from ..servers import peak_bytes, running
from .conftest import SessionClient, problem
from .raw_http import leave, request
from .streams import ADD, TIMEOUT_S, UP, Talk, container, dial, fetch, is_problem

MIB = 2**20
GIB = 2**30
CONTAINER = "application/vnd.safetensors"
FREE = {"op": "free", "in": [["x"]]}
CODED = {"content-type": CONTAINER, "content-encoding": "zstd"}
MAGIC = b"\x28\xb5\x2f\xfd"
ONES = np.ones(100_000, np.float32)
NOISE = np.random.default_rng(0).integers(0, 256, 100_000, dtype=np.uint8)


def program(*instructions: dict[str, Any], **arrays: Any) -> bytes:
    return save(arrays, {"program": json.dumps(instructions)})


def send(
    session: SessionClient, content: bytes, path: str = "/programs", **headers: str
) -> tuple[httpx.Response, bytes]:
    """The response to a body, and its own body as it came, whatever httpx knows of its coding."""
    options: Any = {"content": content, "headers": {**CODED, "accept-encoding": "identity", **headers}}
    with session.client.stream("POST", session.path + path, **options) as response:
        return response, b"".join(response.iter_raw())


def refused(session: SessionClient, content: bytes, status: int, slug: str, **headers: str) -> str:
    """The detail of the problem with a body that must not have been run."""
    answer = session.request("POST", "/programs", content=content, headers={**CODED, **headers})
    detail: str = problem(answer, status, slug)["detail"]
    assert session.get("/tensors").json()["items"] == []
    return detail


# Requests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [zstd.compress, unsized, lambda body: body], ids=["sized", "unsized", "plain"])
@pytest.mark.parametrize("wanted", ["zstd", "gzip, zstd;q=0.3", "identity", "zstd;q=0", "*", "br"])
def test_a_program_and_its_answer(session: SessionClient, pack: Any, wanted: str) -> None:
    body = pack(program(UP, ADD, fetch("x"), x=ONES))
    coding = "zstd" if body[:4] == MAGIC else "identity"
    response, raw = send(session, body, **{"accept-encoding": wanted, "content-encoding": coding})
    assert response.status_code == 200
    assert response.headers["vary"] == "accept-encoding"
    assert response.headers["content-type"] == CONTAINER
    assert int(response.headers["content-length"]) == len(raw)
    if wanted in ("zstd", "gzip, zstd;q=0.3"):
        assert response.headers["content-encoding"] == "zstd"
        assert len(raw) < ONES.nbytes / 100
        raw = zstd.decompress(raw)
    else:
        assert "content-encoding" not in response.headers
    np.testing.assert_array_equal(load(raw)["x"], ONES + 1)


def test_json_and_other_routes_too(session: SessionClient) -> None:
    created = json.dumps({"id": "x", "data": [0.5] * 20_000}).encode()
    response, raw = send(session, zstd.compress(created), "/tensors?data=true", **{"content-type": "application/json"})
    assert response.status_code == 201, raw
    for accept in ("application/json", "application/x-npy", CONTAINER):
        headers = {"accept": accept, "accept-encoding": "zstd"}
        with session.client.stream("GET", f"{session.path}/tensors/x", headers=headers) as response:
            coded = b"".join(response.iter_raw())
        assert response.headers["content-encoding"] == "zstd"
        plain = session.get("/tensors/x", headers={**headers, "accept-encoding": "identity"})
        assert zstd.decompress(coded) == plain.content
    posted = {"content-type": "application/x-npy", "content-encoding": "zstd"}
    npy = session.get("/tensors/x", headers={"accept": "application/x-npy"}).content
    assert session.request("POST", "/tensors?id=y", content=zstd.compress(npy), headers=posted).status_code == 201
    assert session.data("y") == session.data("x")


def test_what_is_short_or_cannot_be_compressed_stays_plain(session: SessionClient) -> None:
    for array in (NOISE, np.zeros(100, np.float32)):
        response, raw = send(
            session, zstd.compress(program(UP, fetch("x"), FREE, x=array)), **{"accept-encoding": "zstd"}
        )
        assert "content-encoding" not in response.headers
        np.testing.assert_array_equal(load(raw)["x"], array)


def test_a_repeated_request_may_be_coded_otherwise(session: SessionClient) -> None:
    body = program(UP, ADD, fetch("x"), x=ONES)
    numbered = {"telegrad-sequence": "1"}
    first = send(session, zstd.compress(body), **numbered, **{"accept-encoding": "zstd"})[1]
    again = send(session, body, **numbered, **{"content-encoding": "identity"})[1]
    third = send(session, zstd.compress(body, 9), **numbered, **{"accept-encoding": "zstd"})[1]
    assert zstd.decompress(first) == again == zstd.decompress(third)
    assert session.get().json()["sequence"] == 1


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd, zstd", "gzip, zstd", "x-zstd", "\xff"])
def test_other_codings(session: SessionClient, coding: str) -> None:
    headers = {b"content-type": CONTAINER.encode(), b"content-encoding": coding.encode("latin-1")}
    answer = session.request("POST", "/programs", content=b"whatever", headers=headers)
    assert "Content-Encoding" in problem(answer, 415, "unsupported-media-type")["detail"]
    answer = session.request(
        "POST", "/tensors", content=b"{}", headers=headers | {b"content-type": b"application/json"}
    )
    problem(answer, 415, "unsupported-media-type")
    session.assert_usable()


def test_a_body_that_is_not_the_frame_that_it_is_said_to_be(session: SessionClient) -> None:
    body = program(UP, x=ONES)
    frame = zstd.compress(body)
    for content in (b"", b"garbage", body, MAGIC, MAGIC + b"\xff" * 99, frame + b"\0", frame + frame, frame[4:]):
        assert "zstd: " in refused(session, content, 400, "malformed-request")
    refused(session, frame, 400, "malformed-request", **{"content-encoding": "identity"})
    refused(session, zstd.compress(frame), 400, "malformed-request")
    session.assert_usable()


def test_a_program_cut_at_every_byte(session: SessionClient) -> None:
    for pack in (zstd.compress, unsized):
        frame = pack(program(UP, fetch("x"), x=np.zeros(3, np.float32)))
        for end in range(len(frame)):
            refused(session, frame[:end], 400, "malformed-request")
    assert send(session, frame)[0].status_code == 200


@pytest.fixture(scope="module")
def small() -> Iterator[Any]:
    """A server with small limits: its address, and its process."""
    with running("--max-body-bytes", str(2 * MIB), "--max-json-bytes", str(MIB)) as server:
        yield server


@pytest.fixture
def small_session(small: Any) -> Iterator[SessionClient]:
    with httpx.Client(base_url=small[0], timeout=240) as client:
        yield SessionClient(client)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="what a process takes is read from /proc")
def test_bombs(small: Any, small_session: SessionClient) -> None:
    frames = [bomb(size, promised) for size in (3 * MIB, 50 * GIB) for promised in (None, size)]
    small_session.run(*[{"op": "zeros", "out": ["x"], "attrs": {"size": [9]}}, {"op": "free", "in": [["x"]]}])
    before = peak_bytes(small[1])
    for frame in frames:
        assert str(2 * MIB) in refused(small_session, frame, 413, "too-large")
        detail = refused(small_session, frame, 413, "too-large", **{"content-type": "application/json"})
        assert str(MIB) in detail
    refused(small_session, bomb(3 * MIB, 2 * MIB), 400, "malformed-request")
    assert peak_bytes(small[1]) - before < 32 * MIB
    small_session.assert_usable()


def test_limits_hold_for_what_is_inside(small_session: SessionClient) -> None:
    headers = {**CODED, "content-type": "application/json"}
    for size, status in ((MIB, 200), (MIB + 1, 413)):
        body = zstd.compress(b'{"instructions": []}'.ljust(size))
        answer = small_session.request("POST", "/programs", content=body, headers=headers)
        assert answer.status_code == status


# The stream -------------------------------------------------------------------------------------


class Asking(Talk):
    """One connection of a client that asked for compressed answers, after the greeting."""

    def __init__(self, session: SessionClient) -> None:
        self.socket = dial(session, query="?compress=zstd")
        self.greeting = json.loads(self.socket.recv(20))

    def unpacked(self) -> bytes:
        """An answer that must be a frame, unpacked."""
        frame = self.socket.recv(20)
        assert isinstance(frame, bytes) and frame[:4] == MAGIC
        return zstd.decompress(frame)


@pytest.fixture(params=[Talk, Asking], ids=["plain", "compressed"])
def talk(request: pytest.FixtureRequest, session: SessionClient) -> Iterator[Talk]:
    made: Talk = request.param(session)
    yield made
    made.socket.close()


def test_messages_in_frames_and_without(session: SessionClient) -> None:
    talk = Asking(session)
    talk.socket.send(zstd.compress(container(1, UP, fetch("x"), x=ONES)))
    np.testing.assert_array_equal(load(talk.unpacked())["x"], ONES)
    talk.socket.send(container(2, ADD, fetch("x")))
    np.testing.assert_array_equal(load(talk.unpacked())["x"], ONES + 1)
    talk.socket.send(unsized(container(3, ADD)))
    assert talk.receive()["sequence"] == 3
    noise = talk.say(container(4, {"op": "tensor", "out": ["n"]}, fetch("n"), n=NOISE))
    np.testing.assert_array_equal(noise["arrays"]["n"], NOISE)
    talk.socket.close()


def test_who_did_not_ask_gets_plain_answers_and_may_send_frames(session: SessionClient) -> None:
    talk = Talk(session)
    talk.socket.send(zstd.compress(container(1, UP, fetch("x"), x=ONES)))
    np.testing.assert_array_equal(talk.receive()["arrays"]["x"], ONES)
    talk.socket.close()


def test_an_answer_from_the_record_is_as_this_connection_wants_it(session: SessionClient) -> None:
    message = container(1, UP, ADD, fetch("x"), x=ONES)
    first = Talk(session)
    first.socket.send(message)
    plain = first.socket.recv(20)
    second = Asking(session)
    assert second.greeting["last"] == 1
    second.socket.send(zstd.compress(message))
    assert second.unpacked() == plain
    second.socket.close()
    third = Talk(session)
    third.socket.send(message)
    assert third.socket.recv(20) == plain
    assert session.data("x")[0] == 2
    third.socket.close()


def test_a_frame_that_holds_no_numbered_container_changes_nothing(talk: Talk) -> None:
    good = container(1, UP, fetch("x"), x=np.ones(3, np.float32))
    frame = zstd.compress(good)
    wrong = [frame + b"\0", frame + frame, zstd.compress(frame), zstd.compress(b"garbage"), zstd.compress(b"")]
    for content in [frame[:end] for end in range(len(frame))] + wrong + [MAGIC + bytes(9)]:
        talk.socket.send(content)
        is_problem(talk.receive(), 400, "malformed-request", None)
    talk.socket.send(frame)
    assert talk.receive()["arrays"]["x"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("promised", [None, 50 * GIB])
def test_a_frame_that_is_too_long_inside_ends_the_stream_as_a_long_message_does(
    small_session: SessionClient, promised: int | None
) -> None:
    for content in (bomb(50 * GIB, promised)[: MIB + 10], bytes(2 * MIB + 1)):
        talk = Talk(small_session)
        talk.ask(talk.greeting["last"] + 1, {"op": "zeros", "out": ["x"], "attrs": {"size": [3]}})
        with pytest.raises(ConnectionClosed) as caught:
            talk.socket.send(content)
            talk.socket.recv(TIMEOUT_S)
        # What is too long as it stands is not read to its end, and then the system may drop what was said.
        said = caught.value.rcvd
        assert said.code == 1009 if said is not None else len(content) > 2 * MIB
        talk.socket.close()
    small_session.assert_usable()


@pytest.mark.parametrize("value", ["gzip", "", "ZSTD"])
def test_a_stream_that_asks_for_another_coding(session: SessionClient, value: str) -> None:
    with pytest.raises(InvalidStatus) as caught:
        dial(session, query=f"?compress={value}")
    response = caught.value.response
    assert response.status_code == 422
    assert json.loads(response.body or b"")["type"] == "urn:telegrad:problem:invalid-value"


# A server without the library -------------------------------------------------------------------


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that finds no zstd."""
    path = os.pathsep.join([hiding(tmp_path_factory.mktemp("without")), os.environ.get("PYTHONPATH", "")])
    with running(env={"PYTHONPATH": path}) as (url, _):
        yield url


def test_a_server_without_the_library_says_so(without: str) -> None:
    body = program(UP, fetch("x"), x=ONES)
    with httpx.Client(base_url=without, timeout=240) as client:
        session = SessionClient(client)
        assert "install telegrad-engine[zstd]" in refused(session, zstd.compress(body), 415, "unsupported-media-type")
        plain, raw = send(session, body, **{"content-encoding": "identity", "accept-encoding": "zstd"})
        assert "content-encoding" not in plain.headers
        np.testing.assert_array_equal(load(raw)["x"], ONES)
        with pytest.raises(InvalidStatus) as caught:
            dial(session, query="?compress=zstd")
        assert caught.value.response.status_code == 415
        talk = Talk(session)
        talk.socket.send(zstd.compress(container(1, UP, x=ONES)))
        is_problem(talk.receive(), 415, "unsupported-media-type", None)
        talk.socket.close()


@pytest.mark.full
def test_a_client_that_hangs_up_in_the_middle_of_a_frame(session: SessionClient) -> None:
    frame = zstd.compress(program(UP, x=ONES))
    lines = f"Content-Type: {CONTAINER}", "Content-Encoding: zstd"
    data = request("POST", f"{session.path}/programs", *lines, body=frame)
    leave(str(session.client.base_url), data[: -len(frame) // 2], abruptly=False)
    assert session.get("/tensors").json()["items"] == []
    session.assert_usable()
