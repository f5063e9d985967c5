"""Wrong calls of what computes element by element and of what reduces; see ``wrong_calls.py``."""

from __future__ import annotations

import pytest

import telegrad_engine as tg

from . import oracle
from .wrong_calls import OURS, assert_same_error, calls, failure

UNARY = """
-b
torch.neg(b)
torch.frac(i)
torch.bitwise_not(f)
~f
torch.clamp(f)
torch.clamp(f, 'a')
torch.abs()
torch.abs(3)
torch.abs(f, f)
torch.exp('a')
torch.polygamma(-1, f)
torch.round(f, decimals='a')
torch.logit(f, 'a')
torch.nan_to_num(f, nan='a')
torch.isnan(3)
i.clone().exp_()
i.clone().sqrt_()
i.clone().sigmoid_()
b.clone().neg_()
f.sin(3)
f.floor(dim=1)
"""


BINARY = """
f + torch.ones(2, 2)
f * torch.ones(4)
f + 'a'
f + None
torch.add(f, 'a')
torch.add(f, f, alpha='a')
torch.add(i, i, alpha=1.5)
torch.add(i, i, alpha=True)
b - b
b - f
f - b
torch.sub(b, b)
torch.rsub(b, b)
torch.div(f, f, rounding_mode='up')
torch.div(i, 0, rounding_mode='floor')
torch.floor_divide(i, 0)
torch.floor_divide(b, b)
i // 0
i % 0
i % torch.zeros(3, dtype=torch.int64)
torch.fmod(i, 0)
torch.fmod(b, b)
torch.remainder(b, b)
torch.pow(b, b)
torch.pow(i, -1)
i ** -2
torch.hypot(i, i)
torch.logaddexp(i, i)
torch.atan2(f, 'a')
torch.maximum(f, 3)
torch.maximum(f, torch.ones(2))
torch.lerp(f, d, 0.5)
torch.lerp(i, i, 0.5)
torch.lerp(f, f, d)
torch.lerp(f, torch.ones(4), 0.5)
torch.addcmul(b, b, b)
torch.addcdiv(i, i, i)
torch.addcmul(f, f, torch.ones(2))
torch.addcmul(f, 2, f)
torch.bitwise_and(f, f)
torch.bitwise_or(f, 3)
f & f
i | 1.5
torch.logical_and(f, 3)
torch.where(f, f, f)
torch.where(i, f, f)
torch.where(b, f, torch.ones(4))
torch.isclose(f, d)
torch.isclose(f, f, rtol=-1)
torch.isclose(f, f, atol=-1)
torch.allclose(f, d)
torch.allclose(f, torch.ones(4))
torch.allclose(f, f, rtol=-2)
torch.equal(f, 2)
torch.eq(f, 'a')
f < 'a'
torch.lt(f, torch.ones(4))
i.clone().add_(1.5)
i.clone().mul_(f)
i.clone().div_(2)
i.clone().pow_(0.5)
f.clone().add_(torch.ones(4, 2, 3))
v.clone().mul_(f)
b.clone().add_(1)
f.clone().sub_(b)
f.clone().eq_(torch.ones(2, 2, 3))
"""


REDUCE = """
torch.sum(f, 2)
torch.sum(f, -3)
torch.sum(f, (0, 0))
torch.sum(f, 'a')
torch.sum(f, dim=1.5)
torch.sum(f, keepdim=3)
torch.sum(s, 1)
f.sum(0, 1, 2, 3)
torch.mean(i)
torch.mean(b)
torch.mean(f, 5)
torch.mean(f, dtype=torch.int64)
torch.var(i)
torch.std(i)
torch.var(f, 3)
torch.std(f, (1, 1))
torch.prod(f, 2)
torch.prod(f, (0, 1))
torch.amax(f, 2)
torch.amax(e)
torch.amax(e, 0)
torch.amin(e, 0)
torch.amax(f, (0, -2))
torch.max(e)
torch.min(e)
torch.max(e, 0)
torch.min(e, 0)
torch.max(f, 2)
torch.max(f, 'a')
torch.max(f, torch.ones(2, 2))
torch.argmax(e)
torch.argmin(e)
torch.argmax(e, 0)
torch.argmax(f, 2)
torch.argmin(f, -3)
torch.median(b)
torch.median(f, 2)
torch.median(e, 0)
torch.mode(f, 2)
torch.mode(e, 0)
torch.logsumexp(f, 3)
torch.norm(i)
torch.norm(f, 'abc')
torch.norm(v, 'nuc')
torch.norm(f, 2, 4)
torch.norm(c, 'nuc')
torch.norm(f, dtype=torch.int64)
torch.cumsum(f, 2)
torch.cumsum(f)
torch.cumprod(f, -3)
torch.cummax(f, 2)
torch.cummin(s, 1)
torch.logcumsumexp(f, 2)
torch.logcumsumexp(i, 0)
torch.nansum(f, 2)
torch.nanmean(i)
torch.all(f, 2)
torch.any(f, -3)
torch.count_nonzero(f, 2)
torch.count_nonzero(f, (0, 0))
torch.quantile(f, 1.5)
torch.quantile(f, -0.1)
torch.quantile(e, 0.5)
torch.quantile(i, 0.5)
torch.quantile(f, d.reshape(-1))
torch.quantile(f, torch.ones(1, 1))
torch.quantile(f, 0.5, 3)
torch.quantile(f, 0.5, interpolation='most')
torch.quantile(f, torch.tensor([0.5, 2.0]))
torch.quantile(f, 0.5, 0, True, interpolation=3)
"""


@pytest.mark.parametrize("call", calls(UNARY, BINARY, REDUCE))
def test_error_parity(call: str) -> None:
    assert_same_error(call)


COMPLEX = """
torch.tensor(1j)
torch.tensor([1.0, 2j])
torch.zeros(2, dtype='complex64')
torch.full((2,), 1j)
v.to(dtype='complex128')
v.sum(dtype='complex64')
v + 1j
1j * v
v == 1j
torch.mul(v, 1j)
torch.pow(v, 1j)
v.clone().add_(1j)
torch.where(b, f, 1j)
"""


@pytest.mark.parametrize("call", calls(COMPLEX))
def test_complex_dtypes_have_one_error(call: str) -> None:
    assert failure(call, OURS) == oracle.Failure(RuntimeError, tg.dtypes.COMPLEX_TEXT)
