"""The graph: how deep it may be, when it is freed, and what it shows: names and saved values as torch's, edges, memory.

Internals: when an array is freed is seen by a weak reference to it, tensors without values have no public name, and
saved values and edges are walked with the functions that ``graph`` and the drawings use.
"""

from __future__ import annotations

import gc
import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import telegrad_engine as tg
from telegrad_engine import autograd
from telegrad_engine.autograd import Function
from telegrad_engine.graph.node import FREED, walk
from telegrad_engine.schema.op import CATALOGUE, Op
from telegrad_engine.tensor import graph_inspection as inspection
from telegrad_engine.tensor.abstract import Meta

from ..client.custom_functions import cube, function
from ..op_cases import cases_of
from ..op_cases.stand_ins import Case
from . import graph_contents, oracle
from .twins import OURS, both, both_raise, leaf

# Depth and memory ----------------------------------------------------------------------------------------


def test_a_deep_graph_runs_and_is_freed_without_recursion() -> None:
    depth = 100_000
    x = leaf(OURS, 1.0)
    y = x
    for _ in range(depth):
        y = y + x
    last = weakref.ref(y.grad_fn)
    y.backward()
    assert x.grad.item() == depth + 1
    del y
    gc.collect()
    assert last() is None


@pytest.mark.full
def test_a_deep_graph_that_saved_values_is_freed_without_backward() -> None:
    x = leaf(OURS, 1.0)
    y = x
    for _ in range(100_000):
        y = y * x
    (g,) = autograd.grad(y, x, retain_graph=True)
    assert g.item() == 100_001
    del y, g
    gc.collect()


def test_a_deep_differentiable_backward() -> None:
    x = tg.tensor(1.0, dtype="float64", requires_grad=True)
    y = x
    for _ in range(5_000):
        y = y * x
    (g,) = autograd.grad(y, x, create_graph=True)
    (second,) = autograd.grad(g, x)
    assert second.item() == 5001 * 5000


@pytest.mark.parametrize("create_graph", [False, True])
def test_no_reference_cycle_remains(create_graph: bool) -> None:
    def differentiate() -> list[weakref.ref[Any]]:
        x = leaf(OURS)
        y = x * 2
        y.retain_grad()
        z = (y * y.exp()).sum()
        node = weakref.ref(z.grad_fn)
        (grad,) = autograd.grad(z, x, retain_graph=True, create_graph=create_graph)
        z.backward()
        return [node, *(weakref.ref(tensor._data) for tensor in (x, y, z, grad, x.grad, y.grad))]

    gc.collect()
    gc.disable()
    try:
        assert not any(reference() is not None for reference in differentiate())
    finally:
        gc.enable()


def test_in_place_and_views_leave_no_cycle() -> None:
    gc.collect()
    gc.disable()
    try:
        x = leaf(OURS)
        y = x * 2
        y[0].mul_(3)
        view = y[1:]
        view.add_(1)
        node = weakref.ref(y.grad_fn)
        view.sum().backward()
        del y, view
        assert node() is None
    finally:
        gc.enable()


def test_a_long_chain_of_custom_functions_runs_and_is_freed_without_recursion() -> None:
    fn = function(tg, forward=lambda ctx, x: x * 1.0, backward=lambda ctx, grad: grad * 1.0)
    x = y = tg.tensor([1.0], requires_grad=True)
    for _ in range(30_000):
        y = fn.apply(y)
    y.backward()
    del y
    assert x.grad.tolist() == [1.0]


def test_custom_functions_leave_no_cycle() -> None:
    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(y)
        return y, x

    fn = function(tg, forward=forward, backward=lambda ctx, a, b: a * ctx.saved_tensors[1])
    x = tg.tensor([1.0, 2.0], requires_grad=True)

    def run() -> None:
        y, _ = fn.apply(x * 2)
        y.sum().backward()
        fn.apply(x * 2)  # and one that no backward goes through

    run()
    gc.collect()
    gc.disable()
    try:
        run()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_custom_functions_run_on_tensors_without_values() -> None:
    """On shapes alone a Function gives the graph, and gradients of the shapes, that it gives on values."""

    def history(x: Any) -> Any:
        y = cube(tg).apply(x * 2)
        (grad,) = autograd.grad(y, x, y * 3, create_graph=True)
        (second,) = autograd.grad(grad, x, grad * 1)
        return y.grad_fn.name(), list(grad.shape), grad.grad_fn.name(), list(second.shape)

    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert history(Meta(x.detach().numpy()).requires_grad_()) == history(x)


