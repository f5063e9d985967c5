"""Wrong calls, on torch and on the engine: the same built-in class of exception with the same text.

A line is a call as a user writes it; ``torch`` is either library, ``t`` its ``tensor``, and ``F`` its
``nn.functional``. ``f`` is float32 of shape (2, 3), ``v`` a vector of 3, ``s`` a 0-dim tensor, ``m`` a square matrix,
``c`` of shape (2, 3, 4), ``e`` an empty tensor (0, 3), ``i`` int64 of shape (2, 3), ``b`` bool, ``d`` float64.
Dimensions that an op does not have are compared for every op by ``test_bad_arguments.py``.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch

import telegrad_engine as tg

from ..client.parity import ENGINE
from . import oracle

CREATE = """
torch.zeros(2, -1)
torch.zeros((2, -1))
torch.ones(-3)
torch.full((2, -1), 1.0)
torch.empty(-1)
torch.eye(-1)
torch.eye(2, -2)
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
v.new_zeros(-1)
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
torch.ones(2).cauchy_(0, -1)
torch.ones(2, dtype=torch.int64).cauchy_()
torch.ones(2).geometric_(0)
torch.ones(2).geometric_(1.5)
torch.ones(2).log_normal_(1, -1)
torch.ones(2, dtype=torch.int64).log_normal_()
torch.poisson(t([-1.0]))
torch.poisson(t([1]))
"""
SHAPE = """
f.reshape(4)
f.reshape(-1, -1)
f.reshape(-2, 3)
f.reshape(-1, 4)
e.reshape(-1, 0)
f.view(5)
f.t().view(6)
f.flatten(1, 0)
f.flatten(3)
f.unflatten(0, (3, -1))
f.unflatten(1, (2, 2))
f.unflatten(1, ())
f.unflatten(1, (-1, -1))
f.squeeze(2)
f.squeeze((0, 0))
f.unsqueeze(3)
f.unsqueeze(-4)
f.unsqueeze()
f.transpose(0)
c.t()
f.permute(0)
f.permute(0, 0)
f.movedim((0, 1), (1,))
f.movedim((0, 0), (0, 1))
f.expand(3, 3)
f.expand(3)
f.expand(-1, 2, 3)
f.expand(-2, 3)
v.expand_as(torch.ones(2))
f.repeat(2)
f.repeat(2, -1)
f.flip((0, 0))
f.roll((1, 2))
f.roll(())
f.roll((1, 2), 0)
torch.cat([])
torch.cat([f, torch.ones(2, 2)])
torch.cat([f, v])
torch.cat([f, f], 2)
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
torch.chunk(f, 0)
torch.unbind(s)
torch.narrow(f, 0, 1, 2)
torch.narrow(f, 0, 0, -1)
torch.narrow(f, 0, 4, 1)
torch.select(f, 0, 2)
torch.select(s, 0, 0)
torch.diagonal(v)
torch.diagonal(f, 0, 0, 0)
torch.diag(c)
torch.diag_embed(f, 0, 1, 1)
torch.tril(v)
torch.triu(v)
v.clone().tril_()
torch.broadcast_to(f, (4, 4))
torch.broadcast_tensors(f, torch.ones(2))
torch.meshgrid(v, v, indexing='zz')
torch.meshgrid()
torch.as_strided(v, (2, 2), (1,))
torch.as_strided(v, (2, 4), (1, 1))
torch.as_strided(v, (2,), (-1,))
torch.as_strided(v, (2,), (1,), -1)
f.unfold(0, 5, 1)
f.unfold(0, 1, 0)
f.unfold(0, -1, 1)
torch.rot90(v)
torch.rot90(f, 1, (0,))
torch.rot90(f, 1, (0, 0))
f.reshape(10 ** 12, 10 ** 12)
f[5]
f[:, 3]
f[0, 0, 0]
f['a']
f[1.5]
f.unique(dim=2)
e.unique(dim=1)
torch.repeat_interleave(f, -1)
"""
INDEXING = """
ones(3)[t([3])]
ones(3)[t([-4])]
ones(3)[3]
ones(3)[0, 0]
ones(3)[ones(2)]
ones(3, 3)[t([0, 1]), t([0, 1, 2])]
ones(3)[t([True, False])]
torch.index_select(ones(3), 0, t([3]))
torch.index_select(ones(3), 0, t([[0]]))
torch.gather(ones(3), 0, t([3]))
torch.gather(ones(3, 3), 0, t([0]))
torch.gather(ones(3), 0, ones(1))
torch.gather(ones(2, 3), 1, torch.zeros((3, 1)).long())
torch.scatter(ones(3), 0, t([3]), ones(1))
torch.scatter(ones(3), 0, t([0]), ones(1).double())
torch.scatter_add(ones(3), 0, t([-1]), ones(1))
torch.scatter_reduce(ones(3), 0, t([0]), ones(1), "median")
torch.index_add(ones(3), 0, t([0, 1]), ones(3))
torch.index_add(ones(3, 1), 0, t([3]), ones(1, 1))
torch.index_copy(ones(3), 0, t([3]), ones(1))
torch.index_fill(ones(3), 0, t([3]), 1.0)
torch.index_put(ones(3), (t([3]),), ones(1))
torch.index_put(ones(3), (t([0, 1]),), ones(3))
torch.index_reduce(ones(3), 0, t([0]), ones(1), "sum")
torch.masked_fill(ones(3), t([0, 1, 1]), 1.0)
torch.masked_fill(ones(2), t([True, False]), ones(2))
torch.masked_select(ones(3), t([True, False]))
torch.masked_scatter(ones(2), t([True, True]), ones(1))
torch.take(ones(3), t([3]))
torch.take_along_dim(ones(3, 3), t([0]), 1)
torch.topk(ones(3), 4)
torch.kthvalue(ones(3), 4)
torch.repeat_interleave(ones(3), -1)
torch.repeat_interleave(ones(3), t([1, 2]))
torch.bincount(t([-1]))
F.one_hot(t([3]), 3)
"""
UNARY = """
-b
torch.neg(b)
torch.frac(i)
torch.bitwise_not(f)
~f
torch.clamp(f)
torch.abs()
torch.abs(f, f)
torch.polygamma(-1, f)
i.clone().exp_()
i.clone().sqrt_()
i.clone().sigmoid_()
b.clone().neg_()
"""
BINARY = """
f + torch.ones(2, 2)
f * torch.ones(4)
f + 'a'
f + None
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
torch.maximum(f, torch.ones(2))
torch.lerp(f, d, 0.5)
torch.lerp(i, i, 0.5)
torch.lerp(f, f, d)
torch.lerp(f, torch.ones(4), 0.5)
torch.addcmul(b, b, b)
torch.addcdiv(i, i, i)
torch.addcmul(f, f, torch.ones(2))
torch.bitwise_and(f, f)
torch.bitwise_or(f, 3)
f & f
i | 1.5
torch.where(f, f, f)
torch.where(i, f, f)
torch.where(b, f, torch.ones(4))
torch.isclose(f, d)
torch.isclose(f, f, rtol=-1)
torch.isclose(f, f, atol=-1)
torch.allclose(f, d)
torch.allclose(f, torch.ones(4))
torch.allclose(f, f, rtol=-2)
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
torch.sum(s, 1)
torch.mean(i)
torch.mean(b)
torch.mean(f, dtype=torch.int64)
torch.var(i)
torch.std(i)
torch.std(f, (1, 1))
torch.amax(e)
torch.amax(e, 0)
torch.amin(e, 0)
torch.amax(f, (0, -2))
torch.max(e)
torch.min(e)
torch.max(e, 0)
torch.min(e, 0)
torch.max(f, torch.ones(2, 2))
torch.argmax(e)
torch.argmin(e)
torch.argmax(e, 0)
torch.median(b)
torch.median(e, 0)
torch.mode(e, 0)
torch.norm(i)
torch.norm(f, 'abc')
torch.norm(v, 'nuc')
torch.norm(c, 'nuc')
torch.norm(f, dtype=torch.int64)
torch.cumsum(f)
torch.cummin(s, 1)
torch.logcumsumexp(i, 0)
torch.nanmean(i)
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
"""
LINALG = """
torch.matmul(f, f)
torch.matmul(v, torch.ones(2))
torch.matmul(s, f)
torch.matmul(f, torch.ones(2))
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
torch.einsum('i>j', f)
torch.einsum('i.j', f)
torch.einsum('...i...', f)
torch.einsum('...ijk', f)
torch.einsum('ij->i1', f)
torch.einsum('ij->i.', f)
torch.einsum('ij->...i...', f)
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
torch.linalg.matrix_norm(v)
torch.linalg.matrix_norm(f, 'max')
torch.linalg.matrix_norm(f, 3)
torch.linalg.matrix_norm(f, dim=(0, 0))
torch.linalg.matrix_norm(f, dim=(0, 1, 2))
torch.linalg.matrix_norm(i)
torch.linalg.vector_norm(i)
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
"""
NN = """
F.conv2d(ones(1, 3, 5, 5), ones(2, 2, 3, 3))
F.conv2d(ones(1, 1, 2, 2), ones(1, 1, 3, 3))
F.conv2d(ones(5, 5), ones(1, 1, 3, 3))
F.conv1d(ones(1, 1, 5), ones(2, 1, 3), ones(3))
F.conv2d(ones(1, 4, 5, 5), ones(3, 2, 3, 3), groups=2)
F.conv2d(ones(1, 4, 5, 5), ones(3, 2, 3, 3), groups=0)
F.conv2d(ones(1, 1, 5, 5), ones(1, 1, 3, 3), stride=0)
F.conv1d(ones(1, 1, 5), ones(1, 1, 3), stride=-1)
F.conv2d(ones(1, 1, 5, 5), ones(1, 1, 3, 3), padding=-1)
F.conv2d(ones(1, 1, 5, 5), ones(1, 1, 3, 3), dilation=0)
F.conv2d(ones(1, 1, 5, 5), ones(1, 1, 3, 3), padding="same", stride=2)
F.conv2d(ones(1, 1, 5, 5), ones(1, 1, 3, 3), padding="full")
F.conv2d(ones(1, 1, 5, 5), ones(1, 1, 3, 3).double())
F.conv_transpose2d(ones(1, 3, 5, 5), ones(2, 2, 3, 3))
F.conv_transpose2d(ones(1, 2, 5, 5), ones(2, 2, 3, 3), output_padding=1)
F.max_pool2d(ones(1, 1, 3, 3), 4)
F.max_pool2d(ones(1, 1, 3, 3), 2, padding=2)
F.max_pool2d(ones(1, 1, 3, 3), 2, 0)
F.avg_pool2d(ones(1, 1, 3, 3), 0, 1)
F.max_pool2d(ones(1, 1, 3, 3), (2, 2, 2))
F.max_pool2d(ones(3, 3), 2)
F.max_pool1d(ones(1, 3), 4)
F.max_pool3d(ones(3, 3), 2)
F.max_pool3d(ones(1, 3, 3, 3), (2, 2))
F.max_pool3d(ones(1, 3, 3, 3), 4)
F.max_pool3d(ones(1, 3, 3, 3), 2, -1)
F.max_pool3d(ones(1, 0, 3, 3), 2)
F.avg_pool3d(ones(1, 3, 3, 3), 4)
F.avg_pool2d(ones(1, 3, 3), 2, divisor_override=0)
F.adaptive_avg_pool2d(ones(1, 3, 3), -1)
F.layer_norm(ones(2, 3), (2,))
F.layer_norm(ones(2, 3), (3,), ones(2))
F.layer_norm(ones(2, 3), ())
F.layer_norm(t([[1, 2]]), (2,))
F.group_norm(ones(2, 3), 2)
F.group_norm(ones(2, 4), 2, ones(3))
F.batch_norm(ones(1, 3), None, None, training=True)
F.batch_norm(ones(2, 3), ones(2), ones(3))
F.batch_norm(ones(2, 3), None, None)
F.batch_norm(ones(2, 3), ones(3), None, training=True)
F.batch_norm(ones(2, 3).requires_grad_(), ones(3).requires_grad_(), ones(3), training=True)
F.instance_norm(ones(2, 3, 1))
F.instance_norm(ones(2, 3, 4), use_input_stats=False)
F.embedding(t([0, 3]), ones(3, 2))
F.embedding(t([-1]), ones(3, 2))
F.embedding(ones(2), ones(3, 2))
F.embedding(t([0]), ones(3))
F.scaled_dot_product_attention(ones(3, 4), ones(5, 3), ones(5, 3))
F.scaled_dot_product_attention(*[ones(3, 4)] * 2, ones(3, 4).double())
F.scaled_dot_product_attention(*[ones(3, 4)] * 3, ones(3, 3), is_causal=True)
F.scaled_dot_product_attention(*[ones(4)] * 3)
F.scaled_dot_product_attention(ones(4, 3, 4), *[ones(3, 3, 4)] * 2, enable_gqa=True)
F.linear(ones(2, 3), ones(4, 2))
F.interpolate(ones(1, 1, 3, 3), 2, 2.0)
F.interpolate(ones(1, 1, 3, 3))
F.interpolate(ones(1, 1, 3, 3), 2, align_corners=True)
F.interpolate(ones(1, 1, 3, 3), 0)
F.interpolate(ones(1, 1, 3, 3), 2, mode="linear")
F.interpolate(ones(1, 1, 3, 3), 2, mode="foo")
F.interpolate(ones(1, 1, 3, 3), scale_factor=[2.0, 1.0, 3.0])
F.grid_sample(ones(1, 1, 3, 3), ones(1, 2, 2, 2), "foo")
F.grid_sample(ones(1, 1, 3, 3), ones(1, 2, 2, 2), padding_mode="foo")
F.grid_sample(ones(1, 1, 3, 3), ones(1, 2, 2, 3))
F.grid_sample(ones(1, 1, 3, 3), ones(2, 2, 2, 2))
F.grid_sample(ones(1, 1, 3, 3), ones(1, 2, 2, 2).double())
F.pad(ones(2, 3), (3, 0), mode="reflect")
F.pad(ones(2, 3), (3,))
F.pad(ones(2), (1, 1, 1, 1))
F.pad(ones(2, 3), (1, 1), mode="mirror")
F.glu(ones(2, 3))
F.glu(t(1.0))
F.dropout(ones(2), 1.5)
F.dropout1d(ones(2, 3, 4, 5), 0.5)
F.prelu(ones(2, 3), ones(2))
F.celu(ones(2), 0.0)
F.softshrink(ones(2), -1.0)
F.pixel_shuffle(ones(1, 3, 2, 2), 2)
F.pixel_unshuffle(ones(1, 3, 3, 2), 2)
F.channel_shuffle(ones(1, 3, 3, 2), 2)
"""
LOSSES = """
F.cross_entropy(ones(2, 3), t([0, 3]))
F.cross_entropy(ones(2, 3), t([0, -1]))
F.cross_entropy(ones(2, 3), t([0, 1, 2]))
F.cross_entropy(ones(2, 3), ones(2))
F.cross_entropy(ones(2, 3, 4), t([[0, 1], [1, 2]]))
F.cross_entropy(ones(2, 3), t([[0], [1]]))
F.cross_entropy(ones(2, 3), t([[0, 1, 1], [1, 2, 1]]))
F.cross_entropy(ones(2, 3), t([0, 1]), label_smoothing=1.5)
F.nll_loss(ones(2, 3), t([0, 1]), ones(2))
F.cross_entropy(ones(2, 3), ones(2, 3), ones(2))
F.cross_entropy(ones(2, 3), ones(2, 3), ignore_index=1)
F.cross_entropy(ones(2, 3), t([0, 1]), reduction="median")
F.nll_loss(t([[1, 2]]), t([0]))
F.mse_loss(ones(2, 3), ones(2, 2))
F.l1_loss(ones(2, 3), ones(2, 3), weight=ones(3))
F.huber_loss(ones(2), ones(2), delta=0.0)
F.smooth_l1_loss(ones(2), ones(2), beta=-1.0)
F.binary_cross_entropy(ones(2) + 1, ones(2))
F.binary_cross_entropy(ones(2), ones(3))
F.binary_cross_entropy_with_logits(ones(2), ones(3))
F.cosine_embedding_loss(ones(2, 3), ones(2, 3), t([[1], [1]]))
F.margin_ranking_loss(ones(2, 3), ones(2, 3), ones(3))
F.triplet_margin_loss(ones(2, 3), ones(2, 3), ones(3))
F.triplet_margin_loss(*[ones(2, 3)] * 3, margin=0)
F.multi_margin_loss(ones(2, 3), t([0]))
F.gaussian_nll_loss(ones(2, 3), ones(2, 3), -ones(2, 3))
F.gaussian_nll_loss(ones(2, 3), ones(2, 3), -1.0)
F.gaussian_nll_loss(ones(2, 3), ones(2, 3), ones(3))
F.poisson_nll_loss(ones(2, 3), ones(2, 3), reduction="median")
ctc([5, 5], [2, 2], blank=4)
ctc([6, 5], [2, 2])
ctc([-1, 5], [2, 2])
ctc([5, 5], [3, 2])
ctc([5, 5], [-1, 2])
ctc([5], [2, 2])
ctc([5, 5], [2, 2], t([1, 2, 3]))
ctc([5, 5], [2, 2], t([[1, 2]]))
ctc([5, 5], [2, 2], torch.zeros((1, 2, 2)).long())
ctc([5, 5], [2, 2], reduction="median")
F.ctc_loss(ones(5, 0, 4), torch.zeros((0, 2)).long(), torch.zeros(0).long(), torch.zeros(0).long())
"""
OTHERS = """
ones(5, 2, 3) @ ones(5, 2, 3)
ones(5, 2, 3) @ ones(4, 3, 2)
t([[1.0]]) @ t([[1]])
F.linear(ones(2, 3), ones(4, 3), ones(5))
t([1, 2]).softmax(0)
t([[1, 2]]).softmax(0)
t([1, 2]).log_softmax(0)
ones(2, 3).view(-1, -1)
ones(2, 3).view(4, -1)
ones(2, 3).view(-2, 3)
ones(0, 3).view(-1, 0)
torch.cat([t(1.0), t(2.0)])
torch.stack([ones(2), ones(3)])
t(1.0).split(1)
t(1.0).narrow(0, 0, 1)
t(1.0)[0]
ones(2, 3)[::-1]
ones(2, 3)[t([True, False, True])]
ones(2, 3)[t([[True, False], [True, False]])]
assign(ones(2, 3), 0, ones(4))
assign(ones(2, 3), 0, ones(2, 3))
assign(ones(2, 3), 2, 1.0)
assign(ones(2, 3), [0, 1], ones(5))
torch.scatter(ones(2, 3), 0, t([[0, 1, 0, 0]]), ones(1, 4))
torch.scatter_add(ones(2, 3), 0, t([[0, 1, 0]]), ones(1, 2))
torch.index_select(ones(2, 3), 0, t([0.0]))
ones(2).masked_fill(t([True, False, True]), 1.0)
ones(2).new_zeros(2, -1)
F.cross_entropy(ones(2, 3), t([0, 1]), reduction="average")
F.cross_entropy(ones(2, 3), t([0, 1]), label_smoothing=2.0)
F.cross_entropy(ones(2, 3), t([0, 1]), ones(4))
F.nll_loss(ones(2, 3), t([0, 3]))
F.nll_loss(ones(2, 3), t([0.0, 1.0]))
F.nll_loss(ones(2, 3), t([[0], [1]]))
F.mse_loss(t([1]), t([2]))
F.mse_loss(ones(2), ones(2), reduction="average")
torch.einsum("ij,jk->ik", ones(2, 3))
t([1.0, 2.0]).item()
bool(t([1.0, 2.0]))
bool(t([]))
len(t(1.0))
list(t(1.0))
int(t([1.0, 2.0]))
float(t([1.0, 2.0]))
t([300], dtype=torch.uint8)
t({1: 2})
ones(2, 3) @ ones(5, 2, 3)
ones(2, 5, 2, 3) @ ones(5, 2, 3)
t([1.0], requires_grad=True).numpy()
t("abc")
t([1, "a"])
t([True]).relu()
ones(2, 3).fill_(ones(2))
ones(2).copy_(ones(3))
t([1.0]).add(1, beta=2)
torch.exp()
torch.relu(t([1.0]), 2)
ones(2, 3).sum(dim=0, keepdim=1.5)
ones(2, 3).softmax()
torch.full((2,))
torch.gather(ones(2), 0)
t([1.0]).method_that_does_not_exist()
t([1.0]) < None
"""
UNBOUND = """
torch.full((2,), 'a')
torch.zeros('a')
torch.zeros(2.5)
torch.eye(2.5)
torch.zeros_like(3)
torch.full_like(v, 'a')
v.new_full((2,), 'a')
f.view('a')
f.tile('a')
torch.cat(f)
f.expand(2, 3.5)
torch.clamp(f, 'a')
torch.abs(3)
torch.exp('a')
torch.round(f, decimals='a')
torch.logit(f, 'a')
torch.nan_to_num(f, nan='a')
torch.isnan(3)
f.sin(3)
f.floor(dim=1)
torch.add(f, 'a')
torch.atan2(f, 'a')
torch.maximum(f, 3)
torch.addcmul(f, 2, f)
torch.logical_and(f, 3)
torch.equal(f, 2)
torch.eq(f, 'a')
torch.sum(f, 'a')
torch.sum(f, dim=1.5)
torch.sum(f, keepdim=3)
f.sum(0, 1, 2, 3)
torch.prod(f, (0, 1))
torch.max(f, 'a')
torch.quantile(f, 0.5, 0, True, interpolation=3)
torch.matmul(f, 3)
torch.matrix_power(m, 1.5)
torch.linalg.vector_norm(f, 'fro')
t([1.0]).add()
t([1.0]).add(1, 2, 3)
torch.add(t([1.0]), None)
torch.exp(1.0)
ones(2, 3).sum("a")
ones(2, 3).sum(1.5)
ones(2, 3).sum(dims=0)
ones(2, 3).view(1.5)
ones(2, 3).view()
ones(2, 3).permute("a")
ones(2, 3).transpose(0, 1.0)
torch.stack(1)
torch.where(t([True]), "a", 1)
torch.gather(ones(2), 0, [0])
torch.index_select(ones(2), 0, [0])
torch.masked_fill(ones(2), [True, False], 1)
torch.maximum(ones(2), 1.0)
torch.linspace(0, 1)
torch.linspace(0, 1, 2.5)
"""
"""Calls that fit no signature: torch names positions, or its overloads, where we have one signature with defaults."""
SAME_CLASS = """
torch.manual_op_that_does_not_exist(1)
t([1.0], dtype="nonsense")
t([1.0]).relu_(1)
t([1, 2]).clamp_(0.5)
"""
"""Calls on which our words differ from torch's."""
DELIBERATE = {
    "torch.zeros(2, dtype='nothing')": "unknown dtype 'nothing'; known: bool",  # names of dtypes are taken here
    "torch.meshgrid(f, v)": "Expected 0D or 1D tensor in the tensor list but got: [2, 3]",  # torch prints the values
    "f.to('nothing')": "device 'nothing' is not available",  # the devices are those of the session
}
"""Calls on which our words differ from torch's by intent, with the essential part of ours."""
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


