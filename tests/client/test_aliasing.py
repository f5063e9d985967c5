"""Which tensors share memory, and which in-place changes are detected, as in torch and without asking the server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import same, same_error

NUMBERS = np.random.default_rng(0).standard_normal((2, 3, 4))


def test_contiguous_returns_the_tensor_itself_where_it_is(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor(NUMBERS)
        y = x.detach().transpose(0, 1)
        tensors = [
            *(x, x[0], x[:1], x[:, :1], x[:, 0], x[1:, :2], x.unsqueeze(1), x.expand(2, 2, 3, 4), x.reshape(6, 4)),
            *(x.transpose(0, 2), x.transpose(0, 2).transpose(0, 2), x.permute(2, 0, 1)[0], x.movedim(0, 1)),
            *(x.transpose(1, 2).reshape(-1), lib.einsum("abc->cab", x), y, y.detach(), y.data, y.contiguous()),
            *(x.transpose(0, 1).detach()[:1], x[:, ::2], x.flatten(1), x.diagonal(0, 0, 1), x.split(1, 1)[1]),
        ]
        return [t.contiguous() is t for t in tensors]

    same(function)
    assert session.requests == 0


def test_what_is_written_to_a_contiguous_tensor_reaches_it(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor(NUMBERS, requires_grad=True)
        h = x * 1
        h.contiguous().mul_(10)
        turned = h.transpose(0, 1)
        turned.contiguous().mul_(3)  # a copy
        h.sum().backward()
        return h, x.grad, x._version, h._version

    same(function)


def test_contiguous_after_a_change_of_geometry_in_place(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor(NUMBERS[0])
        view = x[:2]
        x.t_()
        copied = x.contiguous()
        return copied is x, x.t().contiguous() is x.t(), copied, view.contiguous() is view, x[:1], view

    values = same(lambda lib: [v for i, v in enumerate(function(lib)) if i != 1])
    assert values[0] is False


def test_a_reshape_that_copies_is_no_view(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor(NUMBERS, requires_grad=True)
        y = x.exp()
        copied, shown = y.transpose(0, 1).reshape(-1), y.reshape(-1)
        copied.mul_(3)  # exp saved y, and this is a copy of y
        (copied.sum() + y.sum()).backward()
        before = y._version
        with lib.no_grad():
            shown.mul_(2)
        return x.grad, before, y._version, copied, y

    same(function)


def test_a_view_that_overlaps_itself_is_a_view(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor(NUMBERS.reshape(-1), requires_grad=True)
        y = x * 2
        windows = y.unfold(0, 3, 5)
        windows.mul_(4)
        strided = y.as_strided((2, 2), (5, 1), 3)
        strided.add_(1)
        y.pow(2).sum().backward()
        return y, x.grad, y._version

    same(function)


def test_changes_of_data_go_unnoticed(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor([2.0, 3.0], requires_grad=True)
        y = x * x
        x.data.mul_(10)
        y.sum().backward()
        return x, x.grad, x._version

    same(function)


def test_changes_of_detached_tensors_are_noticed(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor([2.0, 3.0], requires_grad=True)
        y = x * x
        x.detach().mul_(10)
        y.sum().backward()

    same_error(function, "modified by an inplace operation")


def test_a_program_that_takes_a_tensor_and_its_data_sees_one_memory(session: tg.Session) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor(NUMBERS[0])
        data = x.data
        for _ in range(12):  # long enough to be planned
            y = x * 2
            data.add_(y)
            x.mul_(0.25)
            x.sum().item()
        return x, data

    same(function)


@pytest.mark.parametrize("kind", ["GRUCell", "LSTMCell", "GRU", "RNN"])
def test_the_output_of_a_recurrent_layer_may_be_modified(session: tg.Session, kind: str) -> None:
    torch.manual_seed(0)
    weights = {name: p.detach().numpy() for name, p in getattr(torch.nn, kind)(4, 5).named_parameters()}

    def function(lib: Any) -> Any:
        layer = getattr(lib.nn, kind)(4, 5)
        layer.load_state_dict({name: lib.tensor(value) for name, value in weights.items()})
        x = lib.tensor(NUMBERS.astype(np.float32) if not kind.endswith("Cell") else NUMBERS[0].astype(np.float32))
        out = layer(x.requires_grad_())
        out = out[0] if isinstance(out, tuple) else out
        out.mul_(2)
        (out * out).sum().backward()
        return out, x.grad

    same(function, rtol=1e-4)


def test_what_the_derivative_needs_may_still_not_be_modified(session: tg.Session) -> None:
    for lib in (torch, tg):
        out: Any = lib.nn.RNNCell(4, 5)(lib.tensor(NUMBERS[0].astype(np.float32)))
        out.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


@pytest.mark.parametrize(
    "call",
    [
        lambda F, x: F.repeat_interleave(x, 1),
        lambda F, x: F.repeat_interleave(x[:, :1], 1, dim=1),
        lambda F, x: F.max_pool1d(x, 1),
        lambda F, x: F.pixel_shuffle(x.unsqueeze(0), 1),
        lambda F, x: F.channel_shuffle(x.unsqueeze(0), 1),
        lambda F, x: F.nn.functional.unfold(x.unsqueeze(0), 1),
    ],
    ids=["repeat_interleave", "repeat_interleave-dim", "max_pool1d", "pixel_shuffle", "channel_shuffle", "unfold"],
)
def test_a_copy_does_not_change_with_its_source(session: tg.Session, call: Any) -> None:
    def function(lib: Any) -> Any:
        x = lib.tensor(NUMBERS)
        copied = call(lib, x)
        x.zero_()
        return copied

    same(function)
