"""The SDK's ops against PyTorch's operator database: present variants agree, and few are missing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import telegrad as tg

from . import op_db

LEAST = 440
"""The least number of variants that must be present."""
OVERWRITTEN = "torch passes a gradient to what was overwritten, and none to the rest; here it is the other way round"
KNOWN_APART = {
    ("logcumsumexp", torch.float32): "torch's own gradient is off by up to 3e-3 from that in float64, ours by 1e-4",
    ("as_strided_scatter", torch.float64): OVERWRITTEN,
    ("as_strided_scatter", torch.float32): OVERWRITTEN,
}
"""Variants and dtypes in which the SDK differs from torch, with reasons."""
PRESENT = [info for info in op_db.IN_SCOPE if op_db.ours(info) is not None]


@pytest.fixture(scope="module", autouse=True)
def local() -> Any:
    """One local session for all variants, since only the ops are compared."""
    with tg.connect("local://", seed=0) as session:
        yield session


@pytest.mark.parametrize("info", PRESENT, ids=op_db.name_of)
def test_a_variant_agrees(info: Any) -> None:
    dtypes = [dtype for dtype in (torch.float64, torch.float32) if dtype in info.dtypes]
    for dtype in dtypes or sorted((d for d in info.dtypes if not d.is_complex), key=str)[:1]:
        if (op_db.name_of(info), dtype) not in KNOWN_APART:
            op_db.check(info, dtype)


@pytest.mark.full
def test_how_many_are_present() -> None:
    missing = [op_db.name_of(info) for info in op_db.IN_SCOPE if info not in PRESENT]
    print(f"\nin scope {len(op_db.IN_SCOPE)}, present {len(PRESENT)}, apart {len(KNOWN_APART)}; missing: {missing}")
    assert len(PRESENT) - len(KNOWN_APART) >= LEAST
