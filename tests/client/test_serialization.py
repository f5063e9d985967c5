"""Files, compared with the safetensors library: each side reads the files of the other."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import telegrad as tg

from .parity import same

pytestmark = pytest.mark.usefixtures("session")


def network(lib: Any) -> Any:
    return lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 2))


def test_torch_reads_a_state_dict_of_ours(tmp_path: Path) -> None:
    ours, theirs = network(tg), network(torch)
    tg.save(ours.state_dict(), tmp_path / "model.safetensors")
    read = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert sorted(read) == sorted(theirs.state_dict())
    theirs.load_state_dict(read)
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    np.testing.assert_allclose(
        ours(tg.tensor(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_we_read_a_state_dict_of_torchs(tmp_path: Path) -> None:
    ours, theirs = network(tg), network(torch)
    safetensors.torch.save_file(theirs.state_dict(), tmp_path / "model.safetensors", {"format": "pt"})
    ours.load_state_dict(tg.load(str(tmp_path / "model.safetensors"), map_location="cpu", weights_only=True))
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_array_equal(mine.detach().numpy(), other.detach().numpy())


@pytest.mark.parametrize(
    "dtype",
    [
        *("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "bool"),
        *("uint8", "uint16", "uint32", "uint64"),
    ],
)
def test_every_dtype_goes_both_ways(dtype: str) -> None:
    original = torch.tensor([[0, 1], [1, 3]]).to(getattr(torch, dtype))
    read = tg.load(io.BytesIO(safetensors.torch.save({"x": original})))["x"]
    assert read.dtype.name == dtype
    buffer = io.BytesIO()
    tg.save({"x": read, "empty": tg.zeros(0, 3), "number": tg.tensor(2.5)}, buffer)
    back = safetensors.torch.load(buffer.getvalue())
    assert torch.equal(back["x"], original)
    assert back["empty"].shape == (0, 3)
    assert back["number"].item() == 2.5


def test_a_tensor_keeps_whether_it_requires_grad(tmp_path: Path) -> None:
    tg.save(tg.tensor([1.0, 2.0], requires_grad=True), tmp_path / "x")
    read = tg.load(tmp_path / "x")
    assert read.requires_grad
    assert read.is_leaf
    assert read.tolist() == [1.0, 2.0]
    assert list(safetensors.torch.load_file(tmp_path / "x")) == ["tensor"]


def test_a_checkpoint_goes_on_where_it_stopped(session: tg.Session, address: str) -> None:
    def train(model: Any, optimizer: Any, scheduler: Any, epochs: int) -> None:
        x = tg.tensor(np.random.default_rng(1).standard_normal((8, 3)), dtype=tg.float32)
        for _ in range(epochs):
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            optimizer.step()
            scheduler.step()

    def made() -> tuple[Any, Any, Any]:
        model = network(tg)
        optimizer = tg.optim.Adam(model.parameters(), lr=0.1, amsgrad=True)
        return model, optimizer, tg.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])

    parts = made()
    train(*parts, 3)
    buffer = io.BytesIO()
    before = session.requests
    states = {"model": parts[0].state_dict(), "rest": [part.state_dict() for part in parts[1:]], "epoch": 3}
    tg.save({**states, "best": float("inf"), "note": "so far"}, buffer)
    assert session.requests == before + 1
    train(*parts, 3)
    expected = [p.detach().tolist() for p in parts[0].parameters()]

    with tg.connect(address):
        resumed = made()
        buffer.seek(0)
        read = tg.load(buffer)
        assert (read["epoch"], read["best"], read["note"]) == (3, float("inf"), "so far")
        assert list(read) == ["model", "rest", "epoch", "best", "note"]
        for part, state in zip(resumed, [read["model"], *read["rest"]], strict=True):
            part.load_state_dict(state)
        train(*resumed, 3)
        assert [p.detach().tolist() for p in resumed[0].parameters()] == expected


def test_keys_that_would_meet_stay_apart() -> None:
    buffer = io.BytesIO()
    twice = tg.tensor(3)
    tg.save({"a.b": tg.tensor(1), "a": {"b": tg.tensor(2)}, 7: (twice, [twice]), None: {}}, buffer)
    buffer.seek(0)
    read = tg.load(buffer)
    assert (read["a.b"].item(), read["a"]["b"].item(), read[7][0].item(), read[7][1][0].item()) == (1, 2, 3, 3)
    assert isinstance(read[7], tuple)
    assert read[None] == {}


class Net(tg.nn.Module):
    """A module with a buffer, a part of its own mode and plain attributes."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first, self.norm = tg.nn.Linear(3, width), tg.nn.BatchNorm1d(width)

    def forward(self, x: Any) -> Any:
        """Return the normalized features."""
        return self.norm(self.first(x))


def saved(value: Any) -> io.BytesIO:
    buffer = io.BytesIO()
    tg.save(value, buffer)
    buffer.seek(0)
    return buffer


def test_a_module_is_saved_by_value_and_read_into_a_class_that_is_passed(session: tg.Session, address: str) -> None:
    model = Net().double()
    model(tg.randn(8, 3, dtype=tg.float64))
    model.first.weight.requires_grad_(False)
    model.norm.eval()
    buffer, state = saved(model), {name: value.tolist() for name, value in model.state_dict().items()}
    assert sorted(safetensors.torch.load(buffer.getvalue())) == sorted(state)
    with tg.connect(address), tg.serialization.safe_globals([Net]):
        assert tg.serialization.get_safe_globals() == [Net]
        read = tg.load(buffer, weights_only=True)
        assert type(read) is Net
        assert {name: value.tolist() for name, value in read.state_dict().items()} == state
    assert tg.serialization.get_safe_globals() == []
    for name, parameter in read.named_parameters():
        assert parameter.dtype is tg.float64
        assert parameter.requires_grad == (name != "first.weight")
    assert [part.training for part in (read, read.first, read.norm)] == [True, True, False]


