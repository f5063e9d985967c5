"""Datasets, samplers and loaders, compared with torch's."""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data

import telegrad as tg
import telegrad.utils.data  # as users of torch import it

from .parity import check, same, same_error

pytestmark = pytest.mark.usefixtures("session")
Pair = namedtuple("Pair", ["x", "y"])


def tensors(lib: Any, n: int = 10) -> Any:
    x = lib.arange(n * 3).reshape(n, 3).to(lib.float32)
    return lib.utils.data.TensorDataset(x, lib.arange(n) % 2)


def of_class(lib: Any, samples: list[Any]) -> Any:
    class Samples(lib.utils.data.Dataset):
        def __getitem__(self, index: int) -> Any:
            return samples[index]

        def __len__(self) -> int:
            return len(samples)

    return Samples()


def stream(lib: Any, n: int) -> Any:
    class Stream(lib.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return iter([{"x": np.float32(i), "y": float(i)} for i in range(n)])

        def __len__(self) -> int:
            return n

    return Stream()


@pytest.mark.parametrize(
    "options", [{}, {"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}, {"num_workers": 0}]
)
@pytest.mark.parametrize(
    "dataset",
    [
        tensors,
        lambda lib: lib.utils.data.Subset(lib.utils.data.Subset(tensors(lib), [9, 1, 5, 5, 3]), [0, -1, 2]),
        lambda lib: tensors(lib) + tensors(lib, 3),
        lambda lib: stream(lib, 6),
        lambda lib: stream(lib, 3) + stream(lib, 2),
    ],
)
def test_batches_equal_torchs(dataset: Callable[[Any], Any], options: dict[str, Any]) -> None:
    def run(lib: Any) -> Any:
        loader = lib.utils.data.DataLoader(dataset(lib), **options)
        return len(loader), list(loader), list(loader), loader.batch_size, loader.drop_last

    same(run)


SAMPLES: dict[str, list[Any]] = {
    "numbers": [1, 2, 3],
    "floats": [1.5, 2.5, 3.0],
    "bools": [True, False, True],
    "arrays": [np.arange(3, dtype=np.int16) * i for i in range(3)],
    "scalars of NumPy": [np.float32(i) for i in range(3)],
    "texts": ["a", "b", "c"],
    "tuples": [(np.ones(2) * i, i, "t") for i in range(3)],
    "lists": [[i, [float(i)]] for i in range(3)],
    "dicts": [{"x": np.ones(2), "y": {"z": i}} for i in range(3)],
    "named tuples": [Pair(i, float(i)) for i in range(3)],
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("batch_size", [2, None])
def test_samples_are_collated_as_torchs(name: str, batch_size: int | None) -> None:
    def run(lib: Any) -> Any:
        return list(lib.utils.data.DataLoader(of_class(lib, SAMPLES[name]), batch_size=batch_size))

    result = same(run)
    if name == "named tuples":
        assert all(isinstance(batch, Pair) for batch in result)


def test_samples_of_tensors_are_stacked() -> None:
    def run(lib: Any) -> Any:
        return list(lib.utils.data.DataLoader(of_class(lib, [(lib.ones(2) * i, i) for i in range(5)]), batch_size=2))

    same(run)
    of_torchs = tg.utils.data.DataLoader(of_class(tg, [torch.ones(2) * i for i in range(4)]), batch_size=2)
    check(list(of_torchs), [torch.tensor([[0.0, 0], [1, 1]]), torch.tensor([[2.0, 2], [3, 3]])])


def test_a_function_of_ones_own_collates() -> None:
    def run(lib: Any) -> Any:
        def longest(samples: list[Any]) -> Any:
            return lib.stack([x for x, _ in samples]).sum(0), len(samples)

        return list(lib.utils.data.DataLoader(tensors(lib), batch_size=4, collate_fn=longest))

    same(run)


def test_a_dataset_of_the_sessions_tensors_is_batched_there(session: tg.Session) -> None:
    dataset = tensors(tg, 100)
    session.flush()
    before = session.requests
    first, *_ = batches = list(tg.utils.data.DataLoader(dataset, batch_size=25, shuffle=True))
    assert session.requests == before
    recorded = Counter(i.op for i in session.recorder.pending)
    assert recorded == {"tensor": 4, "index_select": 8}
    assert sorted(v for x, _ in batches for v in x[:, 0].tolist()) == [3.0 * i for i in range(100)]
    assert (first[0][:, 0] / 3 % 2).tolist() == first[1].tolist()


def test_shuffling_is_a_new_permutation_each_time_and_follows_the_seed() -> None:
    def order(loader: Any) -> list[int]:
        return [int(v) for (batch,) in loader for v in batch.tolist()]

    dataset = tg.utils.data.TensorDataset(tg.arange(50))
    tg.manual_seed(3)
    loader = tg.utils.data.DataLoader(dataset, batch_size=7, shuffle=True)
    first, second = order(loader), order(loader)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(50))
    tg.manual_seed(3)
    assert order(loader) == first
    assert tg.initial_seed() == 3
    drawn = [
        order(tg.utils.data.DataLoader(dataset, shuffle=True, generator=tg.Generator().manual_seed(5)))
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1] != first


def test_samplers() -> None:
    data = tg.utils.data
    assert list(data.SequentialSampler(range(4))) == [0, 1, 2, 3]
    assert list(data.BatchSampler(data.SequentialSampler(range(5)), 2, True)) == [[0, 1], [2, 3]]
    assert list(data.BatchSampler(data.SequentialSampler(range(5)), 2, False)) == [[0, 1], [2, 3], [4]]
    assert sorted(data.RandomSampler(range(20))) == list(range(20))
    assert Counter(data.RandomSampler(range(5), num_samples=12)).most_common()[-1][1] == 2
    assert len(set(data.RandomSampler(range(1000), replacement=True, num_samples=50))) > 30
    assert sorted(data.SubsetRandomSampler([3, 5, 9])) == [3, 5, 9]
    drawn = Counter(data.WeightedRandomSampler([0.0, 1.0, 3.0], 4000, generator=tg.Generator()))
    assert drawn[0] == 0
    assert 2.5 < drawn[2] / drawn[1] < 3.5
    assert sorted(data.WeightedRandomSampler(tg.tensor([1.0, 2.0, 3.0]), 3, replacement=False)) == [0, 1, 2]


def test_samplers_say_what_comes() -> None:
    def run(lib: Any) -> Any:
        data = lib.utils.data
        given = data.DataLoader(tensors(lib), batch_size=2, sampler=[7, 1, 2])
        batches = data.DataLoader(tensors(lib), batch_sampler=[[7, 1], [2]])
        return list(given), len(given), list(batches), len(batches), batches.batch_size

    same(run)


@pytest.mark.parametrize("lengths", [[7, 3], [0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3]])
def test_random_splits_deal_every_sample_out(lengths: list[float]) -> None:
    parts = tg.utils.data.random_split(tensors(tg), lengths, generator=tg.Generator())
    expected = torch.utils.data.random_split(tensors(torch), lengths)
    assert [len(part) for part in parts] == [len(part) for part in expected]
    assert sorted(i for part in parts for i in part.indices) == list(range(10))


@pytest.mark.parametrize(
    "function",
    [
        lambda lib: lib.utils.data.TensorDataset(lib.ones(2), lib.ones(3)),
        lambda lib: lib.utils.data.ConcatDataset([]),
        lambda lib: lib.utils.data.ConcatDataset([stream(lib, 3)]),
        lambda lib: (tensors(lib) + tensors(lib))[-21],
        lambda lib: lib.utils.data.Dataset()[0],
        lambda lib: lib.utils.data.random_split(tensors(lib), [3, 3]),
        lambda lib: lib.utils.data.random_split(tensors(lib), [1.5, -0.5]),
        lambda lib: lib.utils.data.RandomSampler(range(3), replacement=1),
        lambda lib: lib.utils.data.RandomSampler(range(3), num_samples=0),
        lambda lib: lib.utils.data.RandomSampler([]),
        lambda lib: lib.utils.data.BatchSampler(range(3), 0, False),
        lambda lib: lib.utils.data.BatchSampler(range(3), 2, 1),
        lambda lib: lib.utils.data.WeightedRandomSampler([1.0], 0),
        lambda lib: lib.utils.data.WeightedRandomSampler([[1.0]], 1),
        lambda lib: lib.utils.data.WeightedRandomSampler([1.0], 1, 3),
        lambda lib: lib.utils.data.DataLoader(tensors(lib), num_workers=-1),
        lambda lib: lib.utils.data.DataLoader(tensors(lib), timeout=-1),
        lambda lib: lib.utils.data.DataLoader(tensors(lib), prefetch_factor=2),
        lambda lib: lib.utils.data.DataLoader(tensors(lib), persistent_workers=True),
        lambda lib: lib.utils.data.DataLoader(tensors(lib), shuffle=True, sampler=[1]),
        lambda lib: lib.utils.data.DataLoader(tensors(lib), batch_size=2, batch_sampler=[[1]]),
        lambda lib: lib.utils.data.DataLoader(tensors(lib), batch_size=None, drop_last=True),
        lambda lib: lib.utils.data.DataLoader(tensors(lib), batch_size=0),
        lambda lib: lib.utils.data.DataLoader(stream(lib, 3), shuffle=True),
        lambda lib: lib.utils.data.DataLoader(stream(lib, 3), sampler=[1]),
        lambda lib: lib.utils.data.default_collate([[1, 2], [1]]),
        lambda lib: lib.utils.data.default_collate([object()]).x,
        lambda lib: lib.utils.data.default_collate([np.array(["a"])]),
        lambda lib: lib.utils.data.default_collate([np.ones(2), np.ones(3)]),
        lambda lib: list(lib.utils.data.DataLoader(tensors(lib), sampler=[12])),
    ],
)
def test_mistakes_are_torchs(function: Callable[[Any], Any]) -> None:
    same_error(function)


def test_an_empty_split_warns() -> None:
    for lib in (tg, torch):
        with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
            lib.utils.data.random_split(tensors(lib, 2), [0.9, 0.1])


def test_datasets_are_stacked() -> None:
    def run(lib: Any) -> Any:
        stack = lib.utils.data.StackDataset
        rows = of_class(lib, [1.0, 2.0, 3.0])
        named = stack(x=rows, y=tensors(lib, 3))
        loader = lib.utils.data.DataLoader(stack(tensors(lib, 3), stack(rows, rows)), batch_size=2)
        return [named[1], len(named), stack(rows, rows).__getitems__([2, 0]), [list(batch) for batch in loader]]

    same(run)
    same_error(lambda lib: lib.utils.data.StackDataset())
    same_error(lambda lib: lib.utils.data.StackDataset(tensors(lib), tensors(lib, 3)))
    same_error(lambda lib: lib.utils.data.StackDataset(tensors(lib), x=tensors(lib)))
    assert tg.utils.data.get_worker_info() is None
