"""Remembered programs run as one executable: with torch's numbers, or eagerly, and then it is said why."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad_engine.errors import TelegradError
from telegrad_engine.program import Instruction
from telegrad_engine.program.canonical import Texts, canonical, known
from telegrad_engine.program.remembered import Memory
from telegrad_engine.session import Answer, Session

pytest.importorskip("jax")
compiled = pytest.importorskip("telegrad_engine.program.compiled")
trial = pytest.importorskip("telegrad_engine.program.compiled.trial")

STEPS = 14


class Remembering(Session):
    """A session that is sent every program by its digest, as a server's is by a loop."""

    def __init__(self, compiler: Any, **options: Any) -> None:
        super().__init__(memory=Memory(), compiler=compiler, **options)
        self._texts = Texts()

    def run(self, program: Sequence[Instruction]) -> Answer:
        _, ids, arrays = canonical(program, self._texts)
        found = known(program, ids)
        try:
            return super().run(self.memory.read(found.text, found.digest, 64).with_ids(ids, arrays))
        finally:
            if self.compiler is not None:
                self.compiler.settle()

    @property
    def reports(self) -> list[Any]:
        """How its programs ran."""
        return self.compiler.reports(self)  # type: ignore[union-attr, no-any-return]


def connect(compiler: Any, **options: Any) -> Remembering:
    """Have the SDK work in such a session."""
    session = Remembering(compiler, **options)
    tg.connect("local://").recorder.transport.session = session  # type: ignore[attr-defined]
    return session


@pytest.fixture
def session() -> Iterator[Remembering]:
    """A session whose programs are compiled after their second run, and stay so even where that is slower."""
    yield connect(compiled.Compiler(after=2, choose=False))
    tg.sessions.current().close()


def last(session: Remembering) -> Any:
    """How the program ran that came last."""
    return session.reports[-1]


def runs_compiled(session: Remembering, least: int = 1) -> bool:
    """Whether the program that ran most often did so compiled, to the end."""
    report = max(session.reports, key=lambda r: r.runs)
    assert report.reason is None, report.reason
    return bool(report.compiled_runs >= least)


def numbers(lib: Any, shape: tuple[int, ...], seed: int, dtype: str = "float32") -> Any:
    return lib.tensor((np.random.default_rng(seed).standard_normal(shape) * 0.4).astype(dtype))


# Training loops ---------------------------------------------------------------------------------------


def fill(lib: Any, parameters: Any) -> list[Any]:
    """The same starting values in both libraries."""
    kept = list(parameters)
    with lib.no_grad():
        for seed, parameter in enumerate(kept):
            parameter.copy_(numbers(lib, tuple(parameter.shape), seed))
    return kept


def mlp(lib: Any) -> tuple[list[Any], Callable[[int], Any]]:
    net = lib.nn.Sequential(lib.nn.Linear(6, 8), lib.nn.ReLU(), lib.nn.Linear(8, 3))

    def loss(step: int) -> Any:
        classes = lib.tensor(np.random.default_rng(step).integers(0, 3, 5))
        return lib.nn.functional.cross_entropy(net(numbers(lib, (5, 6), 100 + step)), classes)

    return fill(lib, net.parameters()), loss


def lstm(lib: Any) -> tuple[list[Any], Callable[[int], Any]]:
    weights = [numbers(lib, shape, seed).requires_grad_() for seed, shape in enumerate([(3, 16), (4, 16), (16,)])]
    w, u, b = weights

    def loss(step: int) -> Any:
        xs = numbers(lib, (5, 2, 3), 100 + step)
        h = c = lib.zeros(2, 4)
        for t in range(5):
            i, f, g, o = (xs[t] @ w + h @ u + b).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h.square().mean()

    return weights, loss


def conv(lib: Any) -> tuple[list[Any], Callable[[int], Any]]:
    F = lib.nn.functional
    first, second = lib.nn.Conv2d(1, 4, 3, padding=1), lib.nn.Linear(36, 3)

    def loss(step: int) -> Any:
        x = F.max_pool2d(F.relu(first(numbers(lib, (2, 1, 6, 6), 100 + step))), 2)
        x = second(x.flatten(1))
        return F.mse_loss(x, numbers(lib, (2, 3), 200 + step))

    return fill(lib, [*first.parameters(), *second.parameters()]), loss


