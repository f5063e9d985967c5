"""Parts around modules: hooks, containers, buffers, state dicts, lazy parameters, initial values, long sequences."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad import nn

from .parity import bodies, check, same

pytestmark = pytest.mark.usefixtures("session")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 2))
W = RNG.standard_normal((2, 2))
ROWS = RNG.standard_normal((4, 6))
IMAGES = RNG.standard_normal((2, 9, 3, 3))
MATRIX = RNG.standard_normal((18, 6))


def linear(lib: Any) -> Any:
    layer = lib.nn.Linear(2, 2).double()
    with lib.no_grad():
        layer.weight.copy_(lib.tensor(W))
        layer.bias.fill_(0.5)
    return layer


# The dictionaries of hooks, which published code reads and changes -------------------------------


def dictionaries(lib: Any) -> Any:
    """The private attributes of a module, by name, with their types and contents."""
    return {name: (type(value).__name__, repr(value)) for name, value in vars(lib.nn.Module()).items()}


def test_a_module_has_the_attributes_of_torchs() -> None:
    assert dictionaries(tg) == dictionaries(torch)


def registered(lib: Any, register: str, options: dict[str, bool]) -> Any:
    """What each dictionary holds of a hook, while it is registered and after it was removed."""
    layer, calls = linear(lib), []

    def hook(*args: Any, **kwargs: Any) -> None:
        calls.append(len(args))

    def found() -> Any:
        tables = {name: value for name, value in vars(layer).items() if isinstance(value, OrderedDict)}
        return {
            name: [getattr(value, "__name__", value) for value in table.values()]
            for name, table in tables.items()
            if handle.id in table
        }

    handle = getattr(layer, register)(hook, **options)
    before = found()
    layer(lib.tensor(X).requires_grad_()).sum().backward()
    layer.load_state_dict(layer.state_dict())
    handle.remove()
    handle.remove()
    return before, found(), calls, layer._is_full_backward_hook


KINDS = [
    ("register_forward_pre_hook", {}),
    ("register_forward_pre_hook", {"with_kwargs": True}),
    ("register_forward_hook", {}),
    ("register_forward_hook", {"with_kwargs": True, "always_call": True}),
    ("register_full_backward_pre_hook", {}),
    ("register_full_backward_hook", {}),
    ("register_state_dict_pre_hook", {}),
    ("register_state_dict_post_hook", {}),
    ("_register_state_dict_hook", {}),
    ("register_load_state_dict_pre_hook", {}),
    ("_register_load_state_dict_pre_hook", {}),
    ("_register_load_state_dict_pre_hook", {"with_module": True}),
    ("register_load_state_dict_post_hook", {}),
]


@pytest.mark.parametrize(("register", "options"), KINDS)
def test_a_registered_hook_is_in_torchs_dictionary(register: str, options: dict[str, bool]) -> None:
    same(lambda lib: registered(lib, register, options))


# Initial values ----------------------------------------------------------------------------------

DRAWN: dict[str, Callable[[Any, Any], Any]] = {
    "uniform": lambda init, t: init.uniform_(t, -1, 3),
    "normal": lambda init, t: init.normal_(t, 2, 0.5),
    "truncated": lambda init, t: init.trunc_normal_(t, 0.5, 2.0, -1.0, 2.0),
    "xavier_uniform": lambda init, t: init.xavier_uniform_(t, 2.0),
    "xavier_normal": lambda init, t: init.xavier_normal_(t),
    "kaiming_uniform": lambda init, t: init.kaiming_uniform_(t, 0.1, "fan_out"),
    "kaiming_normal": lambda init, t: init.kaiming_normal_(t, nonlinearity="relu"),
    "sparse": lambda init, t: init.sparse_(t, 0.3, 0.5),
    "orthogonal": lambda init, t: init.orthogonal_(t, 2.0),
}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_numbers_are_drawn_from_torchs_distribution(draw: Callable[[Any, Any], Any]) -> None:
    for lib in (tg, torch):
        lib.manual_seed(0)  # the extremes of other draws may differ more
    ours, theirs = tg.empty(60, 40, requires_grad=True), torch.empty(60, 40)
    assert draw(nn.init, ours) is ours
    draw(torch.nn.init, theirs)
    mine, other = ours.detach().numpy(), theirs.numpy()
    quantiles = np.linspace(0.02, 0.98, 25)
    spread = other.std()
    np.testing.assert_allclose(np.quantile(mine, quantiles), np.quantile(other, quantiles), atol=0.25 * spread)
    assert abs((mine == 0).mean() - (other == 0).mean()) < 1e-6
    assert mine.min() >= other.min() - spread
    assert mine.max() <= other.max() + spread


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 3, 2)])
def test_an_orthogonal_matrix_is_orthogonal(shape: tuple[int, ...]) -> None:
    matrix = nn.init.orthogonal_(tg.empty(shape, dtype=tg.float64), 3.0).numpy().reshape(shape[0], -1)
    small = matrix @ matrix.T if matrix.shape[0] < matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(small, 9 * np.eye(len(small)), atol=1e-12)


def test_initial_values_come_from_a_generator() -> None:
    names = ("uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "kaiming_normal_", "orthogonal_")
    for name, options in [*((name, {}) for name in names), ("sparse_", {"sparsity": 0.5})]:
        draw = getattr(tg.nn.init, name)
        first, second = (draw(tg.zeros(4, 4), **options, generator=tg.Generator().manual_seed(7)) for _ in range(2))
        assert first.tolist() == second.tolist() != draw(tg.zeros(4, 4), **options).tolist()


def test_initial_values_are_not_uploaded(session: tg.Session) -> None:
    nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.LSTM(4, 8), nn.MultiheadAttention(4, 2), nn.Embedding(9, 3))
    ops = {instruction.op for instruction in session.recorder.pending}
    assert "uniform_" in ops
    assert "tensor" not in ops  # the verb that uploads


# Long sequences ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_a_long_sequence_is_a_few_instructions(session: tg.Session, kind: str) -> None:
    network = getattr(nn, kind)(3, 4, 2)
    x = tg.ones(200, 2, 3)
    session.flush()
    before = len(session.recorder.pending)
    network(x)[0].sum().backward()
    assert len(session.recorder.pending) - before < 40


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_second_derivatives_go_through_a_sequence(kind: str) -> None:
    theirs = getattr(torch.nn, kind)(2, 3, bidirectional=True).double()

    def run(lib: Any) -> Any:
        network = theirs if lib is torch else getattr(lib.nn, kind)(2, 3, bidirectional=True).double()
        if lib is tg:
            network.load_state_dict(theirs.state_dict())
        x = lib.tensor(np.stack([X, X * 2]), requires_grad=True)
        (grad,) = lib.autograd.grad((network(x)[0] ** 2).sum(), [x], create_graph=True)
        (grad**2).sum().backward()
        return grad, x.grad, [p.grad for p in network.parameters()]

    check(run(tg), run(torch), 1e-8)


def test_dropout_between_layers_needs_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.LSTM(2, 3, 2, dropout=0.5)(tg.ones(2, 2, 2))


@pytest.mark.parametrize("attention", [None, (3, 3), (4, 3, 3)])
@pytest.mark.parametrize("padding", [False, True])
def test_masks_of_attention_are_merged(attention: tuple[int, ...] | None, padding: bool) -> None:
    def merged(lib: Any) -> Any:
        module = lib.nn.MultiheadAttention(4, 2, batch_first=True)
        mask = None if attention is None else lib.zeros(attention).fill_(-2.0)
        return module.merge_masks(mask, lib.ones(2, 3) if padding else None, lib.zeros(2, 3, 4))

    same(merged)


class Same:
    """Functions whose results must be the same in both libraries."""

    def forward_hooks_run_in_torchs_order(lib: Any) -> Any:
        layer, seen = linear(lib), []
        layer.register_forward_pre_hook(lambda m, args: seen.append(("pre", m is layer, len(args))))
        layer.register_forward_pre_hook(lambda m, args: args[0] * 2)
        layer.register_forward_pre_hook(lambda m, args, kwargs: (args, {}), with_kwargs=True, prepend=True)
        layer.register_forward_hook(lambda m, args, out: seen.append(("post", len(args))))
        layer.register_forward_hook(lambda m, args, kwargs, out: out + 1, with_kwargs=True)
        layer.register_forward_hook(lambda m, args, out: seen.append("first"), prepend=True)
        removed = layer.register_forward_hook(lambda m, args, out: out * 100)
        removed.remove()
        return layer(lib.tensor(X), extra=1), seen

    def a_hook_may_be_called_always(lib: Any) -> Any:
        layer, seen = linear(lib), []
        layer.register_forward_hook(lambda m, args, out: seen.append("skipped"))
        layer.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
        with pytest.raises(RuntimeError):
            layer(lib.ones(3, 5))
        layer.register_forward_hook(lambda m, args, out: 1 / 0, always_call=True)
        with (
            pytest.raises(RuntimeError),
            pytest.warns(UserWarning, match="that was silenced as another error was raised"),
        ):
            layer(lib.ones(3, 5))
        return seen

    def a_hook_that_returns_nonsense_is_told_so(lib: Any) -> Any:
        layer = linear(lib)
        layer.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
        with pytest.raises(RuntimeError) as caught:
            layer(lib.tensor(X))
        return str(caught.value)

    def modules_in_lists_and_dicts(lib: Any) -> Any:
        nn = lib.nn
        some = nn.ModuleList([nn.Tanh()])
        some.append(nn.ReLU()).extend([nn.Sigmoid(), nn.Tanh()])
        some.insert(1, nn.GELU())
        some += [nn.SiLU()]
        some[0] = nn.Mish()
        popped = some.pop(2)
        del some[-1]
        chain = nn.Sequential(nn.Tanh()).insert(0, nn.ReLU()).extend([nn.GELU()])
        chain += nn.Sequential(nn.Mish())
        named = nn.ModuleDict({"a": nn.Tanh()})
        named.update([("b", nn.ReLU()), ("c", nn.GELU())])
        named["d"] = nn.Mish()
        del named["a"]
        return [
            repr(some + [nn.Tanh()]),  # noqa: RUF005 - that is what is tested
            *(repr(m) for m in (some, popped, some[1:], chain * 2, chain.pop(0), chain)),
            *(len(some), len(named), list(named), list(named.keys()), "b" in named, repr(named.pop("b")), repr(named)),
            [type(m).__name__ for m in named.values()],
            [name for name, _ in named.items()],
        ]

    def parts_are_found_by_path(lib: Any) -> Any:
        model = lib.nn.Sequential(lib.nn.Linear(2, 3), lib.nn.Sequential(lib.nn.BatchNorm1d(3)))
        memo: set[Any] = {model[0]}
        return [
            *(repr(model.get_submodule(name)) for name in ("", "0", "1.0")),
            *(model.get_parameter("1.0.weight"), model.get_buffer("1.0.running_var")),
            [name for name, _ in model.named_modules(memo, "root")],
            [name for name, _ in model.named_buffers("x", recurse=True)],
            [str(b.dtype) for b in model.half().buffers()],
        ]

    def fixed_values(lib: Any) -> Any:
        init = lib.nn.init
        return [
            init.constant_(lib.empty(2), 3.0),
            init.zeros_(lib.empty(2)),
            init.ones_(lib.empty(2)),
            init.eye_(lib.empty(2, 3)),
            *(init.dirac_(lib.empty(*shape), groups) for shape, groups in (((3, 2, 3), 1), ((4, 2, 3, 2), 2))),
            *(
                init.calculate_gain(name)
                for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "selu", "leaky_relu")
            ),
            init.calculate_gain("leaky_relu", 0.3),
        ]

    def gradients_are_clipped(lib: Any) -> Any:
        utils = lib.nn.utils
        found = []
        for kind in (2.0, 1.0, float("inf")):
            layer = linear(lib)
            (layer(lib.tensor(X)) ** 2).sum().backward()
            found += [utils.get_total_norm([p.grad for p in layer.parameters()], kind)]
            found += [utils.clip_grad_norm_(layer.parameters(), 1.0, kind), layer.weight.grad, layer.bias.grad]
            found += [utils.clip_grad_norm_(layer.weight, 100.0), layer.weight.grad]
            utils.clip_grad_value_(layer.parameters(), 0.1)
            found += [layer.weight.grad, layer.bias.grad]
        empty = lib.nn.Linear(1, 1)
        return [*found, utils.clip_grad_norm_(empty.parameters(), 1.0), utils.clip_grad_norm_([], 1.0)]

    def an_infinite_norm_may_be_an_error(lib: Any) -> Any:
        layer = linear(lib)
        layer.weight.grad = lib.full((2, 2), float("inf"), dtype=lib.float64)
        with pytest.raises(RuntimeError) as caught:
            lib.nn.utils.clip_grad_norm_(layer.parameters(), 1.0, error_if_nonfinite=True)
        return str(caught.value), lib.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)

    def a_hook_in_the_dictionary_runs_until_it_is_taken_out(lib: Any) -> Any:
        """Hooks that were put into the dictionaries, and taken out of them."""
        layer, seen = linear(lib), []
        x = lib.tensor(X).requires_grad_()
        layer._forward_pre_hooks[-1] = lambda m, args: (args[0] * 2,)
        layer._forward_hooks[-2] = lambda m, args, kwargs, out: out + len(kwargs) + 1
        layer._forward_hooks_with_kwargs[-2] = True
        layer._is_full_backward_hook = True
        layer._backward_hooks[-3] = lambda m, grad_in, grad_out: seen.append(len(grad_out))
        layer._backward_pre_hooks[-4] = lambda m, grad_out: seen.append("pre")
        layer._state_dict_hooks[-5] = lambda m, state, prefix, metadata: {f"{k}!": v for k, v in state.items()}
        layer._load_state_dict_pre_hooks[-6] = lambda state, prefix, *rest: state.pop("bias!", None)
        layer._load_state_dict_post_hooks[-7] = lambda m, keys: keys.unexpected_keys.clear()
        result = layer(x)
        result.sum().backward()
        state = layer.state_dict()
        keys = layer.load_state_dict(state, strict=False)
        del layer._forward_pre_hooks[-1]
        layer._forward_hooks.clear()
        layer._backward_hooks = OrderedDict()
        layer._backward_pre_hooks.popitem()
        layer._state_dict_hooks.clear()
        plain = layer(x)
        plain.sum().backward()
        return (
            result,
            x.grad,
            plain,
            seen,
            list(state),
            keys.missing_keys,
            keys.unexpected_keys,
            list(layer.state_dict()),
        )

    def the_set_of_buffers_that_are_not_saved_is_torchs(lib: Any) -> Any:
        layer = lib.nn.Module()
        layer.register_buffer("a", lib.ones(1), persistent=False)
        layer.register_buffer("b", lib.ones(1))
        before = sorted(layer._non_persistent_buffers_set)
        layer._non_persistent_buffers_set.add("b")
        return before, list(layer.state_dict())

    def parameters_in_lists_and_dicts(lib: Any) -> Any:
        nn, t = lib.nn, lib.ones
        row = nn.ParameterList([t(2), nn.Parameter(t(2, 3)), 3])
        row.append(t(1))
        row[0] = t(4)
        row += [t(5)]
        table = nn.ParameterDict({"a": t(2), "c": 3})
        table.update({"b": t(3)})
        merged = table | nn.ParameterDict({"d": t(1)})
        popped = table.pop("c")
        return [
            *(repr(row), repr(row[1:3]), len(row), [tuple(p.shape) for p in row.parameters()], list(row.state_dict())),
            *(repr(table), repr(merged), popped, list(table), list(reversed(table)), "a" in table, len(merged)),
            *(table.get("z", 7), table.setdefault("y", 8), table.popitem(), sorted(table.keys())),
            [name for name, _ in table.items()],
            type(row[0]).__name__,
        ]

    def parameters_become_a_vector_and_back(lib: Any) -> Any:
        layer = linear(lib)
        vector = lib.nn.utils.parameters_to_vector(layer.parameters())
        lib.nn.utils.vector_to_parameters(vector.detach() * 2, layer.parameters())
        layer(lib.tensor(X)).sum().backward()
        return vector, layer.weight, layer.bias, layer.weight.grad

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
        return lib.nn.NLLLoss2d()(lib.tensor(IMAGES), lib.tensor(np.zeros((2, 3, 3), np.int64)))

    def conv_tbc(lib: Any) -> Any:
        weight = lib.tensor(IMAGES[0].reshape(3, 3, 9)[:, :, :4])
        return lib.nn.functional.conv_tbc(lib.tensor(IMAGES[:, 0]), weight, lib.ones(4, dtype=lib.float64), 1)

    def pools_with_indices(lib: Any) -> Any:
        return lib.nn.functional.max_pool2d_with_indices(lib.tensor(IMAGES), 2)

    def distances(lib: Any) -> Any:
        a, b, c = (lib.tensor(x) for x in (ROWS[0:1], ROWS[1:2], ROWS[2:3]))
        f = lib.nn.functional.triplet_margin_with_distance_loss
        return f(a, b, c), f(a, b, c, swap=True, margin=2.0, reduction="sum"), f(a, b, c, reduction="none")

    def attention(lib: Any) -> Any:
        q, k = lib.tensor(ROWS.reshape(2, 2, 6)), lib.tensor(ROWS.reshape(2, 2, 6)[::-1].copy())
        packed, out = lib.tensor(MATRIX), lib.tensor(MATRIX[:6])
        rest = (None, None, True, 0.0, out, None)
        both = lib.nn.functional.multi_head_attention_forward(q, k, k, 6, 2, packed, None, *rest)
        static = lib.tensor(ROWS[:, :3].reshape(4, 1, 3))
        fixed = lib.nn.functional.multi_head_attention_forward(
            q, k, k, 6, 2, packed, None, *rest, static_k=static, static_v=static, average_attn_weights=False
        )
        return both, fixed

    def loss_of_a_linear_layer(lib: Any) -> Any:
        x, w = lib.tensor(ROWS, requires_grad=True), lib.tensor(MATRIX[:5], requires_grad=True)
        loss = lib.nn.functional.linear_cross_entropy(x, w, lib.tensor([0, 1, 4, 2]), label_smoothing=0.1)
        loss.backward()
        return loss, x.grad, w.grad

    def kernels(lib: Any) -> Any:
        with lib.nn.attention.sdpa_kernel([lib.nn.attention.SDPBackend.MATH]):
            return lib.nn.functional.scaled_dot_product_attention(*[lib.tensor(ROWS)] * 3)

    def the_adaptive_softmax(lib: Any) -> Any:
        layer = lib.nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7], div_value=2.0, head_bias=True).double()
        with lib.no_grad():
            for p in layer.parameters():
                p.copy_(lib.tensor(np.sin(np.arange(p.numel()))).reshape(p.shape))
        return layer.log_prob(lib.tensor(ROWS)), layer.predict(lib.tensor(ROWS))

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


@pytest.mark.every
@pytest.mark.parametrize("function", bodies(Same))
def test_it_is_torchs(function: Callable[[Any], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(function, 1e-6)


def test_the_gradient_of_crossmap_normalization() -> None:
    """Compared with numerical gradients, since torch's backward is not a valid reference."""
    layer = tg.nn.CrossMapLRN2d(3, 0.5, 0.7, 2)
    assert tg.autograd.gradcheck(layer, (tg.tensor(IMAGES[:1, :4, :2, :1], requires_grad=True),))