def names(library: Any) -> dict[str, Any]:
    """What the calls may refer to."""

    def ones(*shape: int) -> Any:
        return library.ones(shape)

    def assign(x: Any, index: Any, value: Any) -> None:
        x[index] = value

    def ctc(inputs: list[int], targets: list[int], labels: Any = None, **options: Any) -> Any:
        """The loss of a batch of two sequences of five steps over four classes."""
        labels = library.tensor([[1, 2], [3, 3]]) if labels is None else labels
        lengths = library.tensor(inputs), library.tensor(targets)
        return library.nn.functional.ctc_loss(ones(5, 2, 4), labels, *lengths, **options)

    f = library.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]])
    return {
        "torch": library,
        "t": library.tensor,
        "F": library.nn.functional,
        "ones": ones,
        "assign": assign,
        "ctc": ctc,
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


OURS, THEIRS = names(ENGINE), names(torch)
BASES = (*oracle.ERROR_BASES, AttributeError, OverflowError, KeyError)


def failure(call: str, known: dict[str, Any]) -> oracle.Failure | None:
    """How the call fails, without torch's C++ frames; None where it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(call, {**known})
    except BASES as error:
        kind = next(base for base in BASES if isinstance(error, base))
        return oracle.Failure(kind, str(error).partition("\nException raised")[0])
    return None


def texts(call: str) -> tuple[str, str]:
    """Our words and torch's, of exceptions of the same class."""
    theirs, ours = failure(call, THEIRS), failure(call, OURS)
    assert theirs is not None, "torch does not raise"
    assert ours is not None, f"torch raises {theirs}"
    assert ours.kind is theirs.kind, f"{ours} is not {theirs}"
    return ours.text, theirs.text


def calls(*tables: str) -> list[str]:
    """The lines of tables of calls."""
    return [line for table in tables for line in table.strip().splitlines()]


@pytest.mark.parametrize("call", calls(CREATE, SHAPE, INDEXING, UNARY, BINARY, REDUCE, LINALG, NN, LOSSES, OTHERS))
def test_the_same_class_and_text(call: str) -> None:
    ours, theirs = texts(call)
    assert ours == theirs


NAME = re.compile(
    r"(?:TensorBase\.)?(\w+)\(\)(?:: argument '| takes | missing | got | received an invalid combination)"
)


@pytest.mark.parametrize("call", calls(UNBOUND))
def test_what_fits_no_signature_names_the_function(call: str) -> None:
    ours, theirs = (NAME.match(text) for text in texts(call))
    assert ours is not None and theirs is not None
    assert ours[1] == theirs[1]


@pytest.mark.parametrize("call", [*calls(SAME_CLASS), *DELIBERATE])
def test_the_same_class_and_other_words(call: str) -> None:
    ours, theirs = texts(call)
    assert DELIBERATE.get(call, "") in ours
    assert ours != theirs, "no difference: take it off the list"


def test_singular_matrices_have_a_class_of_their_own() -> None:
    for call in (
        "torch.linalg.inv(singular)",
        "torch.linalg.cholesky(-torch.eye(2))",
        "torch.linalg.solve(singular, m)",
    ):
        for known in (THEIRS, OURS):
            with pytest.raises(known["torch"].linalg.LinAlgError) as raised:
                eval(call, {**known})
            assert isinstance(raised.value, RuntimeError)


@pytest.mark.parametrize("call", calls(COMPLEX))
def test_complex_dtypes_have_one_error(call: str) -> None:
    assert failure(call, OURS) == oracle.Failure(RuntimeError, tg.dtypes.COMPLEX_TEXT)
