"""The import paths of torch code work with telegrad."""

from __future__ import annotations

from importlib import import_module

import pytest

PATHS = {
    "amp": "autocast GradScaler",
    "autograd": "Function backward grad detect_anomaly set_detect_anomaly functional gradcheck profiler",
    "autograd.anomaly_mode": "detect_anomaly set_detect_anomaly",
    "autograd.function": "Function once_differentiable",
    "autograd.functional": "hessian hvp jacobian jvp vhp vjp",
    "autograd.gradcheck": "gradcheck gradgradcheck",
    "autograd.profiler": "profile record_function",
    "linalg": "cholesky norm solve",
    "nn": "Module LSTM utils functional init",
    "nn.functional": "relu dropout cross_entropy",
    "nn.init": "xavier_uniform_ kaiming_normal_",
    "nn.parameter": "Parameter",
    "nn.utils": "clip_grad_norm_ clip_grad_value_ parameters_to_vector rnn",
    "nn.utils.rnn": "PackedSequence pack_padded_sequence pack_sequence pad_packed_sequence pad_sequence unpad_sequence",
    "optim": "SGD Adam lr_scheduler",
    "optim.lr_scheduler": "StepLR OneCycleLR",
    "profiler": "ProfilerAction ProfilerActivity profile record_function schedule",
    "random": "fork_rng get_rng_state initial_seed manual_seed seed set_rng_state",
    "utils.checkpoint": "checkpoint checkpoint_sequential set_checkpoint_early_stop noop_context_fn",
    "utils.data": "DataLoader Dataset TensorDataset random_split",
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("library", ["torch", "telegrad"])
def test_it_is_there(library: str, path: str) -> None:
    module = import_module(f"{library}.{path}")
    assert [name for name in PATHS[path].split() if not hasattr(module, name)] == []
