"""Wrong calls: ours raise the class that torch raises, with its text or an essential part of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import telegrad_engine as tg

from . import oracle


class OurFunctional:
    def __getattr__(self, name: str) -> Any:
        return getattr(tg.functions, name)


THEIRS = SimpleNamespace(
    t=torch.tensor,
    torch=torch,
    F=torch.nn.functional,
    float32=torch.float32,
    int64=torch.int64,
    uint8=torch.uint8,
)
OURS = SimpleNamespace(
    t=tg.tensor,
    torch=tg.functions,
    F=OurFunctional(),
    float32=tg.dtypes.float32,
    int64=tg.dtypes.int64,
    uint8=tg.dtypes.uint8,
)

SAME_TEXT = """
ones(2, 3) + ones(2, 4)
ones(2, 3) * ones(4, 1, 2)
ones(2, 3).add(ones(5))
t([1, 2]).add(t([1, 2]), alpha=1.5)
t([True]) - t([True])
t([True]) - 1
-t([True])
t([1]) // 0
t([1]) % 0
t([1, 2]) ** -1
t([1.0]) & t([1.0])
t([1.0]).clamp()
torch.div(t([1.0]), 2, rounding_mode="up")
ones(2, 3) @ ones(2, 3)
ones(2, 3) @ ones(2)
ones(3) @ ones(2)
ones(2) @ ones(3, 2)
ones(5, 2, 3) @ ones(5, 2, 3)
ones(5, 2, 3) @ ones(4, 3, 2)
ones(3) @ t(1.0)
t([[1.0]]) @ t([[1]])
torch.mm(ones(3), ones(3, 2))
torch.mm(ones(2, 3), ones(2, 3))
torch.bmm(ones(2, 3), ones(2, 3))
torch.bmm(ones(2, 2, 3), ones(3, 3, 2))
torch.bmm(ones(2, 2, 3), ones(2, 2, 2))
torch.outer(ones(2, 2), ones(2))
torch.dot(ones(2, 2), ones(2))
torch.dot(ones(2), ones(3))
torch.mv(ones(2), ones(2))
torch.mv(ones(2, 3), ones(2))
F.linear(ones(2, 3), ones(4, 2))
F.linear(ones(2, 3), ones(4, 3), ones(5))
ones(2, 3).sum(2)
ones(2, 3).sum(-3)
ones(2, 3).sum((0, 0))
ones(2, 3).sum((0, -2))
ones(2, 3).mean(5)
t([1, 2]).mean()
t([1, 2]).var()
t([1, 2]).std()
t([]).max()
t([]).min()
ones(0, 3).max(0)
ones(0, 3).amax(0)
ones(0, 3).amax()
t([]).argmax()
ones(0, 3).argmax(0)
ones(2, 3).max(2)
ones(2, 3).cumsum(2)
ones(2, 3).logsumexp(2)
ones(2, 3).softmax(2)
t([1, 2]).softmax(0)
t([[1, 2]]).softmax(0)
t([1, 2]).log_softmax(0)
ones(2, 3).view(4)
ones(2, 3).view(-1, -1)
ones(2, 3).view(4, -1)
ones(2, 3).view(-2, 3)
ones(2, 3).t().view(6)
ones(0, 3).view(-1, 0)
ones(2, 3).reshape(4)
ones(2, 3).permute(0)
ones(2, 3).permute(0, 0)
ones(2, 3).permute(0, 2)
ones(2, 3).transpose(0, 2)
ones(2, 3, 4).t()
ones(2, 3).unsqueeze(4)
ones(2, 3).squeeze(2)
ones(2, 3).expand(3, 3)
ones(2, 3).expand(3)
ones(2, 3).expand(-1, 2, 3)
ones(2, 3).flatten(1, 0)
ones(2, 3).flip(2)
ones(2, 3).flip(0, 0)
ones(3).tril()
torch.cat([])
torch.cat([ones(2), ones(2, 2)])
torch.cat([ones(2, 3), ones(2, 2)])
torch.cat([t(1.0), t(2.0)])
torch.cat([ones(2), ones(2)], dim=1)
torch.stack([])
torch.stack([ones(2), ones(3)])
torch.stack([ones(2), ones(2)], dim=2)
ones(4).split([1, 2])
ones(4).split(-1)
ones(4).split(0)
t(1.0).split(1)
ones(4).chunk(0)
t(1.0).unbind()
ones(2, 3).unbind(2)
ones(5).narrow(0, 3, 4)
ones(5).narrow(0, 6, 1)
ones(5).narrow(0, 0, -1)
ones(5).narrow(1, 0, 1)
t(1.0).narrow(0, 0, 1)
ones(2, 3).select(0, 2)
ones(2, 3).select(2, 0)
ones(2, 3)[2]
ones(2, 3)[0, 3]
ones(2, 3)[-3]
ones(2, 3)[0, 0, 0]
t(1.0)[0]
ones(2, 3)[::-1]
ones(2, 3)["a"]
ones(2, 3)[1.5]
ones(2, 3)[t([0.5])]
ones(2, 3)[t([2])]
ones(2, 3)[t([0, 1]), t([0, 1, 2])]
ones(2, 3)[t([True, False, True])]
ones(2, 3)[t([[True, False], [True, False]])]
assign(ones(2, 3), 0, ones(4))
assign(ones(2, 3), 0, ones(2, 3))
assign(ones(2, 3), 2, 1.0)
assign(ones(2, 3), [0, 1], ones(5))
torch.gather(ones(2, 3), 0, t([0]))
torch.gather(ones(2, 3), 0, t([[2, 0, 0]]))
torch.gather(ones(2, 3), 0, t([[0.0, 0.0]]))
torch.gather(ones(2, 3), 1, t([[0], [0], [0]]))
torch.gather(ones(2, 3), 2, t([[0]]))
torch.scatter(ones(2, 3), 0, t([[0, 1, 2]]), ones(1, 3))
torch.scatter(ones(2, 3), 0, t([[0, 1, 0, 0]]), ones(1, 4))
torch.scatter_add(ones(2, 3), 0, t([[0, 1, 0]]), ones(1, 2))
torch.scatter(ones(2, 3), 0, t([[0, 1, 0]]), t([[1, 2, 3]]))
torch.index_select(ones(2, 3), 0, t([[0]]))
torch.index_select(ones(2, 3), 0, t([2]))
torch.index_select(ones(2, 3), 0, t([0.0]))
torch.index_select(ones(2, 3), 2, t([0]))
ones(2).masked_fill(t([1, 0]), 1.0)
ones(2).masked_fill(t([True, False]), t([1.0, 2.0]))
ones(2).masked_fill(t([True, False, True]), 1.0)
torch.where(t([1, 0]), ones(2), ones(2))
torch.where(t([True, False]), ones(2), ones(3))
torch.zeros(-1)
torch.ones(-1)
torch.rand(-1)
ones(2).new_zeros(2, -1)
torch.zeros((2, -3))
torch.full((2, -1), 1.0)
torch.arange(0, 5, 0)
torch.arange(0, 5, -1)
torch.linspace(0, 1, -1)
torch.eye(-1)
torch.randint(5, 5, (2,))
torch.randint(0, (2,))
torch.randperm(-1)
torch.rand(2, dtype=int64)
F.dropout(ones(2), 1.5)
F.cross_entropy(ones(2, 3), t([0, 3]))
F.cross_entropy(ones(2, 3), t([0, -1]))
F.cross_entropy(ones(2, 3), t([0]))
F.cross_entropy(ones(2, 3), t([0, 1]), reduction="average")
F.cross_entropy(ones(2, 3), t([0, 1]), label_smoothing=2.0)
F.cross_entropy(ones(2, 3), t([0, 1]), ones(4))
F.cross_entropy(ones(2, 3), t([[0, 1, 2], [0, 1, 2]]))
F.nll_loss(ones(2, 3), t([0, 3]))
F.nll_loss(ones(2, 3), t([0.0, 1.0]))
F.nll_loss(ones(2, 3), t([[0], [1]]))
F.mse_loss(t([1]), t([2]))
F.mse_loss(ones(2), ones(2), reduction="average")
torch.einsum("ij,jk->ik", ones(2, 3))
torch.einsum("ij", ones(2, 3), ones(2, 3))
torch.einsum("ijk->i", ones(2, 3))
torch.einsum("ij,jk->ik", ones(2, 3), ones(4, 2))
torch.einsum("ij->ik", ones(2, 3))
torch.einsum("ij->ii", ones(2, 3))
torch.einsum("i1->i", ones(2, 3))
t([1.0, 2.0]).item()
bool(t([1.0, 2.0]))
bool(t([]))
len(t(1.0))
list(t(1.0))
int(t([1.0, 2.0]))
float(t([1.0, 2.0]))
t([300], dtype=uint8)
t({1: 2})
t(2**63)
ones(5, 2, 3) @ ones(2, 3)
ones(2, 3) @ ones(5, 2, 3)
ones(2, 5, 2, 3) @ ones(5, 2, 3)
leaf(2).numpy()
t([[1, 2], [3]])
t("abc")
t([1, "a"])
t([True]).relu()
ones(2, 3).fill_(ones(2))
ones(2).copy_(ones(3))
"""

SAME_CLASS = """
t([1.0]).add()
t([1.0]).add(1, 2, 3)
t([1.0]).add(1, beta=2)
torch.add(t([1.0]), None)
torch.add(t([1.0]), "a")
torch.matmul(t([1.0]), 2)
torch.exp(1.0)
torch.exp("a")
torch.exp()
torch.relu(t([1.0]), 2)
ones(2, 3).sum("a")
ones(2, 3).sum(1.5)
ones(2, 3).sum(dim=0, keepdim=1.5)
ones(2, 3).sum(dims=0)
ones(2, 3).view("a")
ones(2, 3).view(1.5)
ones(2, 3).view()
ones(2, 3).permute("a")
ones(2, 3).transpose(0)
ones(2, 3).transpose(0, 1.0)
ones(2, 3).softmax()
torch.cat(ones(2))
torch.cat([1, 2])
torch.stack(1)
torch.zeros("a")
torch.zeros(2, dtype="nonsense")
torch.full((2,))
torch.full((2,), "a")
torch.where(t([True]), "a", 1)
torch.gather(ones(2), 0)
torch.gather(ones(2), 0, [0])
torch.index_select(ones(2), 0, [0])
torch.masked_fill(ones(2), [True, False], 1)
torch.clamp(ones(2), "a")
torch.maximum(ones(2), 1.0)
torch.linspace(0, 1)
torch.linspace(0, 1, 2.5)
torch.manual_op_that_does_not_exist(1)
t([1.0]).method_that_does_not_exist()
t([1.0]) + None
t([1.0]) + "a"
t([1.0]) @ 2
t([1.0]) < None
t([1.0])[None, "a"]
t(None)
t([None])
t([1.0], dtype="nonsense")
t([1.0]).relu_(1)
t([1, 2]).clamp_(0.5)
torch.bernoulli(t([2.0]))
torch.bernoulli(t([0.5, float("nan")]))
"""


def evaluate(world: Any, expression: str) -> Any:
    def ones(*shape: int) -> Any:
        return world.torch.ones(shape)

    def leaf(n: int) -> Any:
        return world.t([1.0] * n, requires_grad=True)

    def assign(x: Any, index: Any, value: Any) -> None:
        x[index] = value

    names = {**vars(world), "ones": ones, "leaf": leaf, "assign": assign}
    return eval(expression, names)


def failures(expression: str) -> tuple[BaseException, BaseException]:
    with pytest.raises(Exception) as theirs:
        evaluate(THEIRS, expression)
    with pytest.raises(Exception) as ours:
        evaluate(OURS, expression)
    return theirs.value, ours.value


def builtin_base(error: BaseException) -> type[BaseException]:
    bases = (*oracle.ERROR_BASES, AttributeError, OverflowError, KeyError)
    return next(base for base in bases if isinstance(error, base))


@pytest.mark.parametrize("expression", SAME_TEXT.strip().splitlines())
def test_same_class_and_text(expression: str) -> None:
    theirs, ours = failures(expression)
    assert builtin_base(ours) is builtin_base(theirs), f"{ours!r}, where torch has {theirs!r}"
    assert str(ours) == str(theirs)


@pytest.mark.parametrize("expression", SAME_CLASS.strip().splitlines())
def test_same_class(expression: str) -> None:
    theirs, ours = failures(expression)
    assert builtin_base(ours) is builtin_base(theirs), f"{ours!r}, where torch has {theirs!r}"
