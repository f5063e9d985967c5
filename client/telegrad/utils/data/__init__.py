"""Datasets, samplers and loaders, as ``torch.utils.data``.

A dataset of a session's tensors is uploaded once: a batch of it is one ``index_select`` per tensor on the
server, and nothing is fetched.
"""

from __future__ import annotations

from ...exclusions import attribute_of
from .dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from .loader import DataLoader, default_collate, default_convert, get_worker_info
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

__getattr__ = attribute_of("utils.data")

__all__ = ["ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset"]
__all__ += ["random_split"]
__all__ += ["BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler"]
__all__ += ["WeightedRandomSampler"]
__all__ += ["DataLoader", "default_collate", "default_convert", "get_worker_info"]
