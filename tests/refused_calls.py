"""Calls that tensors' values make wrong, for each op that declares that it may raise because of them.

They are written for torch, the engine and the SDK alike. The tensors are results of other ops, so that the SDK does not
know their values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


def _whole(lib: Any, *numbers: int) -> Any:
    return lib.tensor(list(numbers)) + 0


def _floats(lib: Any, *numbers: float) -> Any:
    return lib.tensor(list(numbers)) * 1.0


def _nan(lib: Any) -> Any:
    return lib.zeros(2, 2) * math.nan


REFUSED: dict[str, Callable[[Any], Any]] = {
    "linalg_inv": lambda lib: lib.linalg.inv(lib.zeros(2, 2)),
    "linalg_solve": lambda lib: lib.linalg.solve(lib.zeros(2, 2), lib.ones(2)),
    "linalg_cholesky": lambda lib: lib.linalg.cholesky(lib.zeros(2, 2)),
    "linalg_eigh": lambda lib: lib.linalg.eigh(lib.zeros(3, 3) / 0.0),
    "linalg_svd": lambda lib: lib.linalg.svd(_nan(lib)),
    "linalg_pinv": lambda lib: lib.linalg.pinv(_nan(lib)),
    "linalg_lstsq": lambda lib: lib.linalg.lstsq(_nan(lib), lib.ones(2, 1)),
    "div.mode": lambda lib: lib.div(lib.tensor([1]), _whole(lib, 0), rounding_mode="floor"),
    "floor_divide": lambda lib: lib.tensor([1]) // _whole(lib, 0),
    "remainder": lambda lib: lib.tensor([1]) % _whole(lib, 0),
    "fmod": lambda lib: lib.fmod(lib.tensor([1]), _whole(lib, 0)),
    "repeat_interleave.counts": lambda lib: lib.repeat_interleave(_whole(lib, 1, 3), output_size=2),
    "searchsorted": lambda lib: lib.searchsorted(lib.ones(2), lib.ones(1), sorter=_whole(lib, 0, 7)),
    "histc": lambda lib: lib.histc(_floats(lib, math.nan)),
    "histogram": lambda lib: lib.histogram(_floats(lib, math.nan), 3),
    "quantile": lambda lib: lib.quantile(lib.ones(3), _floats(lib, 2.0)),
    "nanquantile": lambda lib: lib.nanquantile(lib.ones(3), _floats(lib, 2.0)),
    "gather": lambda lib: lib.gather(lib.ones(3), 0, _whole(lib, 5)),
    "scatter": lambda lib: lib.scatter(lib.ones(3), 0, _whole(lib, 5), lib.ones(1)),
    "scatter.value": lambda lib: lib.scatter(lib.ones(3), 0, _whole(lib, 5), 1.0),
    "scatter_add": lambda lib: lib.scatter_add(lib.ones(3), 0, _whole(lib, 5), lib.ones(1)),
    "scatter_reduce": lambda lib: lib.scatter_reduce(lib.ones(3), 0, _whole(lib, 5), lib.ones(1), "amax"),
    "index_add": lambda lib: lib.index_add(lib.ones(3), 0, _whole(lib, 5), lib.ones(1)),
    "index_copy": lambda lib: lib.index_copy(lib.ones(3), 0, _whole(lib, 5), lib.ones(1)),
    "index_fill": lambda lib: lib.index_fill(lib.ones(3), 0, _whole(lib, 5), 1.0),
    "put": lambda lib: lib.ones(3).put(_whole(lib, 5), lib.ones(1)),
    "index": lambda lib: lib.ones(3)[_whole(lib, 5)],
    "index_put": lambda lib: lib.index_put(lib.ones(3), (_whole(lib, 5),), lib.ones(1)),
    "index_select": lambda lib: lib.index_select(lib.ones(3), 0, _whole(lib, 5)),
    "take": lambda lib: lib.take(lib.ones(3), _whole(lib, 5)),
    "masked_scatter": lambda lib: lib.masked_scatter(lib.ones(3), lib.ones(3) > 0, lib.ones(1)),
    "nll_loss": lambda lib: lib.nn.functional.nll_loss(lib.ones(1, 3), _whole(lib, 5)),
    "checked_variance": lambda lib: lib.nn.functional.gaussian_nll_loss(lib.ones(2), lib.ones(2), -lib.ones(2)),
    "ctc_losses": lambda lib: lib.nn.functional.ctc_loss(
        lib.zeros(4, 1, 3), _whole(lib, 1, 2).reshape(1, 2), _whole(lib, 9), _whole(lib, 2)
    ),
    "embedded": lambda lib: lib.nn.functional.embedding(_whole(lib, 5), lib.ones(3, 2)),
    "bag_places": lambda lib: lib.nn.functional.embedding_bag(_whole(lib, 1, 2), lib.ones(3, 2), _whole(lib, 1)),
    "listed": lambda lib: lib.nn.functional.multilabel_margin_loss(lib.ones(1, 3), _whole(lib, 0, 5, -1).reshape(1, 3)),
    "unpooled": lambda lib: lib.nn.functional.max_unpool1d(lib.ones(1, 1, 2), _whole(lib, 0, 9).reshape(1, 1, 2), 2),
    "binary_cross_entropy": lambda lib: lib.nn.functional.binary_cross_entropy(2 * lib.ones(2), lib.ones(2)),
    "one_hot": lambda lib: lib.nn.functional.one_hot(_whole(lib, 5), 3),
    "normal": lambda lib: lib.normal(lib.ones(2), -lib.ones(2)),
    "multinomial": lambda lib: lib.multinomial(-lib.ones(2), 1),
    "poisson": lambda lib: lib.poisson(-lib.ones(2)),
    "bernoulli": lambda lib: lib.bernoulli(2 * lib.ones(2)),
}
"""By the op's key."""
