"""Files of torch.save, read as data; pickling by value; arrays and containers in Telegrad's own files.

Internals: only its recorder says which session a tensor is in.
"""

from __future__ import annotations

import collections
import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import check

pytestmark = [pytest.mark.usefixtures("session"), pytest.mark.full]


def saved(value: Any, **options: Any) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    buffer.seek(0)
    return buffer


def archive(data: bytes, storages: dict[str, bytes] | None = None, method: int = zipfile.ZIP_STORED) -> io.BytesIO:
    """A file in the format of torch.save that contains this pickle."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr("archive/data.pkl", data)
        file.writestr("archive/byteorder", "little")
        for key, content in (storages or {}).items():
            file.writestr(f"archive/data/{key}", content)
    buffer.seek(0)
    return buffer


def network(lib: Any) -> Any:
    return lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 2))


def test_a_checkpoint_of_torchs_goes_on_here() -> None:
    torch.manual_seed(0)  # with other seeds, a weight may become almost zero, without digits to compare
    theirs, ours = (lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 2)) for lib in (torch, tg))
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.1)
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    mine = tg.optim.Adam(ours.parameters())

    def step(lib: Any, net: Any, moved: Any) -> None:
        moved.zero_grad()
        net(lib.tensor(x)).square().mean().backward()
        moved.step()

    step(torch, theirs, optimizer)
    file = saved({"model": theirs.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3})
    read = tg.load(file, map_location="cpu", weights_only=True)
    assert read["epoch"] == 3
    ours.load_state_dict(read["model"])
    mine.load_state_dict(read["optimizer"])
    for _ in range(3):
        step(torch, theirs, optimizer)
        step(tg, ours, mine)
    check(dict(ours.state_dict()), dict(theirs.state_dict()), 1e-4)


@pytest.mark.parametrize(
    "dtype",
    [
        *("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "bool"),
        *("uint8", "uint16", "uint32", "uint64"),
    ],
)
def test_every_dtype_is_read(dtype: str, tmp_path: Path) -> None:
    original = torch.tensor([[0, 1], [1, 3]]).to(getattr(torch, dtype))
    torch.save(original.t(), tmp_path / "x.pt")
    read = tg.load(tmp_path / "x.pt")
    assert read.dtype.name == dtype
    assert read.tolist() == original.t().tolist()


def test_structures_are_what_they_were() -> None:
    shared = torch.ones(2)
    value = {
        "views": (shared[1:], shared.expand(3, 2), torch.empty(0, 3)),
        "twice": [shared, shared],
        "plain": [1, -(2**70), 1.5, None, True, "text ✓", b"bytes", {1, 2}, (), (1,), (1, 2, 3, 4), 1 + 2j],
        "counts": collections.Counter("aab"),
        "ordered": collections.OrderedDict([("b", 1), ("a", torch.zeros(1))]),
        "size": torch.Size([2, 3]),
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        7: torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "tracked": torch.ones(1, requires_grad=True),
    }
    read = tg.load(saved(value))
    assert [view.tolist() for view in read["views"]] == [[1.0], [[1.0, 1.0]] * 3, []]
    assert read["twice"][0] is read["twice"][1]
    assert read["plain"] == value["plain"]
    assert read["counts"] == value["counts"]
    assert list(read["ordered"]) == ["b", "a"]
    assert (read["size"], read["dtype"], read["device"]) == ((2, 3), tg.float16, "cpu")
    assert isinstance(read[7], tg.nn.Parameter)
    assert (read[7].requires_grad, read["tracked"].requires_grad) == (False, True)
    assert list(read) == list(value)


class Evil:
    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


def test_nothing_is_executed(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for function, args in ((os.system, (f"touch {trace}",)), (exec, (f"open({str(trace)!r}, 'w')",)), (open, ("x",))):
        for protocol in (2, 4):
            file = saved({"x": Evil(function, *args)}, pickle_protocol=protocol)
            for options in ({}, {"weights_only": False}):
                file.seek(0)
                with pytest.raises(ValueError, match="which is code, and code in a file is never run"):
                    tg.load(file, **options)
    assert not trace.exists()
    with pytest.raises(ValueError, match=r"torch.nn.modules.container.Sequential, which is code"):
        tg.load(saved(network(torch)))


TENSOR = (
    b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
    b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"
)
HOSTILE = {
    "no pickle": b"hello",
    "no end": b"\x80\x02}",
    "empty stack": b"\x80\x02.",
    "a call of no name": b"\x80\x02K\x01)R.",
    "an old class": b"(ios\nsystem\n.",
    "an object": b"(cos\nsystem\no.",
    "an extension": b"\x80\x02\x82\x01.",
    "another persistent id": b"\x80\x02K\x01Q.",
    "a text for an id": b"Pabc\n.",
    "a missing memo": b"\x80\x02h\x05.",
    "a mark that is not there": b"\x80\x02t.",
    "items for a number": b"\x80\x02K\x01K\x02a.",
    "odd items": b"\x80\x02}(K\x01u.",
    "a key that cannot be": b"\x80\x02}]K\x01s.",
    "a tensor beyond its storage": b"\x80\x02" + TENSOR + b"K\x02(K\x05t(K\x01t\x89}tR.",
    "a tensor of negative size": b"\x80\x02" + TENSOR + b"K\x00(J\xff\xff\xff\xfft(K\x01t\x89}tR.",
    "a tensor of terabytes": b"\x80\x02" + TENSOR + b"K\x00(J\xff\xff\xff\x7ft(K\x00t\x89}tR.",
    "strides of another number": b"\x80\x02" + TENSOR + b"K\x00(K\x01t)\x89}tR.",
    "nesting without end": b"\x80\x02)" + b"\x85" * 100_000 + b".",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"damaged|data|code|torch|opcode|file"):
        tg.load(archive(HOSTILE[name], {"0": bytes(16)}))


def test_tuples_within_tuples_cost_no_more_than_the_file() -> None:
    """Each tuple contains the previous one twice, which would be 2**40 tuples without sharing."""
    code = b"\x80\x02)" + b"".join(b"q\x01h\x01\x86" for _ in range(40)) + b"."
    read = tg.load(archive(code))
    assert read[0][0] is read[0][1]


def test_other_archives_are_refused() -> None:
    for file in (
        archive(pickle.dumps({"x": 1}, 2), method=zipfile.ZIP_DEFLATED),
        io.BytesIO(saved({"x": torch.ones(2)}).getvalue()[:-30]),
        saved({"x": torch.ones(2, dtype=torch.complex64)}),
    ):
        with pytest.raises(ValueError, match=r"compressed|damaged|not in Telegrad"):
            tg.load(file)
    scripted = io.BytesIO()
    with zipfile.ZipFile(scripted, "w") as file:  # type: ignore[assignment]
        file.writestr("net/data.pkl", b"")  # type: ignore[attr-defined]
        file.writestr("net/constants.pkl", b"")  # type: ignore[attr-defined]
    scripted.seek(0)
    with pytest.raises(ValueError, match="TorchScript"):
        tg.load(scripted)


# Pickling by value ------------------------------------------------------------------------------


def test_modules_tensors_and_datasets_are_pickled_by_value(address: str) -> None:
    net = network(tg)
    net[1].running_mean.fill_(3)
    data = tg.utils.data.TensorDataset(tg.arange(4), tg.tensor([1.5, 2, 3, 4], dtype=tg.bfloat16))
    optimizer = tg.optim.Adam(net.parameters())
    net(tg.ones(4, 3)).sum().backward()
    optimizer.step()
    text = pickle.dumps((net, data, net[0].weight * 2, optimizer))
    expected = net.eval()(tg.ones(1, 3)).tolist()
    with tg.connect(address) as other:
        copied, dataset, computed, resumed = pickle.loads(text)
        assert copied[0].weight._recorder is other.recorder
        assert isinstance(copied[0].weight, tg.nn.Parameter)
        assert copied.eval()(tg.ones(1, 3)).tolist() == expected
        assert [[x.item() for x in pair] for pair in dataset] == [[0, 1.5], [1, 2.0], [2, 3.0], [3, 4.0]]
        assert (computed.is_leaf, computed.requires_grad) == (True, True)
        assert resumed.param_groups[0]["params"][0] is copied[0].weight
        assert resumed.state[copied[0].weight]["step"].item() == 1


def test_a_tensor_of_a_session_that_ended_names_it(address: str) -> None:
    with tg.connect(address) as gone:
        x = tg.ones(2)
    with pytest.raises(RuntimeError, match=f"a tensor of the session at {gone.url}.* cannot be pickled"):
        pickle.dumps(x)


# Our own files ----------------------------------------------------------------------------------


def test_arrays_and_plain_containers_are_saved(tmp_path: Path) -> None:
    value = {
        "array": np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::2],
        "scalar": np.float32(2.5),
        "mixed": [np.ones(2), tg.ones(2), {3, 4}, b"\x00\xff", 1 + 2j, tg.float16, (None, True)],
    }
    tg.save(value, tmp_path / "x")
    read = tg.load(tmp_path / "x")
    assert isinstance(read["array"], np.ndarray)
    np.testing.assert_array_equal(read["array"], value["array"])
    assert (read["scalar"], type(read["scalar"])) == (2.5, np.float32)
    assert isinstance(read["mixed"][0], np.ndarray)
    assert isinstance(read["mixed"][1], tg.Tensor)
    assert read["mixed"][2:] == [{3, 4}, b"\x00\xff", 1 + 2j, tg.float16, (None, True)]
    with pytest.raises(TypeError, match="an array of complex128 cannot be saved"):
        tg.save(np.ones(2, complex), tmp_path / "y")
