"""DataLoader: batches of a dataset, made in this process. The server computes meanwhile, so there are no workers.

Samples that are arrays are stacked on the client and uploaded once; tensors are stacked in the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from telegrad_engine.errors import InvalidArgument, InvalidOperation, InvalidValue

from ...sessions.generators import Generator
from ...sessions.session import current
from ...tensor.handle import Tensor, functions, upload
from .dataset import IterableDataset, rows_of_session
from .sampler import BatchSampler, RandomSampler, SequentialSampler, batches, number_of_batches


def get_worker_info() -> None:
    """Return None, as in torch's main process: there are no worker processes.

    Examples:
        >>> tg.utils.data.get_worker_info() is None
        True
    """
    return None


class DataLoader:
    """Iterate over batches of ``dataset``, as torch's DataLoader.

    ``shuffle`` visits the samples in a new random order each time, drawn from ``generator`` or from the generator that
    ``manual_seed`` seeds; ``sampler`` or ``batch_sampler`` set the order themselves. ``batch_size=None`` turns batching
    off. ``collate_fn`` combines samples. A TensorDataset of a session's tensors is batched in the session, unless there
    is a ``collate_fn``. ``num_workers`` and related options (``pin_memory``, ``timeout``, ``worker_init_fn``,
    ``multiprocessing_context``, ``prefetch_factor``, ``persistent_workers``, ``pin_memory_device`` and ``in_order``)
    are checked and then ignored: everything runs in this process. Raises ValueError, with torch's texts, for options
    that exclude each other.

    Args:
        dataset: A dataset, a sequence or an iterable dataset.
        batch_size: The number of samples of a batch; None loads single samples.
        shuffle: Whether the samples are in random order.
        sampler: The indices of the samples, in place of ``shuffle``.
        batch_sampler: Lists of indices, one for each batch.
        collate_fn: A function that makes a batch of a list of samples; None is ``default_collate``.
        drop_last: Whether a short last batch is dropped.
        generator: The Generator that orders the samples.

    Examples:
        >>> data = tg.utils.data.TensorDataset(tg.arange(5), tg.arange(5) ** 2)
        >>> for x, y in tg.utils.data.DataLoader(data, batch_size=2):
        ...     print(x.tolist(), y.tolist())
        [0, 1] [0, 1]
        [2, 3] [4, 9]
        [4] [16]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        iterable = isinstance(dataset, IterableDataset)
        if iterable:
            _check_iterable(shuffle, sampler, batch_sampler)
        if sampler is not None and shuffle:
            raise InvalidValue("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise InvalidValue(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise InvalidValue("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None and not iterable:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None:
            # An iterable dataset has no indices: its batch sampler only checks and stores the options.
            batch_sampler = BatchSampler(() if sampler is None else sampler, batch_size, drop_last)
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self.num_workers, self.pin_memory, self.timeout = num_workers, pin_memory, timeout
        self._batching = batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if self._batching else default_convert)

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            samples: Iterable[Any] = self.dataset
            if self.batch_size is not None:
                samples = batches(samples, self.batch_size, self.drop_last)
            yield from map(self.collate_fn, samples)
        elif self.batch_sampler is None:
            for index in self.sampler or ():
                yield self.collate_fn(self.dataset[index])
        else:
            for indices in self.batch_sampler:
                yield self._batch(indices)

    def __len__(self) -> int:
        """Return the number of batches. Raises TypeError for a dataset without a length."""
        if not isinstance(self.dataset, IterableDataset):
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]
        length = len(self.dataset)  # type: ignore[arg-type]
        return length if self.batch_size is None else number_of_batches(length, self.batch_size, self.drop_last)

    def _batch(self, indices: list[Any]) -> Any:
        if self.collate_fn is default_collate:
            rows = rows_of_session(self.dataset, indices)
            if rows is not None:
                return rows
        if hasattr(self.dataset, "__getitems__"):
            return self.collate_fn(self.dataset.__getitems__(indices))
        return self.collate_fn([self.dataset[index] for index in indices])


def _check_workers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent: bool) -> None:
    if num_workers < 0:
        raise InvalidValue("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise InvalidValue("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise InvalidValue(
            "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
            "multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise InvalidValue("prefetch_factor option should be non-negative")
    if persistent and num_workers == 0:
        raise InvalidValue("persistent_workers option needs num_workers > 0")


def _check_iterable(shuffle: bool | None, sampler: Any, batch_sampler: Any) -> None:
    if shuffle:
        raise InvalidValue(
            f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}"
        )
    for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if value is not None:
            raise InvalidValue(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
            )


TEXT = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"


def default_collate(batch: Sequence[Any]) -> Any:
    """Collate samples to a batch with a new first dimension.

    Tensors, arrays and numbers become one tensor (Python floats a float64 one); dicts, tuples and lists are
    collated field by field, strings stay a list. Raises TypeError for anything else.

    ``batch`` is a list of samples.

    Examples:
        >>> tg.utils.data.default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
        {'x': tensor([1, 2]), 'name': ['a', 'b']}
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return functions.stack(list(batch))
    if hasattr(first, "detach") and hasattr(first, "numpy"):
        return default_collate([sample.detach().cpu().numpy() for sample in batch])
    if isinstance(first, (np.ndarray, np.generic)):
        return _stack(batch)
    if isinstance(first, float):
        return upload(current().recorder, list(batch), "float64")
    if isinstance(first, int):
        return upload(current().recorder, list(batch))
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        collated = {key: default_collate([sample[key] for sample in batch]) for key in first}
        return collated if type(first) is dict else _like(first, collated)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*[default_collate(field) for field in zip(*batch, strict=True)])
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise InvalidOperation("each element in list of batch should be of equal size")
        fields = [default_collate(field) for field in zip(*batch, strict=True)]
        return fields if isinstance(first, tuple) else _like(first, fields)
    raise InvalidArgument(TEXT.format(type(first)))


def default_convert(data: Any) -> Any:
    """Convert the arrays in a sample to tensors; a loader without batches uses this.

    ``data`` is the sample.

    Examples:
        >>> import numpy as np
        >>> tg.utils.data.default_convert({"x": np.arange(2), "name": "a"})
        {'x': tensor([0, 1]), 'name': 'a'}
    """
    if isinstance(data, (np.ndarray, np.generic)) and data.dtype.kind not in "SUO":
        return upload(current().recorder, data)
    if isinstance(data, Mapping):
        return _like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*[default_convert(value) for value in data])
    if isinstance(data, tuple):
        return [default_convert(value) for value in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _like(data, [default_convert(value) for value in data])
    return data


def _stack(batch: Sequence[Any]) -> Tensor:
    arrays = [np.asarray(sample) for sample in batch]
    if arrays[0].dtype.kind in "SUO":
        raise InvalidArgument(TEXT.format(arrays[0].dtype))
    if any(array.shape != arrays[0].shape for array in arrays):
        entry = next(i for i, array in enumerate(arrays) if array.shape != arrays[0].shape)
        raise InvalidOperation(
            f"stack expects each tensor to be equal size, but got {list(arrays[0].shape)} at entry 0 and "
            f"{list(arrays[entry].shape)} at entry {entry}"
        )
    return upload(current().recorder, np.stack(arrays))


def _like(original: Any, values: Any) -> Any:
    """``values`` in the original's container class, if that class accepts them."""
    try:
        return type(original)(values)
    except TypeError:
        return values
