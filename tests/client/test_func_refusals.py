"""What functions under ``torch.func`` may not do: change captured tensors, read values, apply Functions without setup.

Internals: the class of the methods that return values, so that a new one is tested too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import telegrad as tg
from telegrad.tensor.host_values import HostValues

from .parity import same, same_error

pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]

TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda lib, f: lib.func.grad(lambda x: f(x).sum())(lib.ones(3)),
    "grad_and_value": lambda lib, f: lib.func.grad_and_value(lambda x: f(x).sum())(lib.ones(3)),
    "vjp": lambda lib, f: lib.func.vjp(f, lib.ones(3))[1](lib.ones(3)),
    "jvp": lambda lib, f: lib.func.jvp(f, (lib.ones(3),), (lib.ones(3),)),
    "jacrev": lambda lib, f: lib.func.jacrev(f)(lib.ones(3)),
    "jacfwd": lambda lib, f: lib.func.jacfwd(f)(lib.ones(3)),
    "hessian": lambda lib, f: lib.func.hessian(lambda x: f(x).sum())(lib.ones(3)),
    "vmap of grad": lambda lib, f: lib.vmap(lib.func.grad(lambda x: f(x).sum()))(lib.ones(2, 3)),
}
CHANGES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "adding": lambda lib, c, x: c.add_(x),
    "adding a number": lambda lib, c, x: c.add_(1),
    "a power": lambda lib, c, x: c.pow_(2),
    "a comparison": lambda lib, c, x: c.eq_(lib.ones(3)),
    "zeros": lambda lib, c, x: c.zero_(),
    "a fill": lambda lib, c, x: c.fill_(2.0),
    "a fill with a tensor": lambda lib, c, x: c.fill_(lib.ones(())),
    "an exponential": lambda lib, c, x: c.exp_(),
    "an assignment": lambda lib, c, x: c.__setitem__(0, 2.0),
    "an indexed assignment": lambda lib, c, x: c.__setitem__(lib.tensor([0, 1]), x[:2]),
    "a view": lambda lib, c, x: c[:2].mul_(3),
    "a dimension": lambda lib, c, x: c.unsqueeze_(0),
    "the whole view": lambda lib, c, x: c.view(3).add_(1),
    "one of several views": lambda lib, c, x: c.unbind()[0].add_(1),
    "a detached tensor": lambda lib, c, x: c.detach().add_(1),
    "a detached view": lambda lib, c, x: c[:2].detach()[:1].add_(1),
    "data": lambda lib, c, x: c.data.add_(1),
    "random numbers": lambda lib, c, x: c.normal_(),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_captured_tensor_is_not_changed(transform: str) -> None:
    def function(lib: Any) -> Any:
        captured = lib.zeros(3)

        def f(x: Any) -> Any:
            captured.add_(1)
            return captured * x

        return TRANSFORMS[transform](lib, f)

    same_error(function, "would mutate a captured Tensor", whole=True)


@pytest.mark.parametrize("change", CHANGES)
def test_the_error_names_the_change(change: str) -> None:
    def function(lib: Any) -> Any:
        captured = lib.ones(3)

        def f(x: Any) -> Any:
            CHANGES[change](lib, captured, x)
            return (captured * x).sum()

        return lib.func.grad(f)(lib.ones(3))

    same_error(function, "would mutate a captured Tensor", whole=True)


def test_an_argument_of_an_outer_transform_is_captured_by_an_inner_one() -> None:
    def function(lib: Any) -> Any:
        def f(x: Any) -> Any:
            y = x * 1

            def g(z: Any) -> Any:
                y.add_(z)
                return y.sum()

            return lib.func.grad(g)(x).sum()

        return lib.func.grad(f)(lib.ones(3))

    same_error(function, "would mutate a captured Tensor", whole=True)


def test_statistics_of_a_module_are_captured() -> None:
    def function(lib: Any) -> Any:
        module = lib.nn.BatchNorm1d(3)
        parameters = dict(module.named_parameters())
        return lib.func.grad(lambda p: lib.func.functional_call(module, p, (lib.ones(4, 3),)).sum())(parameters)

    same_error(function, "would mutate a captured Tensor", whole=True)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_own_tensors_may_be_changed(requires_grad: bool) -> None:
    """Also repeatedly, when calls are prepared."""

    def function(lib: Any) -> Any:
        captured = lib.zeros(3)
        argument = lib.ones(3, requires_grad=requires_grad)

        def f(x: Any) -> Any:
            y = x * 2
            y[:2].mul_(x[:2])
            z = captured + 1
            z.add_(x)
            x.detach().clone().add_(1)
            out = lib.empty(3)
            lib.mul(captured, 2, out=out)
            return (y * z).sum() + out.sum()

        gradients = []
        for _ in range(4):
            gradients.append(lib.func.grad(f)(argument))
            captured.add_(1)
        return gradients, argument, captured

    same(function)


@pytest.mark.parametrize("change", ["itself", "a view"])
def test_an_argument_is_a_leaf(change: str) -> None:
    def function(lib: Any) -> Any:
        def f(x: Any) -> Any:
            (x if change == "itself" else x[:2]).add_(1)
            return x.sum()

        return lib.func.grad(f)(lib.ones(3))

    same_error(function, "leaf Variable", whole=True)


@pytest.mark.parametrize("order", ["vmap of grad", "grad of vmap"])
def test_a_captured_tensor_is_not_changed_by_samples(order: str) -> None:
    def function(lib: Any) -> Any:
        captured = lib.ones(3)

        def f(x: Any) -> Any:
            captured.add_(x)
            return (captured * x).sum()

        if order == "vmap of grad":
            return lib.vmap(lib.func.grad(f))(lib.ones(2, 3))
        return lib.func.grad(lambda xs: lib.vmap(f)(xs).sum())(lib.ones(2, 3))

    same_error(function, "would mutate a captured Tensor", whole=True)


def test_a_captured_batch_is_not_changed() -> None:
    def function(lib: Any) -> Any:
        def per_sample(x: Any) -> Any:
            y = x * 1
            return lib.func.grad(lambda z: y.add_(z).sum())(x)

        return lib.vmap(per_sample)(lib.ones(2, 3))

    same_error(function, "would mutate a captured Tensor", whole=True)


def test_a_shared_session_knows_what_is_captured(server: str) -> None:
    """The ids of its tensors have a prefix."""
    with tg.connect(server) as first, tg.connect(server, session=first.id):
        captured = tg.ones(3)
        for _ in range(12):  # the number of digits changes
            assert tg.func.grad(lambda x: (x * 2).add_(captured).sum())(captured).tolist() == [2.0, 2.0, 2.0]
        with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
            tg.func.grad(lambda x: captured.add_(x).sum())(tg.ones(3))


def scaled(lib: Any, *, vmap: bool = False, generate: bool = False) -> Any:
    """A Function without ``setup_context``."""

    class Scaled(lib.autograd.Function):
        generate_vmap_rule = generate

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    if vmap:
        Scaled.vmap = staticmethod(lambda info, dims, x: (Scaled.apply(x), dims[0]))
    return Scaled


@pytest.mark.parametrize("transform", [*TRANSFORMS, "vmap"])
def test_a_function_without_setup_context_is_refused(transform: str) -> None:
    def function(lib: Any) -> Any:
        apply = scaled(lib).apply
        return lib.vmap(apply)(lib.ones(2, 3)) if transform == "vmap" else TRANSFORMS[transform](lib, apply)

    same_error(function, "it must override the setup_context staticmethod", whole=True)


@pytest.mark.parametrize("options", [{"vmap": True}, {"generate": True}])
def test_a_rule_for_vmap_does_not_replace_setup_context(options: Any) -> None:
    same_error(lambda lib: lib.vmap(scaled(lib, **options).apply)(lib.ones(2, 3)), whole=True)


@pytest.mark.parametrize("transform", ["grad", "vmap of grad"])
def test_it_is_refused_for_captured_tensors_too(transform: str) -> None:
    def function(lib: Any) -> Any:
        apply, captured = scaled(lib).apply, lib.ones(3)
        return TRANSFORMS[transform](lib, lambda x: apply(captured) * x)

    same_error(function, "setup_context", whole=True)


def test_hooks_on_saved_tensors_work_under_transforms() -> None:
    def function(lib: Any) -> Any:
        x = lib.ones(3, requires_grad=True)
        with lib.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
            y = (x * x).sum()
        y.backward()
        return x.grad, lib.func.grad(lambda v: (v.exp() * v).sum())(lib.ones(3))

    same(function)


OTHER_ARGUMENTS = {"apply_": (abs,), "map_": (1.0, max), "map2_": (1.0, 1.0, max)}


@pytest.mark.parametrize("name", [name for name in vars(HostValues) if not name.startswith("_")])
def test_a_tensor_without_values_refuses_a_method_that_returns_them(name: str) -> None:
    def read(x: tg.Tensor) -> tg.Tensor:
        getattr(x, name)(*OTHER_ARGUMENTS.get(name, ()))
        return x * 2

    with pytest.raises(RuntimeError, match=r"vmap|storage"):
        tg.vmap(read)(tg.ones(3))
    with pytest.raises(RuntimeError, match="the value of a tensor, and there is none while a function is traced"):
        tg.register_function("reads", read)
