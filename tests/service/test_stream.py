"""The stream of a session: programs over one WebSocket, seen by a client that is not ours."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from safetensors import deserialize
from safetensors.numpy import load, save
from websockets.exceptions import InvalidStatus

from .conftest import SessionClient
from .streams import ADD, BAD, UP, UP_Y, Raw, Talk, container, dial, fetch, is_problem, written


@pytest.fixture
def talk(session: SessionClient) -> Iterator[Talk]:
    made = Talk(session)
    yield made
    made.socket.close()


def test_the_first_frame_says_where_the_session_is(session: SessionClient, talk: Talk) -> None:
    assert talk.greeting.pop("request_id")
    assert talk.greeting == {"session": session.id, "last": 0, "failed": 0, "max_bytes": 512 * 2**20}


def test_programs_are_answered_in_order_as_they_are_posted(session: SessionClient, talk: Talk) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    talk.send(1, UP, x=x)
    for number in range(2, 12):
        talk.send(number, ADD, fetch("x"), seen=0)
    assert talk.receive()["sequence"] == 1
    for number in range(2, 12):
        answer = talk.receive()
        assert answer["sequence"] == number
        np.testing.assert_array_equal(answer["arrays"]["x"], x + number - 1)
        assert answer["values"]["x"]["shape"] == [2, 3]
    assert session.data("x") == (x + 10).tolist()
    assert session.get().json()["sequence"] == 11


@pytest.mark.parametrize("size", [0, 1, 31, 2**10, 2**14 + 1, 2**16, 2**19 - 5, 2**20 + 3])
def test_messages_of_all_sizes(talk: Talk, size: int) -> None:
    x = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    np.testing.assert_array_equal(talk.ask(1, UP, fetch("x"), x=x)["arrays"]["x"], x)


def test_what_is_behind_a_failure_does_not_run_until_its_sender_knows(session: SessionClient, talk: Talk) -> None:
    talk.ask(1, UP, x=np.zeros(1, np.float32))
    talk.send(2, ADD, BAD, ADD, seen=1)
    talk.send(3, ADD, seen=1)
    talk.send(4, ADD, seen=1)
    failed = talk.receive()
    is_problem(failed, 404, "unknown-tensor", 2)
    assert failed["instruction"] == 1
    is_problem(talk.receive(), 409, "not-run", 3)
    is_problem(talk.receive(), 409, "not-run", 4)
    assert session.data("x") == [1.0]
    is_problem(talk.ask(5, ADD, seen=1), 409, "not-run", 5)
    assert talk.ask(6, ADD, seen=2)["sequence"] == 6
    assert session.data("x") == [2.0]


def test_a_pass_that_waits_for_the_client_holds_up_what_is_behind_it(session: SessionClient, talk: Talk) -> None:
    hook = {"op": "client_hook", "in": ["y"], "attrs": {"hook": "h"}}
    make = {"op": "tensor", "out": ["x"], "attrs": {"requires_grad": True}}
    talk.ask(1, make, {"op": "mul", "in": ["x", 2], "out": ["y"]}, hook, x=np.ones(1, np.float32))
    talk.send(2, {"op": "backward", "in": [["y"]]}, seen=1)
    talk.send(3, {"op": "free", "in": [["x"]]}, seen=1)
    waiting = talk.receive()["pending"]
    is_problem(talk.receive(), 409, "not-run", 3)
    resume = {"op": "resume", "in": [[]], "attrs": {"call": waiting["call"]}}
    assert talk.ask(4, resume, seen=3)["sequence"] == 4
    assert session.get("/tensors/x/grad").json()["data"] == [2.0]


def test_repeated_it_is_answered_from_the_record(session: SessionClient, talk: Talk) -> None:
    upload, add, bad = container(1, UP, fetch("x"), x=np.ones(3, np.float32)), container(2, ADD), container(3, BAD)
    first, again = talk.say(upload), talk.say(upload)
    assert first.pop("arrays")["x"].tolist() == again.pop("arrays")["x"].tolist() == [1, 1, 1]
    assert first == again
    for _ in range(3):
        assert talk.say(add)["sequence"] == 2
    for _ in range(2):
        is_problem(talk.say(bad), 404, "unknown-tensor", 3)
    is_problem(talk.ask(3, ADD), 409, "sequence-conflict", 3)
    is_problem(talk.say(upload), 409, "sequence-conflict", 1)  # it was seen, as the next program said
    assert session.data("x") == [2.0, 2.0, 2.0]


def test_a_repeat_is_recognised_by_all_of_its_bytes(session: SessionClient, talk: Talk) -> None:
    talk.ask(1, UP, x=np.zeros(2, np.float32))
    frame = container(2, ADD, UP_Y, fetch("x"), y=np.ones(300, np.float32))
    first, again = talk.say(frame), talk.say(frame)
    assert again["arrays"]["x"].tolist() == first["arrays"]["x"].tolist() == [1.0, 1.0]
    for place in range(len(frame) - 1200, len(frame), 100):  # as long, and different in one byte
        other = bytearray(frame)
        other[place] ^= 1
        is_problem(talk.say(bytes(other)), 409, "sequence-conflict", 2)
    assert session.data("x") == [1.0, 1.0]


def test_a_long_repeat_is_recognised_however_it_is_framed(session: SessionClient, raw: Raw) -> None:
    """The server hashes a long message in one frame while it arrives, and one in several frames afterwards."""
    body = container(1, UP, fetch("x"), x=np.ones(600_001, np.float16))
    middle = len(body) // 2
    raw.socket.sendall(written(0x82, body))
    first = raw.message()
    assert load(first[1])["x"][-1] == 1.0
    raw.socket.sendall(written(0x02, body[:middle]) + written(0x80, body[middle:]))
    assert raw.message() == first
    for place in (middle, len(body) - 1):
        other = bytearray(body)
        other[place] ^= 1
        is_problem(Talk(session).say(bytes(other)), 409, "sequence-conflict", 1)
    assert Talk(session).say(body)["arrays"]["x"].size == 600_001


def test_each_sender_counts_its_own_programs(session: SessionClient, talk: Talk) -> None:
    talk.ask(1, UP, x=np.zeros(2, np.float32))
    numbered = {"telegrad-sequence": "2"}  # the same row as the stream's, which has no name either
    assert session.post("/ops/add_", {"inputs": ["x", 1]}, headers=numbered).status_code == 200
    named = Talk(session, "?sender=somebody")
    assert named.greeting["last"] == 0
    frame = container(1, ADD, fetch("x"))
    for _ in range(2):
        assert named.say(frame)["arrays"]["x"].tolist() == [2.0, 2.0]
    with_name = {"telegrad-sequence": "1", "telegrad-sender": "another"}
    for _ in range(2):
        assert session.post("/ops/add_", {"inputs": ["x", 1]}, headers=with_name).status_code == 200
    assert named.ask(2, ADD, fetch("x"))["arrays"]["x"].tolist() == [4.0, 4.0]
    again = Talk(session, "?sender=somebody")
    assert again.greeting["last"] == 2
    assert session.get().json()["sequence"] == 2
    assert talk.ask(3, ADD, fetch("x"))["arrays"]["x"].tolist() == [5.0, 5.0]  # another sender's stream goes on


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "a%00"])
def test_what_is_no_senders_name(session: SessionClient, name: str) -> None:
    headers = {"telegrad-sequence": "1", "telegrad-sender": name.encode()}
    answer = session.post("/ops/zeros", {"attrs": {"size": [1]}}, headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:telegrad:problem:invalid-argument")
    with pytest.raises(InvalidStatus) as refused:
        dial(session, f"?sender={quote(name)}")
    assert refused.value.response.status_code == 422


def test_a_handshake_that_arrives_after_a_later_one_takes_nothing_over(session: SessionClient) -> None:
    talk = Talk(session, "?sender=me&attempt=2")
    talk.ask(1, UP, x=np.zeros(1, np.float32))
    with pytest.raises(InvalidStatus) as refused:
        dial(session, "?sender=me&attempt=1")
    assert refused.value.response.status_code == 409 and b"the newest was 2" in (refused.value.response.body or b"")
    assert talk.ask(2, ADD, fetch("x"))["arrays"]["x"].tolist() == [1.0]
    again = Talk(session, "?sender=me&attempt=3")
    assert again.greeting["last"] == 2 and talk.closed() == 4409


@pytest.mark.parametrize("attempt", ["", "-1", "1.5", "²", "9" * 19])
def test_what_is_no_number_of_an_attempt(session: SessionClient, attempt: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        dial(session, f"?sender=me&attempt={quote(attempt)}")
    assert refused.value.response.status_code == 422


def test_a_number_that_skips_ahead_is_not_used(session: SessionClient, talk: Talk) -> None:
    talk.ask(1, UP, x=np.zeros(1, np.float32))
    for _ in range(2):
        skipping = talk.ask(3, ADD, seen=1)
        is_problem(skipping, 409, "sequence-conflict", 3)
        assert "the next one is 2" in skipping["detail"]
    assert talk.ask(2, ADD)["sequence"] == 2
    assert session.data("x") == [1.0]


def test_another_connection_goes_on_where_the_first_was(session: SessionClient) -> None:
    first = Talk(session)
    first.ask(1, UP, x=np.zeros(1, np.float32))
    add = container(2, ADD, fetch("x"))
    first.say(add)
    first.socket.socket.shutdown(socket.SHUT_RDWR)
    second = Talk(session)
    assert second.greeting["last"] == 2
    assert second.say(add)["arrays"]["x"].tolist() == [1.0]
    assert second.ask(3, ADD, fetch("x"))["arrays"]["x"].tolist() == [2.0]
    second.socket.close()


def test_a_second_connection_takes_over(session: SessionClient, talk: Talk) -> None:
    other = Talk(session)
    assert talk.closed() == 4409
    assert other.ask(1, UP, x=np.zeros(1, np.float32))["sequence"] == 1
    other.socket.close()


def test_numbers_are_the_sessions_whichever_way_they_come(session: SessionClient, talk: Talk) -> None:
    talk.ask(1, UP, x=np.zeros(1, np.float32))
    posted = session.run(ADD, headers={"telegrad-sequence": "2"})
    assert posted.status_code == 200
    failed = session.run(BAD, headers={"telegrad-sequence": "3"})
    assert failed.json()["sequence"] == 3
    is_problem(talk.ask(4, ADD, seen=2), 409, "not-run", 4)
    assert talk.ask(5, ADD, seen=4)["sequence"] == 5
    assert session.data("x") == [2.0]


# What is wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"garbage",
        b"\xff" * 64,
        (2**30).to_bytes(8, "little") + b"{}",
        container(1, UP, x=np.zeros(4, np.float32))[:-5],
        container(1, UP, x=np.zeros(4, np.float32)) + b"more",
        save({}, {"program": "[]"}),
        save({}, {"program": "[]", "sequence": "1"}),
        save({}, {"program": "[]", "sequence": "one", "seen": "0"}),
        save({}, {"program": "[]", "sequence": "0", "seen": "0"}),
        save({}, {"program": "[]", "sequence": "9" * 40, "seen": "0"}),
    ],
    ids=range(11),
)
def test_a_frame_that_is_no_numbered_container_is_answered_and_changes_nothing(talk: Talk, frame: bytes) -> None:
    talk.socket.send(frame)
    found = talk.receive()
    assert found["sequence"] is None and found["status"] in (400, 422)
    assert talk.ask(1, UP, fetch("x"), x=np.ones(1, np.float32))["arrays"]["x"].tolist() == [1.0]


@pytest.mark.parametrize("program", ["", "{}", "[1]", "[" * 10_000, '[{"op":"no_such_op"}]'], ids=range(5))
def test_a_program_that_is_none_has_used_its_number(talk: Talk, program: str) -> None:
    talk.socket.send(save({}, {"program": program, "sequence": "1", "seen": "0"}))
    talk.send(2, UP, seen=0, x=np.ones(1, np.float32))
    assert talk.receive()["sequence"] == 1
    is_problem(talk.receive(), 409, "not-run", 2)
    assert talk.ask(3, UP, x=np.ones(1, np.float32))["sequence"] == 3


def test_text_is_not_spoken_here(session: SessionClient, talk: Talk) -> None:
    talk.socket.send("[]")
    assert talk.closed() == 1003
    session.assert_usable()


def test_a_session_that_is_not_there(client: httpx.Client, session: SessionClient) -> None:
    client.delete(session.path)
    with pytest.raises(InvalidStatus) as caught:
        dial(session)
    response = caught.value.response
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert json.loads(response.body or b"")["type"] == "urn:telegrad:problem:unknown-session"


@pytest.fixture
def raw(session: SessionClient) -> Iterator[Raw]:
    made = Raw(session)
    yield made
    made.close()


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64, 100_000])
def test_however_the_bytes_are_cut(session: SessionClient, raw: Raw, piece: int) -> None:
    x = np.arange(50, dtype=np.float32)
    body = container(1, UP, x=x), container(2, ADD), container(3, fetch("x"))
    frames = [written(0x82, body[0]), written(0x89, b"are you there"), written(0x82, body[1]), written(0x82, body[2])]
    data = b"".join(frames)
    raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for start in range(0, len(data), piece):
        raw.socket.sendall(data[start : start + piece])
    got = [raw.frame() for _ in range(4)]
    assert (0x8A, b"are you there") in got
    answers = [payload for first, payload in got if first == 0x82]
    np.testing.assert_array_equal(load(answers[-1])["x"], x + 1)
    assert [dict(deserialize(a)) for a in answers[:2]] == [{}, {}]


@pytest.mark.parametrize(
    "sizes",
    [
        (20_001, 600_003, 30),
        (2**14, 2**14 - 300, 2**16 + 1),
        (700_000, 700_001, 700_002),
        (30_000, 30_000, 100_000, 29_999, 30_001, 500_000, 30_000, 20, 30_000, 30_000),
    ],
)
@pytest.mark.parametrize("between", [b"", written(0x89, b"are you there")], ids=["", "pings"])
def test_messages_without_a_pause_between_them(raw: Raw, sizes: tuple[int, ...], between: bytes) -> None:
    arrays = [np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8) for size in sizes]
    sent = b""
    for number, array in enumerate(arrays, 1):
        instructions = {"op": "tensor", "out": [f"x{number}"]}, fetch(f"x{number}")
        body = container(number, *instructions, seen=0, **{f"x{number}": array})
        sent += written(0x82, body) + between
    raw.socket.sendall(sent)
    got = [raw.frame() for _ in range((1 + bool(between)) * len(sizes))]
    answers = [load(payload) for first, payload in got if first == 0x82]
    for number, (answer, array) in enumerate(zip(answers, arrays, strict=True), 1):
        np.testing.assert_array_equal(answer[f"x{number}"], array)


@pytest.mark.parametrize("size", [20_000, 100_000])
@pytest.mark.parametrize("cut", [1, 2, 4, 7, 8, 10, 13, 14, 15, 10_000])
def test_a_message_like_those_before_it_however_it_is_cut(raw: Raw, size: int, cut: int) -> None:
    rng = np.random.default_rng(cut)
    for number, more in enumerate([0, 0, 0, 0, 1, -3000, 300_000, 0, -size, 0, 0], 1):
        array = rng.integers(0, 256, size + more, dtype=np.uint8)
        name = f"x{number}"
        body = container(number, {"op": "tensor", "out": [name]}, fetch(name), **{name: array})
        frame = written(0x82, body, mask=b"\x82\xfe\x40\x00")  # which looks like the beginning of another
        raw.socket.sendall(frame[:cut])
        time.sleep(0.01)  # so that it arrives in two pieces
        raw.socket.sendall(frame[cut:])
        np.testing.assert_array_equal(load(raw.message()[1])[name], array)


def test_a_message_in_several_frames(session: SessionClient, raw: Raw) -> None:
    body = container(1, UP, x=np.ones(100, np.float32))
    parts = [body[:10], body[10:20], b"", body[20:]]
    kinds = [0x02, 0x00, 0x00, 0x80]
    for kind, part in zip(kinds, parts, strict=True):
        raw.socket.sendall(written(kind, part) + written(0x89, b"ping"))
    got = [raw.frame() for _ in range(5)]
    assert sorted(first for first, _ in got) == [0x82, 0x8A, 0x8A, 0x8A, 0x8A]
    raw.socket.sendall(written(0x82, container(2, ADD, fetch("x"))))
    assert load(raw.frame()[1])["x"].tolist() == [2.0] * 100


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (written(0x82, b"not masked", masked=False), 1002),
        (written(0xC2, b"a reserved bit"), 1002),
        (written(0x83, b"a reserved kind"), 1002),
        (written(0x80, b"the end of nothing"), 1002),
        (written(0x81, b"\xff\xff"), 1007),
        (struct.pack("!BBQ", 0x82, 0xFF, 2**40) + b"mask", 1009),
        (struct.pack("!BBQ", 0x82, 0xFF, 2**63) + b"mask", 1002),
    ],
    ids=["no mask", "a bit", "a kind", "an end", "no text", "too long", "no length"],
)
def test_frames_that_are_none(session: SessionClient, raw: Raw, data: bytes, code: int) -> None:
    raw.socket.sendall(data)
    first, payload = raw.frame()
    assert first == 0x88 and int.from_bytes(payload[:2], "big") in (code, 1002, 1009)
    assert raw.frame() == (0, b"")
    session.assert_usable()