def embedded(lib: Any) -> tuple[list[Any], Callable[[int], Any]]:
    table, out = lib.nn.Embedding(7, 4), lib.nn.Linear(4, 7)

    def loss(step: int) -> Any:
        words = lib.tensor(np.random.default_rng(step).integers(0, 7, (3, 5)))
        logits = out(lib.nn.functional.layer_norm(table(words), (4,)))
        return -logits.log_softmax(-1).gather(-1, words.unsqueeze(-1)).mean()

    return fill(lib, [*table.parameters(), *out.parameters()]), loss


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("Adam", {}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {}),
    ("Adamax", {}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("RMSprop", {"momentum": 0.5, "centered": True}),
    ("Adagrad", {"lr_decay": 0.1}),
    ("Adadelta", {}),
]


def train(lib: Any, model: Any, name: str, options: dict[str, Any], steps: int = STEPS) -> list[np.ndarray]:
    """Losses, and then the parameters and their gradients."""
    parameters, loss_of = model(lib)
    optimizer = getattr(lib.optim, name)(parameters, lr=0.02, **options)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [np.array(losses), *[array(t) for p in parameters for t in (p, p.grad)]]


def array(tensor: Any) -> np.ndarray:
    """The values of either's tensor."""
    return np.array(tensor.detach().tolist())


def assert_same(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-4, atol=3e-5)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=lambda value: str(value))
def test_a_training_loop_is_torch_s(session: Remembering, name: str, options: dict[str, Any]) -> None:
    assert_same(train(tg, mlp, name, options), train(torch, mlp, name, options))
    assert runs_compiled(session, 5)


