"""Sessions on GPUs: which one, on which stream, when the host waits, and what happens if memory is full.

A stand-in for CuPy (tests/fake_gpu) has two GPUs with NumPy's numbers. That a real one computes the same is for
``make test-gpu`` to say.

Internals: what bounds pinned memory is no setting; a backend's function is put out of order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad_engine.arrays import available, resolve
from telegrad_engine.arrays.cupy import MAX_PINNED_BYTES
from telegrad_engine.errors import IndexOutOfRange, InvalidOperation, TooLarge
from telegrad_engine.program import Instruction
from telegrad_engine.session.session import Session

from .. import fake_gpu

pytestmark = pytest.mark.full

MIB = 2**20


@pytest.fixture
def gpus() -> Iterator[Any]:
    """``cupy.cuda``, with what was recorded."""
    with fake_gpu.installed() as cuda:
        yield cuda


@pytest.fixture
def connected(gpus: Any) -> Iterator[Any]:
    session = tg.connect("local://", device="cuda:1", seed=0)
    tg.ones(1).sum().item()  # the constants that sessions share
    gpus.reset()
    yield session
    session.close()


def run(session: Session, *instructions: tuple[Any, ...]) -> dict[str, Any]:
    answer = session.run([Instruction(*i) for i in instructions])
    return {name: value.array for name, value in answer.values.items()}


def upload(name: str, values: Any, **attrs: Any) -> tuple[Any, ...]:
    return ("tensor", [], [name], {"data": np.asarray(values, np.float32), **attrs})


# Which GPU -------------------------------------------------------------------------------------------


def test_the_gpus_are_listed(gpus: Any) -> None:
    Session(device="cuda:1")
    found = {info.name: (info.library, info.is_gpu, info.description, info.total_bytes) for info in available()}
    assert found["cpu"] == ("numpy", False, "", 0)
    assert found["cuda:0"] == found["cuda:1"] == ("cupy", True, "Fake GPU", gpus.CAPACITY)


@pytest.mark.parametrize(("wanted", "full"), [("cuda", "cuda:0"), ("cuda:0", "cuda:0"), ("cuda:1", "cuda:1")])
def test_a_gpu_has_an_index(wanted: str, full: str, gpus: Any) -> None:
    with tg.connect("local://", device=wanted):
        x = tg.ones(2)
        assert (str(x.device), x.is_cuda, x.get_device(), (x * 2).tolist()) == (full, True, int(full[-1]), [2.0, 2.0])
        assert x.to("cuda") is x.cuda() is x.to("gpu") is x.to(full) is x.to("cpu") is x
        assert tg.zeros(1, device="cuda").device == tg.device(full)


def test_any_gpu_is_the_emptiest(gpus: Any) -> None:
    session = Session(device="gpu")
    assert session.device == "cuda:0"
    run(session, upload("x", np.zeros(MIB)))
    assert Session(device="gpu").device == resolve("gpu") == "cuda:1"
    assert [info.used_bytes >= 4 * MIB for info in available() if info.is_gpu] == [True, False]


@pytest.mark.parametrize("name", ["cuda:2", "gpu:1"])
def test_a_gpu_that_is_not_there(name: str, gpus: Any) -> None:
    with pytest.raises(RuntimeError, match=rf"CUDA error: invalid device ordinal.*'{name}'.*cpu.*cuda:0, cuda:1$"):
        tg.connect("local://", device=name)


def test_an_index_that_is_no_number(gpus: Any) -> None:
    with pytest.raises(RuntimeError, match="Invalid device string: 'cuda:x'"):
        tg.connect("local://", device="cuda:x")


def test_no_gpu_at_all(gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "GPUS", 0)
    for name in ("cuda", "gpu"):
        with pytest.raises(RuntimeError, match=f"no device '{name}' here; available: cpu"):
            tg.connect("local://", device=name)


def test_another_gpu_is_not_this_one(connected: Any) -> None:
    for wrong in (
        lambda: tg.ones(1).to("cuda:0"),
        lambda: tg.ones(1).cuda(0),
        lambda: tg.ones(1, device="cuda:0"),
        lambda: tg.nn.Linear(1, 1).to("cuda:0"),
    ):
        with pytest.raises(RuntimeError, match="device 'cuda:0' is not available; available: cuda:1"):
            wrong()
    with pytest.raises(RuntimeError, match=r"invalid device ordinal.*device='cuda:0'"):
        tg.cuda.set_device(0)


def test_gpus_do_not_mix(gpus: Any) -> None:
    here, there = Session(device="cuda:0"), Session(device="cuda:1")
    for session in (here, there):
        run(session, upload("x", [1.0]))
    there.tensors["y"] = here.tensors["x"]
    with pytest.raises(InvalidOperation, match="at least two devices, cuda:1 and cuda:0!"):
        run(there, ("add", ["x", "y"], ["z"]))


def test_what_scripts_ask(connected: Any) -> None:
    tg.cuda.set_device(1)
    assert (tg.cuda.is_available(), tg.cuda.device_count(), tg.cuda.current_device()) == (True, 2, 1)
    assert tg.cuda.get_device_name() == tg.cuda.get_device_name(0) == "Fake GPU"
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        tg.cuda.get_device_name(2)


# Waiting ---------------------------------------------------------------------------------------------


def mlp() -> tuple[Any, Callable[[], Any]]:
    net = tg.nn.Sequential(tg.nn.Linear(8, 16), tg.nn.LayerNorm(16), tg.nn.GELU(), tg.nn.Linear(16, 1))
    x, y = tg.randn(4, 8), tg.randn(4, 1)
    return net, lambda: tg.nn.functional.mse_loss(net(x), y)


def classifier() -> tuple[Any, Callable[[], Any]]:
    net = tg.nn.Sequential(
        tg.nn.Embedding(10, 8), tg.nn.Flatten(), tg.nn.Linear(32, 16), tg.nn.ReLU(), tg.nn.Linear(16, 4)
    )
    x, y = tg.randint(0, 10, (6, 4)), tg.randint(0, 4, (6,))
    return net, lambda: tg.nn.functional.cross_entropy(net(x), y)


def convolutions() -> tuple[Any, Callable[[], Any]]:
    net = tg.nn.Sequential(
        *(tg.nn.Conv2d(1, 4, 3, padding=1), tg.nn.BatchNorm2d(4), tg.nn.ReLU(), tg.nn.MaxPool2d(2), tg.nn.Flatten()),
        *(tg.nn.Linear(64, 8), tg.nn.Dropout(0.5), tg.nn.Linear(8, 2)),
    )
    x, y = tg.randn(3, 1, 8, 8), tg.randint(0, 2, (3,))
    return net, lambda: tg.nn.functional.cross_entropy(net(x), y)


def transformer() -> tuple[Any, Callable[[], Any]]:
    net = tg.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x = tg.randn(2, 5, 8)
    return net, lambda: net(x).square().mean()


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda params: tg.optim.SGD(params, lr=0.01, momentum=0.9, nesterov=True),
    "asgd": lambda params: tg.optim.ASGD(params, lr=0.01, t0=1.0),
    "adamw": lambda params: tg.optim.AdamW(params, lr=0.01),
    "amsgrad": lambda params: tg.optim.Adam(params, lr=0.01, amsgrad=True),
    "nadam": lambda params: tg.optim.NAdam(params, lr=0.01),
    "radam": lambda params: tg.optim.RAdam(params, lr=0.01),
    "rmsprop": lambda params: tg.optim.RMSprop(params, lr=0.01, momentum=0.9, centered=True),
    "adadelta": lambda params: tg.optim.Adadelta(params),
    "adagrad": lambda params: tg.optim.Adagrad(params),
    "adamax": lambda params: tg.optim.Adamax(params),
    "adafactor": lambda params: tg.optim.Adafactor(params),
    "rprop": lambda params: tg.optim.Rprop(params),
}
LOOPS = [
    *[(net, "adamw") for net in (mlp, classifier, convolutions, transformer)],
    *[(mlp, name) for name in OPTIMIZERS if name != "adamw"],
]


@pytest.mark.every
@pytest.mark.parametrize(("make", "optimizer"), LOOPS, ids=lambda x: getattr(x, "__name__", x))
def test_training_waits_for_nothing_but_values(
    make: Callable[[], Any], optimizer: str, connected: Any, gpus: Any
) -> None:
    net, loss_of = make()
    chosen = OPTIMIZERS[optimizer](net.parameters())
    scheduler = tg.optim.lr_scheduler.StepLR(chosen, 2, gamma=0.5)
    connected.flush()
    gpus.reset()
    for _ in range(5):
        chosen.zero_grad()
        loss = loss_of()
        loss.backward()
        chosen.step()
        scheduler.step()
        connected.flush()
    assert gpus.waits == []
    assert len([stream for stream in gpus.used_streams if not stream.is_null]) == 1
    assert all(goes_on for _, goes_on in gpus.uploads)
    loss.item()
    assert gpus.waits != []


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_comes_to_the_same_as_on_the_cpu(optimizer: str, gpus: Any) -> None:
    def losses(device: str) -> list[float]:
        with tg.connect("local://", device=device, seed=0):
            net, loss_of = classifier()
            chosen = OPTIMIZERS[optimizer](net.parameters())
            found = []
            for _ in range(4):
                chosen.zero_grad()
                loss = loss_of()
                loss.backward()
                chosen.step()
                found.append(loss.item())
            return found

    assert losses("cuda") == pytest.approx(losses("cpu"), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("lags", [False, True])
def test_a_program_is_never_far_ahead_of_its_gpu(lags: bool, gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(device="cuda")
    run(session, upload("x", [1.0]))
    gpus.reset()
    monkeypatch.setattr(gpus, "LAGS", lags)
    run(session, *[("add", ["x", 1]) for _ in range(200)])
    assert gpus.waits == ["Event.synchronize"] * (200 // 32 - 1 if lags else 0)


# A value that is out of range is known when values are next read.


def test_a_wrong_index_is_an_error_where_values_are_read(gpus: Any) -> None:
    session = Session(device="cuda")
    run(session, upload("w", np.ones((3, 2))), ("tensor", [], ["i"], {"data": np.array([0, 7])}))
    gpus.reset()
    run(session, ("embedding", ["i", "w"], ["y"]))
    assert gpus.waits == []
    with pytest.raises(InvalidOperation, match="CUDA error: device-side assert triggered") as raised:
        run(session, ("fetch", [("w",)]))
    assert raised.value.context["op"] == "fetch"
    assert run(session, ("fetch", [("w",)]))["w"].tolist() == [[1.0, 1.0]] * 3


def test_the_instruction_itself_raises_if_cuda_blocks(gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    session = Session(device="cuda")
    run(session, upload("w", np.ones((3, 2))), ("tensor", [], ["i"], {"data": np.array([0, 7])}))
    with pytest.raises(IndexOutOfRange, match="index out of range in self"):
        run(session, ("embedding", ["i", "w"], ["y"]))


def test_many_unread_checks_are_kept_as_one(gpus: Any) -> None:
    session = Session(device="cuda")
    run(session, upload("w", np.ones((3, 2))), ("tensor", [], ["i"], {"data": np.array([0, 2])}))
    run(session, ("tensor", [], ["bad"], {"data": np.array([3])}), ("embedding", ["bad", "w"], ["first"]))
    for _ in range(300):
        run(session, ("embedding", ["i", "w"], ["y"]), ("free", [("y",)]))
    with pytest.raises(InvalidOperation, match="device-side assert"):
        run(session, ("fetch", [("w",)]))


# Streams -----------------------------------------------------------------------------------------------


def test_each_session_has_its_stream(gpus: Any) -> None:
    sessions = [Session(device="cuda") for _ in range(3)]
    for session in sessions:
        run(session, upload("x", [1.0, 2.0]), ("sigmoid", ["x"], ["y"]))
    gpus.reset()
    for _ in range(2):
        for session in sessions:
            run(session, ("mul", ["x", "y"], ["z"]), ("fetch", [("z",)]), ("free", [("z",)]))
    assert len(gpus.used_streams) == 3
    assert not any(stream.is_null for stream in gpus.used_streams)


def test_what_sessions_share_is_no_race(gpus: Any) -> None:
    """Constants are made once for all of them: the stand-in refuses an array that another stream may still write."""

    def work(seed: int) -> None:
        try:
            session = Session(device="cuda:1", seed=seed)
            for _ in range(20):
                run(session, upload("x", [1.0, 2.0]), ("sigmoid", ["x"], ["y"]), ("tanh", ["y"], ["z"]))
                run(session, ("fetch", [("z",)]), ("free", [("x", "y", "z")]))
        except BaseException as error:
            failed.append(error)

    failed: list[BaseException] = []
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_stream_is_used_again_after_its_session(gpus: Any) -> None:
    for _ in range(5):
        run(Session(device="cuda"), upload("x", [1.0, 2.0]), ("exp", ["x"], ["y"]), ("fetch", [("y",)]))
    assert len(gpus.used_streams) == 1


# Uploads -----------------------------------------------------------------------------------------------


def test_uploads_come_from_pinned_memory(gpus: Any) -> None:
    session = Session(device="cuda")
    for dtype in ("float32", "float64", "int64", "bool", "float16"):
        values = np.arange(12).reshape(3, 4).astype(dtype)
        for given in (values, values.T, values[::2, ::-1]):
            fetched = run(session, ("tensor", [], ["x"], {"data": given}), ("fetch", [("x",)]), ("free", [("x",)]))
            np.testing.assert_array_equal(fetched["x"], given)
    assert {*gpus.uploads} == {("pinned", True)}


def test_pinned_memory_is_bounded(gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telegrad_engine.arrays.cupy.MAX_PINNED_BYTES", 4 * MIB)
    session = Session(device="cuda", max_bytes=64 * MIB)
    for _ in range(5):
        run(session, upload("x", np.ones(MIB)), ("free", [("x",)]))
    assert {*gpus.uploads} == {("pinned", True)}
    fetched = run(session, upload("x", np.ones(2 * MIB)), ("fetch", [("x",)]))
    assert gpus.uploads[-1] == ("pageable", False)
    assert fetched["x"].sum() == 2 * MIB
    assert MAX_PINNED_BYTES < 2**30


def test_a_buffer_is_not_used_again_before_it_was_read(gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(device="cuda")
    run(session, upload("a", np.ones(5)))
    monkeypatch.setattr(gpus.Event, "__init__", lambda self, **_: setattr(self, "done", False))
    taken: list[Any] = []
    allocate = gpus.alloc_pinned_memory
    monkeypatch.setattr(gpus, "alloc_pinned_memory", lambda size: taken.append(size) or allocate(size))
    for name in "bcd":
        run(session, upload(name, np.ones(5)))
    assert len(taken) == 2  # "b" had the buffer of "a", whose event was done
    assert gpus.waits == []


# Memory ------------------------------------------------------------------------------------------------


def test_a_full_gpu_is_an_error_of_one_session(gpus: Any) -> None:
    rest = 16 * MIB
    first = Session(device="cuda", max_bytes=2 * gpus.CAPACITY)
    other = Session(device="cuda", max_bytes=2 * gpus.CAPACITY)
    run(other, upload("x", np.ones(MIB)))
    run(first, upload("small", [1.0, 2.0]))
    run(first, ("zeros", [], ["most"], {"size": ((gpus.CAPACITY - rest) // 4,)}))
    with pytest.raises(TooLarge, match=r"allocate memory.*Out of memory") as raised:
        run(first, ("zeros", [], ["more"], {"size": (rest,)}))
    assert (raised.value.context["op"], raised.value.status) == ("zeros", 413)
    assert "more" not in first.tensors
    assert run(first, ("mul", ["small", "small"], ["y"]), ("fetch", [("y",)]))["y"].tolist() == [1.0, 4.0]
    assert run(other, ("sum", ["x"], ["y"]), ("fetch", [("y",)]))["y"] == MIB
    run(first, ("free", [("most",)]))
    run(first, ("zeros", [], ["more"], {"size": (rest,)}))


@pytest.mark.parametrize("text", ["CUBLAS_STATUS_ALLOC_FAILED", "cudaErrorMemoryAllocation: out of memory"])
def test_workspaces_are_memory_too(text: str, gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(device="cuda")
    run(session, upload("x", np.ones((2, 2))))

    def full(*_: Any, **__: Any) -> Any:
        raise RuntimeError(text)

    assert session.environment.device is not None
    monkeypatch.setattr(session.environment.device.backend, "exp", full)
    with pytest.raises(TooLarge, match="not enough memory"):
        run(session, ("exp", ["x"], ["y"]))
    assert run(session, ("fetch", [("x",)]))["x"].tolist() == [[1.0, 1.0]] * 2


@pytest.mark.parametrize(
    ("op", "attrs"), [("softmax", {"dim": 1}), ("sort", {}), ("dropout", {}), ("t", {}), ("transpose", {})]
)
def test_what_an_op_leaves_counts_as_on_the_cpu(op: str, attrs: dict[str, Any], gpus: Any) -> None:
    def used(device: str) -> list[int]:
        session = Session(device=device, seed=1)
        run(session, upload("x", np.ones((64, 64)), requires_grad=True))
        if op == "transpose":
            run(session, (op, ["x"], ["y"], {"dim0": 0, "dim1": 1}))
        else:
            run(session, (op, ["x"], ["y", "i"] if op == "sort" else ["y"], attrs))
        found = [session.accounts.used_bytes]
        run(session, ("free", [("y",)]))
        return [*found, session.accounts.used_bytes]

    assert used("cuda") == used("cpu")


def test_a_sessions_memory_is_its_own(gpus: Any) -> None:
    first, second = Session(device="cuda", max_bytes=20_000), Session(device="cuda")
    run(first, upload("x", np.ones(1000), requires_grad=True), ("exp", ["x"], ["y"]))
    assert first.accounts.used_bytes == 8000
    assert second.accounts.used_bytes == 0
    with pytest.raises(TooLarge, match="there is room for 12000"):
        run(first, ("zeros", [], ["big"], {"size": (5000,)}))
    before = gpus.allocated[0]
    del first
    assert gpus.allocated[0] <= before - 8000
