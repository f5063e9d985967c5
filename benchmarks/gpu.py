"""``make bench-gpu``: training steps and transfers on a GPU, against torch on the same GPU.

Each net is written once, over a namespace: ``torch`` or the SDK. A side runs some steps and then reads the last loss,
which waits for the GPU. Sessions are in this process, and on a server. Rows "on the GPU alone" are the time that its
kernels and copies take, without the gaps in which it waits for the host.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console

import telegrad as tg
from telegrad_engine.arrays import available
from telegrad_service.launch import running_server

from .report import table
from .timing import Call, Comparison, Missing, Result, Side, Timed, Unavailable

AGAINST = "torch CUDA"
STEPS = 10
"""The steps between two reads of the loss."""
WARM_UP = 3
UPLOAD = 64 * 2**20


class Net(NamedTuple):
    """A net by name: makes the module and the batch, and computes the loss of both."""

    name: str
    module: Callable[[Any], Any]
    batch: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def _mlp(lib: Any, width: int, depth: int) -> Any:
    layers: list[Any] = []
    for _ in range(depth):
        layers += [lib.nn.Linear(width, width), lib.nn.ReLU()]
    return lib.nn.Sequential(*layers, lib.nn.Linear(width, 10))


def _convolutions(lib: Any) -> Any:
    return lib.nn.Sequential(
        *(lib.nn.Conv2d(3, 32, 3, padding=1), lib.nn.BatchNorm2d(32), lib.nn.ReLU(), lib.nn.MaxPool2d(2)),
        *(lib.nn.Conv2d(32, 64, 3, padding=1), lib.nn.BatchNorm2d(64), lib.nn.ReLU(), lib.nn.MaxPool2d(2)),
        *(lib.nn.Flatten(), lib.nn.Linear(64 * 8 * 8, 10)),
    )


def _transformer(lib: Any) -> Any:
    layer = lib.nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
    return lib.nn.Sequential(lib.nn.Embedding(1000, 256), layer, lib.nn.Flatten(), lib.nn.Linear(256 * 64, 10))


def _rows(count: int, *shape: int) -> Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]:
    return lambda rng: (rng.standard_normal((count, *shape)).astype(np.float32), rng.integers(0, 10, count))


NETS = [
    Net("MLP, 2 layers of 128, batch 64", lambda lib: _mlp(lib, 128, 2), _rows(64, 128)),
    Net("MLP, 4 layers of 2048, batch 1024", lambda lib: _mlp(lib, 2048, 4), _rows(1024, 2048)),
    Net("convolutions, 32 by 32, batch 128", _convolutions, _rows(128, 3, 32, 32)),
    Net(
        "transformer layer, 256 wide, 64 tokens, batch 32",
        _transformer,
        lambda rng: (rng.integers(0, 1000, (32, 64)), rng.integers(0, 10, 32)),
    ),
]


def steps(net: Net, lib: Any, device: str, count: int = STEPS) -> Callable[[], float]:
    """A function that trains for ``count`` steps and returns the last loss. Both libraries begin with equal weights."""
    rng = np.random.default_rng(0)
    module = net.module(lib)
    with lib.no_grad():
        for parameter in module.parameters():
            values = rng.standard_normal(tuple(parameter.shape)).astype(np.float32) * 0.05
            parameter.copy_(lib.tensor(values))
    module = module.to(device)
    x, y = (lib.tensor(array).to(device) for array in net.batch(rng))
    optimizer = lib.optim.AdamW(module.parameters(), lr=1e-3)

    def train() -> float:
        for _ in range(count):
            optimizer.zero_grad()
            loss = lib.nn.functional.cross_entropy(module(x), y)
            loss.backward()
            optimizer.step()
        return float(loss.item())

    return train


def upload(lib: Any, device: str) -> Call:
    """A call that uploads an array, and reads one element of it."""
    array = np.ones(UPLOAD // 4, np.float32)
    return lambda: lib.tensor(array).to(device)[-1].item()


def fetch(lib: Any, device: str) -> Call:
    """A call that reads a whole tensor."""
    x = lib.ones(UPLOAD // 4).to(device)
    return lambda: x.cpu().numpy()


# Sessions --------------------------------------------------------------------------------------------


@contextmanager
def local(device: str) -> Iterator[tg.Session]:
    """A session in this process."""
    with tg.connect("local://", device=device) as opened:
        yield opened


@contextmanager
def served(device: str) -> Iterator[tg.Session]:
    """A session on a server."""
    with running_server() as url, tg.connect(url, device=device) as opened:
        yield opened


class OnGpu(NamedTuple):
    """The time that the GPU itself takes for one call of each side in this process, as CUDA's profiler counts it."""

    name: str
    against: str
    limit: float | None
    sides: Callable[[], AbstractContextManager[tuple[Side, Side]]]

    def measure(self, advance: Callable[[float], None]) -> Result:
        """Measure the milliseconds in kernels and copies."""
        with self.sides() as sides:
            ours, theirs = map(kernel_ms, sides)
        advance(1)
        return Comparison(self.name, self.against, self.limit, ours, theirs, "ms")


