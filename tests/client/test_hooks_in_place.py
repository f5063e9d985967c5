"""Hooks and ``retain_grad`` of views, and of tensors that are changed in place later: which run, in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .parity import bodies, same


def leaf(lib: Any) -> Any:
    return lib.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)


def rec(log: list[Any], name: str) -> Callable[..., None]:
    """A hook that logs its gradients."""

    def hook(*gradients: Any) -> None:
        for each in gradients:
            parts = each if isinstance(each, tuple) else (each,)
            log.append((name, [None if part is None else part.tolist() for part in parts]))

    return hook


class Bodies:
    """Programs that return what their hooks saw, and the gradients."""

    def h_before_and_after(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        y.register_hook(rec(log, "a"))
        y.mul_(3)
        y.register_hook(rec(log, "b"))
        (y * y).sum().backward()
        return log, x.grad

    def h_replace_before(lib: Any) -> Any:
        x = leaf(lib)
        y = x * 2
        y.register_hook(lambda g: g * 10)
        y.add_(1)
        y.register_hook(lambda g: g + 1)
        (y * y).sum().backward()
        return x.grad

    def h_view_then_base(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        v = y[:2]
        v.register_hook(rec(log, "v"))
        y.mul_(3)
        (v * v).sum().backward()
        return log, x.grad

    def retain_view(lib: Any) -> Any:
        x = leaf(lib)
        y = x * 2
        v = y[:2]
        v.retain_grad()
        v.mul_(3)
        (y * y).sum().backward()
        return x.grad, v.grad

    def retain_view_base(lib: Any) -> Any:
        x = leaf(lib)
        y = x * 2
        v = y[:2]
        v.retain_grad()
        y.mul_(3)
        (v * v).sum().backward()
        return x.grad, v.grad, v.retains_grad

    def retain_base_view(lib: Any) -> Any:
        x = leaf(lib)
        y = x * 2
        y.retain_grad()
        v = y[:2]
        v.mul_(3)
        (y * y).sum().backward()
        return x.grad, y.grad

    def retain_twice(lib: Any) -> Any:
        x = leaf(lib)
        y = x * 2
        y.retain_grad()
        y.mul_(3)
        y.retain_grad()
        y.add_(1)
        (y * y).sum().backward()
        return x.grad, y.grad, y.retains_grad

    def retains_view(lib: Any) -> Any:
        x = leaf(lib)
        y = x * 2
        v = y[:2]
        v.retain_grad()
        y.mul_(3)
        before = v.retains_grad
        v.grad_fn.name()
        return before, v.retains_grad

    def retains_view3(lib: Any) -> Any:
        x = leaf(lib)
        y = x * 2
        v = y[:2]
        v.retain_grad()
        v.mul_(3)
        v.grad_fn.name()
        y.mul_(2)
        (v * v).sum().backward()
        return v.retains_grad, v.grad

    def retain_two_views(lib: Any) -> Any:
        x = leaf(lib)
        y = x * 2
        v = y[:2]
        w = y[1:]
        v.retain_grad()
        w.retain_grad()
        v.mul_(3)
        (y * y).sum().backward()
        return v.grad, w.grad, x.grad

    def retain_unused_view(lib: Any) -> Any:
        x = leaf(lib)
        y = x * 2
        v = y[:2]
        v.retain_grad()
        (y * y).sum().backward()
        return v.grad

    def prehook_order(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        y.grad_fn.register_prehook(rec(log, "pre"))
        y.grad_fn.register_hook(rec(log, "post"))
        y.register_hook(rec(log, "h"))
        y.grad_fn.register_prehook(rec(log, "pre2"))
        y.mul_(3)
        y.register_hook(rec(log, "h2"))
        y.grad_fn.register_prehook(rec(log, "pre3"))
        y.retain_grad()
        (y * y).sum().backward()
        return log, x.grad, y.grad

    def prehook_view(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        v = y[:2]
        v.grad_fn.register_prehook(rec(log, "pre"))
        v.mul_(3)
        v.grad_fn.register_prehook(rec(log, "pre2"))
        (y * v.sum()).sum().backward()
        return log, x.grad

    def prehook_view2(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        v = y[:2]
        v.grad_fn.register_prehook(rec(log, "pre"))
        y.mul_(3)
        v.grad_fn.register_prehook(rec(log, "pre2"))
        (y * v.sum()).sum().backward()
        return log, x.grad

    def leaf_becomes(lib: Any) -> Any:
        log: list[Any] = []
        x = lib.zeros(4)
        w = leaf(lib)
        x.mul_(w)
        x.register_hook(rec(log, "x"))
        x.sum().backward()
        return log, w.grad

    def post_acc_view_leaf(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        x.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.tolist()))
        v = x[:2]
        v.register_hook(rec(log, "v"))
        (v * v).sum().backward()
        return log

    def hook_order_multi(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        x.register_hook(rec(log, "x1"))
        x.register_post_accumulate_grad_hook(lambda p: log.append("post"))
        x.register_hook(rec(log, "x2"))
        y = x * 2
        y.register_hook(rec(log, "y1"))
        y.retain_grad()
        y.register_hook(lambda g: g * 2)
        y.mul_(3)
        y.register_hook(lambda g: g * 5)
        y.sum().backward()
        return log, x.grad, y.grad

    def detach_hook(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        y.register_hook(rec(log, "y"))
        y.detach_()
        y.requires_grad_()
        y.register_hook(rec(log, "y2"))
        (y * y).sum().backward()
        return log, y.grad

    def copy_hook(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        y.register_hook(rec(log, "y"))
        w = leaf(lib)
        y.copy_(w)
        y.register_hook(rec(log, "y2"))
        (y * y).sum().backward()
        return log, w.grad, x.grad

    def setitem_hook(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        y.register_hook(rec(log, "y"))
        y.retain_grad()
        w = leaf(lib)
        y[1:] = w[1:]
        y.register_hook(rec(log, "y2"))
        (y * y).sum().backward()
        return log, w.grad, x.grad, y.grad

    def grad_inputs(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        y.register_hook(rec(log, "y"))
        y.mul_(3)
        return lib.autograd.grad((y * y).sum(), [x, y]), log

    def grad_view_inputs(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        v = y[:2]
        v.register_hook(rec(log, "v"))
        v.mul_(3)
        return lib.autograd.grad((v * v).sum(), [x, v]), log

    def remove_after(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        h = y.register_hook(rec(log, "y"))
        y.mul_(3)
        h.remove()
        (y * y).sum().backward()
        return log, x.grad

    def acc_node(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        n = x.view_as(x).grad_fn.next_functions[0][0]
        n.register_prehook(rec(log, "pre"))
        n.register_hook(rec(log, "post"))
        x.register_hook(rec(log, "x"))
        x.register_post_accumulate_grad_hook(lambda p: log.append("acc"))
        x.retain_grad()
        with lib.no_grad():
            x.mul_(2)
        (x * x).sum().backward()
        return log, x.grad

    def view_hook_of_changed_view(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        v = y[:2]
        y.register_hook(rec(log, "y"))
        v.register_hook(rec(log, "v"))
        v.mul_(3)
        v.register_hook(rec(log, "v+"))
        y.register_hook(rec(log, "y+"))
        (y * y).sum().backward()
        return log, x.grad


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("body", bodies(Bodies), ids=lambda body: body.__name__)
def test_the_same_hooks_run_in_the_same_order(body: Callable[[Any], Any]) -> None:
    same(body)


@pytest.mark.usefixtures("everywhere")
def test_a_hook_on_a_view_whose_base_was_changed() -> None:
    """torch crashes here unless ``grad_fn`` was read first."""

    def function(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        v = y[:2]
        y.mul_(3)
        with lib.no_grad():
            assert v.grad_fn is not None
            v.register_hook(rec(log, "v"))
        (v * v).sum().backward()
        return log, x.grad

    same(function)


class OnSeveralTensors:
    """Programs with hooks that the SDK has, and not the engine."""

    def multi_grad(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        z = x * 3
        lib.autograd.graph.register_multi_grad_hook(
            (y, z), lambda gs: log.append([g.tolist() if g is not None else None for g in gs])
        )
        y.mul_(2)
        (y * z).sum().backward()
        return log, x.grad

    def multi_any(lib: Any) -> Any:
        log: list[Any] = []
        x = leaf(lib)
        y = x * 2
        z = x * 3
        lib.autograd.graph.register_multi_grad_hook((y, z), lambda g: log.append(g.tolist()), mode="any")
        y.mul_(2)
        (y * z).sum().backward()
        return log, x.grad


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("body", bodies(OnSeveralTensors), ids=lambda body: body.__name__)
def test_hooks_on_several_tensors(body: Callable[[Any], Any]) -> None:
    same(body)