def test_modules_inside_what_is_saved_are_made_by_functions_that_are_passed() -> None:
    models = [Net(5), network(tg)]
    buffer = saved({"models": models, "epoch": 3, "pair": (models[1].eval(), None)})
    name = f"{Net.__module__}.Net"
    made = [(lambda: Net(5), name), (lambda: network(tg), "telegrad.nn.modules.container.Sequential")]
    try:
        tg.serialization.add_safe_globals(made)
        read = tg.load(buffer)
    finally:
        tg.serialization.clear_safe_globals()
    x = tg.ones(2, 3)
    assert read["epoch"] == 3
    assert read["pair"][0](x).tolist() == models[1](x).tolist()
    assert read["models"][0].first.weight.tolist() == models[0].first.weight.tolist()


def test_a_class_that_was_not_passed_is_not_found_or_called() -> None:
    buffer = saved(Net(5))
    with pytest.raises(ValueError, match=rf"Unsupported global: GLOBAL {Net.__module__}\.Net was not"):
        tg.load(buffer)
    for item, error in ((Net, RuntimeError), ((lambda: 3, f"{Net.__module__}.Net"), TypeError)):
        buffer.seek(0)
        with tg.serialization.safe_globals([item]), pytest.raises(error):  # other shapes, and no module
            tg.load(buffer)


def test_an_old_pickle_is_refused() -> None:
    buffer = io.BytesIO()
    torch.save({"x": torch.ones(2)}, buffer, _use_new_zipfile_serialization=False)
    buffer.seek(0)
    with pytest.raises(ValueError, match="is a pickle"):
        tg.load(buffer)


def test_a_container_that_begins_like_a_pickle_is_read() -> None:
    for size in range(40):  # one of the headers is 0x80 bytes long
        read = tg.load(io.BytesIO(safetensors.torch.save({"x" * (size + 1): torch.ones(2)})))
        assert len(read) == 1


def test_damaged_files_are_refused() -> None:
    buffer = io.BytesIO()
    tg.save({"x": tg.ones(3)}, buffer)
    for damaged in (
        b"",
        b"hello",
        buffer.getvalue()[:-1],
        buffer.getvalue().replace(b'\\"tensor\\":\\"x\\"', b'\\"tensor\\":\\"y\\"'),
    ):
        with pytest.raises(ValueError, match=r"safetensors|metadata"):
            tg.load(io.BytesIO(damaged))


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing to see here")
    with pytest.raises(ValueError, match=r"notes\.txt was written neither by telegrad\.save, nor by safetensors"):
        tg.load(tmp_path / "notes.txt")


def test_what_cannot_be_saved_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"not SGD at 'optimizer'; save its state_dict\(\)"):
        tg.save({"optimizer": tg.optim.SGD(network(tg).parameters(), lr=0.1)}, tmp_path / "x")
    with pytest.raises(TypeError, match="a key of a saved dict"):
        tg.save({(1, 2): 3}, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    for function in (lambda: tg.save(tg.ones(2), 3), lambda: tg.load(3)):
        with pytest.raises(AttributeError):
            function()
    with pytest.raises(FileNotFoundError):
        tg.load(tmp_path / "x")


@pytest.mark.parametrize(
    "function",
    [tg.sin, tg.nn.functional.gelu, tg.nn.functional.relu_, tg.linalg.norm, tg.softmax, tg.nn.functional.softmax],
    ids=lambda function: getattr(function, "__qualname__", "relu_"),
)
def test_functions_are_pickled_by_name(function: Any) -> None:
    x = tg.tensor([-1.0, 0.5])
    arguments = (0,) if "softmax" in repr(function) else ()
    copied = pickle.loads(pickle.dumps(function))
    assert copied(x.clone(), *arguments).tolist() == function(x.clone(), *arguments).tolist()


def test_a_transformer_is_pickled_with_its_activation() -> None:
    layer = tg.nn.TransformerEncoderLayer(4, 2, 8, activation="gelu").eval()
    copied = pickle.loads(pickle.dumps(layer))
    x = tg.ones(3, 1, 4)
    assert copied(x).tolist() == layer(x).tolist()


def test_state_dicts_print_as_torchs() -> None:
    same(
        lambda lib: (
            repr(lib.nn.Sequential(lib.nn.ReLU()).state_dict()),
            type(lib.nn.Linear(1, 1).state_dict()).__name__,
        )
    )


def test_torchs_other_options_are_accepted() -> None:
    buffer = io.BytesIO()
    tg.save({"w": tg.ones(2)}, buffer, pickle_protocol=4, _use_new_zipfile_serialization=False)
    buffer.seek(0)
    loaded = tg.load(buffer, "cpu", weights_only=None, mmap=False, encoding="utf-8")
    assert loaded["w"].tolist() == [1.0, 1.0]
    with pytest.raises(AttributeError, match=r"telegrad\.load"):
        tg.serialization.set_default_mmap_options(0)
