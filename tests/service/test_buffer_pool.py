"""The memory of long messages is reused once nothing refers to it, not before, and at most so much of it.

Internals: clients cannot see which memory is reused.
"""

from __future__ import annotations

import numpy as np

import telegrad as tg
from telegrad_service.process import LARGEST_KEPT
from telegrad_service.streaming.frame_assembler import BufferPool

from ..in_process import server_with

WORDS = LARGEST_KEPT // 8
BYTES = LARGEST_KEPT + 2**16


def place(array: np.ndarray) -> int:
    return array.ctypes.data


def test_it_is_the_same_again_for_a_message_much_as_long() -> None:
    pool = BufferPool()
    first = place(pool.words(WORDS + 1000))
    assert place(pool.words(WORDS + 1004)) == first
    assert len(pool.words(WORDS + 1004)) >= WORDS + 1004


def test_not_while_anybody_has_a_part_of_it() -> None:
    pool = BufferPool()
    words = pool.words(WORDS)
    first, part = place(words), np.frombuffer(words.data.cast("B")[:8], np.float32)
    del words
    assert place(pool.words(WORDS)) != first
    del part
    assert place(pool.words(WORDS)) == first


def test_another_length_has_other_memory() -> None:
    pool = BufferPool()
    first = place(pool.words(WORDS))
    longer = pool.words(2 * WORDS)
    assert len(longer) >= 2 * WORDS and place(longer) != first
    assert place(pool.words(WORDS)) == first


def test_no_more_is_kept_than_allowed() -> None:
    pool = BufferPool(max_bytes=2 * BYTES)
    held = [pool.words(WORDS) for _ in range(3)]
    places = [place(words) for words in held]
    del held
    assert {place(pool.words(WORDS)) for _ in range(3)} <= set(places[1:])
    assert sum(block.nbytes for block in pool._blocks) <= 2 * BYTES
    pool.words(4 * WORDS)
    assert all(block.nbytes <= BYTES for block in pool._blocks)


def test_what_is_short_is_not_kept() -> None:
    pool = BufferPool()
    pool.words(WORDS - 1)
    assert not pool._blocks


def test_tensors_keep_what_they_had() -> None:
    x = np.arange(BYTES // 4, dtype=np.float32)
    with server_with() as url, tg.connect(url):
        first = tg.tensor(x)
        part = first[-5:]
        part.sum().item()
        del first  # the part still shows its memory
        second = tg.tensor(x + 1)
        second[0].item()
        del second
        third, fourth = tg.tensor(x + 2), tg.tensor(x + 3)
        for tensor, added in ((part, 0), (third[-5:], 2), (fourth[-5:], 3)):
            np.testing.assert_array_equal(tensor.numpy(), x[-5:] + added)
