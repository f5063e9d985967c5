"""Other features of modules: state dicts with hooks and extra state, lazy parameters, buffers, old names."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import bodies, check, same, same_error

pytestmark = pytest.mark.usefixtures("session")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 6))
IMAGES = RNG.standard_normal((2, 9, 3, 3))


def with_state_of(module: Any, other: Any) -> Any:
    module.load_state_dict(other.state_dict())
    return module


class Same:
    """Functions whose results must be the same in both libraries."""

    def lrn(lib: Any) -> Any:
        layer = lib.nn.CrossMapLRN2d(5, 0.1, 0.7, 2)
        return layer(lib.tensor(IMAGES[:, :3])), repr(layer)

    def lrn_of_more_channels(lib: Any) -> Any:
        return lib.nn.CrossMapLRN2d(3, 0.1, 0.7, 2)(lib.tensor(IMAGES))

    def buffers(lib: Any) -> Any:
        module = lib.nn.Module()
        module.kept = lib.nn.Buffer(lib.ones(2))
        module.passing = lib.nn.Buffer(lib.zeros(3), persistent=False)
        module.plain = lib.ones(1)
        module.kept = lib.full((2,), 3.0)
        found = {name: type(b) is lib.Tensor for name, b in module.named_buffers()}
        return found, dict(module.state_dict()), isinstance(module.passing, lib.nn.Buffer)

    def container(lib: Any) -> Any:
        return [name for name, _ in lib.nn.Container(a=lib.nn.ReLU(), b=lib.nn.Tanh()).named_children()]

    def causal_mask(lib: Any) -> Any:
        return lib.nn.Transformer.generate_square_subsequent_mask(3)

    def submodules(lib: Any) -> Any:
        module = lib.nn.Sequential(lib.nn.Sequential(lib.nn.ReLU()))
        module.set_submodule("0.0", lib.nn.Tanh())
        module.set_submodule("0.new", lib.nn.Linear(1, 1))
        return repr(module)

    def emptied(lib: Any) -> Any:
        module = lib.nn.BatchNorm1d(3).to_empty(device="cpu")
        return [(name, tuple(t.shape)) for name, t in module.state_dict().items()]

    def extra_state(lib: Any) -> Any:
        class Counting(lib.nn.Linear):
            count = 3

            def get_extra_state(self) -> Any:
                return {"count": self.count}

            def set_extra_state(self, state: Any) -> None:
                self.count = state["count"] + 1

        module = lib.nn.Sequential(Counting(1, 1))
        state = module.state_dict()
        fresh = lib.nn.Sequential(Counting(1, 1))
        fresh.load_state_dict(state)
        return list(state), fresh[0].count, state["0._extra_state"]

    def hooks(lib: Any) -> Any:
        calls: list[Any] = []
        module = lib.nn.Sequential(lib.nn.Linear(1, 1, bias=False))
        module[0].register_state_dict_pre_hook(lambda m, prefix, keep: calls.append(("save", prefix, keep)))
        module.register_state_dict_post_hook(lambda m, state, prefix, meta: state.update(more=1) or None)
        module[0].register_load_state_dict_pre_hook(lambda m, s, prefix, meta, *_: calls.append(("load", prefix, meta)))
        module.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.clear())
        state = module.state_dict()
        module.load_state_dict(state)
        return list(state), calls, dict(state._metadata)

    def assigned(lib: Any) -> Any:
        module = lib.nn.Linear(2, 1)
        given = lib.ones(1, 2)
        module.load_state_dict({"weight": given, "bias": lib.zeros(1)}, assign=True)
        with lib.no_grad():
            module.weight += 1
        return given, type(module.weight).__name__, module.weight.requires_grad

    def saved_into(lib: Any) -> Any:
        state: dict[str, Any] = {}
        lib.nn.Linear(1, 2).state_dict(destination=state, prefix="deep.")
        return list(state)

    def partial_state(lib: Any) -> Any:
        module = lib.nn.Sequential(lib.nn.Linear(1, 1))
        keys = module.load_state_dict({"0.bias": lib.zeros(1), "1.weight": 0, "odd": 1}, strict=False)
        return keys.missing_keys, keys.unexpected_keys

    def lazy_state(lib: Any) -> Any:
        source = lib.nn.Linear(3, 2)
        lazy = lib.nn.LazyLinear(2)
        before = repr(lazy), repr(lazy.weight), lazy.has_uninitialized_params(), list(lazy.state_dict())
        lazy.load_state_dict(source.state_dict())
        after = lazy.has_uninitialized_params(), tuple(lazy.weight.shape)
        with lib.no_grad():
            lazy(lib.ones(1, 3))
        return before, after, repr(lazy)

    def lazy_copies(lib: Any) -> Any:
        lazy = lib.nn.Sequential(lib.nn.LazyLinear(3), lib.nn.LazyLinear(2))
        copied = copy.deepcopy(lazy)
        copied(lib.ones(4, 6))
        return repr(lazy), repr(copied), [(n, tuple(t.shape)) for n, t in copied.state_dict().items()]

    def lazy_in_double(lib: Any) -> Any:
        lazy = lib.nn.LazyConv2d(2, 3).double()
        return tuple(lazy(lib.tensor(IMAGES)).shape), str(lazy.weight.dtype).removeprefix("torch.").split(".")[-1]

    def old_nll(lib: Any) -> Any:
        return lib.nn.NLLLoss2d()(lib.tensor(IMAGES), lib.tensor(RNG.integers(0, 1, (2, 3, 3))))

    def conv_tbc(lib: Any) -> Any:
        weight = lib.tensor(IMAGES[0].reshape(3, 3, 9)[:, :, :4])
        return lib.nn.functional.conv_tbc(lib.tensor(IMAGES[:, 0]), weight, lib.ones(4, dtype=lib.float64), 1)

    def pools_with_indices(lib: Any) -> Any:
        return lib.nn.functional.max_pool2d_with_indices(lib.tensor(IMAGES), 2)

    def distances(lib: Any) -> Any:
        a, b, c = (lib.tensor(x) for x in (X[0:1], X[1:2], X[2:3]))
        f = lib.nn.functional.triplet_margin_with_distance_loss
        return f(a, b, c), f(a, b, c, swap=True, margin=2.0, reduction="sum"), f(a, b, c, reduction="none")

    def attention(lib: Any) -> Any:
        q, k = lib.tensor(X.reshape(2, 2, 6)), lib.tensor(X.reshape(2, 2, 6)[::-1].copy())
        packed, out = lib.tensor(RNG_MATRIX), lib.tensor(RNG_MATRIX[:6])
        rest = (None, None, True, 0.0, out, None)
        both = lib.nn.functional.multi_head_attention_forward(q, k, k, 6, 2, packed, None, *rest)
        static = lib.tensor(X[:, :3].reshape(4, 1, 3))
        fixed = lib.nn.functional.multi_head_attention_forward(
            q, k, k, 6, 2, packed, None, *rest, static_k=static, static_v=static, average_attn_weights=False
        )
        return both, fixed

    def loss_of_a_linear_layer(lib: Any) -> Any:
        x, w = lib.tensor(X, requires_grad=True), lib.tensor(RNG_MATRIX[:5], requires_grad=True)
        loss = lib.nn.functional.linear_cross_entropy(x, w, lib.tensor([0, 1, 4, 2]), label_smoothing=0.1)
        loss.backward()
        return loss, x.grad, w.grad

    def kernels(lib: Any) -> Any:
        with lib.nn.attention.sdpa_kernel([lib.nn.attention.SDPBackend.MATH]):
            return lib.nn.functional.scaled_dot_product_attention(*[lib.tensor(X)] * 3)


RNG_MATRIX = np.random.default_rng(1).standard_normal((18, 6))


@pytest.mark.parametrize("function", bodies(Same))
def test_it_is_torchs(function: Callable[[Any], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(function, 1e-6)


def adaptive(lib: Any) -> Any:
    return lib.nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7], div_value=2.0, head_bias=True).double()


@pytest.mark.parametrize("targets", [[0, 2, 5, 11], [1, 1, 0, 2], [7, 3, 8, 9]])
def test_the_adaptive_softmax(targets: list[int]) -> None:
    theirs = adaptive(torch)
    ours = with_state_of(adaptive(tg), theirs)
    assert repr(ours) == repr(theirs)
    results = []
    for lib, layer in ((tg, ours), (torch, theirs)):
        x = lib.tensor(X, requires_grad=True)
        output, loss = layer(x, lib.tensor(targets))
        loss.backward()
        single = layer(x[0], lib.tensor(targets[0]))
        results.append([output, loss, x.grad, layer.log_prob(x), layer.predict(x), *single])
        results[-1] += [p.grad for p in layer.parameters() if p.grad is not None]
    check(results[0], results[1], 1e-9)


class Mistakes:
    def cutoffs(lib: Any) -> Any:
        return lib.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [3, 2])

    def no_cutoffs(lib: Any) -> Any:
        return lib.nn.AdaptiveLogSoftmaxWithLoss(4, 5, [])

    def target_out_of_range(lib: Any) -> Any:
        return adaptive(lib)(lib.tensor(X), lib.tensor([0, 1, 2, 12]))

    def targets_of_another_size(lib: Any) -> Any:
        return adaptive(lib)(lib.tensor(X), lib.tensor([0, 1]))

    def targets_of_two_dims(lib: Any) -> Any:
        return adaptive(lib)(lib.tensor(X), lib.tensor([[0, 1]]))

    def lrn_dims(lib: Any) -> Any:
        return lib.nn.CrossMapLRN2d(2)(lib.tensor(X))

    def fraction_without_size(lib: Any) -> Any:
        return lib.nn.FractionalMaxPool2d(2)

    def fraction_with_both(lib: Any) -> Any:
        return lib.nn.FractionalMaxPool2d(2, 2, 0.5)

    def fraction_above_one(lib: Any) -> Any:
        return lib.nn.FractionalMaxPool3d(2, output_ratio=1.5)

    def window_too_large(lib: Any) -> Any:
        return lib.nn.FractionalMaxPool2d(3, 3)(lib.tensor(IMAGES))

    def volume_too_small(lib: Any) -> Any:
        return lib.nn.FractionalMaxPool3d(2, 2)(lib.tensor(IMAGES.reshape(1, 2, 9, 3, 3)))

    def lazy_dims(lib: Any) -> Any:
        return lib.nn.LazyConv2d(2, 3)(lib.tensor(X))

    def lazy_shape(lib: Any) -> Any:
        return lib.nn.LazyLinear(2).weight.shape

    def lazy_groups(lib: Any) -> Any:
        return lib.nn.LazyConv2d(2, 3, groups=2)(lib.tensor(IMAGES, dtype=lib.float32))

    def batches(lib: Any) -> Any:
        return lib.nn.Transformer(4, 2, 1, 1, 4, batch_first=True)(lib.ones(2, 3, 4), lib.ones(1, 3, 4))

    def features(lib: Any) -> Any:
        return lib.nn.Transformer(4, 2, 1, 1, 4, batch_first=True)(lib.ones(3, 2, 6), lib.ones(3, 2, 6))

    def activation(lib: Any) -> Any:
        return lib.nn.TransformerDecoderLayer(4, 2, activation="tanh")

    def hook_result(lib: Any) -> Any:
        module = lib.nn.Linear(1, 1)
        module.register_load_state_dict_post_hook(lambda m, keys: keys)
        return module.load_state_dict(module.state_dict())

    def no_kernel(lib: Any) -> Any:
        with lib.nn.attention.sdpa_kernel("math"):
            return 0

    def no_name(lib: Any) -> Any:
        return lib.nn.Sequential().set_submodule("", lib.nn.ReLU())

    def no_such_child(lib: Any) -> Any:
        return lib.nn.Sequential().set_submodule("a.b", lib.nn.ReLU())

    def keyword(lib: Any) -> Any:
        return lib.nn.Module(size=3)

    def linear_features(lib: Any) -> Any:
        return lib.nn.functional.linear_cross_entropy(lib.tensor(X), lib.ones(3, 2), lib.tensor([0] * 4))

    def linear_policy(lib: Any) -> Any:
        return lib.nn.LinearCrossEntropyOptions(acc_policy="best")

    def margin(lib: Any) -> Any:
        return lib.nn.functional.triplet_margin_with_distance_loss(*[lib.tensor(X)] * 3, margin=0)

    def extra_keys(lib: Any) -> Any:
        module = lib.nn.Sequential(lib.nn.Linear(1, 1))
        return module.load_state_dict({"0.weight": lib.ones(2, 1), "other": lib.ones(1)})


@pytest.mark.parametrize("function", bodies(Mistakes))
def test_mistakes_are_torchs(function: Callable[[Any], Any]) -> None:
    same_error(function)


def test_the_gradient_of_crossmap_normalization() -> None:
    """Compared with numerical gradients, since torch's backward is not a valid reference."""
    layer = tg.nn.CrossMapLRN2d(3, 0.5, 0.7, 2)
    assert tg.autograd.gradcheck(layer, (tg.tensor(IMAGES[:1, :4, :2, :1], requires_grad=True),))


def test_old_names_of_resampling_warn() -> None:
    for name in ("upsample", "upsample_nearest", "upsample_bilinear"):

        def call(lib: Any) -> Any:
            with pytest.warns(UserWarning, match=f"`nn.functional.{name}` is deprecated"):  # noqa: B023
                return getattr(lib.nn.functional, name)(lib.tensor(IMAGES), scale_factor=2)  # noqa: B023

        same(call)
