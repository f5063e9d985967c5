"""The functions that accept ``out``: the same ones as in torch, found by calling torch.

Internals: the rule by which ops take ``out`` is compared with torch op by op.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad.tensor import keyword_arguments
from telegrad_engine.schema.op import CATALOGUE, Op

from ..engine import oracle
from ..op_cases import cases_of

OPS = [
    op
    for op in CATALOGUE
    if not (op.internal or op.random or op.factory or op.truth)
    and op.namespace in ("torch", "torch.linalg")
    and cases_of(op)
]


def taken(function: Any, op: Op) -> bool | None:
    """Whether torch's function accepts ``out`` in a case of the op; None if no case shows it."""
    refused = False
    for case in cases_of(op):
        try:
            call = oracle.build(case, oracle.arrays_of(case, np.dtype("float32")), torch.tensor, requires_grad=False)
            call = oracle.with_dtypes(call, torch)
            result = function(*call.args, **call.kwargs)
        except (RuntimeError, IndexError, TypeError, ValueError, OverflowError):
            continue
        parts = result if isinstance(result, (list, tuple)) else (result,)
        if not all(torch.is_tensor(part) for part in parts):
            continue
        empty = [torch.empty(0, dtype=part.dtype) for part in parts]
        try:
            function(*call.args, **call.kwargs, out=empty[0] if torch.is_tensor(result) else tuple(empty))
        except TypeError:
            refused = True
        except RuntimeError:
            continue
        else:
            return True
    return False if refused else None


def test_out_is_taken_where_torch_takes_it() -> None:
    told = 0
    for op in OPS:
        function = getattr(importlib.import_module(op.namespace), op.public, None)
        if function is None or len(CATALOGUE.overloads[op.name]) > 1:
            continue  # a method, or several functions under one name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = taken(function, op)
        assert expected is None or keyword_arguments.takes_out(op.name) == expected, op.key
        told += expected is not None
    assert told > 250


@pytest.mark.parametrize("name", ["relu", "ravel", "reshape", "isnan", "flip"])
def test_other_functions_know_no_out(name: str) -> None:
    arguments = {"reshape": ((1,),), "flip": ((0,),)}.get(name, ())
    for lib in (torch, tg):
        with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
            getattr(lib, name)(lib.ones(1), *arguments, out=lib.empty(1))
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        tg.ones(1).add(1, out=tg.empty(1))
