"""``telegrad.func`` compared with ``torch.func``: gradients, Jacobians, batches, and their nesting.

Internals: warnings that are shown once a process must appear once a test.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad_engine.transforms import vmap as vmap_transform

from .parity import bodies, same, same_error

pytestmark = [
    pytest.mark.usefixtures("session"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node"),
]


@pytest.fixture(autouse=True)
def nothing_was_said() -> None:
    """Make warnings that are shown once appear once per test."""
    vmap_transform._looping.clear()


RANDOM = np.random.default_rng(3)
X, W = RANDOM.standard_normal((5, 3)), RANDOM.standard_normal((3, 3))
IMAGES, LABELS = RANDOM.standard_normal((5, 2, 4, 4)), np.array([0, 1, 2, 0, 1])


def values(t: Any, array: Any, **options: Any) -> Any:
    return t.tensor(np.asarray(array).tolist(), dtype=t.float64, **options)


def layer(t: Any) -> Callable[[Any], Any]:
    return lambda x: t.tanh(values(t, W) @ x)


def filled(t: Any, module: Any) -> Any:
    """Convert the module to float64 and fill it with parameters that are the same in both libraries."""
    module = module.double()
    with t.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(values(t, np.random.default_rng(i).standard_normal(tuple(p.shape))))
    return module


# Gradients ---------------------------------------------------------------------------------------


class Gradients:
    """Functions that differentiate."""

    def nested_gradients(t: Any) -> Any:
        sine = t.func.grad(t.sin)
        return sine(values(t, 0.3)), t.func.grad(sine)(values(t, 0.3)), t.func.grad(t.func.grad(sine))(values(t, 0.3))

    def several_arguments(t: Any) -> Any:
        f = t.func.grad(lambda a, b, c: (a * b * c).sum(), argnums=(0, -1))
        return f(values(t, X), values(t, X), values(t, X)), t.func.grad(lambda a, b: (a * b).sum(), (1,))(
            *[values(t, X)] * 2
        )

    def trees_and_aux(t: Any) -> Any:
        def f(d: Any, scale: float = 1.0) -> Any:
            loss = (d["a"] * d["b"][0] * scale).sum()
            return loss, {"double": d["a"] * 2}

        d = {"a": values(t, X), "b": [values(t, X)]}
        return t.func.grad(f, has_aux=True)(d, scale=2.0), t.func.grad_and_value(f, has_aux=True)(d)

    def unused_arguments(t: Any) -> Any:
        return t.func.grad(lambda a, b: a.sum(), (0, 1))(values(t, X), values(t, X)), t.func.grad(
            lambda a: t.ones((), dtype=t.float64)
        )(values(t, X))

    def a_tensor_from_outside(t: Any) -> Any:
        w = values(t, W, requires_grad=True)
        g = t.func.grad(lambda x: t.tanh(w @ x).sum())(values(t, X[0]))
        (g**2).sum().backward()
        return g, w.grad

    def an_argument_that_requires_grad(t: Any) -> Any:
        x = values(t, X, requires_grad=True)
        g, value = t.func.grad_and_value(lambda x: (x**3).sum())(x)
        (g.sum() + value).backward()
        return g, value, x.grad

    def under_no_grad(t: Any) -> Any:
        x = values(t, X, requires_grad=True)
        with t.no_grad():
            return t.func.grad(lambda x: (x * x).sum())(x), t.func.grad(t.func.grad(lambda x: x**3))(values(t, 2.0))

    def maml(t: Any) -> Any:
        def inner(w: Any, x: Any, y: Any) -> Any:
            return ((x @ w - y) ** 2).mean()

        def outer(w: Any, x: Any, y: Any) -> Any:
            for _ in range(2):
                w = w - 0.1 * t.func.grad(inner)(w, x, y)
            return inner(w, x, y)

        return t.func.grad_and_value(outer)(values(t, W), values(t, X), values(t, X[:, ::-1]))

    def maml_of_many_tasks(t: Any) -> Any:
        def inner(w: Any, x: Any, y: Any) -> Any:
            return ((x @ w - y) ** 2).mean()

        def task(w: Any, x: Any, y: Any) -> Any:
            return inner(w - 0.1 * t.func.grad(inner)(w, x, y), x, y)

        tasks = values(t, RANDOM_TASKS[0]), values(t, RANDOM_TASKS[1])
        whole = lambda w: t.func.vmap(task, (None, 0, 0))(w, *tasks).mean()  # noqa: E731
        return t.func.grad_and_value(whole)(values(t, W))


RANDOM_TASKS = RANDOM.standard_normal((2, 4, 5, 3))


@pytest.mark.parametrize("run", bodies(Gradients), ids=lambda run: run.__name__)
def test_gradients(run: Callable[[Any], Any]) -> None:
    same(run)


# Products and matrices ---------------------------------------------------------------------------


class Products:
    """Functions that compute products and matrices."""

    def products(t: Any) -> Any:
        f = lambda x: (x.sin(), x.sum())  # noqa: E731
        out, pull = t.func.vjp(f, values(t, X))
        first = pull((values(t, X), values(t, 2.0)))
        again = pull((values(t, X * 2), values(t, 1.0)))
        return out, first, again, t.func.jvp(f, (values(t, X),), (values(t, X),))

    def products_with_aux(t: Any) -> Any:
        f = lambda x: (x.sin(), [x.cos()])  # noqa: E731
        out, pull, aux = t.func.vjp(f, values(t, X), has_aux=True)
        return out, pull(values(t, X)), aux, t.func.jvp(f, (values(t, X),), (values(t, X),), has_aux=True)

    def hessian_vector(t: Any) -> Any:
        cubes = lambda x: (x**3).sum()  # noqa: E731
        inner = lambda x: t.func.jvp(lambda x: x**3, (x,), (t.ones((), dtype=t.float64),))[1]  # noqa: E731
        return t.func.jvp(t.func.grad(cubes), (values(t, X),), (values(t, X),)), t.func.jvp(
            inner, (values(t, 2.0),), (values(t, 1.0),)
        )

    def linear_map(t: Any) -> Any:
        out, push = t.func.linearize(lambda x: x.sin(), values(t, X))
        return out, push(values(t, X)), push(values(t, X * 2))

    def jacobians(t: Any) -> Any:
        f = lambda a, b: {"product": a * b, "sum": a.sum()}  # noqa: E731
        args = values(t, X[0]), values(t, X[1])
        return [
            (j(layer(t))(values(t, X[0])), j(f, argnums=(0, 1))(*args), j(f)(*args), j(lambda x: (x, 2 * x))(args[0]))
            for j in (t.func.jacrev, t.func.jacfwd)
        ]

    def jacobians_in_chunks(t: Any) -> Any:
        return t.func.jacrev(layer(t), chunk_size=2)(values(t, X[0])), t.func.jacrev(
            lambda x: (x, x.sum()), has_aux=True
        )(values(t, X[0]))

    def hessians(t: Any) -> Any:
        f = lambda x: layer(t)(x).prod()  # noqa: E731
        x = values(t, X[0])
        return (
            t.func.hessian(f)(x),
            t.func.hessian(layer(t))(x),
            t.func.jacfwd(t.func.jacrev(layer(t)))(x),
            t.func.jacrev(t.func.jacfwd(layer(t)))(x),
            t.func.hessian(lambda a, b: (a * b * b).sum(), argnums=(0, 1))(x, x),
        )


@pytest.mark.parametrize("run", bodies(Products), ids=lambda run: run.__name__)
def test_products_and_matrices(run: Callable[[Any], Any]) -> None:
    same(run)


# Batches -------------------------------------------------------------------------------------------


class Batches:
    """Functions of batches."""

    def dimensions(t: Any) -> Any:
        v, x = t.func.vmap, values(t, X)
        return (
            v(lambda a, b: a @ b, (0, 1))(x, x.T),
            v(lambda a, b: a * b, (None, -1), -1)(values(t, X[:, 0]), x),
            v(lambda d, n: d["a"][0] * d["b"] * n, ({"a": 0, "b": None}, None))({"a": [x], "b": x}, 3),
            v(lambda x: {"sum": x.sum(), "same": x}, out_dims={"sum": 0, "same": 1})(x),
            v(lambda x: (x, t.ones(2)), out_dims=(1, None))(x),
            v(lambda x, *, scale: x * scale)(x, scale=values(t, X[0])),
            v(lambda x: t.ones(2))(x),
            v(lambda x: x.sum(), chunk_size=2)(x),
            v(lambda x: x * 2, out_dims=1, chunk_size=2)(x),
        )

    def nested_batches(t: Any) -> Any:
        v, x = t.func.vmap, values(t, X)
        dot = lambda a, b: (a * b).sum()  # noqa: E731
        return v(v(dot, (None, 0)), (0, None))(x, x), v(v(v(lambda a: a.exp() * 2)))(values(t, IMAGES[0]))

    def writing(t: Any) -> Any:
        def f(x: Any, i: Any) -> Any:
            y = t.zeros_like(x)
            y[1:] = x[:-1] * 2
            y[0] += 1
            y.mul_(x).sin_()
            z = y.clone()
            z[i] = 7.0
            return y, z.unsqueeze_(0), x[i], x[None, ..., ::2]

        return t.func.vmap(f)(values(t, X), t.tensor([0, 1, 2, 0, 1]))

    def per_sample_gradients(t: Any) -> Any:
        f = lambda w, x: t.tanh(w @ x).sum()  # noqa: E731
        return t.func.vmap(t.func.grad(f), (None, 0))(values(t, W), values(t, X)), t.func.vmap(
            t.func.grad_and_value(f, argnums=(0, 1)), (None, 0)
        )(values(t, W), values(t, X))

    def matrices_of_samples(t: Any) -> Any:
        f, x = layer(t), values(t, X)
        return [t.func.vmap(m(f))(x) for m in (t.func.jacrev, t.func.jacfwd)] + [
            t.func.vmap(t.func.hessian(lambda x: f(x).sum()))(x),
            t.func.vmap(t.func.vmap(t.func.grad(t.sin)))(x),
            t.func.vmap(lambda x, v: t.func.jvp(f, (x,), (v,)))(x, x),
            t.func.vmap(
                lambda x: t.func.vmap(t.func.grad(lambda w, y: (w * y * x).sum().sin()), (None, 0))(x, values(t, X))
            )(x),
            t.func.grad(lambda w: t.func.vmap(lambda x: (w @ x).sin().sum())(x).sum())(values(t, W)),
        ]

    def rows_of_a_pullback(t: Any) -> Any:
        _, pull = t.func.vjp(layer(t), values(t, X[0]))
        x = values(t, X[0], requires_grad=True)
        y = layer(t)(x)
        of = lambda v: t.autograd.grad(y, x, v, retain_graph=True)[0]  # noqa: E731
        twice = values(t, RANDOM_TASKS[0, :2, :, :])
        return (
            t.func.vmap(pull)(t.eye(3, dtype=t.float64)),
            t.func.vmap(of)(t.eye(3, dtype=t.float64)),
            t.func.vmap(t.func.vmap(of))(twice),
            t.autograd.grad(y, x, t.eye(3, dtype=t.float64), is_grads_batched=True),
        )

    def rows_differentiated_again(t: Any) -> Any:
        x = values(t, X[0], requires_grad=True)
        (rows,) = t.autograd.grad(layer(t)(x), x, t.eye(3, dtype=t.float64), create_graph=True, is_grads_batched=True)
        (again,) = t.autograd.grad(rows.square().sum(), x, create_graph=True)
        again.sum().backward()
        return rows, again, x.grad


@pytest.mark.parametrize("run", bodies(Batches), ids=lambda run: run.__name__)
def test_batches(run: Callable[[Any], Any]) -> None:
    same(run)


# Models --------------------------------------------------------------------------------------------


def model(t: Any) -> Any:
    return filled(t, t.nn.Sequential(t.nn.Linear(3, 4), t.nn.Tanh(), t.nn.Linear(4, 3)))


def convolutions(t: Any) -> Any:
    layers = [t.nn.Conv2d(2, 3, 3, padding=1), t.nn.ReLU(), t.nn.MaxPool2d(2), t.nn.Flatten(), t.nn.Linear(12, 3)]
    return filled(t, t.nn.Sequential(*layers))


def normalised(t: Any) -> Any:
    layers = [t.nn.Conv2d(2, 4, 3), t.nn.GroupNorm(2, 4), t.nn.Flatten(), t.nn.LayerNorm(16), t.nn.Linear(16, 3)]
    return filled(t, t.nn.Sequential(*layers))


@pytest.mark.parametrize(("make", "data"), [(model, X), (convolutions, IMAGES), (normalised, IMAGES)])
def test_per_sample_gradients_of_a_model(make: Any, data: Any) -> None:
    def run(t: Any) -> Any:
        m = make(t)
        parameters = {name: p.detach() for name, p in m.named_parameters()}

        def loss(parameters: Any, x: Any, y: Any) -> Any:
            logits = t.func.functional_call(m, parameters, (x.unsqueeze(0),))
            return t.nn.functional.cross_entropy(logits, y.unsqueeze(0))

        return t.func.vmap(t.func.grad(loss), (None, 0, 0))(parameters, values(t, data), t.tensor(LABELS.tolist()))

    same(run)


class Models:
    """Functions of modules."""

    def ensemble(t: Any) -> Any:
        models = [filled(t, t.nn.Sequential(t.nn.Linear(3, 2), t.nn.BatchNorm1d(2))).eval() for _ in range(3)]
        with t.no_grad():
            for i, m in enumerate(models):
                m[0].weight.mul_(i + 1)
        parameters, buffers = t.func.stack_module_state(models)
        call = lambda p, b, x: t.func.functional_call(models[0], (p, b), (x,))  # noqa: E731
        out = t.func.vmap(call, (0, 0, None))(parameters, buffers, values(t, X))
        (out**2).sum().backward()
        return out, {name: p.grad for name, p in parameters.items()}

    def tied(t: Any) -> Any:
        class Tied(t.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.a, self.b = t.nn.Linear(3, 3, bias=False), t.nn.Linear(3, 3, bias=False)
                self.b.weight = self.a.weight

            def forward(self, x: Any) -> Any:
                return self.b(self.a(x))

        m = filled(t, Tied())
        other, x = {"a.weight": values(t, W)}, values(t, X)
        return t.func.functional_call(m, other, x), t.func.functional_call(m, other, (x,), tie_weights=False), m(x)

    def a_pinn(t: Any) -> Any:
        m = filled(t, t.nn.Sequential(t.nn.Linear(2, 8), t.nn.Tanh(), t.nn.Linear(8, 1)))
        optimizer = t.optim.Adam(m.parameters(), 1e-2)
        u = lambda parameters, x: t.func.functional_call(m, parameters, (x,)).squeeze()  # noqa: E731
        losses = []
        for _ in range(3):
            parameters, points = dict(m.named_parameters()), values(t, X[:, :2])
            second = t.func.vmap(t.func.hessian(u, argnums=1), (None, 0))(parameters, points)
            first = t.func.vmap(t.func.grad(u, argnums=1), (None, 0))(parameters, points)
            loss = ((second[:, 0, 0] + second[:, 1, 1] + first.sum(1)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, [p.detach() for p in m.parameters()]


@pytest.mark.parametrize("run", bodies(Models), ids=lambda run: run.__name__)
def test_models(run: Callable[[Any], Any]) -> None:
    same(run)


# Random numbers ------------------------------------------------------------------------------------


def test_random_ops_in_a_batch() -> None:
    x = tg.ones(4, 100)
    same_noise = tg.vmap(lambda x: x + tg.randn(100), randomness="same")(x).numpy()
    assert (same_noise == same_noise[0]).all()
    different = tg.vmap(lambda x: x + tg.randn(100), randomness="different")(x).numpy()
    assert (different[0] != different[1]).any()
    for mode in ("same", "different"):
        dropped = tg.vmap(lambda x: tg.nn.functional.dropout(x, 0.5), randomness=mode)(x).numpy()
        assert set(np.unique(dropped)) == {0.0, 2.0}
        assert (dropped == dropped[0]).all() == (mode == "same")
    orders = tg.vmap(lambda x: tg.randperm(100), randomness="different")(x).numpy()
    assert (np.sort(orders) == np.arange(100)).all()


# The rest ------------------------------------------------------------------------------------------


def test_noise_in_place_is_the_same_for_all_samples() -> None:
    found = tg.vmap(lambda x: x.clone().uniform_(), randomness="same")(tg.ones(4, 3)).numpy()
    assert (found == found[0]).all()
    assert len(set(found[0])) == 3


def test_a_call_may_bring_attributes_and_leave_out_a_bias() -> None:
    def run(t: Any) -> Any:
        module = t.nn.Linear(2, 2)
        with t.no_grad():
            module.weight.fill_(0.5)
        found = t.func.functional_call(module, {"bias": None, "extra": t.ones(2)}, t.ones(1, 2)).detach()
        return found, hasattr(module, "extra"), module.bias is None

    same(run)


def test_every_public_name_is_there() -> None:
    assert set(torch.func.__all__) <= set(tg.func.__all__)
    assert tg.vmap is tg.func.vmap


def test_an_op_without_a_rule_says_once_that_it_loops() -> None:
    x = tg.tensor(X.tolist())
    with pytest.warns(UserWarning, match="no batching rule for histc"):
        first = tg.vmap(lambda x: x.histc(3))(x)
    again = tg.vmap(lambda x: x.histc(3))(x)
    np.testing.assert_array_equal(first.numpy(), np.stack([np.histogram(row, 3)[0] for row in X]))
    np.testing.assert_array_equal(again.numpy(), first.numpy())


LOGITS, WORDS = RANDOM.standard_normal((3, 4, 2, 3)), np.array([[0, 1, 2], [1, 1, 0], [3, 2, 1]])


def aligned(t: Any, logits: Any) -> Any:
    log_probs, lengths = logits.log_softmax(-1), (t.tensor([4, 3]), t.tensor([2, 1]))
    return t.nn.functional.ctc_loss(log_probs, t.tensor([[1, 2], [2, 0]]), *lengths, reduction="none")


def bags(t: Any, words: Any) -> Any:
    table = values(t, np.arange(8.0).reshape(4, 2))
    return tuple(
        [t.nn.functional.embedding_bag(words, table, t.tensor([0, 2]), mode=m) for m in ("sum", "mean", "max")]
    )


@pytest.mark.parametrize(
    "run",
    [
        lambda t: t.vmap(lambda x: tuple(t.frexp(x)))(values(t, X)),
        lambda t: t.vmap(lambda x: x[x.argmax()] + values(t, W)[x.argmin(), 1:])(values(t, X)),
        lambda t: t.vmap(lambda x: x.as_strided((2, 2), (1, 1)))(values(t, X)),
        lambda t: t.vmap(lambda x: t.masked_scatter(x, x > 0, x * 10))(values(t, X)),
        lambda t: t.vmap(lambda x: t.masked_scatter(x[:, None], x > 0, values(t, W)))(values(t, X)),
        lambda t: t.vmap(lambda x: t.masked_select(x, t.tensor([True, False, True])))(values(t, X)),
        lambda t: t.vmap(lambda x: x.put(t.tensor([[0, -1]]), x[:2]))(values(t, X)),
        lambda t: t.vmap(lambda x: x.put(t.stack([x.argmax(), x.argmax()]), x[:2], accumulate=True))(values(t, X)),
        lambda t: t.vmap(lambda words: bags(t, words))(t.tensor(WORDS)),
        lambda t: t.vmap(lambda words: t.nn.functional.embedding_bag(words, t.eye(4)))(t.tensor(WORDS)[:, None]),
        lambda t: t.vmap(lambda logits: aligned(t, logits))(values(t, LOGITS)),
        lambda t: t.vmap(t.func.grad(lambda logits: aligned(t, logits).sum()))(values(t, LOGITS)),
        lambda t: tuple(t.vmap(lambda x: tuple(t.linalg.lstsq(x[:2], x[2:])))(values(t, LOGITS[:, :, 0]))),
    ],
)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_ops_that_look_at_places_and_sequences_are_batched_at_once(run: Callable[[Any], Any]) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "vmap has no batching rule")
        same(run)


def test_a_strided_part_of_each_sample_is_written() -> None:
    x = tg.tensor(X.tolist())
    written = tg.vmap(lambda x: tg.as_strided_scatter(x, x[:2] * 3, (2,), (1,)))(x)
    np.testing.assert_allclose(written.numpy(), np.concatenate([X[:, :2] * 3, X[:, 2:]], 1), rtol=1e-6)


def test_recurrent_layers_with_weights_of_their_own() -> None:
    layer = tg.nn.GRU(2, 3).double()
    weights = {name: tg.stack([p.detach() * k for k in range(1, 4)]) for name, p in layer.named_parameters()}
    x = tg.randn(3, 5, 1, 2, dtype=tg.float64)

    def run(weights: Any, x: Any) -> Any:
        return tg.func.functional_call(layer, weights, (x,))[0]

    with pytest.warns(UserWarning, match="no batching rule for gru"):
        found = tg.vmap(run)(weights, x)
    for i in range(3):
        one = run({name: w[i] for name, w in weights.items()}, x[i])
        np.testing.assert_allclose(found[i].numpy(), one.numpy(), rtol=1e-12)


def test_a_batch_is_recorded_once_for_all_samples() -> None:
    session = tg.current()
    x = tg.randn(1000, 3)
    session.flush()
    before = session.recorder.waiting
    y = tg.vmap(lambda x: (x.sin() * 2).sum())(x)
    assert session.recorder.waiting - before < 20
    assert y.shape == (1000,)


def test_rearrange_names_dimensions() -> None:
    same(lambda t: t.func.rearrange(values(t, IMAGES), "n c (a h) w -> n (c a) w h", a=2))


def test_what_is_inside_a_batch_can_be_looked_at() -> None:
    seen = []

    def look(x: Any) -> Any:
        seen.append((tg.func.debug_unwrap(x), repr(x)))
        return x

    tg.vmap(look)(tg.tensor([[1.0], [2.0]]))
    assert tuple(seen[0][0].shape) == (2, 1)
    assert seen[0][1].startswith("BatchedTensor(lvl=1, bdim=0, value=\n    tensor([[1.],")


# Functions, checkpoints, compiled functions -----------------------------------------------------------


def functions(t: Any) -> Any:
    class Twice(t.autograd.Function):
        @staticmethod
        def forward(x: Any, y: Any) -> Any:
            return x * 2, x * y

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            x, y = ctx.saved_tensors
            return a * 2 + b * y, b * x

    class Batched(Twice):
        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, y: Any) -> Any:
            assert (info.batch_size, info.randomness, in_dims) == (5, "error", (0, None))
            a, b = Batched.apply(x, y.expand_as(x))
            return (a, b.T), (0, 1)

    return Twice, Batched


def a_function_that_says_how(t: Any) -> Any:
    _, own = functions(t)
    y = values(t, X[0])
    total = lambda x: sum(part.sum() for part in own.apply(x, y))  # noqa: E731
    return t.func.vmap(own.apply, (0, None))(values(t, X), y), t.func.vmap(t.func.grad(total))(values(t, X))


def test_a_function_may_say_how_it_is_batched() -> None:
    same(a_function_that_says_how)


def test_a_function_that_does_not_say_is_refused_or_loops() -> None:
    same_error(lambda t: t.func.vmap(functions(t)[0].apply)(values(t, X), values(t, X)))

    class Both(functions(tg)[1]):
        generate_vmap_rule = True

    with pytest.raises(RuntimeError, match="it has both generate_vmap_rule=True and"):
        tg.vmap(Both.apply)(values(tg, X), values(tg, X))

    class Generated(functions(tg)[0]):
        generate_vmap_rule = True

    x = values(tg, X)
    with pytest.warns(UserWarning, match="no batching rule for Generated"):
        _, product = tg.vmap(Generated.apply)(x, x)
    np.testing.assert_allclose(product.numpy(), X * X)
    gradient = tg.vmap(tg.func.grad(lambda x: Generated.apply(x, x)[1].sum()))(x)
    np.testing.assert_allclose(gradient.numpy(), 2 * X)


def test_checkpoints_and_compiled_functions_are_batched_too() -> None:
    x = values(tg, X)
    checkpointed = lambda x: tg.utils.checkpoint.checkpoint(lambda y: y.sin().exp(), x, use_reentrant=False)  # noqa: E731
    np.testing.assert_allclose(tg.vmap(checkpointed)(x).numpy(), np.exp(np.sin(X)))
    gradient = tg.vmap(tg.func.grad(lambda x: checkpointed(x).sum()))(x)
    np.testing.assert_allclose(gradient.numpy(), np.exp(np.sin(X)) * np.cos(X))
    np.testing.assert_allclose(tg.vmap(tg.compile(lambda x: x.sin()))(x).numpy(), np.sin(X))
    whole = tg.compile(lambda x: tg.vmap(lambda y: y.sin() * y.sum())(x))
    for _ in range(3):
        np.testing.assert_allclose(whole(x).numpy(), np.sin(X) * X.sum(1, keepdims=True))


def test_a_registered_function_runs_for_each_sample() -> None:
    tg.register_function("halved_and_squared", lambda x: (x / 2) ** 2)
    with pytest.warns(UserWarning, match="no batching rule for halved_and_squared"):
        found = tg.vmap(lambda x: tg.ops.halved_and_squared(x))(values(tg, X))
    np.testing.assert_allclose(found.numpy(), X**2 / 4)
    tg.remove_function("halved_and_squared")


RECURRENT: list[Callable[[], Any]] = [
    lambda: tg.nn.LSTM(3, 4),
    lambda: tg.nn.GRU(3, 4, batch_first=True),
    lambda: tg.nn.TransformerEncoderLayer(3, 1, 8, batch_first=True),
    lambda: tg.nn.BatchNorm1d(4),
    lambda: tg.nn.Conv1d(4, 2, 2),
    lambda: tg.nn.AdaptiveMaxPool1d(2),
]


@pytest.mark.parametrize("make", RECURRENT)
def test_modules_are_batched(make: Callable[[], Any]) -> None:
    module = make().double().eval()
    x = values(tg, RANDOM_TASKS[:, :, :4])
    first = lambda out: out[0] if isinstance(out, tuple) else out  # noqa: E731
    actual = tg.vmap(lambda x: first(module(x)))(x)
    expected = tg.stack([first(module(sample)) for sample in x])
    np.testing.assert_allclose(actual.detach().numpy(), expected.detach().numpy(), 1e-6, 1e-9)
