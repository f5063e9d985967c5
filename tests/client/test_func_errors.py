"""Wrong uses of ``telegrad.func``: they raise as in torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import telegrad as tg

from .parity import same_error
from .test_func import W, X, values

pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node"),
]


def escaped(t: Any) -> Any:
    samples: list[Any] = []
    t.func.vmap(lambda x: samples.append(x) or x)(values(t, X))
    return samples[0] + 1


def net(t: Any) -> Any:
    return t.nn.Sequential(t.nn.Linear(2, 2))


def function(t: Any, vmap: Any) -> Any:
    """A Function with a ``vmap`` method, or without one if ``vmap`` is None."""

    class Same(t.autograd.Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            return args[-1].clone()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

    if vmap is not None:
        Same.vmap = staticmethod(vmap)
        Same.setup_context = staticmethod(lambda ctx, inputs, output: None)
    return Same


WRONG: dict[str, Callable[[Any], Any]] = {
    "control flow": lambda t: t.func.vmap(lambda x: x if x.sum() > 0 else -x)(values(t, X)),
    "item": lambda t: t.func.vmap(lambda x: x.sum().item())(values(t, X)),
    "float": lambda t: t.func.vmap(lambda x: float(x.sum()))(values(t, X)),
    "range": lambda t: t.func.vmap(lambda x: range(x.argmax()))(values(t, X)),
    "numpy": lambda t: t.func.vmap(lambda x: x.numpy())(values(t, X)),
    "nonzero": lambda t: t.func.vmap(lambda x: x.nonzero())(values(t, X)),
    "mask": lambda t: t.func.vmap(lambda x: x[x > 0])(values(t, X)),
    "random": lambda t: t.func.vmap(lambda x: x + t.randn(3))(values(t, X)),
    "same random": lambda t: t.func.vmap(lambda x: t.bernoulli(x), randomness="same")(t.zeros(3, 2)),
    "randomness": lambda t: t.func.vmap(lambda x: x, randomness="other")(values(t, X)),
    "in_dims structure": lambda t: t.func.vmap(lambda x: x, (0, 0))(values(t, X)),
    "in_dims None": lambda t: t.func.vmap(lambda x: x, None)(values(t, X)),
    "in_dims list": lambda t: t.func.vmap(lambda x: x, [0])(values(t, X)),
    "in_dims range": lambda t: t.func.vmap(lambda x: x, 5)(values(t, X)),
    "no tensor": lambda t: t.func.vmap(lambda x: x)(3),
    "no inputs": lambda t: t.func.vmap(lambda: 1)(),
    "sizes": lambda t: t.func.vmap(lambda x, y: x)(values(t, X), values(t, W)),
    "output": lambda t: t.func.vmap(lambda x: "a")(values(t, X)),
    "nothing mapped": lambda t: t.func.vmap(lambda x: x, (None,))(values(t, X)),
    "out_dims structure": lambda t: t.func.vmap(lambda x: x, out_dims=(0, 1))(values(t, X)),
    "out_dims None": lambda t: t.func.vmap(lambda x: x, out_dims=None)(values(t, X)),
    "out_dims kind": lambda t: t.func.vmap(lambda x: x, out_dims="a")(values(t, X)),
    "out_dims range": lambda t: t.func.vmap(lambda x: x, out_dims=4)(values(t, X)),
    "chunk_size": lambda t: t.func.vmap(lambda x: x, chunk_size=0),
    "shared in place": lambda t: t.func.vmap(values(t, X[0]).add_)(values(t, X)),
    "backward": lambda t: t.func.vmap(lambda x: x.backward())(values(t, X)),
    "requires_grad_": lambda t: t.func.vmap(lambda x: x.requires_grad_())(values(t, X)),
    "retain_grad": lambda t: t.func.vmap(lambda x: x.retain_grad())(values(t, X)),
    "retain_grad within": lambda t: t.func.vmap(t.func.grad(lambda x: x.retain_grad()))(values(t, X)),
    "not scalar": lambda t: t.func.grad(lambda x: x)(values(t, X)),
    "not a tensor": lambda t: t.func.grad(lambda x: 3)(values(t, X)),
    "aux kind": lambda t: t.func.grad(lambda x: (x.sum(), "a"), has_aux=True)(values(t, X)),
    "not aux": lambda t: t.func.grad(lambda x: (x.sum(), 1, 2), has_aux=True)(values(t, X)),
    "argnum": lambda t: t.func.grad(lambda x: x.sum(), 1)(values(t, X)),
    "argnums kind": lambda t: t.func.grad(lambda x: x.sum(), "a")(values(t, X)),
    "argnums empty": lambda t: t.func.grad(lambda x: x.sum(), ())(values(t, X)),
    "argnums twice": lambda t: t.func.grad(lambda x: x.sum(), (0, 0))(values(t, X)),
    "integers": lambda t: t.func.grad(lambda x: x.sum())(t.tensor([1, 2])),
    "a number": lambda t: t.func.grad(lambda x: x.sum())(3),
    "vjp output": lambda t: t.func.vjp(lambda x: 3, values(t, X)),
    "cotangent kind": lambda t: t.func.vjp(lambda x: x, values(t, X))[1](3),
    "cotangent shape": lambda t: t.func.vjp(lambda x: x, values(t, X))[1](values(t, W)),
    "cotangent structure": lambda t: t.func.vjp(lambda x: x, values(t, X))[1]((values(t, X),)),
    "primals": lambda t: t.func.jvp(lambda x: x, values(t, X), values(t, X)),
    "tangents": lambda t: t.func.jvp(lambda x: x, (values(t, X),), (values(t, X), values(t, X))),
    "tangent shape": lambda t: t.func.jvp(lambda x: x, (values(t, X),), (values(t, W),)),
    "strict": lambda t: t.func.jvp(lambda x: t.ones(2), (values(t, X),), (values(t, X),), strict=True),
    "jvp output": lambda t: t.func.jvp(lambda x: 3, (values(t, X),), (values(t, X),)),
    "jacrev chunk": lambda t: t.func.jacrev(lambda x: x, chunk_size=0),
    "jacfwd output": lambda t: t.func.jacfwd(lambda x: 3)(values(t, X)),
    "linearize shape": lambda t: t.func.linearize(lambda x: x * x, values(t, X))[1](values(t, W)),
    "linearize count": lambda t: t.func.linearize(lambda x: x * x, values(t, X))[1](*[values(t, X)] * 2),
    "functionalize": lambda t: t.func.functionalize(lambda x: x, remove="all"),
    "call unknown": lambda t: t.func.functional_call(t.nn.Linear(2, 2), {"w": t.ones(1)}, t.ones(1, 2), strict=True),
    "call kind": lambda t: t.func.functional_call(t.nn.Linear(2, 2), 3, t.ones(1, 2)),
    "call twice": lambda t: t.func.functional_call(t.nn.Linear(2, 2), [{"bias": t.ones(2)}] * 2, t.ones(1, 2)),
    "call value": lambda t: t.func.functional_call(t.nn.Linear(2, 2), {"bias": 3}, t.ones(1, 2)),
    "stack nothing": lambda t: t.func.stack_module_state([]),
    "stack classes": lambda t: t.func.stack_module_state([t.nn.ReLU(), t.nn.Tanh()]),
    "stack modes": lambda t: t.func.stack_module_state([t.nn.ReLU(), t.nn.ReLU().eval()]),
    "in_dims name": lambda t: t.func.vmap(functools.partial(lambda a, x: x, 1), 5)(values(t, X)),
    "sizes of shared": lambda t: t.func.vmap(t.Tensor.add_, (None, 0))(t.zeros(3), t.ones(5, 3)),
    "shared mul_": lambda t: t.func.vmap(t.Tensor.mul_, (None, 0))(t.zeros(3), t.ones(5, 3)),
    "shared fill_": lambda t: t.func.vmap(lambda y, x: y.fill_(x[0]), (None, 0))(t.zeros(3), t.ones(5, 3)),
    "shared addcmul_": lambda t: t.func.vmap(lambda y, x: y.addcmul_(x, x), (None, 0))(t.zeros(3), t.ones(5, 3)),
    "shared nested": lambda t: t.func.vmap(lambda x: t.func.vmap(lambda y: t.zeros(3).pow_(y))(t.ones(2, 3)) + x)(
        t.ones(5, 3)
    ),
    "shared statistics": lambda t: t.func.vmap(t.nn.BatchNorm1d(3))(t.ones(5, 4, 3)),
    "shared noise": lambda t: t.func.vmap(lambda x: t.empty(3).normal_(), randomness="different")(values(t, X)),
    "equal": lambda t: t.func.vmap(lambda x: t.equal(x, x))(values(t, X)),
    "allclose": lambda t: t.func.vmap(lambda x: t.allclose(x, x))(values(t, X)),
    "one_hot": lambda t: t.func.vmap(t.nn.functional.one_hot)(t.tensor([0, 1])),
    "masked_select": lambda t: t.func.vmap(lambda x: t.masked_select(x, x > 0))(values(t, X)),
    "unique": lambda t: t.func.vmap(t.unique)(values(t, X)),
    "unique_consecutive": lambda t: t.func.vmap(t.unique_consecutive)(values(t, X)),
    "tensor_split": lambda t: t.func.vmap(lambda x: t.tensor_split(x, x.long()))(values(t, X)),
    "escaped": escaped,
    "argnums of one position": lambda t: t.func.grad(lambda x, y: x.sum(), (0, -2))(values(t, X), values(t, X)),
    "argnum kind": lambda t: t.func.grad(lambda x: x.sum(), (0.5,))(values(t, X)),
    "vjp nothing": lambda t: t.func.vjp(lambda x: (), values(t, X)),
    "vjp None": lambda t: t.func.vjp(lambda x: None, values(t, X)),
    "cotangent list": lambda t: t.func.vjp(lambda x: (x, x), values(t, X))[1]([values(t, X)] * 2),
    "jvp nothing": lambda t: t.func.jvp(lambda: t.ones(2), (), ()),
    "jvp number": lambda t: t.func.jvp(lambda x: x, (3,), (3,)),
    "tangent number": lambda t: t.func.jvp(lambda x: x, (values(t, X),), (3,)),
    "jvp integers": lambda t: t.func.jvp(lambda x: x, (t.tensor([1]),), (t.tensor([1]),)),
    "tangent integers": lambda t: t.func.jvp(lambda x: x, (values(t, X),), (t.ones(5, 3, dtype=t.int64),)),
    "jacfwd integers": lambda t: t.func.jacfwd(lambda x: x * 2.0)(t.tensor([1])),
    "jacfwd randomness": lambda t: t.func.jacfwd(lambda x: x, randomness="other")(values(t, X)),
    "call submodule": lambda t: t.func.functional_call(net(t), {"0": t.ones(2)}, t.ones(1, 2)),
    "call no submodule": lambda t: t.func.functional_call(net(t), {"1.weight": t.ones(2)}, t.ones(1, 2)),
    "call attribute": lambda t: t.func.functional_call(net(t), {"0.in_features": t.ones(2)}, t.ones(1, 2)),
    "function out_dims": lambda t: t.func.vmap(function(t, lambda info, dims, x: (x, (0, 0))).apply)(values(t, X)),
    "old function": lambda t: t.func.vmap(function(t, None).apply)(values(t, X)),
    "pattern": lambda t: t.func.rearrange(t.ones(2, 3), "a b -> a"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_uses_raise_as_in_torch(name: str) -> None:
    if name == "pattern":
        with pytest.raises(ValueError, match="only on one side"):
            WRONG[name](tg)
    else:
        same_error(WRONG[name], whole=True)