def kernel_ms(side: Side) -> float:
    """The milliseconds that kernels and copies of one call take, whoever launches them."""
    with torch.profiler.profile() as profile:
        side()  # type: ignore[operator]
        torch.cuda.synchronize()
    on_gpu = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    if not on_gpu:
        raise Unavailable("CUDA's profiler saw nothing")
    return sum(event.time_range.elapsed_us() for event in on_gpu) / 1e3


Where = Callable[[str], AbstractContextManager[tg.Session]]


@contextmanager
def training(net: Net, where: Where, ours: str, theirs: str) -> Iterator[tuple[Side, Side]]:
    """The steps of a net in a session and in torch, both warm."""
    with where(ours):
        sides = steps(net, tg, ours), steps(net, torch, theirs)
        for side in sides:
            for _ in range(WARM_UP):
                side()
        yield sides


@contextmanager
def transfer(make: Callable[[Any, str], Call], where: Where, ours: str, theirs: str) -> Iterator[tuple[Side, Side]]:
    """A transfer in a session and in torch."""
    with where(ours):
        yield make(tg, ours), make(torch, theirs)


def suites(ours: str, theirs: str) -> list[Timed | OnGpu]:
    """All comparisons, on these devices. There are no limits yet: none was measured on a GPU."""
    found: list[Timed | OnGpu] = []
    for label, where in (("local", local), ("over loopback", served)):
        for net in NETS:
            sides = partial(training, net, where, ours, theirs)
            found.append(Timed(f"{net.name}, {STEPS} steps, {label}", AGAINST, None, sides, block=2, repeats=15))
    for net in NETS:
        sides = partial(training, net, local, ours, theirs)
        found.append(OnGpu(f"{net.name}, {STEPS} steps, on the GPU alone", AGAINST, None, sides))
    for name, make in (("upload 64 MiB", upload), ("fetch 64 MiB", fetch)):
        found.append(Timed(f"{name}, local", AGAINST, None, partial(transfer, make, local, ours, theirs), 2, 15))
    return found


def missing() -> str | None:
    """Why nothing can be measured here; None if there is a GPU that both sides can use."""
    if not any(info.is_gpu for info in available()):
        return "no GPU is here that CuPy can use"
    if not torch.cuda.is_available():
        return "torch cannot use the GPU that is here: it was built without CUDA, or finds no driver for it"
    return None


def measured(suite: Timed | OnGpu) -> Result:
    """The result of a comparison; an error of one side is a row that says so."""
    try:
        return suite.measure(lambda _: None)
    except Exception as error:
        return Missing(suite.name, suite.against, suite.limit, f"{type(error).__name__}: {error}"[:200])


def main(wanted: str = "") -> int:
    """Measure and print what has ``wanted`` in its name. Return 1 if nothing that was wanted could be measured."""
    reason = missing()
    if reason is not None:
        print(f"bench-gpu: {reason}, so nothing was measured")
        return 0
    chosen = [suite for suite in suites("cuda", "cuda") if wanted.lower() in suite.name.lower()]
    results = []
    for suite in chosen:
        print(f"measuring {suite.name}", file=sys.stderr)
        results.append(measured(suite))
    console = Console(width=120 if not sys.stdout.isatty() else None)
    console.print(table(results))
    gpus = ", ".join(f"{info.name} {info.description}" for info in available() if info.is_gpu)
    console.print(f"{gpus}, torch {torch.__version__}", style="dim", highlight=False)
    return 0 if any(isinstance(result, Comparison) for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
