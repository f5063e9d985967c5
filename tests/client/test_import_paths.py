"""The import paths of torch code work with telegrad, and modules that few programs need are imported on demand."""

from __future__ import annotations

import subprocess
import sys
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
    "backends.cpu": "get_cpu_capability",
    "backends.cuda": "is_built matmul sdp_kernel",
    "backends.cudnn": "benchmark deterministic flags is_available",
    "backends.mha": "get_fastpath_enabled set_fastpath_enabled",
    "backends.mkl": "is_available",
    "backends.mkldnn": "enabled is_available",
    "backends.mps": "is_available is_built",
    "backends.openmp": "is_available",
    "backends.opt_einsum": "enabled is_available strategy",
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


UNUSED = (
    "httpx",
    "optree",
    "telegrad.nn",
    "telegrad.optim",
    "telegrad_engine.compile",
    "telegrad_engine.session.session",
)
"""Modules that take long to import and that only some programs need."""
ON_DEMAND = [
    *("aconnect", "aio", "autograd.forward_ad", "autograd.functional", "autograd.profiler", "backends", "cuda"),
    *("compile", "func", "load", "nn", "optim", "profiler", "return_types", "save", "testing", "utils", "vmap"),
]


def run(code: str) -> str:
    """What a new process prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_telegrad_imports_nothing_that_only_some_programs_need() -> None:
    code = f"import sys, telegrad; print([name for name in {UNUSED!r} if name in sys.modules])"
    assert run(code) == "[]"


def test_a_module_imported_on_demand_may_be_used_first() -> None:
    """Each is used in a process of its own, to which telegrad alone has been imported."""
    code = f"""
import os, telegrad as tg
for name in {ON_DEMAND!r}:
    if not os.fork():
        parent, _, last = f"tg.{{name}}".rpartition(".")
        listed = last in dir(eval(parent))
        os._exit(not (listed and eval(f"tg.{{name}} is tg.{{name}}") and last in vars(eval(parent))))
    if os.wait()[1]:
        print(name)
"""
    assert run(code) == ""


def test_a_module_compiles_its_forward_after_an_import_of_nn_alone() -> None:
    code = (
        "from telegrad.nn import Linear; layer = Linear(2, 1); layer.compile(); import telegrad as tg; "
        "print(type(layer.forward).__name__, tuple(layer(tg.ones(3, 2)).shape))"
    )
    assert run(code) == "CompiledFunction (3, 1)"
