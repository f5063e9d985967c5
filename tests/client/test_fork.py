"""A forked child neither reads nor disturbs its parent's session."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable
from multiprocessing import get_context

import pytest

import telegrad as tg

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")
FORK = get_context("fork") if hasattr(os, "fork") else get_context()
WAIT_S = 240


class Child:
    """A forked process that calls a function; ``result()`` returns the function's result."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._receiver, sender = FORK.Pipe(duplex=False)

        def work() -> None:
            try:
                sender.send(function())
            except BaseException:
                sender.send(traceback.format_exc())

        self._process = FORK.Process(target=work)
        self._process.start()
        sender.close()

    def result(self) -> object:
        assert self._receiver.poll(WAIT_S), "the child did not answer"
        answer = self._receiver.recv()
        self._process.join(WAIT_S)
        assert self._process.exitcode == 0
        return answer


@pytest.mark.parametrize("stream", [True, False])
def test_parent_and_child_get_their_own_answers(server: str, stream: bool) -> None:
    with tg.connect(server, stream=stream):
        for number in range(10):
            x = tg.tensor([float(number)])
            x.item()
            # Parent and child send programs with the same number and length at the same time.
            child = Child(lambda: (tg.tensor([7.0]) * 3).item())
            assert (x * 2).item() == number * 2
            assert child.result() == 21.0
            assert (x * 3).item() == number * 3


@pytest.mark.parametrize("stream", [True, False])
def test_a_parents_tensor_is_refused_in_the_child_and_stays_good(server: str, stream: bool) -> None:
    with tg.connect(server, stream=stream) as session:
        x = tg.tensor([1.0, 2.0], requires_grad=True)
        y = (x * x).sum()  # recorded, but not sent yet

        def use() -> object:
            refused = []
            for call in (y.item, lambda: x + 1, y.backward, session.flush):
                with pytest.raises(RuntimeError, match=f"belongs to process {os.getppid()}") as caught:
                    call()
                refused.append(str(caught.value))
            assert session.closed
            return len(refused)

        assert Child(use).result() == 4
        y.backward()
        assert x.grad.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("stream", [True, False])
def test_a_child_that_forgets_or_closes_a_session_does_not_end_it(server: str, stream: bool) -> None:
    session = tg.connect(server, stream=stream)
    x = tg.tensor([1.0])
    x.item()

    def end() -> bool:
        nonlocal session, x
        session.close()
        del session, x
        gc.collect()
        return True

    assert Child(end).result() is True
    assert (x + 1).item() == 2.0
    session.close()


def test_a_session_in_this_process_is_copied_with_it() -> None:
    with tg.connect("local://"):
        x = tg.tensor([1.0, 2.0], requires_grad=True)
        child = Child(lambda: (x * 5).tolist())
        assert (x * 2).tolist() == [2.0, 4.0]
        assert child.result() == [5.0, 10.0]
