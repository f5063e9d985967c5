"""Custom Functions under saved-tensor hooks, autocast and ``gradcheck``, compared with torch's."""

from __future__ import annotations

from typing import Any

import pytest

from .custom_functions import exponential, function, leaf, saving
from .parity import ENGINE, same, same_error


def hooks_on_saved_tensors(lib: Any) -> Any:
    packed: list[Any] = []

    def pack(x: Any) -> int:
        packed.append(x.tolist())
        return len(packed) - 1

    def unpack(place: int) -> Any:
        return lib.tensor(packed[place], dtype=lib.float64)

    x = leaf(lib)
    with lib.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = exponential(lib).apply(saving(lib).apply(x))
    (first,) = lib.autograd.grad(y.sum(), x, create_graph=True)
    return packed, first, lib.autograd.grad(first.sum(), x)


def test_hooks_pack_what_a_function_saves() -> None:
    same(hooks_on_saved_tensors, lib=ENGINE)


def product(lib: Any, seen: list[Any], decorated: bool, **options: Any) -> Any:
    """A matrix product that notes the dtypes it sees and whether autocast is on."""

    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        seen.append(("forward", str(a.dtype), lib.is_autocast_enabled("cpu"), str(a.mm(b).dtype)))
        return a.mm(b)

    def backward(ctx: Any, grad: Any) -> Any:
        a, b = [saved.to(grad.dtype) for saved in ctx.saved_tensors]
        modes = lib.is_autocast_enabled("cpu"), lib.is_grad_enabled()
        seen.append(("backward", str(grad.dtype), str(a.mm(b).dtype), *modes))
        return grad.mm(b.t()), a.t().mm(grad)

    if decorated:
        forward = lib.amp.custom_fwd(forward, device_type="cpu", **options)
        backward = lib.amp.custom_bwd(backward, device_type="cpu")
    return function(lib, forward=forward, backward=backward)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("decorated", [False, True])
@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_autocast_around_forward_and_backward(decorated: bool, cast: bool, enabled: bool) -> None:
    """A decorated backward runs under the autocast of its forward; another under what is on when it runs."""

    def body(lib: Any) -> Any:
        seen: list[Any] = []
        multiply = product(lib, seen, decorated, **({"cast_inputs": lib.bfloat16} if cast and decorated else {}))
        a = lib.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        b = lib.tensor([[1.0, 0.5], [2.0, 1.0]], requires_grad=True)
        with lib.autocast("cpu", enabled=enabled, dtype=lib.bfloat16):
            result = multiply.apply(a, b)
        with lib.autocast("cpu", enabled=not enabled, dtype=lib.bfloat16):
            result.sum().backward()
        return seen, str(result.dtype), a.grad, b.grad

    same(body)


def checked_cube(lib: Any) -> Any:
    """A Function with everything that ``gradcheck`` asks for."""

    class Cubed(lib.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad * 3 * x * x

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            (x,) = ctx.saved_tensors
            return tangent * 3 * x * x

        @staticmethod
        def vmap(info: Any, dims: Any, x: Any) -> Any:
            return Cubed.apply(x), dims[0]

    return Cubed


@pytest.mark.usefixtures("everywhere")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"check_batched_grad": True},
        {"check_forward_ad": True},
        {"check_forward_ad": True, "check_batched_forward_grad": True},
        {"check_forward_ad": True, "fast_mode": True},
    ],
)
def test_gradcheck_of_a_function_with_setup_context_and_vmap(options: Any) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor([0.5, -1.0, 2.0], dtype=lib.float64, requires_grad=True)
        return lib.autograd.gradcheck(checked_cube(lib).apply, (x,), **options)

    same(function)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_gradcheck_finds_a_wrong_jvp() -> None:
    def function(lib: Any) -> Any:
        wrong = checked_cube(lib)
        wrong.jvp = staticmethod(lambda ctx, tangent: tangent * 3)
        x = lib.tensor([0.5, -1.0, 2.0], dtype=lib.float64, requires_grad=True)
        return lib.autograd.gradcheck(wrong.apply, (x,), check_forward_ad=True)

    same_error(function, "Jacobian computed with forward mode mismatch for output 0 with respect to input 0")
