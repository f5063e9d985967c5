"""tg.connect(url, compress="zstd"): fewer bytes are sent, and nothing else changes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad_engine.errors import UnsupportedMediaType

from ..frames import hiding
from ..servers import running_server
from .cutting import DOWN, UP, Cutter
from .parity import held

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
TIMEOUT_S = 30


@pytest.fixture(params=["stream", "requests", "httpx"])
def way(request: pytest.FixtureRequest, server: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The transport of programs, as options of connect."""
    if request.param == "httpx":  # the server acts as the proxy
        monkeypatch.setenv("http_proxy", server)
        monkeypatch.setenv("no_proxy", "")
    return {"stream": request.param == "stream", "timeout": TIMEOUT_S}


@pytest.fixture
def proxy(server: str) -> Iterator[Cutter]:
    with Cutter(server) as cutter:
        yield cutter


def results(session: tg.Session, data: Any, dtype: tg.dtype) -> list[Any]:
    """Upload data and return its values, those of results, and the shape and dtype."""
    x = tg.tensor(data, dtype=dtype)
    return [x.numpy(), (x + x).numpy(), tg.stack([x, x]).numpy(), x.shape, x.dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_the_same(server: str, way: dict[str, Any], dtype: str) -> None:
    kind = getattr(tg, dtype)
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 2, 100_000),
        rng.integers(0, 2, (1, 3)),
        np.zeros((0, 5)),
        np.zeros(()),
        np.ones((200, 300)),
    ]
    with tg.connect(server, compress="zstd", **way) as session:
        ours = [results(session, array, kind) for array in arrays]
    with tg.connect(server, **way) as session:
        theirs = [results(session, array, kind) for array in arrays]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine[3:] == other[3:]
        for a, b in zip(mine[:3], other[:3], strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("stream", [True, False])
def test_what_can_be_compressed_takes_fewer_bytes_both_ways(proxy: Cutter, stream: bool) -> None:
    data = np.arange(500_000) % 7
    for compress, least, most in (("zstd", 1, data.nbytes // 5), (None, data.nbytes, 2 * data.nbytes)):
        with tg.connect(proxy.url, stream=stream, compress=compress, timeout=TIMEOUT_S):
            before = proxy.passed.copy()
            np.testing.assert_array_equal(tg.tensor(data).numpy(), data)
            for direction in (UP, DOWN):
                assert least <= proxy.passed[direction] - before[direction] < most


def test_noise_goes_as_it_is(server: str, way: dict[str, Any]) -> None:
    data = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8)
    with tg.connect(server, compress="zstd", **way):
        np.testing.assert_array_equal(tg.tensor(data).numpy(), data)


@pytest.mark.parametrize("stream", [True, False])
def test_a_large_tensor_may_stay_where_it_was_unpacked(server: str, stream: bool) -> None:
    data = np.arange(2**20, dtype=np.float32) % 9
    with tg.connect(server, stream=stream, compress="zstd", timeout=TIMEOUT_S) as session:
        x, y = tg.tensor(data), tg.tensor(data)
        x += 1
        np.testing.assert_array_equal(y.numpy(), data)
        mine = x.numpy()
        mine[:] = 0
        np.testing.assert_array_equal(x.numpy(), data + 1)
        del x, y
        assert held(session) == {}


@pytest.mark.parametrize("stream", [True, False])
def test_a_connection_cut_in_frames(proxy: Cutter, stream: bool) -> None:
    data = np.random.default_rng(0).integers(0, 16, 200_000).astype(np.float32)
    with tg.connect(proxy.url, stream=stream, compress="zstd", timeout=TIMEOUT_S):
        total = tg.zeros(200_000)
        for count, position in enumerate(range(0, 40_000, 2_003), start=1):
            proxy.cut(UP if count % 2 else DOWN, position)
            total += tg.tensor(data)
            np.testing.assert_array_equal(total.numpy(), data * count)
            proxy.mend()
        assert proxy.cuts > 10


@pytest.mark.full
@pytest.mark.parametrize("stream", [True, False])
def test_the_servers_limit_is_for_what_is_inside(stream: bool) -> None:
    with (
        running_server(max_body_bytes=100_000) as url,
        tg.connect(url, stream=stream, compress="zstd", timeout=TIMEOUT_S),
    ):
        with pytest.raises(RuntimeError, match="at most 100000 bytes"):
            tg.tensor(np.zeros(100_000, np.float32)).sum().item()
        assert tg.tensor(np.zeros(20_000, np.float32)).sum().item() == 0


def test_errors_are_those_without(server: str, way: dict[str, Any]) -> None:
    with tg.connect(server, compress="zstd", **way):
        x = tg.tensor(np.zeros(50_000, np.float32))
        bad = x.index_select(0, tg.tensor([99_999]) + 0)  # only the server detects it
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            bad.tolist()
        assert x.sum().item() == 0


def test_here_it_means_nothing() -> None:
    with tg.connect("local://", compress="zstd"):
        assert tg.ones(3).tolist() == [1, 1, 1]


def test_in_asyncio(server: str) -> None:
    async def total() -> Any:
        async with tg.aconnect(server, compress="zstd"):
            return await tg.tensor(np.ones(50_000)).sum().value()

    assert asyncio.run(total()) == 50_000


@pytest.mark.parametrize("compress", ["gzip", "", "ZSTD", True, 3])
def test_what_it_cannot_be_compressed_by(server: str, compress: Any) -> None:
    for url in (server, "local://"):
        with pytest.raises(ValueError, match="cannot compress by"):
            tg.connect(url, compress=compress)


def test_without_the_extra_the_error_names_it(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("backports.zstd", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RuntimeError, match=r"install telegrad\[zstd\]"):
        tg.connect(server, compress="zstd")
    with tg.connect(server) as session:
        assert tg.tensor(np.zeros(50_000)).sum().item() == 0
        assert session.requests == 1


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server without the zstd library."""
    folder = hiding(tmp_path_factory.mktemp("without"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]))
        with running_server() as url:
            yield url


@pytest.mark.full
@pytest.mark.parametrize("stream", [True, False, None])
def test_a_server_without_the_library_says_so(without: str, stream: bool | None) -> None:
    said = pytest.raises(UnsupportedMediaType, match=r"install telegrad-engine\[zstd\]")
    with said, tg.connect(without, stream=stream, compress="zstd", timeout=TIMEOUT_S):
        tg.tensor(np.zeros(50_000)).sum().item()
    with tg.connect(without, stream=stream, timeout=TIMEOUT_S):
        assert tg.tensor(np.zeros(50_000)).sum().item() == 0