def test_saved_values_go_as_the_pass_goes() -> None:
    x = leaf(OURS)
    y = x.exp()
    value = weakref.ref(y._data)
    z = y.sum()
    del y
    assert value() is not None
    z.backward()
    assert value() is None


def test_zero_size_tensors_differentiate() -> None:
    def run(t: Any) -> Any:
        x = t.tensor([[]], requires_grad=True)
        w = t.tensor([[2.0], [3.0]], requires_grad=True)
        y = (x * w).sum() + w.sum()
        y.backward()
        return list(x.grad.shape), w.grad, y

    both(run)


# The graph as seen ---------------------------------------------------------------------------------------


NAMES = {
    "matrix product": lambda t, x: x.view(1, 3) @ x.view(3, 1),
    "vector product": lambda t, x: x @ x,
    "matrix and vector": lambda t, x: x.view(1, 3) @ x,
    "T": lambda t, x: x.view(3, 1).T,
    "select": lambda t, x: x[0],
    "slice": lambda t, x: x[1:],
    "index": lambda t, x: x[t.tensor([0])],
    "new axis": lambda t, x: x[None],
    "to": lambda t, x: x.to(t.float64),
    "double": lambda t, x: x.double(),
    "in place": lambda t, x: x.clone().mul_(2),
}
"""Calls with names that the cases of the catalogue below do not compare."""


@pytest.mark.parametrize("name", NAMES)
def test_nodes_have_torchs_names(name: str) -> None:
    both(lambda t: NAMES[name](t, leaf(t)).grad_fn.name())


def test_a_leaf_lives_as_long_as_a_graph_leads_to_it() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = (x * x).sum()
        dead, alive = weakref.ref(x.detach()), weakref.ref(x)
        del x
        kept = dead() is None, alive() is None
        y.backward()
        grad = y.grad_fn.next_functions[0][0].next_functions[0][0].variable.grad
        return kept, grad

    both(run)


def test_backward_leaves_no_trace_in_recursion_limit() -> None:
    assert sys.getrecursionlimit() <= 10_000


# Every case of the catalogue ------------------------------------------------------------------------------

OTHER_NAMES = {
    "is made of other parts than torch's": {
        "adaptive_avg_pool3d", "addr", "aminmax", "atleast_2d", "atleast_2d.tensors", "atleast_3d",
        "atleast_3d.tensors", "block_diag", "embedding_bag", "multilabel_margin_loss", "pdist", "rrelu",
        "cdist", "channel_shuffle", "cholesky", "cholesky_inverse", "combinations", "cross_entropy", "diag",
        "diag_embed", "diff", "dist", "einsum", "glu", "grid_sample", "index_reduce", "interpolate",
        "interpolate.factors", "kron", "linalg_matrix_norm", "linalg_matrix_norm.ord", "linalg_matrix_power",
        "linalg_norm", "linalg_norm.word", "linalg_tensorinv", "margin_ranking_loss", "matrix_power",
        "meshgrid", "movedim", "mse_loss", "multi_margin_loss", "norm", "pad", "pairwise_distance",
        "pixel_shuffle", "pixel_unshuffle", "repeat_interleave", "rot90", "rsub",
        "scaled_dot_product_attention", "soft_margin_loss", "std_mean", "std_mean.unbiased", "to.dtype",
        "trapezoid", "trapezoid.dx", "triplet_margin_loss", "var_mean", "var_mean.unbiased", "vdot",
    },
    "is made of other ops, where torch has one of its own": {
        "cholesky_solve", "conv_tbc", "cov", "cumulative_trapezoid", "diagflat", "frobenius_norm", "grid_sampler",
        "grid_sampler_3d", "ldexp", "mvlgamma", "nanmedian", "narrow_copy", "native_dropout", "norm_except_dim",
        "nuclear_norm", "renorm", "select_scatter", "sum_to_size", "triangular_solve", "unsafe_chunk", "unsafe_split",
        "unsafe_split_with_sizes",
    },
    "copies a view, where torch calls the view's node a copying one": {
        "alias_copy", "as_strided_copy", "diagonal_copy", "expand_copy", "permute_copy", "select_copy", "slice_copy",
        "split_copy", "split_with_sizes_copy", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy",
        "unfold_copy", "unsqueeze_copy", "view_copy",
    },
    "is a permuted view of the copy where a memory format orders the dimensions otherwise": {
        "clone.memory_format", "contiguous",
    },
    "writes at once what torch writes through a view": {"fill_diagonal"},
    "runs a whole sequence in one node": {
        "gru", "gru_cell", "lstm", "lstm_cell", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell",
    },
    "has a derivative, zero everywhere": {"heaviside"},
    "is one node where torch has several": {"linalg_matmul", "matmul", "nanquantile", "quantile", "smooth_l1_loss"},
    "does not tell an untracked tensor from a number": {"lerp", "xlogy"},
    "does not tell a loss with and without spatial dimensions": {"nll_loss"},
}  # fmt: skip
"""Ops whose node has another name than torch's in some case, by what it does."""

