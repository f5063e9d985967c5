"""Samplers, which set the order of a dataset's samples. They draw random numbers on the client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from telegrad_engine.errors import InvalidArgument, InvalidValue

from ...sessions.generators import Generator, default_generator

T = TypeVar("T")


class Sampler(Generic[T]):
    """Base class of the samplers: an iterable of indices, or of lists of indices.

    Examples:
        >>> class Reversed(tg.utils.data.Sampler):
        ...     def __iter__(self):
        ...         return iter([2, 1, 0])
        >>> list(Reversed())
        [2, 1, 0]
    """

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """The indices 0, 1, 2, … in order.

    ``data_source`` has the length.

    Examples:
        >>> list(tg.utils.data.SequentialSampler("abc"))
        [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """A permutation, or ``num_samples`` draws, from ``generator`` or the generator that ``manual_seed`` seeds.

    ``data_source`` has the length; ``replacement`` says whether an index may be drawn repeatedly.

    Examples:
        >>> sorted(tg.utils.data.RandomSampler(range(4)))
        [0, 1, 2, 3]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise InvalidArgument(f"replacement should be a boolean value, but got replacement={replacement}")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples
        _check_count("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """The number of indices per epoch, by default the dataset's length."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, rng = len(self.data_source), random_of(self.generator)
        if self.replacement:
            yield from rng.integers(0, n, self.num_samples).tolist()
            return
        for start in range(0, self.num_samples, n):
            yield from rng.permutation(n).tolist()[: self.num_samples - start]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order.

    ``indices`` are the indices, and ``generator`` is the Generator to draw from.

    Examples:
        >>> sorted(tg.utils.data.SubsetRandomSampler([4, 7]))
        [4, 7]
    """

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in random_of(self.generator).permutation(len(self.indices)).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """``num_samples`` draws of indices with probabilities proportional to ``weights``.

    ``replacement`` says whether an index may be drawn repeatedly; ``generator`` is the Generator to draw from.

    Examples:
        >>> list(tg.utils.data.WeightedRandomSampler([0.0, 1.0], num_samples=3))
        [1, 1, 1]
    """

    def __init__(
        self, weights: Any, num_samples: int, replacement: bool = True, generator: Generator | None = None
    ) -> None:
        _check_count("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise InvalidValue(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = np.asarray(weights, dtype=np.float64)
        if self.weights.ndim != 1:
            raise InvalidValue(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        chances = self.weights / self.weights.sum()
        drawn = random_of(self.generator).choice(len(chances), self.num_samples, self.replacement, chances)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of ``batch_size`` indices of another sampler; the last list may be shorter, or is dropped.

    With ``drop_last``, a short last list is dropped.

    Examples:
        >>> list(tg.utils.data.BatchSampler(range(5), batch_size=2, drop_last=False))
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        _check_count("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise InvalidValue(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        return batches(self.sampler, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        return number_of_batches(len(self.sampler), self.batch_size, self.drop_last)  # type: ignore[arg-type]


def batches(items: Iterable[T], size: int, drop_last: bool) -> Iterator[list[T]]:
    """Yield lists of ``size`` items; the last list may be shorter, or is dropped."""
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch


def number_of_batches(count: int, size: int, drop_last: bool) -> int:
    """The number of lists that :func:`batches` yields for this many items."""
    return count // size if drop_last else -(-count // size)


def random_of(generator: Generator | None) -> np.random.Generator:
    """Return the NumPy generator to draw from."""
    return (generator or default_generator).numpy


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise InvalidValue(f"{name} should be a positive integer value, but got {name}={value}")
