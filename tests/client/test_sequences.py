"""Sequences of different lengths: packed, padded, and in recurrent networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import telegrad as tg

from .parity import bodies, same

pytestmark = pytest.mark.usefixtures("session")
LENGTHS = {"sorted": ([5, 3, 3, 1], True), "unsorted": ([2, 5, 1, 4], False), "alike": ([4, 4, 4, 4], True)}


def filled(lib: Any, *shape: int, requires_grad: bool = False) -> Any:
    """A tensor with the same numbers in both libraries."""
    values = np.sin(np.arange(np.prod(shape), dtype=np.float64) * 1.7).reshape(shape)
    return lib.tensor(values, requires_grad=requires_grad)


def network(lib: Any, kind: str, **options: Any) -> Any:
    made = getattr(lib.nn, kind)(3, 4, dtype=lib.float64, **options)
    with lib.no_grad():
        for parameter in made.parameters():
            parameter.copy_(filled(lib, *parameter.shape) * 0.5)
    return made


NETWORKS = [
    ("RNN", {}),
    ("RNN", {"nonlinearity": "relu", "bidirectional": True}),
    ("GRU", {"num_layers": 2}),
    ("LSTM", {"bias": False}),
    ("LSTM", {"num_layers": 2, "bidirectional": True}),
    ("LSTM", {"proj_size": 2}),
    ("LSTM", {"proj_size": 2, "num_layers": 2, "bidirectional": True, "bias": False}),
]


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("order", LENGTHS)
@pytest.mark.parametrize(("kind", "options"), NETWORKS)
def test_packed_through_a_network(kind: str, options: dict[str, Any], order: str, given: bool) -> None:
    def run(lib: Any) -> Any:
        rnn, pack = network(lib, kind, **options), lib.nn.utils.rnn
        x = filled(lib, 5, 4, 3, requires_grad=True)
        lengths, enforce = LENGTHS[order]
        count = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
        hx = filled(lib, count, 4, options.get("proj_size", 4), requires_grad=True)
        states = (hx, filled(lib, count, 4, 4)) if kind == "LSTM" else hx
        packed = pack.pack_padded_sequence(x, lengths, enforce_sorted=enforce)
        output, end = rnn(packed, states) if given else rnn(packed)
        ends = end if kind == "LSTM" else (end,)
        padded, found = pack.pad_packed_sequence(output, batch_first=True, padding_value=7.0)
        (padded.sin().sum() + sum((state * state).sum() for state in ends)).backward()
        return padded, found, ends, x.grad, hx.grad, [p.grad for p in rnn.parameters()], output.batch_sizes

    same(run)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("options", [options for _, options in NETWORKS if "proj_size" in options])  # type: ignore[operator]
def test_projections(options: dict[str, Any], batch_first: bool) -> None:
    def run(lib: Any) -> Any:
        lstm = network(lib, "LSTM", batch_first=batch_first, **options)
        x = filled(lib, 2, 3, 3, requires_grad=True)
        output, (state, cell) = lstm(x)
        output, (state, cell) = lstm(x * 0.5, (state, cell))
        (output.sum() + (state * 2).sum() + cell.sin().sum()).backward()
        single, _ = lstm(x[0])
        return output, state, cell, single, x.grad, [p.grad for p in lstm.parameters()], repr(lstm)

    same(run)


def test_dropout_between_packed_layers() -> None:
    lstm = tg.nn.LSTM(3, 4, num_layers=2, dropout=0.5)
    packed = tg.nn.utils.rnn.pack_padded_sequence(tg.randn(5, 2, 3), [5, 2])
    first, second = lstm(packed)[0].data, lstm(packed)[0].data
    assert not first.equal(second)
    lstm.eval()
    assert lstm(packed)[0].data.equal(lstm(packed)[0].data)


class Bodies:
    """Functions whose results must be the same in both libraries."""

    def packing(lib: Any) -> Any:
        found = []
        for lengths, enforce in LENGTHS.values():
            for batch_first in (False, True):
                x = filled(lib, *((4, 5, 2) if batch_first else (5, 4, 2)))
                given = lib.tensor(lengths) if batch_first else lengths
                p = lib.nn.utils.rnn.pack_padded_sequence(x, given, batch_first, enforce)
                found.append((p.data, p.batch_sizes, p.unsorted_indices))
                found.append(lib.nn.utils.rnn.pad_packed_sequence(p, batch_first, -1.0, 6))
        return found

    def shorter_than_the_padding(lib: Any) -> Any:
        p = lib.nn.utils.rnn.pack_padded_sequence(filled(lib, 5, 2, 3), [3, 2])
        return p.data, lib.nn.utils.rnn.pad_packed_sequence(p)

    def padding(lib: Any) -> Any:
        sequences = [filled(lib, n, 2, requires_grad=True) for n in (3, 1, 2)]
        pad = lib.nn.utils.rnn.pad_sequence
        padded = pad(sequences, padding_value=5.0), pad(sequences, True), pad(sequences, True, 1.0, "left")
        sum(p.sin().sum() for p in padded).backward()
        return padded, [s.grad for s in sequences], pad([filled(lib, 3), filled(lib, 2)])

    def back_again(lib: Any) -> Any:
        rnn = lib.nn.utils.rnn
        sequences = [filled(lib, n) for n in (3, 1, 2)]
        packed = rnn.pack_sequence(sequences, enforce_sorted=False)
        return rnn.unpack_sequence(packed), rnn.unpad_sequence(rnn.pad_sequence(sequences), lib.tensor([3, 1, 2]))

    def other_dtypes_and_by_hand(lib: Any) -> Any:
        rnn = lib.nn.utils.rnn
        packed = rnn.pack_sequence([filled(lib, 3), filled(lib, 2)])
        again = rnn.PackedSequence(packed.data * 2, lib.tensor([2, 2, 1]))
        unchanged = packed.to(lib.float64) is packed
        return packed.float().data, packed.half().data, rnn.pad_packed_sequence(again), unchanged

    def gradients_through_packing(lib: Any) -> Any:
        x = filled(lib, 4, 3, 2, requires_grad=True)
        p = lib.nn.utils.rnn.pack_padded_sequence(x, [2, 4, 3], enforce_sorted=False)
        p.data.exp().sum().backward()
        return x.grad


@pytest.mark.parametrize("body", bodies(Bodies))
def test_torchs(body: Any) -> None:
    same(body)


def test_no_message_on_the_way(session: tg.Session) -> None:
    lstm = tg.nn.LSTM(3, 4, bidirectional=True)
    session.flush()
    before = session.requests
    packed = tg.nn.utils.rnn.pack_padded_sequence(tg.randn(6, 3, 3), [6, 2, 1])
    padded, _ = tg.nn.utils.rnn.pad_packed_sequence(lstm(packed)[0])
    padded.sum().backward()
    assert session.requests == before
    session.flush()


def test_batches_that_all_count_alike(session: tg.Session) -> None:
    def run(lib: Any) -> Any:
        norm = lib.nn.BatchNorm1d(3, momentum=None, dtype=lib.float64)
        outputs = [norm(filled(lib, 4, 3) * n + n) for n in (1, 2, 3)]
        norm.eval()
        return outputs, norm(filled(lib, 2, 3)), norm.running_mean, norm.running_var, norm.num_batches_tracked.item()

    same(run)
    norm = tg.nn.BatchNorm1d(3, momentum=None)
    session.flush()
    before = session.requests
    norm(tg.randn(4, 3))
    assert session.requests == before


def test_clipping_takes_no_message(session: tg.Session) -> None:
    model = tg.nn.Linear(3, 2)
    model(tg.randn(4, 3)).sum().backward()
    session.flush()
    before = session.requests
    norm = tg.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    assert isinstance(norm, tg.Tensor) and session.requests == before
    assert norm.item() > 0.1
    assert session.requests == before + 1
