"""Wrong calls, on torch and on ours: the same built-in exception class with the same words.

A line is a call as a user writes it; ``torch`` is either library. ``f`` is float32 of shape (2, 3), ``v`` a vector
of 3, ``s`` a 0-dim tensor, ``m`` a square matrix, ``c`` of shape (2, 3, 4), ``e`` an empty tensor (0, 3), ``i`` int64
of shape (2, 3), ``b`` bool, ``d`` float64.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch

import telegrad_engine as tg

from . import oracle

CREATE = """
torch.zeros(2, -1)
torch.zeros((2, -1))
torch.ones(-3)
torch.full((2, -1), 1.0)
torch.full((2,), 'a')
torch.empty(-1)
torch.zeros('a')
torch.zeros(2.5)
torch.zeros(2, dtype='nothing')
torch.eye(-1)
torch.eye(2, -2)
torch.eye(2.5)
torch.arange(5, 0)
torch.arange(0, 5, -1)
torch.arange(0, 5, 0)
torch.arange(0, float('inf'))
torch.arange(0, float('nan'))
torch.linspace(0, 1, -1)
torch.logspace(0, 1, -1)
torch.tril_indices(-1, 2)
torch.triu_indices(2, -1)
torch.tril_indices(2, 2, dtype=torch.float32)
torch.rand(-1)
torch.randn(2, -1)
torch.rand(2, dtype=torch.int64)
torch.randn(2, dtype=torch.int64)
torch.randint(3, 1, (2,))
torch.randint(0, (2,))
torch.randint(3, (-2,))
torch.randperm(-1)
torch.normal(0.0, -1.0, (2,))
torch.normal(v, -1.0)
torch.bernoulli(v * 5)
torch.bernoulli(i)
torch.multinomial(v.abs() * 0, 1)
torch.multinomial(-v.abs(), 1)
torch.multinomial(v.abs(), 9)
torch.multinomial(v.abs(), 0)
torch.multinomial(c.abs(), 1)
torch.multinomial(i, 1)
torch.zeros_like(3)
torch.full_like(v, 'a')
v.new_zeros(-1)
v.new_full((2,), 'a')
torch.tensor([[1], [1, 2]])
torch.tensor(['a'])
torch.tensor([None])
torch.tensor(2 ** 70)
v.clone().uniform_(2, 1)
v.clone().uniform_(0, float('inf'))
v.clone().normal_(0, -1)
v.clone().bernoulli_(2)
v.clone().exponential_(0)
v.clone().random_(3, 1)
i.clone().uniform_()
i.clone().normal_()
i.clone().exponential_()
"""

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

SHAPE = """
f.reshape(4)
f.reshape(-1, -1)
f.reshape(-2, 3)
f.reshape(-1, 4)
e.reshape(-1, 0)
f.view(5)
f.t().view(6)
f.view('a')
f.flatten(1, 0)
f.flatten(3)
f.flatten(0, 5)
f.unflatten(0, (3, -1))
f.unflatten(1, (2, 2))
f.unflatten(1, ())
f.unflatten(4, (1,))
f.unflatten(1, (-1, -1))
f.squeeze(2)
f.squeeze((0, 0))
f.unsqueeze(3)
f.unsqueeze(-4)
f.unsqueeze()
f.transpose(0, 2)
f.transpose(0)
c.t()
f.permute(0)
f.permute(0, 0)
f.permute(0, 2)
f.movedim(0, 2)
f.movedim((0, 1), (1,))
f.movedim((0, 0), (0, 1))
f.expand(3, 3)
f.expand(3)
f.expand(-1, 2, 3)
f.expand(-2, 3)
v.expand_as(torch.ones(2))
f.repeat(2)
f.repeat(2, -1)
f.tile('a')
f.flip(2)
f.flip((0, 0))
f.roll(1, 2)
f.roll((1, 2))
f.roll(())
f.roll((1, 2), 0)
torch.cat([])
torch.cat([f, torch.ones(2, 2)])
torch.cat([f, v])
torch.cat([f, f], 2)
torch.cat(f)
torch.cat([f, 3])
torch.stack([])
torch.stack([f, v])
torch.stack([f, f], 4)
torch.hstack([])
torch.vstack([v, torch.ones(2)])
torch.dstack([])
torch.column_stack([])
torch.split(f, 0)
torch.split(f, -1)
torch.split(f, (1, 2))
torch.split(f, 1, 3)
torch.chunk(f, 0)
torch.chunk(f, 2, 3)
torch.unbind(f, 2)
torch.unbind(s)
torch.narrow(f, 0, 1, 2)
torch.narrow(f, 2, 0, 1)
torch.narrow(f, 0, 0, -1)
torch.narrow(f, 0, 4, 1)
torch.select(f, 0, 2)
torch.select(f, 2, 0)
torch.select(s, 0, 0)
torch.diagonal(v)
torch.diagonal(f, 0, 0, 0)
torch.diagonal(f, 0, 0, 3)
torch.diag(c)
torch.diag_embed(f, 0, 1, 1)
torch.tril(v)
torch.triu(v)
v.clone().tril_()
torch.broadcast_to(f, (4, 4))
torch.broadcast_tensors(f, torch.ones(2))
torch.meshgrid(f, v)
torch.meshgrid(v, v, indexing='zz')
torch.meshgrid()
torch.as_strided(v, (2, 2), (1,))
torch.as_strided(v, (2, 4), (1, 1))
torch.as_strided(v, (2,), (-1,))
torch.as_strided(v, (2,), (1,), -1)
f.unfold(2, 1, 1)
f.unfold(0, 5, 1)
f.unfold(0, 1, 0)
f.unfold(0, -1, 1)
torch.rot90(v)
torch.rot90(f, 1, (0,))
torch.rot90(f, 1, (0, 0))
f.to('nothing')
f.reshape(10 ** 12, 10 ** 12)
f.expand(2, 3.5)
f[5]
f[:, 3]
f[0, 0, 0]
f['a']
f[1.5]
f.unique(dim=2)
e.unique(dim=1)
torch.repeat_interleave(f, -1)
torch.repeat_interleave(f, 2, 3)
"""

LINALG = """
torch.matmul(f, f)
torch.matmul(v, torch.ones(2))
torch.matmul(s, f)
torch.matmul(f, torch.ones(2))
torch.matmul(f, 3)
torch.matmul(f, d.t())
torch.matmul(i, f.t())
f @ f
f @ 3
torch.mm(f, v)
torch.mm(v, f)
torch.mm(f, f)
torch.bmm(f, f)
torch.bmm(c, c)
torch.bmm(c, torch.ones(3, 4, 2))
torch.mv(f, torch.ones(2))
torch.mv(v, v)
torch.dot(f, f)
torch.dot(v, torch.ones(2))
torch.dot(v, v.double())
torch.outer(f, v)
torch.inner(f, torch.ones(2))
torch.vdot(v, torch.ones(2))
torch.addmm(f, f, f)
torch.addmm(v, v, f)
torch.addmm(f, d, d.t())
torch.addmm(torch.ones(4, 4), f, f.t())
torch.addmv(v, f, torch.ones(2))
torch.addmv(f, f, v)
torch.baddbmm(c, c, c)
torch.addbmm(f, c, c)
torch.einsum('ij,jk', f, f)
torch.einsum('ij', f, f)
torch.einsum('ij,ij')
torch.einsum('ijk', f)
torch.einsum('ij->k', f)
torch.einsum('i1', f)
torch.einsum('ij->ii', f)
torch.tensordot(f, f, 1)
torch.tensordot(f, f, -1)
torch.tensordot(f, f, 3)
torch.tensordot(f, f, ([0], [0, 1]))
torch.cross(torch.ones(2, 2), torch.ones(2, 2))
torch.cross(f, v)
torch.cross(f, f, 0)
torch.linalg.cross(f, v)
torch.linalg.cross(c, c)
torch.linalg.cross(f, d)
torch.linalg.cross(f, f, dim=3)
torch.trace(v)
torch.trace(c)
torch.det(f)
torch.det(v)
torch.det(i)
torch.linalg.det(f)
torch.logdet(f)
torch.slogdet(f)
torch.linalg.slogdet(v)
torch.inverse(f)
torch.inverse(singular)
torch.linalg.inv(f)
torch.linalg.inv(i[:, :2])
torch.linalg.inv(singular)
torch.linalg.inv(torch.stack([torch.eye(2), singular]))
torch.linalg.inv(torch.eye(2, dtype=torch.float16))
torch.linalg.solve(singular, singular)
torch.linalg.solve(torch.stack([torch.eye(2), singular]), torch.ones(2, 2, 1))
torch.linalg.solve(f, f)
torch.linalg.solve(m, m.double())
torch.linalg.solve_triangular(f, f, upper=True)
torch.linalg.solve_triangular(m, m)
torch.linalg.cholesky(-torch.eye(2))
torch.linalg.cholesky(torch.stack([torch.eye(2), -torch.eye(2)]))
torch.linalg.cholesky(f)
torch.linalg.cholesky(v)
torch.cholesky(-torch.eye(2))
torch.cholesky(f)
torch.linalg.qr(v)
torch.linalg.qr(f, 'all')
torch.linalg.qr(i)
torch.linalg.eigh(f)
torch.linalg.eigh(m, 'X')
torch.linalg.eigh(i[:, :2])
torch.linalg.eigvalsh(v)
torch.linalg.svd(v)
torch.linalg.svd(i)
torch.linalg.svd(m * float('nan'))
torch.linalg.svdvals(v)
torch.svd(v)
torch.qr(v)
torch.linalg.pinv(v)
torch.linalg.pinv(i)
torch.linalg.pinv(f, hermitian=True)
torch.linalg.lstsq(v, v)
torch.linalg.lstsq(f, torch.ones(3, 1))
torch.linalg.lstsq(f, d)
torch.linalg.lstsq(f, f, driver='best')
torch.linalg.lstsq(f, torch.ones(2, 2, 1))
torch.linalg.lstsq(f, s)
torch.linalg.matrix_power(f, 2)
torch.linalg.matrix_power(singular, -1)
torch.matrix_power(v, 2)
torch.matrix_power(m, 1.5)
torch.linalg.matrix_norm(v)
torch.linalg.matrix_norm(f, 'max')
torch.linalg.matrix_norm(f, 3)
torch.linalg.matrix_norm(f, dim=(0, 0))
torch.linalg.matrix_norm(f, dim=(0, 1, 2))
torch.linalg.matrix_norm(i)
torch.linalg.vector_norm(i)
torch.linalg.vector_norm(f, 2, 3)
torch.linalg.vector_norm(f, 'fro')
torch.linalg.vector_norm(e, float('inf'))
torch.linalg.vector_norm(e, -1, 0)
torch.linalg.norm(c, 2)
torch.linalg.norm(f, 3)
torch.linalg.norm(f, 2, (0, 1, 2))
torch.linalg.norm(v, 'fro')
torch.linalg.norm(f, 'most')
torch.linalg.cond(v)
torch.linalg.cond(f, 1)
torch.linalg.cond(m, 7)
torch.linalg.cond(m, 'most')
torch.linalg.matrix_rank(v)
torch.linalg.multi_dot([])
torch.linalg.multi_dot([f])
torch.linalg.multi_dot([f, f])
torch.linalg.multi_dot([v, c, v])
torch.linalg.vecdot(v, torch.ones(2))
torch.linalg.tensorinv(f)
torch.linalg.tensorsolve(f, torch.ones(2))
torch.linalg.diagonal(v)
torch.linalg.nothing(f)
"""

FAMILIES = {"create": CREATE, "unary": UNARY, "binary": BINARY, "reduce": REDUCE, "shape": SHAPE, "linalg": LINALG}
CALLS = [call for table in FAMILIES.values() for call in table.strip().splitlines()]

DELIBERATE: dict[str, str] = {
    "torch.zeros(2, dtype='nothing')": "unknown dtype 'nothing'; known: bool",  # names of dtypes are taken here
    "torch.meshgrid(f, v)": "Expected 0D or 1D tensor in the tensor list but got: [2, 3]",  # torch prints the values
    "f.to('nothing')": "device 'nothing' is not available",  # the devices are those of the session
}
"""Calls on which our words differ from torch's by intent, with ours (or their essential part)."""


