"""Random states: saved, restored and forked, in the session and for the order of samples."""

from __future__ import annotations

from typing import Any

import pytest

import telegrad as tg
from telegrad.utils.data import RandomSampler

from .parity import bodies, same, same_error

pytestmark = pytest.mark.usefixtures("session")


def drawn(lib: Any) -> Any:
    """Random numbers of several kinds."""
    order = list(lib.utils.data.RandomSampler(range(10)))
    dropped = lib.nn.functional.dropout(lib.ones(20), 0.5)
    return lib.rand(3).tolist(), lib.randn(3).tolist(), lib.randperm(7).tolist(), dropped.tolist(), order


class Bodies:
    """Functions whose results must be the same in both libraries, although the random numbers differ."""

    def put_back(lib: Any) -> Any:
        lib.rand(3)
        state = lib.get_rng_state()
        first = drawn(lib)
        other = drawn(lib)
        lib.set_rng_state(state)
        again = drawn(lib)
        lib.random.set_rng_state(state)
        return again == first, other == first, drawn(lib) == first, str(state.dtype).endswith("uint8")

    def after_a_seed(lib: Any) -> Any:
        lib.manual_seed(5)
        state = lib.get_rng_state()
        lib.seed()
        other = lib.get_rng_state().equal(state)
        lib.manual_seed(5)
        return lib.get_rng_state().equal(state), other, lib.initial_seed()

    def forked(lib: Any) -> Any:
        lib.manual_seed(1)
        with lib.random.fork_rng():
            inside = drawn(lib)
        after = drawn(lib)
        with lib.random.fork_rng(enabled=False):
            drawn(lib)
        return inside == after, drawn(lib) == inside

    def modes(lib: Any) -> Any:
        seen = []
        for mode in (lib.no_grad(), lib.enable_grad(), lib.set_grad_enabled(False), lib.inference_mode()):
            with mode:
                x = lib.ones(2, requires_grad=True) if not lib.is_inference_mode_enabled() else lib.ones(2)
                seen.append((lib.is_grad_enabled(), lib.is_inference_mode_enabled(), (x * 2).requires_grad))
        return seen, lib.is_grad_enabled(), lib.is_inference_mode_enabled()


@pytest.mark.parametrize("body", bodies(Bodies))
def test_torchs(body: Any) -> None:
    same(body)


def test_half_a_draw_that_is_left_over_is_in_it() -> None:
    tg.manual_seed(0)
    tg.randint(0, 100, (3,), dtype=tg.int32)
    state = tg.get_rng_state()
    first = tg.randint(0, 100, (5,), dtype=tg.int32)
    tg.set_rng_state(state)
    assert tg.randint(0, 100, (5,), dtype=tg.int32).equal(first)


def test_it_takes_no_message(session: tg.Session) -> None:
    before = session.requests
    with tg.random.fork_rng():
        tg.rand(3)
        list(RandomSampler(range(3)))
    assert session.requests == before


def test_generators_of_ones_own(session: tg.Session) -> None:
    """Each generator continues its own sequence and does not affect the session's."""
    x = tg.full((4,), 0.5)
    draws = [
        lambda g: tg.rand(3, generator=g),
        lambda g: tg.randperm(6, generator=g),
        lambda g: tg.randint(0, 9, (4,), generator=g),
        lambda g: x.bernoulli(generator=g),
        lambda g: tg.empty(3).uniform_(1, 2, generator=g),
        lambda g: tg.normal(0.0, 1.0, (2,), generator=g),
    ]
    tg.manual_seed(0)
    plain = tg.rand(3).tolist(), tg.rand(3).tolist()
    first = tg.Generator().manual_seed(7)
    tg.manual_seed(0)
    before = session.requests
    got = [draw(first) for draw in draws]
    between = tg.rand(3)
    more = [draw(first) for draw in draws]
    after = tg.rand(3)
    assert session.requests == before
    assert (between.tolist(), after.tolist()) == plain
    again = tg.Generator().manual_seed(7)
    assert [draw(again).tolist() for draw in draws] == [t.tolist() for t in got]
    assert [draw(again).tolist() for draw in draws] == [t.tolist() for t in more] != [t.tolist() for t in got]
    first.manual_seed(7)
    assert draws[0](first).tolist() == got[0].tolist()
    with pytest.raises(TypeError):
        tg.rand(3, generator=3)


class Mistakes:
    """Functions that must raise the same error in both libraries."""

    def no_bytes(lib: Any) -> None:
        lib.set_rng_state(lib.ones(3))


@pytest.mark.parametrize("body", bodies(Mistakes))
def test_mistakes_are_torchs(body: Any) -> None:
    same_error(body)


def test_a_state_that_is_none(session: tg.Session) -> None:
    for size, text in ((3, "found the input RNG state size to be 3"), (37, "not one that a generator was in")):
        tg.set_rng_state(tg.zeros(size, dtype=tg.uint8))
        with pytest.raises(RuntimeError, match=text):
            session.flush()
    assert tg.rand(2).shape == (2,)