@pytest.mark.parametrize("model", [lstm, conv, embedded])
def test_so_is_that_of_other_nets(session: Remembering, model: Any) -> None:
    ours = train(tg, model, "SGD", {"momentum": 0.9})
    assert_same(ours, train(torch, model, "SGD", {"momentum": 0.9}))
    assert runs_compiled(session, 5)
    connect(None)
    for a, b in zip(ours, train(tg, model, "SGD", {"momentum": 0.9}), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_by_hand_with_views_in_place_and_gradients_that_add_up(session: Remembering) -> None:
    def run(lib: Any) -> list[Any]:
        w, velocity = numbers(lib, (4, 3), 0).requires_grad_(), lib.zeros(4, 3)
        rows = w.detach()
        seen = []
        for step in range(STEPS):
            x = numbers(lib, (5, 4), step)
            y = x @ w
            y[1:3] *= 2.0
            y.t().add_(x.sum(1))
            ((y - 1.0).square().mean() + w.norm()).backward()
            with lib.no_grad():
                velocity.mul_(0.5).add_(w.grad)
                w -= 0.1 * velocity
                w[0].clamp_(-0.5, 0.5)
                if step % 2 == 1 or step > 3:
                    w.grad.zero_()
            seen += [y.detach().sum().item(), rows.sum().item()]
        return [*seen, *w.tolist()]

    np.testing.assert_allclose(np.hstack(run(tg)), np.hstack(run(torch)), rtol=1e-4, atol=1e-5)
    assert any(r.compiled_runs for r in session.reports), session.reports


def test_how_gradients_lie_in_memory_makes_no_other_program(session: Remembering) -> None:
    w = numbers(tg, (4, 6), 0).requires_grad_()
    optimizer = tg.optim.SGD([w], lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        (numbers(tg, (5, 6), step) @ w.t()).square().mean().backward()
        optimizer.step()
        w.detach().sum().item()
    report = max(session.reports, key=lambda r: r.runs)
    assert report.compiled_runs >= report.runs - 3


def test_float64_stays_so(session: Remembering) -> None:
    def run(lib: Any) -> list[float]:
        w = numbers(lib, (4, 4), 1, "float64").requires_grad_()
        optimizer = lib.optim.Adam([w], lr=0.1)
        seen = []
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = (numbers(lib, (4, 4), step, "float64") @ w).exp().mean()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        return seen

    np.testing.assert_allclose(run(tg), run(torch), rtol=1e-12)
    assert runs_compiled(session)


def test_rates_and_shapes_that_change_are_other_programs(session: Remembering) -> None:
    def run(lib: Any) -> list[float]:
        parameters, _ = mlp(lib)
        w = parameters[0]
        optimizer = lib.optim.SGD([w], lr=0.5)
        schedule = lib.optim.lr_scheduler.StepLR(optimizer, 10, 0.1)
        seen = []
        for step in range(30):
            optimizer.zero_grad()
            x = numbers(lib, (6, 3 if step % 10 == 7 else 2), step)
            loss = (w @ x - 1).square().mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            seen.append(loss.item())
        return seen

    np.testing.assert_allclose(run(tg), run(torch), rtol=1e-4)
    assert len([r for r in session.reports if r.compiled_runs >= 3 and r.reason is None]) >= 3  # one for each rate


# What is left -----------------------------------------------------------------------------------------


def rounds(lib: Any, w: Any, count: int = STEPS) -> Iterator[tuple[Any, Any, Any]]:
    """Steps that leave a loss, what it was computed from, and a view of that."""
    for step in range(count):
        w.grad = None
        x = numbers(lib, (3, 4), step)
        hidden = (x @ w).tanh()
        row = hidden[1]
        loss = (hidden * 2).sum()
        loss.backward()
        with lib.no_grad():
            w -= 0.1 * w.grad
        loss.item()
        yield loss, hidden, row


def test_tensors_that_are_left_are_what_they_would_be(session: Remembering) -> None:
    w = numbers(tg, (4, 2), 0).requires_grad_()
    twin = numbers(torch, (4, 2), 0).requires_grad_()
    for (loss, hidden, row), (their_loss, their_hidden, their_row) in zip(
        rounds(tg, w), rounds(torch, twin), strict=True
    ):
        names = [session.tensors[t._id] for t in (loss, hidden, row)]
        for ours, theirs in zip(names, (their_loss, their_hidden, their_row), strict=True):
            assert ours.is_leaf == theirs.is_leaf and ours.requires_grad == theirs.requires_grad
            assert ours.grad_fn.name() == theirs.grad_fn.name()
            assert ours._version == theirs._version and ours.grad is None
            np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5)
        assert [f.name() for f, _ in names[0].grad_fn.next_functions] == ["MulBackward0"]
        assert names[2]._base is names[1] or names[2]._base is None or names[2]._base._data is names[1]._data
        assert session.tensors[w._id]._version == twin._version
    assert runs_compiled(session)
    with pytest.raises(RuntimeError, match="second time"):
        session.tensors[loss._id].backward()
    with tg.no_grad():
        hidden.zero_()
    assert row.tolist() == [0.0, 0.0]  # a view of it still
    assert w.grad.zero_().sum().item() == 0.0
    assert session.tensors[w._id].grad.tolist() == np.zeros((4, 2)).tolist()


def test_memory_is_counted_as_ever(session: Remembering) -> None:
    def used(here: Remembering) -> list[tuple[int, int]]:
        w = numbers(tg, (4, 2), 0).requires_grad_()
        return [(here.used_bytes, len(here.tensors)) for _ in rounds(tg, w)]

    compiled_too = used(session)
    assert runs_compiled(session)
    assert compiled_too == used(connect(None))


def test_a_session_that_is_nearly_full_says_so(session: Remembering) -> None:
    x = numbers(tg, (8, 8), 0)
    for _ in range(6):
        (((x + 1) * 2).exp() @ x).sum().item()
    assert runs_compiled(session)
    session.max_bytes = session.used_bytes + 300
    with pytest.raises(TelegradError, match=r"too many|more than"):
        (((x + 1) * 2).exp() @ x).sum().item()


# Errors -----------------------------------------------------------------------------------------------


def test_a_label_out_of_range_is_the_error_that_it_is_eagerly(session: Remembering) -> None:
    parameters, _ = mlp(tg)
    w = parameters[0]

    def step(label: int) -> float:
        w.grad = None
        loss = tg.nn.functional.cross_entropy(numbers(tg, (2, 6), 1) @ w.t(), tg.tensor([label, 1]))
        loss.backward()
        with tg.no_grad():
            w.sub_(w.grad, alpha=0.1)
        return float(loss.item())

    for label in (0, 2, 1, 7, 3, 5):
        step(label)
    assert runs_compiled(session)
    before = session.tensors[w._id].tolist()
    with pytest.raises(IndexError, match="Target 8 is out of bounds"):
        step(8)
    assert session.tensors[w._id].tolist() == before
    assert max(session.reports, key=lambda r: r.runs).reason.startswith("the values")
    for label in (4, 5, 6):
        step(label)
    assert runs_compiled(session)


def test_a_name_that_exists_or_does_not_is_the_error_that_it_is_eagerly() -> None:
    here = Remembering(compiled.Compiler(after=2, choose=False))

    def program(x: str, y: str) -> list[Instruction]:
        return [
            Instruction("neg", (x,), (y,)),
            Instruction("exp", (y,), ("z",)),
            Instruction("fetch", (("z",),)),
            Instruction("free", (("z",),)),
            Instruction("free", ((y,),)),
        ]

    here.tensors["x"] = tg_engine_tensor([1.0, 2.0])
    for _ in range(5):
        here.run(program("x", "y"))
    assert last(here).reason is None
    with pytest.raises(TelegradError, match="no tensor 'gone'"):
        here.run(program("gone", "y"))
    here.tensors["there"] = tg_engine_tensor([1.0])
    with pytest.raises(TelegradError, match="there is a tensor 'there' already"):
        here.run(program("x", "there"))
    assert set(here.tensors) == {"x", "there"}


def tg_engine_tensor(values: list[float]) -> Any:
    import telegrad_engine

    return telegrad_engine.Tensor(np.float32(values))


def test_a_nan_in_pooling_is_as_torch_has_it(session: Remembering) -> None:
    def run(lib: Any) -> list[Any]:
        seen = []
        for step in range(7):
            x = numbers(lib, (1, 1, 4, 4), step)
            values = array(x).astype(np.float32)
            values[0, 0, 0, 1] = np.nan if step == 5 else 0.0
            x = lib.tensor(values, requires_grad=True)
            y = lib.nn.functional.max_pool2d(x * 1.5, 2)
            y.sum().backward()
            seen += [y.detach().sum().item(), *x.grad.flatten().tolist()]
        return seen

    np.testing.assert_allclose(run(tg), run(torch), rtol=1e-5)


# Why not ----------------------------------------------------------------------------------------------


def dropout(w: Any, step: int) -> Any:
    return tg.nn.functional.dropout(w * 2, 0.5).sum().exp()


def counted(w: Any, step: int) -> Any:
    return (w.detach() @ w.detach().t() + tg.eye(3)).inverse().sum().exp()


def kept_graph(w: Any, step: int) -> Any:
    return ((w * w).exp() + 1).sum()


def viewed(w: Any, step: int) -> Any:
    return ((VIEWS[0] * 2).exp() + 1).detach().sum()


def short(w: Any, step: int) -> Any:
    return w.detach()


VIEWS: list[Any] = []


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (dropout, "draws random numbers"),
        (counted, "depends on values"),
        (kept_graph, "leaves a graph to differentiate later"),
        (viewed, "is a view"),
        (short, "fewer than"),
    ],
)
def test_what_runs_eagerly_is_told_with_the_reason(session: Remembering, make: Any, reason: str) -> None:
    w = numbers(tg, (3, 4), 0).requires_grad_()
    VIEWS[:] = [w.detach()[1:]]
    kept = []
    for step in range(6):
        kept.append(make(w, step))
        kept[-1].sum().item() if make is not short else kept[-1].tolist()
    report = max(session.reports, key=lambda r: r.runs)
    assert report.runs >= 4 and report.compiled_runs == 0
    assert reason in report.reason


