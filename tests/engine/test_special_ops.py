"""What a case of an op cannot show: empty tensors, writes to arguments, chance, keywords, and ops of the engine alone.

Internals: tensors without values, and the view chains that only the engine passes on, have no public names.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

import telegrad_engine as tg
from telegrad_engine import autograd, dtypes
from telegrad_engine.tensor.abstract import Meta

from . import oracle

F: Any = tg.functions


@pytest.mark.parametrize("shape", [(), (2, 3), (0,)])
def test_empty_has_a_shape_and_shows_nobodys_values(shape: tuple[int, ...]) -> None:
    made = F.empty(shape, dtype=dtypes.float64)
    assert (tuple(made.shape), made.dtype) == (shape, dtypes.float64)
    alike = F.empty_like(made)
    assert (tuple(alike.shape), alike.dtype) == (shape, dtypes.float64)
    assert not made.numpy().any()
    assert not alike.numpy().any()


def test_an_empty_tensor_may_have_strides_of_any_length() -> None:
    assert tuple(F.empty_strided((0, 3), (2**62, 1)).shape) == tuple(torch.empty_strided((0, 3), (2**62, 1)).shape)


def test_getitem_scatter_places_a_part_among_zeros() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = F.getitem_scatter(x, (2, 3), (("slice", None, None, None), 1))
    assert y.tolist() == [[0, 1, 0], [0, 2, 0]]
    (grad,) = autograd.grad(y, x, tg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), create_graph=True)
    assert grad.tolist() == [2, 5]


def test_view_scatter_replaces_what_a_chain_of_views_shows() -> None:
    base = tg.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    part = tg.tensor([10.0, 20.0], requires_grad=True)
    chain = (*base.t()._view_chain, *base.t()[1:, 0]._view_chain[1:])
    y = F.view_scatter(base, part, chain)
    assert y.tolist() == [[0, 10, 20], [3, 4, 5]]
    weight = tg.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    grads = autograd.grad(y, [base, part], weight, create_graph=True)
    assert [g.tolist() for g in grads] == [[[1, 0, 0], [4, 5, 6]], [2, 3]]
    (second,) = autograd.grad([g.sum() for g in grads], weight)
    assert second.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_scatter_takes_a_source_larger_than_its_index() -> None:
    x, index = F.zeros((3, 4)).requires_grad_(), tg.tensor([[0, 2, 1, 0]])
    src = tg.tensor(np.arange(8.0).reshape(2, 4), dtype="float32", requires_grad=True)
    y = F.scatter_add(x, 0, index, src)
    y.backward(tg.tensor(np.arange(12.0, dtype=np.float64).reshape(3, 4), dtype="float32"))
    assert src.grad.tolist() == [[0, 9, 6, 3], [0, 0, 0, 0]]


def test_one_nonzero_row_for_each_element_that_is_not_zero() -> None:
    with pytest.raises(tg.errors.DataDependentShape):
        Meta(tg.tensor([1.0, 0.0]).numpy()).nonzero()


def test_where_as_a_method_takes_the_condition_second() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x.where(tg.tensor([True, False]), 9.0)
    assert y.tolist() == [1, 9]
    y.sum().backward()
    assert x.grad.tolist() == [1, 0]


def test_without_scipy_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(RuntimeError, match=r"install telegrad\[local\]"):
        F.erf(tg.tensor([1.0]))


@pytest.mark.filterwarnings("ignore:index_reduce")  # torch's is in beta
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_long_slices_combine_as_single_elements_do(dim: int, dtype: str) -> None:
    """Few indices of large slices go another way than many of small ones."""
    rng = np.random.default_rng(dim)
    array, values = (rng.integers(-5, 5, shape).astype(dtype) for shape in ((20, 20, 20), (20, 20, 20)))
    index = rng.integers(0, 20, 20)
    found = F.index_add(tg.tensor(array), dim, tg.tensor(index), tg.tensor(values))
    expected = torch.index_add(torch.tensor(array), dim, torch.tensor(index), torch.tensor(values))
    oracle.assert_close(found, expected, "sums")
    for how in ("prod", "amax", "amin"):
        found = F.index_reduce(tg.tensor(array), dim, tg.tensor(index), tg.tensor(values), how)
        expected = torch.tensor(array).index_reduce(dim, torch.tensor(index), torch.tensor(values), how)
        oracle.assert_close(found, expected, how)


def test_gelu_in_float32_is_as_exact_as_torch() -> None:
    """Or to two units in the last place of the input: how exact NumPy's tanh is depends on the processor."""
    x = np.concatenate([np.linspace(-9, 9, 100_001), [np.inf, -0.0, 1e-30]]).astype(np.float32)
    exact = torch.nn.functional.gelu(torch.tensor(x, dtype=torch.float64)).numpy()
    ours, theirs = F.gelu(tg.tensor(x)).numpy(), torch.nn.functional.gelu(torch.tensor(x)).numpy()
    finite = np.isfinite(x)
    bound = np.maximum(np.abs(theirs - exact)[finite].max(), 2 * np.spacing(np.abs(x[finite])))
    assert (np.abs(ours - exact)[finite] <= bound).all()
    assert ours[~finite] == np.inf
    assert np.isnan(F.gelu(tg.tensor([np.nan])).item())


