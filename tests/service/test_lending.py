"""Long answers go piece by piece from the tensors themselves, and are what was asked for whatever happens meanwhile."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

import telegrad as tg

from ..servers import peak_bytes
from .conftest import SessionClient, served
from .streams import ADD, PING, PONG, UP, Raw, container, fetch, written

pytestmark = pytest.mark.full

N = 8 * 2**20
"""More than the buffers of two sockets hold."""
X = np.arange(N, dtype=np.float32)
ASKING = written(0x82, container(2, fetch("x")))


def asked(session: SessionClient) -> Raw:
    """A connection on which a long answer is under way, of which nothing was read."""
    raw = Raw(session)
    raw.socket.sendall(written(0x82, container(1, UP, x=X)))
    assert raw.message()[0] == 0x82
    raw.socket.sendall(ASKING)
    assert raw.socket.recv(2, 2) and raw.socket.recv(2, 2)  # peeks: it has begun
    return raw


def test_a_program_that_changes_the_tensor_does_not_change_what_is_under_way(session: SessionClient) -> None:
    with closing(asked(session)) as raw:
        raw.socket.sendall(written(0x82, container(3, ADD, fetch("x"), seen=1)))
        for added in (0, 1):
            np.testing.assert_array_equal(load(raw.message()[1])["x"], X + added)


def test_nor_does_a_request(session: SessionClient) -> None:
    with closing(asked(session)) as raw:
        session.run(ADD)
        np.testing.assert_array_equal(load(raw.message()[1])["x"], X)


def test_two_that_were_asked_for_together_come_one_after_the_other(session: SessionClient) -> None:
    with closing(Raw(session)) as raw:
        raw.socket.sendall(written(0x82, container(1, UP, x=X)))
        assert raw.message()[0] == 0x82
        raw.socket.sendall(ASKING + written(0x82, container(3, ADD, fetch("x"), seen=1)))
        time.sleep(0.5)  # both have run, and one waits behind the other
        for added in (0, 1):
            np.testing.assert_array_equal(load(raw.message()[1])["x"], X + added)


def test_pings_are_answered_between_messages(session: SessionClient) -> None:
    with closing(asked(session)) as raw:
        raw.socket.sendall(written(PING, b"there?"))
        raw.socket.sendall(written(0x82, container(3, fetch("x"))))
        raw.socket.sendall(written(PING, b"still?"))
        found: list[Any] = []
        while len(found) < 4:
            found.append(raw.frame())
        assert sorted(first for first, _ in found) == [0x82, 0x82, PONG, PONG]
        for first, payload in found:
            if first == 0x82:
                np.testing.assert_array_equal(load(payload)["x"], X)


def test_a_cut_connection_is_told_again_what_was_then(session: SessionClient) -> None:
    with closing(asked(session)) as raw:
        assert len(raw.file.read(10_000_000)) == 10_000_000
    session.run(ADD)
    with closing(Raw(session)) as raw:
        raw.socket.sendall(ASKING)
        np.testing.assert_array_equal(load(raw.message()[1])["x"], X)
        raw.socket.sendall(written(0x82, container(3, fetch("x"))))
        np.testing.assert_array_equal(load(raw.message()[1])["x"], X + 1)


@pytest.mark.parametrize("compress", [None, "zstd"])
def test_many_long_answers_in_a_row_with_changes_between(url: str, compress: str | None) -> None:
    with tg.connect(url, compress=compress):
        x = tg.tensor(X)
        for step in range(6):
            np.testing.assert_array_equal(x.numpy(), X + step)
            np.testing.assert_array_equal(x[::2].numpy(), X[::2] + step)
            x += 1


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the most memory that a process had")
def test_a_tensor_is_sent_without_a_copy_whether_it_is_taken_or_not() -> None:
    small = {"op": "tensor", "out": ["y"], "attrs": {"data": [1.0]}}
    with served() as (client, process), closing(Raw(SessionClient(client))) as raw:
        raw.socket.sendall(written(0x82, container(1, UP, x=X)))
        assert raw.message()[0] == 0x82
        before = peak_bytes(process)
        raw.socket.sendall(written(0x82, container(2, small)) + written(0x82, container(3, fetch("x"))))
        assert len(raw.message()[1]) < len(raw.message()[1])
        raw.socket.sendall(written(0x82, container(4, {"op": "free", "in": [["y"]]})))
        assert raw.message()[0] == 0x82
        raw.socket.sendall(written(0x82, container(5, fetch("x"))))
        time.sleep(0.5)
        assert peak_bytes(process) - before < X.nbytes / 2
