"""The SDK in asyncio: values are awaited without blocking the event loop, and every task has its own session."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad import aio


def test_a_value_is_awaited(address: str) -> None:
    async def main() -> Any:
        async with tg.aconnect(address, seed=0) as session:
            x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
            loss = (x * x).sum()
            loss.backward()
            assert session.requests == 0
            total, grad = await aio.values(loss, x.grad)
            assert session.requests == 1
            assert float(await loss.value()) == 14
            return total, grad

    total, grad = asyncio.run(main())
    assert total == 14
    np.testing.assert_array_equal(grad, [2.0, 4.0, 6.0])


def test_the_loop_goes_on_while_a_value_is_computed(server: str) -> None:
    async def main() -> int:
        turns = 0
        async with tg.aconnect(server):
            x = tg.ones(700, 700)
            for _ in range(60):
                x = (x @ x) / 700
            waiting = asyncio.ensure_future(x.sum().value())
            while not waiting.done():
                await asyncio.sleep(0)
                turns += 1
            assert float(await waiting) == pytest.approx(700 * 700, rel=1e-3)
        return turns

    assert asyncio.run(main()) > 20


def test_tasks_have_sessions_of_their_own(address: str) -> None:
    async def task(number: float) -> float:
        async with tg.aconnect(address) as session:
            x = tg.tensor([number])
            await asyncio.sleep(0.01)
            y = tg.tensor([1.0])
            assert tg.current() is session
            return float(await (x + y).sum().value())

    async def main() -> list[float]:
        return await asyncio.gather(*[task(float(n)) for n in range(6)])

    assert asyncio.run(main()) == [n + 1.0 for n in range(6)]


def test_awaited_a_session_stays_open_until_it_is_closed(address: str) -> None:
    async def main() -> None:
        session = await tg.aconnect(address)
        x = tg.ones(2)
        assert (await x.value()).tolist() == [1.0, 1.0]
        await aio.aclose(session)
        assert session.closed
        with pytest.raises(RuntimeError, match="closed"):
            await x.value()

    asyncio.run(main())


def test_errors_are_raised_where_they_are_awaited(address: str) -> None:
    async def main() -> None:
        async with tg.aconnect(address):
            bad = tg.nn.functional.cross_entropy(tg.zeros(2, 3), tg.tensor([0, 7]) + 0)
            with pytest.raises(IndexError, match="Target 7 is out of bounds"):
                await bad.value()
            assert (await tg.ones(1).value()).tolist() == [1.0]
        with pytest.raises(tg.TelegradError, match="cannot reach"):
            await tg.aconnect("http://127.0.0.1:1")

    asyncio.run(main())