# Neural networks -----------------------------------------------------------------------------------------------------


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


# Keywords: torch's own, NumPy's names for them, and those of linear algebra ------------------------------------------


CALLS = """
torch.sum(x, axis=0, keepdims=True)
torch.sum(a=x, axis=0)
torch.add(x1=x, x2=2)
x.mean(axis=1)
torch.softmax(x, axis=0)
torch.cat([x, x], axis=1)
torch.sort(x, axis=0)
torch.squeeze(x, axis=0)
torch.split(tensor=x, split_size_or_sections=1, dim=0)
torch.sum(x, dim=0, axis=0)
torch.sum(x, axes=0)
torch.gather(x, 0, x.long() * 0, sparse_grad=False)
torch.nonzero(x > 2, as_tuple=True)
torch.linalg.cholesky(input=s)
torch.linalg.cholesky(input=s, upper=True)
torch.linalg.eigh(input=s, UPLO="U")
torch.linalg.eigvalsh(input=s)
torch.linalg.svdvals(A=s, driver=None)
torch.linalg.svd(A=s, full_matrices=False, driver="gesvd")
torch.linalg.pinv(input=s, atol=0.1)
torch.linalg.solve_triangular(input=s, B=s, upper=True, left=True, unitriangular=False)
torch.linalg.vector_norm(x=s, ord=2, dim=0, keepdim=True)
torch.linalg.matrix_power(input=s, n=2)
torch.linalg.solve(A=s, B=s, left=True)
torch.linalg.inv(A=s)
torch.linalg.det(A=s)
torch.linalg.slogdet(A=s)
torch.linalg.qr(A=s, mode="reduced")
torch.linalg.lstsq(input=s, b=s)
torch.linalg.norm(input=s, ord="fro")
torch.linalg.matrix_norm(input=s, ord="fro")
torch.linalg.cross(input=x, other=x, dim=-1)
torch.linalg.cholesky(A=s)
torch.linalg.matrix_power(A=s, n=2)
""".strip().splitlines()


@pytest.mark.parametrize("call", CALLS)
def test_keywords(call: str) -> None:
    """A call by keyword gives what torch's gives, or the same class of error."""

    def run(functions: Any, tensor: Any) -> Any:
        x, s = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), tensor([[4.0, 1.0], [1.0, 3.0]])
        return oracle.attempt(lambda: eval(call, {"torch": functions, "x": x, "s": s}))

    theirs, ours = run(torch, torch.tensor), run(tg.functions, tg.tensor)
    if isinstance(theirs, oracle.Failure):
        assert isinstance(ours, oracle.Failure), f"torch raises {theirs}"
        assert ours.kind is theirs.kind
        return
    assert not isinstance(ours, oracle.Failure), ours
    for mine, other in zip(ours, theirs, strict=True):
        oracle.assert_close(mine, other, call)