def test_hooks_that_come_later_are_called(session: Remembering) -> None:
    w = numbers(tg, (3, 2), 0).requires_grad_()
    seen: list[Any] = []

    def step() -> Any:
        w.grad = None
        loss = (w * w).tanh().sum() * 2
        loss.backward()
        return [loss.item(), *w.grad.flatten().tolist()]

    plain = [step() for _ in range(6)]
    assert any(r.compiled_runs for r in session.reports)
    handle = w.register_hook(lambda grad: seen.append(grad.tolist()) or grad * 2)
    hooked = step()
    assert len(seen) == 1
    np.testing.assert_allclose(hooked[1:], 2 * np.array(plain[-1][1:]), rtol=1e-6)
    handle.remove()
    np.testing.assert_allclose(step(), plain[-1], rtol=1e-6)


def test_a_profile_sees_every_op(session: Remembering) -> None:
    w = numbers(tg, (3, 2), 0)

    def step() -> float:
        return float(((w * 2).exp() + 1).sum().item())

    plain = [step() for _ in range(6)]
    assert runs_compiled(session)
    from telegrad_engine.profiler import profile

    session.profile = profile()
    assert step() == pytest.approx(plain[-1])
    assert "watches" in max(session.reports, key=lambda r: r.runs).reason
    assert {e.key for e in session.profile.key_averages()} >= {"aten::exp", "aten::mul"}
    session.profile = None
    step()
    assert runs_compiled(session)


