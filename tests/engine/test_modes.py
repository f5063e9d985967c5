"""Grad and inference modes: around a block, a function or a generator, and what is made inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ..client.parity import bodies
from .twins import both, both_raise, leaf


class Bodies:
    """Functions that must return the same in both libraries."""

    def modes_as_context_managers(t: Any) -> Any:
        x = leaf(t)
        seen = [t.is_grad_enabled()]
        with t.no_grad():
            seen.append((x * 2).requires_grad)
            with t.enable_grad():
                seen.append((x * 2).requires_grad)
            seen.append(t.is_grad_enabled())
            with t.set_grad_enabled(True):
                seen.append(t.is_grad_enabled())
        with pytest.raises(KeyError), t.no_grad():
            raise KeyError
        seen.append(t.is_grad_enabled())
        t.set_grad_enabled(False)
        seen.append(t.is_grad_enabled())
        t.set_grad_enabled(True)
        return seen

    def modes_as_decorators(t: Any) -> Any:
        @t.no_grad()
        def outer(x: Any) -> Any:
            """Documented."""
            return x * 2, t.enable_grad()(lambda: x * 2)()

        @t.no_grad
        def bare(x: Any) -> Any:
            return x * 2

        @t.set_grad_enabled(False)
        def switched(x: Any) -> Any:
            return x * 2

        plain_result, enabled = outer(leaf(t))
        return (
            plain_result.requires_grad, enabled.requires_grad, outer.__name__, outer.__doc__,
            bare(leaf(t)).requires_grad, switched(leaf(t)).requires_grad, t.is_grad_enabled(),
        )  # fmt: skip

    def modes_on_generators_hold_only_while_they_run(t: Any) -> Any:
        @t.no_grad()
        def generate() -> Any:
            seen = []
            received = yield t.is_grad_enabled()
            seen.append((received, t.is_grad_enabled()))
            try:
                yield t.is_grad_enabled()
            except ValueError:
                seen.append(("caught", t.is_grad_enabled()))
            yield t.is_grad_enabled()
            return seen

        generator = generate()
        inside = [next(generator)]
        outside = [t.is_grad_enabled()]
        inside.append(generator.send("hello"))
        outside.append(t.is_grad_enabled())
        inside.append(generator.throw(ValueError()))
        with pytest.raises(StopIteration) as stop:
            next(generator)
        return inside, outside, stop.value.value

    def closing_a_generator_runs_its_cleanup_in_the_mode(t: Any) -> Any:
        seen = []

        @t.no_grad()
        def generate() -> Any:
            try:
                yield 1
            finally:
                seen.append(t.is_grad_enabled())

        generator = generate()
        next(generator)
        generator.close()
        return seen

    def what_is_made_inside_is_an_inference_tensor(t: Any) -> Any:
        x = leaf(t)
        plain = t.tensor([1.0, 2.0, 3.0])
        with t.inference_mode():
            inside = [
                t.tensor([1.0]), x * 2, plain + plain, x.sum(), plain.clone(), t.zeros(2), x.reshape(3), plain[0],
                x.detach(), (x * 2).detach(), (x * 2).view(3), t.tensor([1.0], requires_grad=True),
            ]  # fmt: skip
            seen = [(v.is_inference(), v.requires_grad) for v in inside[:6] + inside[7:]]
            seen.append((inside[6].is_inference(), t.is_inference_mode_enabled()))
        later = [inside[1] + 1, inside[1].clone(), inside[1].view(3), inside[1].detach(), inside[7], inside[1].double()]
        return seen, [v.is_inference() for v in later], t.is_inference_mode_enabled()

    def nothing_is_recorded_whatever_the_grad_mode_says(t: Any) -> Any:
        x = leaf(t)
        seen = []
        with t.inference_mode():
            seen.append(t.is_grad_enabled())
            with t.enable_grad():
                seen += [t.is_grad_enabled(), (x * 2).requires_grad]
            with t.set_grad_enabled(True):
                seen += [t.is_grad_enabled(), x.sum().requires_grad]
            seen.append(t.is_grad_enabled())
            with t.inference_mode(False):
                y = x * 2
                seen += [t.is_grad_enabled(), t.is_inference_mode_enabled(), y.requires_grad, y.is_inference()]
            seen.append(t.is_inference_mode_enabled())
        with t.no_grad():
            with t.inference_mode():
                pass
            seen.append(t.is_grad_enabled())
        with pytest.raises(KeyError), t.inference_mode():
            raise KeyError
        return seen, t.is_grad_enabled(), t.is_inference_mode_enabled()

    def as_a_decorator_of_functions_and_generators(t: Any) -> Any:
        @t.inference_mode()
        def called() -> Any:
            """Documented."""
            return t.is_inference_mode_enabled()

        @t.inference_mode
        def bare() -> Any:
            return t.is_inference_mode_enabled()

        @t.inference_mode(mode=False)
        def off() -> Any:
            return t.is_inference_mode_enabled(), t.is_grad_enabled()

        @t.inference_mode()
        def generate() -> Any:
            received = yield t.is_inference_mode_enabled()
            yield received, t.is_inference_mode_enabled()

        generator = generate()
        steps = [next(generator), t.is_inference_mode_enabled(), generator.send(5), t.is_inference_mode_enabled()]
        with t.inference_mode():
            steps.append(off())
        return called(), called.__doc__, bare(), steps

    def what_it_may_be_used_for(t: Any) -> Any:
        x, a = leaf(t, (1.0, 2.0)), made(t)
        (x + a).sum().backward()
        (x * a.clone()).sum().backward()
        (x * 2).backward(a)
        a.requires_grad_(False)
        with t.inference_mode():
            a.add_(1)
            a[0] = 7.0
            a.view(2).mul_(2)
            weights = t.tensor([1.0, 1.0], requires_grad=True)
        (weights * 3).sum().backward()
        plain = t.tensor([1.0, 1.0])
        plain.add_(a)
        return x.grad, a, weights.grad, plain, plain._version, (x + a).requires_grad, (a + a).is_inference()

    def normal_tensors_are_changed_inside_and_their_versions_count(t: Any) -> Any:
        x, plain = leaf(t), t.tensor([1.0, 2.0])
        with t.inference_mode():
            x.add_(1)
            plain.mul_(2)
            plain[0].add_(1)
        return x, x._version, plain, plain._version, plain.is_inference()

    def untracked_views_made_in_a_mode_are_modified_freely(t: Any) -> Any:
        plain = t.tensor([1.0, 2.0])
        with t.no_grad():
            first = plain[0:1]
        with t.inference_mode():
            second = plain[1:2]
        first.add_(1)
        second.add_(1)
        return plain, plain._version


@pytest.mark.every
@pytest.mark.parametrize("body", bodies(Bodies), ids=lambda body: body.__name__)
def test_it_is_as_in_torch(body: Callable[[Any], Any]) -> None:
    both(body)


# Inference mode ----------------------------------------------------------------------------------------------------


def made(t: Any, values: Any = (1.0, 2.0)) -> Any:
    with t.inference_mode():
        return t.tensor(list(values))


@pytest.mark.parametrize(
    "use",
    [
        lambda t, x, a: x * a,
        lambda t, x, a: a * x,
        lambda t, x, a: x / a,
        lambda t, x, a: (x * 1).mul_(a),
        lambda t, x, a: x.dot(a),
        lambda t, x, a: t.where(a > 1, x, a).sum() * a,
        lambda t, x, a: a.add_(1),
        lambda t, x, a: a.view(2).add_(1),
        lambda t, x, a: a[0].mul_(2),
        lambda t, x, a: a.__setitem__(0, 5.0),
        lambda t, x, a: t.no_grad()(lambda: a.add_(1))(),
        lambda t, x, a: t.inference_mode(False)(lambda: a.add_(1))(),
        lambda t, x, a: a.requires_grad_(),
        lambda t, x, a: setattr(a, "requires_grad", True),
        lambda t, x, a: a._version,
        lambda t, x, a: t.inference_mode()(lambda: a._version)(),
    ],
)
def test_what_an_inference_tensor_must_not_be_used_for(use: Any) -> None:
    both_raise(lambda t: use(t, leaf(t, (1.0, 2.0)), made(t)))


def test_a_tensor_changed_inside_cannot_be_used_by_backward() -> None:
    def run(t: Any) -> Any:
        y = leaf(t) * 2
        z = y * y
        with t.inference_mode():
            y.add_(1)
        z.sum().backward()

    both_raise(run, "modified by an inplace operation")


def test_backward_runs_inside() -> None:
    def run(t: Any) -> Any:
        x = leaf(t)
        loss = (x * x).sum()
        with t.inference_mode():
            loss.backward()
        return x.grad

    both(run)
    both_raise(lambda t: t.inference_mode()(lambda: (leaf(t) * 2).sum().backward())())


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize(
    "use",
    [
        lambda x, y, v: v(y).add_(1),
        lambda x, y, v: v(x).add_(1),
        lambda x, y, v: v(x.detach()).add_(y[:1]),
    ],
)
def test_views_made_in_a_mode_are_not_modified_outside(mode: str, use: Any) -> None:
    def run(t: Any) -> Any:
        def view(tensor: Any) -> Any:
            with getattr(t, mode)():
                return tensor[0:1]

        x = leaf(t)
        return use(x, x * 2, view)

    both_raise(run)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_views_of_views_made_in_a_mode_are_not_modified_outside(mode: str) -> None:
    def run(t: Any) -> Any:
        y = leaf(t) * 2
        with getattr(t, mode)():
            view = y[0:1]
        view.view(1).add_(1)

    both_raise(run, "it is forbidden. You can clarify your code by moving both the view and the inplace")


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_views_made_in_a_mode_are_not_used_once_their_base_was_modified(mode: str) -> None:
    def run(t: Any) -> Any:
        y = leaf(t) * 2
        with getattr(t, mode)():
            view = y[0:1]
        y.mul_(2)
        return view * 2

    both_raise(run)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_a_view_says_what_its_base_says(mode: str) -> None:
    """As in torch, a view of what requires grad requires grad wherever it was made; nothing records it, though."""

    def body(t: Any) -> Any:
        found = []
        for source in (leaf(t), leaf(t) * 2):
            with getattr(t, mode)():
                views = [source[:2], source.view(3, 1), source[:2].view(2, 1), *source.split(2), source.detach()]
            found.append([(v.requires_grad, v.is_leaf, v.grad_fn is None) for v in views])
            found.append([repr(views[0]), views[0].requires_grad_(False).requires_grad])  # type: ignore[list-item]
        later = t.tensor([1.0, 2.0])
        with getattr(t, mode)():
            view = later[:1]
        later.requires_grad_()
        return found, view.requires_grad

    both(body)
    both_raise(lambda t: unrecorded_view(t, mode).numpy())


def unrecorded_view(t: Any, mode: str) -> Any:
    x = leaf(t)
    with getattr(t, mode)():
        return x[:2]
