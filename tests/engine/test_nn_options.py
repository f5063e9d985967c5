"""What a case of an op cannot show: writes to arguments, chance, and results besides the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import telegrad_engine as tg
from telegrad_engine import autograd

from . import oracle

RNG = np.random.default_rng(0)


def pair(*shape: int, dtype: str = "float64", requires_grad: bool = False) -> tuple[Any, Any]:
    """One array as a tensor of both."""
    array = RNG.standard_normal(shape).astype(dtype)
    ours, theirs = tg.tensor(array), torch.tensor(array)
    return ours.requires_grad_(requires_grad), theirs.requires_grad_(requires_grad)


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_running_statistics_follow_the_batch(name: str, dtype: str) -> None:
    input, mean, var = pair(4, 3, 5, dtype=dtype, requires_grad=True), pair(3, dtype=dtype), pair(3, dtype=dtype)
    for step in range(3):
        for nn, i in ((tg.functions, 0), (torch.nn.functional, 1)):
            result = getattr(nn, name)(input[i], mean[i], var[i], None, None, True, 0.3)
            (result * result * result).sum().backward()
        oracle.assert_close(mean[0], mean[1], f"mean after step {step}")
        oracle.assert_close(var[0], var[1], f"variance after step {step}")
    oracle.assert_close(input[0].grad, input[1].grad, "gradient")


def test_running_statistics_stay_in_evaluation() -> None:
    mean, var = tg.tensor([1.0, 2.0]), tg.tensor([1.0, 4.0])
    result = tg.functions.batch_norm(tg.tensor([[1.0, 6.0]]), mean, var, eps=0.0)
    assert result.tolist() == [[0.0, 2.0]]
    assert mean.tolist() == [1.0, 2.0]
    assert (mean._version, var._version) == (0, 0)


def test_embedding_shortens_the_rows_it_looks_up() -> None:
    ours, theirs = pair(4, 3)
    index = [0, 2, 2]
    mine = tg.functions.embedding(tg.tensor(index), ours, max_norm=0.5)
    other = torch.nn.functional.embedding(torch.tensor(index), theirs, max_norm=0.5)
    oracle.assert_close(mine, other, "rows")
    oracle.assert_close(ours, theirs, "weight")


def test_embedding_divides_gradients_by_how_often_a_row_is_used() -> None:
    ours, theirs = pair(4, 3, requires_grad=True)
    grad = pair(3, 3)
    mine = tg.functions.embedding(tg.tensor([0, 2, 2]), ours, scale_grad_by_freq=True)
    other = torch.nn.functional.embedding(torch.tensor([0, 2, 2]), theirs, scale_grad_by_freq=True)
    (found,) = autograd.grad(mine, ours, grad[0])
    (expected,) = torch.autograd.grad(other, theirs, grad[1])
    oracle.assert_close(found, expected, "gradient")


def test_sparse_gradients_are_refused() -> None:
    with pytest.raises(RuntimeError, match="sparse gradients are not supported"):
        tg.functions.embedding(tg.tensor([0]), tg.tensor([[1.0]]), sparse=True)


@pytest.mark.parametrize("options", [{}, {"stride": 1, "padding": 1}, {"stride": 1, "dilation": 2}])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_pooling_tells_where_the_largest_were(ndim: int, options: dict[str, int]) -> None:
    ours, theirs = pair(2, 3, *(6,) * ndim, requires_grad=True)
    name = f"max_pool{ndim}d"
    mine = getattr(tg.functions, name)(ours, 2, **options, return_indices=True)
    other = getattr(torch.nn.functional, name)(theirs, 2, **options, return_indices=True)
    oracle.assert_close(mine[0], other[0], "values")
    oracle.assert_close(mine[1], other[1], "places")
    grad = oracle.random_like([other[0]], 1)[0]
    (found,) = autograd.grad(mine[0], ours, tg.tensor(grad))
    (expected,) = torch.autograd.grad(other[0], theirs, torch.tensor(grad))
    oracle.assert_close(found, expected, "gradient")


def test_channel_dropout_drops_whole_channels() -> None:
    for ndim in (1, 2, 3):
        x = tg.functions.ones((50, 40, *(2,) * ndim), dtype="float64").requires_grad_()
        dropped = getattr(tg.functions, f"dropout{ndim}d")(x, 0.25)
        values = dropped.detach().numpy().reshape(2000, -1)
        assert (values == values[:, :1]).all()
        assert set(np.unique(values)) == {0.0, 1 / 0.75}
        assert abs((values == 0).mean() - 0.25) < 0.05
        (grad,) = autograd.grad(dropped.sum(), x)
        assert (grad.numpy() == dropped.detach().numpy()).all()


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    x = tg.tensor(RNG.standard_normal(200_000))
    dropped = tg.functions.alpha_dropout(x, 0.3, True).numpy()
    assert abs(dropped.mean()) < 0.02
    assert abs(dropped.var() - 1) < 0.02


def test_second_derivative_of_ctc_loss_is_refused_as_in_torch() -> None:
    def second(t: Any, nn: Any, grad: Any) -> None:
        logs = t.tensor([[[-1.0, -2.0, -3.0]], [[-2.0, -1.0, -3.0]]], requires_grad=True)
        loss = nn.ctc_loss(logs, t.tensor([[1]]), t.tensor([2]), t.tensor([1]))
        (first,) = grad(loss, logs, create_graph=True)
        grad(first.sum(), logs)

    for t, nn, grad in ((tg, tg.functions, autograd.grad), (torch, torch.nn.functional, torch.autograd.grad)):
        with pytest.raises(RuntimeError, match="derivative for aten::_ctc_loss_backward is not implemented"):
            second(t, nn, grad)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag_shortens_the_rows_it_looks_up(mode: str) -> None:
    ours, theirs = pair(4, 3)
    index, starts = [0, 2, 2, 1], [0, 3]
    mine = tg.functions.embedding_bag(tg.tensor(index), ours, tg.tensor(starts), 0.5, 1.0, mode=mode)
    other = torch.nn.functional.embedding_bag(
        torch.tensor(index), theirs, torch.tensor(starts), max_norm=0.5, norm_type=1.0, mode=mode
    )
    oracle.assert_close(mine, other, "rows")
    oracle.assert_close(ours, theirs, "weight")


@pytest.mark.parametrize(
    ("index", "starts", "words"),
    [
        ([0, 1, 2], [1], r"offsets\[0\] has to be 0"),
        ([0, 1, 2], [0, 9], "offsets.-1. can not be greater than input's length 3 but got offsets.-1. of 9"),
        ([0, 1, 7], [0], "found idx to be 7"),
        ([0, 1, -1], [0], "found idx to be -1"),
    ],
)
def test_bags_that_are_not_there(index: list[int], starts: list[int], words: str) -> None:
    ours, theirs = pair(4, 3)
    with pytest.raises(RuntimeError, match=words):
        tg.functions.embedding_bag(tg.tensor(index), ours, tg.tensor(starts))
    with pytest.raises(RuntimeError, match=words):
        torch.nn.functional.embedding_bag(torch.tensor(index), theirs, torch.tensor(starts))


@pytest.mark.parametrize("labels", [[0, 5, -1], [0, -2, 1]])
def test_labels_that_are_no_classes(labels: list[int]) -> None:
    ours, theirs = pair(3)
    for nn, x, y in (
        (tg.functions, ours, tg.tensor(labels)),
        (torch.nn.functional, theirs, torch.tensor(labels)),
    ):
        with pytest.raises(RuntimeError, match="argument #2 'target' is out of range"):
            nn.multilabel_margin_loss(x, y)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_unpooling_undoes_pooling(ndim: int) -> None:
    ours, theirs = pair(2, 3, *(6,) * ndim, requires_grad=True)
    results = []
    for nn, x in ((tg.functions, ours), (torch.nn.functional, theirs)):
        found, places = getattr(nn, f"max_pool{ndim}d")(x, 2, return_indices=True)
        back = getattr(nn, f"max_unpool{ndim}d")(found, places, 2)
        (back * back).sum().backward()
        results.append(back)
    oracle.assert_close(*results, "unpooled")
    oracle.assert_close(ours.grad, theirs.grad, "gradient")


def test_fold_of_unfold_counts_the_windows() -> None:
    ours, theirs = pair(1, 2, 5, 6)
    mine = tg.functions.fold(tg.functions.functional_unfold(ours, 3, stride=2, padding=1), (5, 6), 3, 1, 1, 2)
    other = torch.nn.functional.fold(torch.nn.functional.unfold(theirs, 3, stride=2, padding=1), (5, 6), 3, 1, 1, 2)
    oracle.assert_close(mine, other, "folded")
