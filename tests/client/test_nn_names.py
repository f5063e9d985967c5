"""The names of torch.nn, torch.optim and related modules: all in scope are present, the others have a reason."""

from __future__ import annotations

import importlib
import inspect
import warnings
from typing import Any

import pytest
import torch
import torch.nn.utils.prune

import telegrad as tg

from .parity import bodies, same

pytestmark = pytest.mark.full

DISTRIBUTED = "distributed training over several processes is not in Telegrad; the server computes"
QUANTIZED = "kernels for low-precision numbers of GPUs are not in Telegrad"
KERNELS = "the session has one kernel of attention"
PIPES = "data pipes are not in Telegrad; use Dataset and DataLoader"
INTERNAL = "an internal name of torch's module, and no part of its documented interface"
TRACING = "for the tracing of optimizers to FX graphs, which are not in Telegrad"

LEFT_OUT: dict[str, dict[str, str]] = {
    "nn": {
        "DataParallel": DISTRIBUTED,
        "SyncBatchNorm": DISTRIBUTED,
        "factory_kwargs": INTERNAL,
    },
    "nn.functional": {
        **dict.fromkeys(["grouped_mm", "scaled_grouped_mm", "scaled_mm", "ScalingType", "SwizzleType"], QUANTIZED),
        **dict.fromkeys(["BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "DType", "Optional"], INTERNAL),
        **dict.fromkeys(["GRID_SAMPLE_INTERPOLATION_MODES", "GRID_SAMPLE_PADDING_MODES"], INTERNAL),
        **dict.fromkeys(["assert_int_or_pair", "boolean_dispatch", "handle_torch_function"], INTERNAL),
        **dict.fromkeys(["has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"], INTERNAL),
        **dict.fromkeys(["Tensor", "reproducibility_notes", "sparse_support_notes", "tf32_notes"], INTERNAL),
    },
    "nn.utils": {"stateless": "an old name of torch.func.functional_call"},
    "nn.utils.rnn": dict.fromkeys(["PackedSequence_", "bind", "copy_method_params"], INTERNAL),
    "nn.utils.parametrize": {},
    "nn.utils.parametrizations": {},
    "nn.utils.prune": dict.fromkeys(["ABC", "Iterable", "abstractmethod"], INTERNAL),
    "nn.init": {},
    "nn.parameter": {},
    "nn.attention": {
        **dict.fromkeys(["SDPAParams", "WARN_FOR_UNFUSED_KERNELS"], KERNELS),
        **dict.fromkeys(["can_use_efficient_attention", "can_use_flash_attention"], KERNELS),
        **dict.fromkeys(["activate_flash_attention_impl", "current_flash_attention_impl"], KERNELS),
        **dict.fromkeys(["list_flash_attention_impls", "register_flash_attention_impl"], KERNELS),
        "restore_flash_attention_impl": KERNELS,
    },
    "optim": {"swap_in_optimizer_params_and_state": TRACING},
    "optim.lr_scheduler": {},
    "optim.swa_utils": {},
    "utils.data": {
        "DistributedSampler": DISTRIBUTED,
        **dict.fromkeys(["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe", "functional_datapipe"], PIPES),
        **dict.fromkeys(["argument_validation", "guaranteed_datapipes_determinism", "non_deterministic"], PIPES),
        **dict.fromkeys(["runtime_validation", "runtime_validation_disabled"], PIPES),
    },
}


def names_of(module: Any) -> set[str]:
    """The public names of a torch module."""
    declared = getattr(module, "__all__", None)
    if declared is None:
        declared = [n for n, v in vars(module).items() if not inspect.ismodule(v)]
    defined = [n for n, v in vars(module).items() if callable(v) and str(getattr(v, "__module__", "")) in _OWN]
    return {name for name in [*declared, *defined] if not name.startswith("_")}


_OWN = {f"torch.{name}" for name in LEFT_OUT}


@pytest.mark.parametrize("module", LEFT_OUT)
def test_every_name_in_scope_is_there(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    theirs, ours = (importlib.import_module(f"{lib}.{module}") for lib in ("torch", "telegrad"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = {n for n in names_of(theirs) if hasattr(theirs, n)}
        names = {n for n in names if n not in ("annotations", "TypeVar", "overload", "Any", "Callable", "cast")}
        own = {n for n in names if getattr(getattr(theirs, n), "__module__", "torch").startswith("torch")}
        missing = sorted(n for n in own if not hasattr(ours, n))
    present = len(own) - len(missing)
    with capsys.disabled():
        print(f"\n{module}: {present} of {len(own)}")
    assert set(missing) <= set(LEFT_OUT[module]), sorted(set(missing) - set(LEFT_OUT[module]))


@pytest.mark.parametrize("cls", ["nn.Module", "optim.Optimizer", "optim.lr_scheduler.LRScheduler"])
def test_every_method_is_there(cls: str) -> None:
    left_out = {
        "T_destination": INTERNAL,
        **dict.fromkeys(["ipu", "mtia", "xpu"], "Telegrad's devices are cpu and cuda"),
        "cuda": "comes with Module.to(device)",
        "compile": "use telegrad.compile(module)",
        **dict.fromkeys(["OptimizerPreHook", "OptimizerPostHook", "profile_hook_step"], INTERNAL),
    }
    theirs, ours = torch, tg
    for part in cls.split("."):
        theirs, ours = getattr(theirs, part), getattr(ours, part)
    missing = {n for n in dir(theirs) if not n.startswith("_") and not hasattr(ours, n)}
    assert missing <= set(left_out)


def test_old_names_of_init_warn() -> None:
    for name in ("uniform", "normal", "eye", "xavier_uniform", "kaiming_normal", "orthogonal"):
        weight = tg.zeros(3, 3)
        with pytest.warns(FutureWarning, match=f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`."):
            assert getattr(tg.nn.init, name)(weight) is weight
        assert weight.abs().sum().item() > 0
    with pytest.warns(FutureWarning):
        assert tg.nn.init.constant(tg.zeros(2), 3.0).tolist() == [3.0, 3.0]


OTHER_SIGNATURES = {
    "nn": {
        *("GRU", "LSTM", "RNN", "NLLLoss2d", "Sequential"),  # explicit here, *args in torch
        *("GRUCell", "LSTMCell"),  # torch's signature contains num_chunks of the base class
        "Container",
    },
    "optim": set(),
    "nn.init": set(),
    "nn.utils": set(),
}


@pytest.mark.parametrize("namespace", OTHER_SIGNATURES)
def test_constructors_and_functions_have_torchs_parameters(namespace: str) -> None:
    theirs, ours = (importlib.import_module(f"{lib}.{namespace}") for lib in ("torch", "telegrad"))
    different = set()
    for name in names_of(theirs):
        function = getattr(theirs, name, None)
        if not callable(function) or not hasattr(ours, name) or (name.rstrip("_") != name and namespace != "nn.init"):
            continue
        try:
            wanted = inspect.signature(function).parameters
        except ValueError:  # written in C
            continue
        if any(p.kind is p.VAR_POSITIONAL for p in wanted.values()) and namespace == "nn.init":
            continue  # a deprecated name
        found = inspect.signature(getattr(ours, name)).parameters
        if [(p.name, p.kind) for p in found.values()] != [(p.name, p.kind) for p in wanted.values()]:
            different.add(name)
    assert different == OTHER_SIGNATURES[namespace]


def test_initial_values_come_from_a_generator() -> None:
    names = ("uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "kaiming_normal_", "orthogonal_")
    for name, options in [*((name, {}) for name in names), ("sparse_", {"sparsity": 0.5})]:
        draw = getattr(tg.nn.init, name)
        first, second = (draw(tg.zeros(4, 4), **options, generator=tg.Generator().manual_seed(7)) for _ in range(2))
        assert first.tolist() == second.tolist() != draw(tg.zeros(4, 4), **options).tolist()


class Bodies:
    """Functions whose results must be the same in both libraries."""

    def reset_parameters_forgets_the_batches(lib: Any) -> Any:
        norm = lib.nn.BatchNorm1d(2)
        norm(lib.tensor([[1.0, 2], [3, 5]]))
        norm.reset_parameters()
        return norm.running_mean, norm.running_var, norm.num_batches_tracked

    def lazy_instance_norm_has_parameters(lib: Any) -> Any:
        norm = lib.nn.LazyInstanceNorm1d()
        before = repr(norm)
        norm(lib.tensor([[[1.0, 2], [3, 5]]]))
        return before, repr(norm), sorted(norm.state_dict())

    def pretrained_bags(lib: Any) -> Any:
        weight = lib.tensor([[1.0, 2], [3, 5]])
        bag = lib.nn.EmbeddingBag.from_pretrained(weight, mode="sum", padding_idx=0)
        return bag(lib.tensor([[0, 1, 1]])), repr(bag), bag.weight.requires_grad

    def parameters_from_keys(lib: Any) -> Any:
        made = lib.nn.ParameterDict().fromkeys(["a", "b"], lib.ones(2))
        return list(made), made["a"].requires_grad

    def packed_in_other_dtypes(lib: Any) -> Any:
        packed = lib.nn.utils.rnn.pack_sequence([lib.tensor([1.5, 2.5]), lib.tensor([3.5])])
        kinds = ("long", "int", "short", "char", "byte", "double", "half")
        return [str(getattr(packed, kind)().data.dtype) for kind in kinds], packed.is_pinned()

    def stateless_calls(lib: Any) -> Any:
        model = lib.nn.Linear(2, 1)
        given = {"weight": lib.ones(1, 2), "bias": lib.zeros(1)}
        with pytest.warns(FutureWarning, match="stateless.functional_call. is deprecated"):
            return lib.nn.utils.stateless.functional_call(model, given, lib.ones(3, 2))

    def blocks_of_a_transformer_are_overridden(lib: Any) -> Any:
        class Layer(lib.nn.TransformerEncoderLayer):
            def _sa_block(self, x: Any, *args: Any, **kwargs: Any) -> Any:
                return x * 2

            def _ff_block(self, x: Any) -> Any:
                return x * 3

        return Layer(4, 2, norm_first=True).train()(lib.arange(8.0).reshape(1, 2, 4))


@pytest.mark.parametrize("body", bodies(Bodies))
def test_modules_behave_as_torchs(body: Any) -> None:
    same(body)


def test_hardtanh_takes_old_names() -> None:
    for lib in (torch, tg):
        with pytest.warns(FutureWarning, match="keyword argument `min_value` is deprecated and renamed to `min_val`"):
            assert lib.nn.Hardtanh(min_value=-3.0).min_val == -3.0
        with pytest.warns(FutureWarning, match="keyword argument `max_value` is deprecated and renamed to `max_val`"):
            assert lib.nn.Hardtanh(max_value=0.5)(lib.tensor([2.0])).tolist() == [0.5]
