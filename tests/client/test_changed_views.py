"""Views whose base is changed in place: one of several that a function returned, and views made in another mode.

Internals: the session's tensors are looked up by the ids of the SDK's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import telegrad as tg

from .parity import bodies, error_of, held, same, same_error

pytestmark = pytest.mark.usefixtures("session")

SEVERAL: dict[str, Callable[[Any], Any]] = {
    "unbind": lambda y: y.unbind(0),
    "split": lambda y: y.split(2),
    "split into sizes": lambda y: y.split([1, 3]),
    "split whole": lambda y: y.split(4),
    "chunk": lambda y: y.chunk(2),
    "iteration": lambda y: tuple(y),
}
ALONE: dict[str, Callable[[Any], Any]] = {
    "tensor_split": lambda y: y.tensor_split(2),
    "hsplit": lambda y: y.hsplit(2),
    "vsplit": lambda y: y.vsplit(2),
    "select": lambda y: (y[0], y[1]),
}
MADE = ("recorded", "of a leaf", "without grad", "no_grad", "inference_mode", "before grad")


def prepared(lib: Any, views: Callable[[Any], Any], made: str) -> tuple[Any, Any]:
    """A base and several views of it."""
    y = lib.arange(16.0).reshape(4, 4).clone().requires_grad_(made not in ("without grad", "before grad"))
    if made != "of a leaf":
        y = y * 1
    if made in ("no_grad", "inference_mode"):
        with getattr(lib, made)():
            several = views(y)
    else:
        several = views(y)
    if made == "before grad":
        y.mul_(lib.ones(1, requires_grad=True))
    return y, several


class Changes:
    """What may be done to the base or the views, and then with the views."""

    def used(lib: Any, y: Any, v: Any) -> Any:
        y.mul_(2)
        return (v[0] * 2).sum()

    def used_in_no_grad(lib: Any, y: Any, v: Any) -> Any:
        y.mul_(2)
        with lib.no_grad():
            return (v[0] * 2).sum()

    def used_after_no_grad(lib: Any, y: Any, v: Any) -> Any:
        y.mul_(2)
        with lib.no_grad():
            v[0] * 2
        return v[0] * 2

    def read_in_no_grad(lib: Any, y: Any, v: Any) -> Any:
        y.mul_(2)
        with lib.no_grad():
            return v[0].grad_fn is None, v[0].is_leaf

    def changed_in_no_grad(lib: Any, y: Any, v: Any) -> Any:
        with lib.no_grad():
            y.mul_(2)
        return v[0] * 2

    def changed_in_inference_mode(lib: Any, y: Any, v: Any) -> Any:
        with lib.inference_mode():
            y.mul_(2)
        return v[0] * 2

    def changed_through_detach(lib: Any, y: Any, v: Any) -> Any:
        y.detach().mul_(2)
        return v[-1] * 2

    def changed_through_data(lib: Any, y: Any, v: Any) -> Any:
        y.data.mul_(2)
        return v[0] * 2

    def itself(lib: Any, y: Any, v: Any) -> Any:
        v[0].mul_(2)
        return y.sum()

    def itself_in_no_grad(lib: Any, y: Any, v: Any) -> Any:
        with lib.no_grad():
            v[0].mul_(2)
        return y.sum()

    def another_in_no_grad(lib: Any, y: Any, v: Any) -> Any:
        with lib.no_grad():
            v[0].mul_(2)
        return v[-1] * 2

    def another_detached(lib: Any, y: Any, v: Any) -> Any:
        v[0].detach().mul_(2)
        return v[-1] * 2

    def view_of_a_view(lib: Any, y: Any, v: Any) -> Any:
        view = v[0][:1]
        y.mul_(2)
        return view * 2

    def view_of_a_view_itself(lib: Any, y: Any, v: Any) -> Any:
        v[0][:1].mul_(2)
        return v[0] * 2

    def overwritten(lib: Any, y: Any, v: Any) -> Any:
        v[0][...] = 1
        return y

    def by_a_weight(lib: Any, y: Any, v: Any) -> Any:
        v[0].mul_(lib.ones(1, requires_grad=True))
        return y

    def what_reads_no_history(lib: Any, y: Any, v: Any) -> Any:
        y.mul_(2)
        view = v[0]
        return view.tolist(), view.detach(), view.data, tuple(view.shape), view.requires_grad, view._version

    def requiring(lib: Any, y: Any, v: Any) -> Any:
        y.mul_(2)
        return v[0].requires_grad_().requires_grad

    def retained(lib: Any, y: Any, v: Any) -> Any:
        y.mul_(2)
        v[0].retain_grad()
        return 1

    def backward(lib: Any, y: Any, v: Any) -> Any:
        y.mul_(2)
        v[0].backward(lib.ones(tuple(v[0].shape)))
        return 1

    def written_elsewhere(lib: Any, y: Any, v: Any) -> Any:
        y.mul_(2)
        return lib.zeros(tuple(v[0].shape)).copy_(v[0])

    def used_before(lib: Any, y: Any, v: Any) -> Any:
        z = (v[0] * 3).sum()
        y.mul_(2)
        z.backward()
        return z


def compare(views: Callable[[Any], Any], made: str, body: Callable[..., Any]) -> None:
    """Compare the result with torch's, or the whole text of the error."""

    def function(lib: Any) -> Any:
        return body(lib, *prepared(lib, views, made))

    try:
        function(torch)
    except RuntimeError:
        same_error(function, whole=True)
    else:
        same(function)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        *[(name, made) for name in SEVERAL for made in MADE],
        *[(name, made) for name in ALONE for made in MADE[:-1]],  # torch forbids to change a view older than grad
    ],
)
def test_views_after_a_change(name: str, made: str) -> None:
    for body in bodies(Changes):
        compare((SEVERAL | ALONE)[name], made, body)


