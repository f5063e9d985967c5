"""DataLoader: batches of a dataset, made in this process. The server computes meanwhile, so there are no workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from telegrad_engine.errors import InvalidValue

from ...sessions.generators import Generator
from .collate import default_collate, default_convert
from .dataset import IterableDataset, rows_of_session
from .sampler import BatchSampler, RandomSampler, SequentialSampler, batches, number_of_batches


def get_worker_info() -> None:
    """Return None, as in torch's main process: there are no worker processes."""
    return None


class DataLoader:
    """Iterate over batches of ``dataset``, as torch's DataLoader.

    ``shuffle`` visits the samples in a new random order each time, drawn from ``generator`` or from the generator that
    ``manual_seed`` seeds; ``sampler`` or ``batch_sampler`` set the order themselves. ``batch_size=None`` turns batching
    off. ``collate_fn`` combines samples. A TensorDataset of a session's tensors is batched in the session, unless there
    is a ``collate_fn``. ``num_workers`` and related options are checked and then ignored: everything runs in this
    process. Raises ValueError, with torch's texts, for options that exclude each other.
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