def test_another_result_than_eagerly_is_refused(session: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trial.TOLERANCE, "float32", 0.0)
    x = numbers(tg, (40, 40), 0)
    for _ in range(6):
        ((x @ x).softmax(-1).exp().log() * x).sum().item()
    report = last(session)
    assert report.compiled_runs == 0 and "came to something else" in report.reason


# Bounds and threads -----------------------------------------------------------------------------------


def test_the_least_recently_used_is_forgotten() -> None:
    here = connect(compiled.Compiler(after=2, most=2, choose=False))
    x = numbers(tg, (3,), 0)
    programs = [lambda: ((x * 2).exp() + 1).sum(), lambda: ((x * 3).sin() - 1).sum(), lambda: ((x / 3).cos() - 1).sum()]
    for program in programs * 8:
        program().item()  # three take turns where two are kept: none gets far enough
    assert {r.compiled_runs for r in here.reports} == {0}
    for program in programs:
        for _ in range(6):
            expected = program().item()
        assert last(here).compiled_runs >= 2
        assert program().item() == pytest.approx(expected)


def test_sessions_share_what_is_compiled_and_nothing_else() -> None:
    compiler = compiled.Compiler(after=2, choose=False)
    losses: dict[int, list[float]] = {}

    def work(number: int) -> None:
        here = Remembering(compiler)
        here.tensors["w"] = tg_engine_tensor([1.0 + number, 2.0]).requires_grad_()
        for _ in range(30):
            answer = here.run(
                [
                    Instruction("mul", ("w", "w"), ("y",)),
                    Instruction("sum", ("y",), ("s",)),
                    Instruction("backward", (("s",),)),
                    Instruction("optim_step", (("w",), ()), (), {"algorithm": "sgd", "settings": {"lr": 0.1}}),
                    Instruction("zero_grad", (("w",),)),
                    Instruction("fetch", (("s",),)),
                    Instruction("free", (("s", "y"),)),
                ]
            )
            losses.setdefault(number, []).append(float(answer.values["s"].array))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, seen in losses.items():
        expected = [((1.0 + number) ** 2 + 4.0) * 0.64**step for step in range(30)]
        np.testing.assert_allclose(seen, expected, rtol=1e-4)


def test_the_quicker_way_is_chosen() -> None:
    here = connect(compiled.Compiler(after=2))
    x = numbers(tg, (8,), 0).requires_grad_()
    for _ in range(40):
        x.grad = None
        y = x
        for _ in range(40):
            y = (y * 1.01).sin()
        y.sum().backward()
        y.sum().item()
    report = max(here.reports, key=lambda r: r.runs)
    assert report.reason is None or "quicker one instruction at a time" in report.reason
