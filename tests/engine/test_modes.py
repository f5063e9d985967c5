"""Switching recording off and on, around a block, a function or a generator."""

from __future__ import annotations

from typing import Any

import pytest

from .twins import both, leaf


def test_modes_as_context_managers() -> None:
    def run(t: Any) -> Any:
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

    both(run)


def test_modes_as_decorators() -> None:
    def run(t: Any) -> Any:
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

    both(run)


def test_modes_on_generators_hold_only_while_they_run() -> None:
    def run(t: Any) -> Any:
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

    both(run)


def test_closing_a_generator_runs_its_cleanup_in_the_mode() -> None:
    def run(t: Any) -> Any:
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

    both(run)
