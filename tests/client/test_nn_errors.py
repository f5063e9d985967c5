"""Mistakes with modules: the built-in class and the text of torch's error, and its warnings."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import telegrad as tg

from .parity import BUILTINS

pytestmark = pytest.mark.usefixtures("session")

MISTAKES = """
nn.Conv2d(3, 4, 3, groups=2)
nn.Conv2d(4, 3, 3, groups=2)
nn.Conv2d(4, 3, 3, groups=0)
nn.Conv2d(3, 4, 3, padding='x')
nn.Conv2d(3, 4, 3, padding='same', stride=2)
nn.ConvTranspose2d(3, 4, 3, padding_mode='reflect')
nn.ConvTranspose2d(3, 4, 3)(t(1, 3, 4, 4), output_size=(9, 9))
nn.ConvTranspose2d(3, 4, 3)(t(1, 3, 4, 4), output_size=(9, ))
nn.Conv2d(3, 4, 3)(t(1, 2, 4, 4))
nn.BatchNorm1d(3)(t(3))
nn.BatchNorm2d(3)(t(3, 3))
nn.BatchNorm3d(3)(t(3, 3))
nn.InstanceNorm2d(3)(t(3, 3))
nn.InstanceNorm1d(3)(t(3))
nn.InstanceNorm1d(3, affine=True)(t(2, 2, 4))
nn.InstanceNorm1d(3)(t(2, 2, 4))
nn.GroupNorm(2, 3)
nn.GroupNorm(2, 4)(t(2, 3))
nn.Embedding(3, 2, 5)
nn.Embedding(3, 2, -5)
nn.Embedding(3, 2, _weight=t(2, 2))
nn.Embedding.from_pretrained(t(2))
nn.RNN(2, 3, nonlinearity='x')
nn.ReLU()()
nn.MSELoss()(t(2))
nn.MaxPool2d(2)(t(1, 2, 2), 3)
nn.RNNCell(2, 3, nonlinearity='x')(t(1, 2))
nn.RNN(2, 3, proj_size=2)
nn.LSTM(2, 3, proj_size=3)
nn.LSTM(2, 3, proj_size=-3)
nn.LSTM(2, 0)
nn.LSTM(2, 3, 0)
nn.LSTM(2, 3.5)
nn.LSTM(2, 3, dropout=2)
nn.LSTM(2, 3, dropout=True)
nn.LSTM(2, 3, dropout=0.5)
nn.LSTM(2, 3)(t(2, 2, 2, 2))
nn.LSTM(2, 3)(t(2, 2, 3))
nn.LSTM(2, 3)(t(2, 2, 2), (t(1, 2, 3), t(1, 3)))
nn.LSTM(2, 3)(t(2, 2, 2), (t(1, 2, 4), t(1, 2, 3)))
nn.LSTM(2, 3)(t(2, 2), (t(1, 2, 3), t(1, 2, 3)))
nn.LSTM(2, 3)(t(2, 2), (t(1, 2, 3), t(1, 3)))
nn.LSTM(2, 3)(t(2, 2, 2), (t(1, 2, 3), t(1, 2, 4)))
nn.LSTM(2, 3)(t(2, 2, 2).double())
nn.GRU(2, 3)(t(2, 2, 2), t(1, 3))
nn.GRU(2, 3)(t(2, 2, 2), t(1, 2, 4))
nn.GRU(2, 3)(t(2, 2), t(1, 2, 3))
nn.GRU(2, 3)(t(2, 2, 2, 2))
nn.RNN(2, 3)(t(2, 2, 2, 2))
nn.GRU(2, 3)(t(0, 2, 2))
nn.RNN(2, 3)(t(2, 2, 3))
nn.GRU(2, 3)(t(2, 2, 2).double())
nn.LSTMCell(2, 3)(t(2, 2, 2))
nn.LSTMCell(2, 3)(t(2, 3))
nn.LSTMCell(2, 3)(t(2, 2), (t(3), t(2, 3)))
nn.LSTMCell(2, 3)(t(2, 2), (t(2, 2, 3), t(2, 3)))
nn.LSTMCell(2, 3)(t(2, 2), (t(2, 2), t(2, 3)))
nn.LSTMCell(2, 3)(t(2, 2), (t(1, 3), t(1, 3)))
nn.RNNCell(2, 3)(t(2, 2, 2))
nn.RNNCell(2, 3)(t(2, 2), t(2, 2, 3))
nn.RNNCell(2, 3)(t(2, 2), t(3))
nn.GRUCell(2, 3)(t(2, 2), t(3, 3))
nn.GRUCell(2, 3)(t(2, 2, 2))
nn.GRUCell(2, 3)(t(2, 2), t(2, 2, 3))
nn.MultiheadAttention(4, 3)
nn.MultiheadAttention(0, 3)
nn.MultiheadAttention(4, 2)(t(2, 4), t(2, 2, 4), t(2, 4))
nn.MultiheadAttention(4, 2)(t(4), t(2, 2, 4), t(2, 4))
nn.MultiheadAttention(4, 2)(t(2, 2, 5), t(2, 2, 4), t(2, 2, 4))
nn.MultiheadAttention(4, 2)(t(2, 2, 4), t(3, 2, 4), t(2, 2, 4))
nn.MultiheadAttention(4, 2)(t(2, 2, 4), t(2, 2, 4), t(2, 2, 4), attn_mask=t(3, 3))
nn.MultiheadAttention(4, 2)(t(2, 2, 4), t(2, 2, 4), t(2, 2, 4), attn_mask=t(3, 3, 3))
nn.MultiheadAttention(4, 2)(t(2, 2, 4), t(2, 2, 4), t(2, 2, 4), attn_mask=t(2, 2).int())
nn.MultiheadAttention(4, 2)(t(2, 2, 4), t(2, 2, 4), t(2, 2, 4), key_padding_mask=t(3, 2))
nn.MultiheadAttention(4, 2)(t(2, 2, 4), t(2, 2, 4), t(2, 2, 4), is_causal=True)
nn.MultiheadAttention(4, 2)(t(2, 2, 4), t(2, 2, 4), t(2, 2, 4), key_padding_mask=t(2, 2).long())
nn.MultiheadAttention(4, 2)(t(2, 4), t(2, 4), t(2, 4), key_padding_mask=t(2, 2))
nn.TransformerEncoderLayer(4, 2, activation='x')
nn.Unflatten(1, 3)
nn.Dropout1d(2)
nn.GLU()(t(3))
nn.Hardtanh(2, 1)
nn.PoissonNLLLoss(reduction='x')(t(2), t(2))
nn.MSELoss(reduction='x')(t(2), t(2))
nn.MultiMarginLoss(3)
nn.MultiMarginLoss(1, weight=t(2, 2))
nn.TripletMarginLoss(margin=-1)
nn.KLDivLoss(reduction='x')(t(2), t(2))
nn.BCELoss()(t(2), t(3))
nn.ModuleList()[3]
nn.ModuleList([nn.Tanh()])[3]
nn.ModuleList().extend(3)
nn.ModuleList([3])
nn.ModuleList()(3)
nn.ModuleList().pop(0)
nn.ModuleDict()['a']
nn.ModuleDict({'a':3})
nn.ModuleDict().update(3)
nn.ModuleDict().update([3])
nn.ModuleDict().update([(1, 2, 3)])
nn.ModuleDict({1:nn.Tanh()})
nn.ParameterList().extend(3)
nn.ParameterList()[0]
nn.ParameterList()(1)
nn.ParameterDict()['a']
nn.ParameterDict().update(3)
nn.ParameterDict({1:t(2)})
nn.ParameterDict()(1)
nn.init.uniform_(t(2), 3, 1)
nn.init.eye_(t(2))
nn.init.orthogonal_(t(2))
nn.init.dirac_(t(2))
nn.init.dirac_(t(3, 2, 2), 2)
nn.init.sparse_(t(3), .5)
nn.init.kaiming_normal_(t(2, 2), mode='x')
nn.init.kaiming_normal_(t(2, 2), nonlinearity='x')
nn.init.calculate_gain('leaky_relu', 'x')
nn.init.calculate_gain('leaky_relu', True)
nn.init.xavier_normal_(t(2))
nn.init.kaiming_uniform_(t(2, 0))
nn.init.trunc_normal_(t(2), mean=5.)
nn.utils.clip_grad_norm_((p for p in []), 1.)
nn.utils.parameters_to_vector([])
nn.utils.vector_to_parameters(3, [t(2)])
nn.utils.vector_to_parameters(t(2), [t(3)])
nn.Module().get_submodule('a')
nn.Linear(1, 1).get_submodule('weight')
nn.Linear(1, 1).get_parameter('a')
nn.Linear(1, 1).get_parameter('training')
nn.Linear(1, 1).get_buffer('weight')
nn.Linear(1, 1).get_buffer('x')
nn.Upsample()(t(1, 1, 2))
nn.Module(1)
nn.Module(a=1)
nn.CosineEmbeddingLoss()(t(2, 2), t(2, 2), t(3))
""".strip().splitlines()
"""Python expressions of ``nn`` and ``t``, which creates a tensor of ones."""


def outcome(expression: str, lib: Any) -> Any:
    """The built-in class and text of the error, or None, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        raised = None
        try:
            eval(expression, {"nn": lib.nn, "t": lib.ones})
        except Exception as error:  # every exception is compared
            kinds = (*BUILTINS[:-2], AssertionError, *BUILTINS[-2:])
            raised = next((kind for kind in kinds if isinstance(error, kind)), None), str(error)
    return raised, [str(w.message) for w in caught]


@pytest.mark.parametrize("expression", MISTAKES)
def test_it_is_torchs(expression: str) -> None:
    expected = outcome(expression, torch)
    assert expected != (None, [])
    assert outcome(expression, tg) == expected


def test_what_is_not_supported_says_what_to_use() -> None:
    with pytest.raises(NotImplementedError, match="register_full_backward_hook"):
        tg.nn.Linear(1, 1).register_backward_hook(print)