@pytest.mark.parametrize("name", ["unsafe_split", "unsafe_chunk"])
def test_unsafe_functions_return_no_views(name: str) -> None:
    def function(lib: Any) -> Any:
        x = lib.arange(4.0).requires_grad_()
        y = x * 2
        first, second = getattr(y, name)(2)
        first.mul_(3)
        (first * first + second).sum().backward()
        return x.grad, first, second

    same(function)


def test_a_view_without_a_history_is_printed_and_shown(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        y, views = prepared(lib, SEVERAL["unbind"], "recorded")
        y.mul_(2)
        return repr(views[0]), views[1].tolist()

    same(function)
    y, views = prepared(tg, SEVERAL["unbind"], "recorded")
    y.mul_(2)
    assert "UnbindBackward0" in views[0]._repr_html_()
    assert held(session)[views[0]._id] == [4]


def test_a_compiled_function_checks_its_views() -> None:
    def step(lib: Any, x: Any) -> Any:
        y = x * 2
        a, b = y.chunk(2)
        y.mul_(3)
        return a + b

    def function(lib: Any) -> Any:
        compiled = tg.compile(lambda x: step(tg, x)) if lib is tg else lambda x: step(torch, x)
        return compiled(lib.arange(4.0).requires_grad_())

    assert "multiple views" in str(error_of(function, tg))
    same_error(function, whole=True)


def test_the_same_loop_raises_in_every_turn() -> None:
    """Recorded by prepared calls, and planned by the engine."""

    def turn(lib: Any, x: Any) -> Any:
        y = x * 2
        a, b = y.split(2)
        first = (a * b).sum()
        y.add_(1)
        return first, a

    with torch.enable_grad():
        for lib in (torch, tg):
            x = lib.arange(4.0).requires_grad_()
            for _ in range(8):
                first, a = turn(lib, x)
                with pytest.raises(RuntimeError, match="Output 0 of Split is a view and its base"):
                    a * 2
                assert first.item() == 12.0


class Reads:
    """What is read first of a view whose base was changed, in a mode that records nothing."""

    def its_node(lib: Any, view: Any) -> Any:
        return view.grad_fn is not None, view.grad_fn is view.grad_fn

    def whether_it_is_a_leaf(lib: Any, view: Any) -> Any:
        return view.is_leaf, view.requires_grad, view.output_nr

    def its_next_nodes(lib: Any, view: Any) -> Any:
        return len(view.grad_fn.next_functions)

    def a_gradient(lib: Any, view: Any) -> Any:
        view.retain_grad()
        return lib.autograd.grad(view, view, lib.ones(2), retain_graph=True)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize("change", ["base", "base in no_grad", "view"])
@pytest.mark.parametrize("body", bodies(Reads), ids=lambda body: body.__name__)
def test_the_first_look_at_a_changed_view_may_be_in_no_grad(body: Callable[..., Any], change: str, mode: str) -> None:
    def function(lib: Any) -> Any:
        x = lib.ones(4, requires_grad=True)
        y = x * 2
        view = y.view(2, 2)[0]
        if change == "base in no_grad":
            with lib.no_grad():
                y.mul_(3)
        else:
            (y if change == "base" else view).mul_(3)
        with getattr(lib, mode)():
            found = body(lib, view)
        (view * view).sum().backward()
        return found, x.grad

    same(function)
