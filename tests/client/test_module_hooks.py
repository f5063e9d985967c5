"""Backward hooks of modules, compared with torch's: when they run, and what they may return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import telegrad as tg

from .custom_functions import leaf, nothing_waits
from .parity import bodies, same, same_error
from .test_hooks import plain


class ModuleBodies:
    """Functions with module backward hooks whose results must be the same in both libraries."""

    def full_and_before(lib: Any) -> Any:
        seen: list[Any] = []
        module = two(lib)
        module.register_full_backward_hook(lambda m, gi, go: seen.append(("first", plain(gi), plain(go))))
        module.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10, None))
        module.register_full_backward_hook(
            lambda m, gi, go: seen.append(("zeroth", m is module, plain(gi))), prepend=True
        )
        module.register_full_backward_hook(lambda m, gi, go: seen.append(("last", plain(gi))))
        module.register_full_backward_pre_hook(lambda m, go: tuple(g if g is None else g * 2 for g in go))
        module.register_full_backward_pre_hook(lambda m, go: seen.append(("before", plain(go))))
        x = leaf(lib)
        a, k, b = module(x * 1, 3)
        (a * b).sum().backward()
        return seen, x.grad, module.w.grad, k

    def an_output_that_no_gradient_reached(lib: Any) -> Any:
        seen: list[Any] = []
        module = two(lib)
        module.register_full_backward_hook(lambda m, gi, go: seen.append((plain(gi), plain(go))))
        x = leaf(lib)
        v = leaf(lib)
        module(x, v)[0].sum().backward()
        return seen, x.grad, v.grad, module.w.grad

    def removed(lib: Any) -> Any:
        module = two(lib)
        handle = module.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10, None))
        x = leaf(lib)
        module(x, 3)[0].sum().backward()
        handle.remove()
        a = module(x, 3)[0]
        a.sum().backward()
        return x.grad

    def within_a_network(lib: Any) -> Any:
        norms: list[Any] = []
        net = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 1))
        with lib.no_grad():
            for at, p in enumerate(net.parameters()):
                p.copy_(lib.arange(p.numel()).reshape(p.shape) * 0.1 + at)
        for part in net:
            part.register_full_backward_hook(lambda m, gi, go: norms.append((m is net[1], float(go[0].sum()))))
        x = lib.tensor([[0.1, -0.2, 0.3]], requires_grad=True)
        net(x).sum().backward()
        return norms, x.grad, [p.grad for p in net.parameters()]


def two(lib: Any) -> Any:
    class Two(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = lib.nn.Parameter(lib.tensor([2.0, 3.0, 4.0], dtype=lib.float64))

        def forward(self, x: Any, k: Any) -> Any:
            return x * self.w, k, x * k + self.w

    return Two()


@pytest.mark.parametrize("body", bodies(ModuleBodies), ids=lambda body: body.__name__)
def test_modules_hooks_are_as_in_torch(session: tg.Session, body: Callable[[Any], Any]) -> None:
    same(body)
    nothing_waits(session)


@pytest.mark.usefixtures("session")
def test_a_modules_hook_without_inputs_that_require_grad_warns() -> None:
    def body(lib: Any) -> Any:
        seen: list[Any] = []
        module = two(lib)
        module.register_full_backward_hook(lambda m, gi, go: seen.append((plain(gi), plain(go))))
        with pytest.warns(UserWarning, match="Full backward hook is firing"):
            module(leaf(lib).detach(), 3)[0].sum().backward()
        return seen, module.w.grad

    same(body)


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("kind", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_what_a_modules_hook_may_not_return(kind: str) -> None:
    for wrong in ((1, 2, 3, 4), 3):

        def body(lib: Any, wrong: Any = wrong) -> None:
            module = two(lib)
            getattr(module, kind)(lambda *_: wrong)
            module(leaf(lib), 3)[0].sum().backward()

        same_error(body)
