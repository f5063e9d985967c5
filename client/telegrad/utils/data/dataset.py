"""Datasets: samples by index, or one after the other."""

from __future__ import annotations

import itertools
import math
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from telegrad_engine.errors import InvalidChoice, InvalidValue

from ...sessions.generators import Generator
from ...tensor.handle import Tensor, upload
from .sampler import random_of

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Base class of the datasets: ``__getitem__`` returns a sample, and ``__len__`` the number of samples.

    Examples:
        >>> class Squares(tg.utils.data.Dataset):
        ...     def __len__(self):
        ...         return 3
        ...     def __getitem__(self, index):
        ...         return index**2
        >>> [batch.tolist() for batch in tg.utils.data.DataLoader(Squares(), batch_size=2)]
        [[0, 1], [4]]
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[Any]) -> Any:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """A dataset that is iterated; subclasses implement ``__iter__``.

    Examples:
        >>> class Numbers(tg.utils.data.IterableDataset):
        ...     def __iter__(self):
        ...         return iter(range(3))
        >>> [batch.tolist() for batch in tg.utils.data.DataLoader(Numbers(), batch_size=2)]
        [[0, 1], [2]]
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[Any]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Any, ...]]):
    """A dataset of the rows of tensors of equal length, as tuples.

    Tensors of a session stay there: a batch is one ``index_select`` of each. Raises AssertionError if their
    lengths differ.

    ``tensors`` are the tensors.

    Examples:
        >>> data = tg.utils.data.TensorDataset(tg.arange(4), tg.arange(4) ** 2)
        >>> len(data), data[3]
        (4, (tensor(3), tensor(9)))
    """

    def __init__(self, *tensors: Any) -> None:
        if any(tensors[0].shape[0] != tensor.shape[0] for tensor in tensors):
            raise InvalidChoice("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class StackDataset(Dataset[Any]):
    """A dataset that combines the samples of several datasets: as tuples, or by name as dicts.

    Raises ValueError for datasets of different lengths, for none, and for both kinds of arguments.

    ``args`` are the datasets, or ``kwargs`` those with names.

    Examples:
        >>> data = tg.utils.data
        >>> data.StackDataset(x=data.TensorDataset(tg.arange(2)), y=[5, 6])[1]
        {'x': (tensor(1),), 'y': 6}
    """

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and kwargs:
            raise InvalidValue(
                "Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like input/output, but both "
                "types are given."
            )
        self.datasets = args or kwargs
        if not self.datasets:
            raise InvalidValue("At least one dataset should be passed")
        lengths = {len(dataset) for dataset in args or kwargs.values()}
        if len(lengths) > 1:
            raise InvalidValue("Size mismatch between datasets")
        self._length = lengths.pop()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """Return several samples, with one call per dataset that has this method too."""
        if isinstance(self.datasets, dict):
            columns = {name: _many(dataset, indices) for name, dataset in self.datasets.items()}
            return [{name: column[i] for name, column in columns.items()} for i in range(len(indices))]
        return list(zip(*[_many(dataset, indices) for dataset in self.datasets], strict=True))

    def __len__(self) -> int:
        return self._length


def _many(dataset: Any, indices: list[Any]) -> Any:
    if not callable(getattr(dataset, "__getitems__", None)):
        return [dataset[index] for index in indices]
    items = dataset.__getitems__(indices)
    if len(items) != len(indices):
        raise InvalidValue(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(items)}")
    return items


class Subset(Dataset[T_co]):
    """The samples of a dataset at the given indices.

    ``dataset`` is the dataset.

    Examples:
        >>> data = tg.utils.data.TensorDataset(tg.arange(5))
        >>> tg.utils.data.Subset(data, [4, 0])[0]
        (tensor(4),)
    """

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> T_co:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset[T_co]):
    """A concatenation of datasets.

    ``datasets`` are the datasets. Raises AssertionError for none.

    Examples:
        >>> data = tg.utils.data
        >>> joined = data.ConcatDataset([data.TensorDataset(tg.arange(2)), data.TensorDataset(tg.arange(3))])
        >>> len(joined), joined[3]
        (5, (tensor(1),))
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets: list[Any] = list(datasets)
        if not self.datasets:
            raise InvalidChoice("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise InvalidChoice("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __getitem__(self, index: Any) -> T_co:
        if index < 0:
            if -index > len(self):
                raise InvalidValue("absolute value of index should not exceed dataset length")
            index += len(self)
        which = bisect_right(self.cumulative_sizes, index)
        sample: T_co = self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]
        return sample

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets one after the other.

    ``datasets`` are the datasets.

    Examples:
        >>> data = tg.utils.data
        >>> class Numbers(data.IterableDataset):
        ...     def __iter__(self):
        ...         return iter([1, 2])
        >>> list(data.ChainDataset([Numbers(), Numbers()]))
        [1, 2, 1, 2]
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for dataset in self._checked():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._checked())

    def _checked(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise InvalidChoice("ChainDataset only supports IterableDataset")
            yield dataset


def random_split(
    dataset: Dataset[T_co], lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset[T_co]]:
    """Split a dataset randomly into subsets of the given lengths, or of fractions that sum to one.

    Raises ValueError if the lengths do not sum to that of ``dataset``; ``generator`` is the Generator to draw from.

    Examples:
        >>> first, second = tg.utils.data.random_split(range(10), [0.8, 0.2])
        >>> len(first), len(second)
        (8, 2)
    """
    total = len(dataset)  # type: ignore[arg-type]
    sizes = _sizes(total, lengths) if math.isclose(sum(lengths), 1) and sum(lengths) <= 1 else lengths
    if sum(sizes) != total:
        raise InvalidValue("Sum of input lengths does not equal the length of the input dataset!")
    indices = iter(random_of(generator).permutation(total).tolist())
    return [Subset(dataset, list(itertools.islice(indices, int(size)))) for size in sizes]


def _sizes(total: int, fractions: Sequence[float]) -> list[int]:
    """Subset sizes for fractions; samples left over by rounding down go to the first subsets."""
    for i, fraction in enumerate(fractions):
        if fraction < 0 or fraction > 1:
            raise InvalidValue(f"Fraction at index {i} is not between 0 and 1")
    sizes = [math.floor(total * fraction) for fraction in fractions]
    for i in range(total - sum(sizes)):
        sizes[i % len(sizes)] += 1
    for i, size in enumerate(sizes):
        if size == 0:
            warnings.warn(f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=3)
    return sizes


def rows_of_session(dataset: Any, indices: Sequence[int]) -> list[Tensor] | None:
    """Return a batch of a dataset of session tensors, selected in the session; None for any other dataset."""
    while type(dataset) is Subset:
        indices = [dataset.indices[i] for i in indices]
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or not all(isinstance(t, Tensor) for t in dataset.tensors):
        return None
    length = len(dataset)
    wanted = np.asarray(indices, dtype=np.int64)
    if wanted.ndim != 1 or (wanted.size and (wanted.min() < -length or wanted.max() >= length)):
        return None  # the general path raises the right error
    wanted = np.where(wanted < 0, wanted + length, wanted)
    uploaded: dict[int, Tensor] = {}
    batch = []
    for tensor in dataset.tensors:
        key = id(tensor._recorder)
        if key not in uploaded:
            uploaded[key] = upload(tensor._recorder, wanted)
        batch.append(tensor.index_select(0, uploaded[key]))
    return batch
