"""What ``grad`` and ``backward`` are given: outputs, inputs, seeds, or nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from .twins import both, both_raise, leaf, plain


def test_grad_leaves_dot_grad_untouched() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        grads = t.autograd.grad((x * x).sum(), x)
        return grads, x.grad

    both(run)


def test_an_unused_input() -> None:
    def run(t: Any, **options: Any) -> Any:
        return t.autograd.grad(leaf(t).sum(), [leaf(t)], **options)

    both_raise(run, "appears to not have been used in the graph. Set allow_unused=True")
    both(lambda t: run(t, allow_unused=True))
    both(lambda t: run(t, materialize_grads=True))
    both_raise(
        lambda t: run(t, allow_unused=False, materialize_grads=True),
        "Expected allow_unused to be True or not passed when materialize_grads=True",
    )


def test_an_input_that_does_not_require_grad() -> None:
    both_raise(
        lambda t: t.autograd.grad(leaf(t).sum(), t.tensor(1.0)),
        "One of the differentiated Tensors does not require grad",
    )


def test_grad_of_several_outputs_and_non_leaves() -> None:
    def run(t: Any) -> Any:
        x, w = leaf(t), leaf(t)
        y = x * w
        z = y.exp()
        return t.autograd.grad([z, y.sum()], [y, x, w], [t.tensor([1.0, 0.5, 2.0]), None])

    both(run)


def test_grad_with_respect_to_the_output_itself() -> None:
    def run(t: Any) -> Any:
        y = (leaf(t) * 2).sum()
        return t.autograd.grad(y, y)

    both(run)


def test_backward_with_inputs() -> None:
    def run(t: Any) -> Any:
        x, w = leaf(t), leaf(t)
        y = x * w
        y.sum().backward(inputs=[y, w])
        return x.grad, w.grad, plain(y.grad)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both(run)
    both_raise(lambda t: leaf(t).sum().backward(inputs=[]))


def test_backward_with_one_input_given_bare() -> None:
    def run(t: Any) -> Any:
        x, w = leaf(t), leaf(t)
        (x * w).sum().backward(inputs=x)
        return x.grad, w.grad

    both(run)


def test_backward_of_several_roots() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        y = x * 2
        t.autograd.backward([y.sum(), y], [None, t.tensor([1.0, 2.0, 3.0])])
        return x.grad

    both(run)


def test_the_same_root_twice() -> None:
    def run(t: Any) -> Any:
        x = leaf(t, 3.0)
        y = x * x
        t.autograd.backward([y, y])
        return x.grad

    both(run)


NOTHING: list[tuple[Callable[[Any], Any], str]] = [
    (lambda t: t.autograd.grad(leaf(t).sum(), ()), "`inputs` argument to `grad()` cannot be empty"),
    (lambda t: t.autograd.grad((), ()), "`inputs` argument to `grad()` cannot be empty"),
    (lambda t: t.autograd.grad((), leaf(t)), "appears to not have been used in the graph"),
    (lambda t: t.autograd.backward(leaf(t).sum(), inputs=[]), "`inputs` argument to `backward()` cannot be empty"),
    (lambda t: t.autograd.backward((), inputs=[]), "`inputs` argument to `backward()` cannot be empty"),
]


@pytest.mark.parametrize(("differentiate", "text"), NOTHING)
def test_nothing_to_differentiate(differentiate: Callable[[Any], Any], text: str) -> None:
    both_raise(differentiate, text)


def test_nothing_to_differentiate_is_no_error() -> None:
    def run(t: Any) -> Any:
        x = leaf(t, 3.0)
        t.autograd.backward([])
        t.autograd.backward((), inputs=x)
        assert x.grad is None and t.autograd.grad((), x, allow_unused=True) == (None,)
        t.autograd.backward(x * x, grad_tensors=t.tensor(2.0))
        return x.grad

    both(run)


def test_a_gradient_must_be_a_tensor() -> None:
    both_raise(lambda t: (leaf(t) * 2).backward([1.0, 1.0, 1.0]), "")
    both_raise(
        lambda t: t.autograd.backward([leaf(t) * 2], [1.0]),
        "gradients can be either Tensors or None, but got",
    )


def test_a_tracked_seed_is_differentiated_too() -> None:
    def run(t: Any) -> Any:
        x, v = leaf(t), leaf(t)
        (g,) = t.autograd.grad(x * x, x, v, create_graph=True)
        return t.autograd.grad(g.sum(), [x, v])

    both(run)