class Ours:
    """Our library under the name that the calls use."""

    Tensor, tensor, linalg = tg.Tensor, staticmethod(tg.tensor), tg.linalg

    def __getattr__(self, name: str) -> Any:
        return getattr(tg.dtypes, name, None) or getattr(tg.functions, name)


def names(library: Any) -> dict[str, Any]:
    """What the calls may refer to."""
    f = library.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]])
    return {
        "torch": library,
        "f": f,
        "d": f.double(),
        "i": library.tensor([[1, 2, 3], [4, 5, 6]]),
        "b": library.tensor([[True, False, True], [False, False, True]]),
        "v": library.tensor([1.0, 2.0, 3.0]),
        "s": library.tensor(1.5),
        "e": library.tensor([]).reshape(0, 3),
        "c": library.tensor([[[float(n + 4 * k) for n in range(4)] for k in range(3)]] * 2),
        "m": library.tensor([[2.0, 1.0], [1.0, 3.0]]),
        "singular": library.tensor([[1.0, 2.0], [2.0, 4.0]]),
    }


OURS, THEIRS = names(Ours()), names(torch)


def failure(call: str, known: dict[str, Any]) -> oracle.Failure | None:
    """How the call fails; None where it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(call, {**known})
    except (*oracle.ERROR_BASES, AttributeError) as error:
        kind = next(base for base in (*oracle.ERROR_BASES, AttributeError) if isinstance(error, base))
        return oracle.Failure(kind, str(error))
    return None


UNBOUND = re.compile(
    r"(?:TensorBase\.)?(\w+)\(\)(?:: argument '| takes | missing | got | received an invalid combination)"
)


def essence(text: str) -> str:
    """The words; of a call whose arguments fit no signature only the function's name.

    There torch names positions, and overloads where we have one signature with defaults; its C++ frames are cut.
    """
    binding = UNBOUND.match(text)
    return binding[1] if binding else text.partition("\nException raised")[0]


@pytest.mark.parametrize("call", CALLS)
def test_error_parity(call: str) -> None:
    theirs, ours = failure(call, THEIRS), failure(call, OURS)
    assert theirs is not None, "torch does not raise"
    assert ours is not None, f"torch raises {theirs}"
    assert ours.kind is theirs.kind, f"{ours} is not {theirs}"
    if call in DELIBERATE:
        assert DELIBERATE[call] in ours.text
        assert essence(ours.text) != essence(theirs.text), "no difference: take it off the list"
    else:
        assert essence(ours.text) == essence(theirs.text)


def test_deliberate_differences_are_of_calls_in_the_table() -> None:
    assert set(DELIBERATE) <= set(CALLS)


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
""".strip().splitlines()


@pytest.mark.parametrize("call", COMPLEX)
def test_complex_dtypes_have_one_error(call: str) -> None:
    assert failure(call, OURS) == oracle.Failure(RuntimeError, tg.dtypes.COMPLEX_TEXT)


def test_singular_matrices_have_a_class_of_their_own() -> None:
    calls = ("torch.linalg.inv(singular)", "torch.linalg.cholesky(-torch.eye(2))", "torch.linalg.solve(singular, m)")
    for call in calls:
        for library, known in ((torch, THEIRS), (Ours(), OURS)):
            with pytest.raises(library.linalg.LinAlgError) as raised:
                eval(call, {**known})
            assert isinstance(raised.value, RuntimeError)
