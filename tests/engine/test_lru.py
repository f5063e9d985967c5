"""The cache of bounded size, and caches of the engine that would grow with what a user does.

Internals: the cache is tested alone, with random uses.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from telegrad_engine import autograd, functions, tensor
from telegrad_engine.lru import LRU
from telegrad_engine.schema.op import CATALOGUE, PLANS


@given(st.integers(1, 6), st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=200))
def test_what_was_used_last_is_there(size: int, uses: list[tuple[bool, int]]) -> None:
    cache: LRU[int, int] = LRU(size)
    values: dict[int, int] = {}
    used: list[int] = []
    for count, (writes, key) in enumerate(uses):
        recent = [*dict.fromkeys(reversed(used))][:size]
        assert all(each in cache for each in recent)
        if writes:
            cache[key] = values[key] = count
        else:
            found = cache.get(key)
            assert found == values[key] if key in recent else found in (None, values.get(key))
        if writes or found is not None:
            used.append(key)
        assert len(cache) <= 2 * size


def test_a_loop_over_as_many_as_fit_never_misses() -> None:
    cache: LRU[int, int] = LRU(100)
    for key in range(100):
        cache[key] = key
    for key in [*range(100)] * 5:
        assert cache[key] == key


def test_an_op_on_lists_keeps_as_many_plans_as_are_used() -> None:
    cat = CATALOGUE.get("cat")
    plain, tracked = tensor([1.0]), tensor([1.0], requires_grad=True)
    for pattern in range(1, 4 * PLANS):
        tensors = [tracked if pattern >> bit & 1 else plain for bit in range(12)]
        result = functions.cat(tensors)
        (grad,) = autograd.grad(result.sum(), [tracked])
        assert grad.item() == pattern.bit_count()
        assert len(cat.plans) <= 2 * PLANS