OTHER_SAVED = {
    ("binary_cross_entropy", "weight"): "before it is broadcast",
    ("div", "other"): "a number, not a tensor of one",
    ("huber_loss", "target"): "before it is broadcast",
    ("mul", "other"): "a number, not a tensor of one",
    ("outer", "self"): "as a vector",
    ("prelu", "weight"): "as a vector",
    ("rms_norm", "self"): "the input, where torch's last node has the normalised one",
    ("smooth_l1_loss", "target"): "before it is broadcast",
}
"""Tensors that a node of ours saves in another form than torch's."""


def outputs(op: Op, case: Case) -> Iterator[tuple[Any, Any]]:
    """Each output of a case, ours and torch's; none where torch refuses it."""
    try:
        arrays = oracle.arrays_of(case, np.dtype("float32"))
        theirs = oracle.with_dtypes(oracle.build(case, arrays, torch.tensor), torch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = oracle.as_list(oracle.torch_function(op)(*theirs.args, **theirs.kwargs))
    except Exception:
        return
    ours = oracle.with_dtypes(oracle.build(case, arrays, tg.tensor), tg.dtypes)
    with np.errstate(all="ignore"):
        found = oracle.as_list(oracle.our_function(op)(*ours.args, **ours.kwargs))
    yield from [pair for pair in zip(found, expected, strict=True) if torch.is_tensor(pair[1])]


@pytest.fixture(scope="module")
def nodes() -> list[tuple[Op, Any, Any]]:
    """What made each output of the catalogue's cases, ours and torch's: a node or None."""
    return [
        (op, ours.grad_fn, theirs.grad_fn)
        for op in CATALOGUE
        for case in cases_of(op)
        for ours, theirs in outputs(op, case)
    ]


def test_every_op_has_torchs_name(nodes: list[tuple[Op, Any, Any]]) -> None:
    names = [(op.key, ours and ours.name(), theirs and theirs.name()) for op, ours, theirs in nodes]
    allowed = set().union(*OTHER_NAMES.values())
    different = {name for name in names if name[1] != name[2] and name[0] not in allowed}
    assert not different, "give these nodes torch's name, or say in OTHER_NAMES why they have another"
    assert sum(ours == theirs for _, ours, theirs in names) > 1500


def test_names_do_not_change_when_the_graph_is_freed(nodes: list[tuple[Op, Any, Any]]) -> None:
    for _, node, _ in nodes:
        if node is not None:
            name, saved, node.saved = node.name(), node.saved, FREED
            assert node.name() == name
            node.saved = saved


def test_every_op_shows_the_tensors_it_saved_as_torch_does(nodes: list[tuple[Op, Any, Any]]) -> None:
    held = 0
    for op, ours, theirs in nodes:
        if theirs is None or ours.name() != theirs.name() or op.composite:
            continue
        for name in inspection.saved_names(ours):
            found, expected = getattr(ours, f"_saved_{name}"), getattr(theirs, f"_saved_{name}", None)
            if found is not None and torch.is_tensor(expected) and (op.key, name) not in OTHER_SAVED:
                held += 1
                oracle.assert_close(found, expected, f"{op.key}: {name}")
                assert found.requires_grad == expected.requires_grad
    assert held > 800


# What a node shows ---------------------------------------------------------------------------------------


SAVED = {
    "inputs": (lambda t, x: x * x, ["self", "other"]),
    "one input": (lambda t, x: x * t.tensor([1.0, 2.0, 3.0]), ["self", "other"]),
    "the result": (lambda t, x: x.exp(), ["result"]),
    "a number": (lambda t, x: x**3, ["self", "exponent"]),
    "a dim": (lambda t, x: x.softmax(0), ["result", "dim"]),
    "a shape": (lambda t, x: x.sum(), ["self_sym_sizes"]),
    "a condition": (lambda t, x: t.where(x > 1, x, x), ["condition"]),
    "an index": (lambda t, x: x.gather(0, t.tensor([0])), ["dim", "index"]),
    "bounds": (lambda t, x: x.clamp(0.0, 2.0), ["self", "min", "max"]),
    "a number beside": (lambda t, x: t.add(x, x, alpha=2), ["alpha"]),
    "several indices": (lambda t, x: x[t.tensor([0, 1])], ["indices"]),
    "dims": (lambda t, x: x.view(1, 3).permute(1, 0), ["dims"]),
}


@pytest.mark.parametrize("name", SAVED)
def test_saved_values(name: str) -> None:
    make, names = SAVED[name]
    both(lambda t: [getattr(make(t, leaf(t)).grad_fn, f"_saved_{saved}") for saved in names])


def test_a_saved_tensor_is_where_it_was() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x * 2
        node = (y * x).grad_fn
        result = y.exp().grad_fn
        (again,) = t.autograd.grad((node._saved_self * 3).sum(), x)
        return (
            node._saved_other is x,
            node._saved_self.grad_fn is y.grad_fn,
            result._saved_result.grad_fn is result,
            node._saved_self.requires_grad,
            again,
        )

    assert both(run)[:4] == [True] * 4


def test_saved_values_that_were_freed_or_modified() -> None:
    def freed(t: Any) -> Any:
        y = leaf(t).exp()
        y.sum().backward()
        return y.grad_fn._saved_result

    def modified(t: Any) -> Any:
        y = leaf(t).exp()
        node = y.grad_fn
        y.mul_(2)
        return node._saved_result

    both_raise(freed)
    both_raise(modified)


def test_what_a_node_does_not_have() -> None:
    node = (leaf(OURS) * 2).grad_fn
    with pytest.raises(AttributeError, match="object has no attribute '_saved_nonsense'"):
        _ = node._saved_nonsense
    with pytest.raises(AttributeError, match="nonsense"):
        _ = node.nonsense


# Walking and weighing -----------------------------------------------------------------------------------


def test_edges_and_leaves() -> None:
    x, w = leaf(OURS), leaf(OURS)
    a, b = (x * w).unbind()[:2]
    root = (a * b + x.sum()).grad_fn
    leaves = graph_contents.leaves(root)
    assert len(leaves) == 2 and {id(t) for t in leaves} == {id(x), id(w)}
    found = [(e.node.name(), e.input, e.output_nr) for e in graph_contents.edges(root) if e.target.next_edges]
    assert found == [
        ("AddBackward0", 0, 0), ("AddBackward0", 1, 0), ("MulBackward0", 0, 0), ("MulBackward0", 1, 1),
        ("UnbindBackward0", 0, 0),
    ]  # fmt: skip
    assert [node.sequence for node in walk(root)] == sorted((n.sequence for n in walk(root)), reverse=True)


def test_memory_held_by_the_graph_counts_a_buffer_once() -> None:
    x = tg.tensor([1.0] * 100, requires_grad=True)
    assert graph_contents.saved_bytes((x + 1).grad_fn) == 0
    y = x.exp()
    assert graph_contents.saved_bytes(y.grad_fn) == 400
    assert graph_contents.saved_bytes((y * y).grad_fn) == 400
    z = (y[10:20] * y[:10]).sum()  # views of the one buffer
    assert graph_contents.saved_bytes(z.grad_fn) == 400
    assert graph_contents.saved_bytes((x * y).grad_fn) == 800
    stacked = tg.functions.stack([x, y])
    assert graph_contents.saved_bytes((stacked * stacked).grad_fn) == 400 + 800
    z.backward()
    assert graph_contents.saved_bytes(z.grad_fn) == 0


def test_memory_held_by_a_users_function() -> None:
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x, None)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2 * ctx.saved_tensors[0]

    x = tg.tensor([1.0] * 100, requires_grad=True)
    y = Square.apply(x)
    assert graph_contents.saved_bytes(y.grad_fn) == 400
    y.sum().backward()
    assert graph_contents.saved_bytes(y.grad_fn) == 0
