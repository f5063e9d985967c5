"""Common functions of torch programs, compared with torch: constructors, attributes, settings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg

from .parity import error_of, same, same_error

Call = Callable[[Any], Any]


def cases(*calls: Call) -> Any:
    return pytest.mark.parametrize("call", calls)


IMAGES = (2, 3, 2, 4)
METHODS = """
is_complex is_signed is_contiguous stride storage_offset nelement ndimension get_device is_pinned is_shared is_conj
is_neg dense_dim sparse_dim dim_order is_inference _is_view conj resolve_conj resolve_neg adjoint isreal angle to_dense
is_distributed element_size
"""
ATTRIBUTES = """
is_cuda is_cpu is_sparse is_quantized is_meta is_mkldnn is_nested is_xpu is_mps name H mH real nbytes itemsize
"""


@cases(
    # Constructors
    lambda lib: lib.Tensor([1, 2]),
    lambda lib: lib.Tensor(),
    lambda lib: lib.Tensor((2, 3)),
    lambda lib: lib.Tensor(range(3)),
    lambda lib: lib.Tensor(np.ones(2)),
    lambda lib: lib.Tensor(lib.ones(2, dtype=lib.int64)),
    lambda lib: tuple(lib.Tensor(2, 3).shape),
    lambda lib: tuple(lib.Tensor(lib.ones(2, 3).shape).shape),
    lambda lib: lib.FloatTensor([1, 2]),
    lambda lib: lib.LongTensor([1.5, 2]),
    lambda lib: lib.BoolTensor([0, 2]),
    lambda lib: tuple(lib.IntTensor(2).shape),
    lambda lib: isinstance(lib.ones(1), lib.FloatTensor),
    lambda lib: isinstance(lib.ones(1), lib.LongTensor),
    lambda lib: isinstance(lib.ones(1), lib.Tensor),
    lambda lib: isinstance(3, lib.FloatTensor),
    lambda lib: str(lib.FloatTensor.dtype),
    lambda lib: lib.ones(2, dtype=lib.int32).new([1, 2]),
    lambda lib: lib.ones(2).new_tensor([1]),
    lambda lib: lib.ones(2).int().new_tensor([1.5]),
    lambda lib: lib.ones(2).new_tensor(np.ones(2)),
    lambda lib: tuple(lib.ones(2).new_empty(2, 3).shape),
    lambda lib: lib.ones(2).new_empty_strided((2, 3), (1, 2)).stride(),
    lambda lib: lib.empty_strided((2, 3), (1, 2)).stride(),
    lambda lib: lib.empty_permuted((2, 3), (1, 0)).stride(),
    lambda lib: lib.where(lib.tensor([True, False, True])),
    lambda lib: lib.asarray([1, 2]),
    lambda lib: lib.asarray(3.5, dtype=lib.int32),
    lambda lib: lib.asarray([1.0], requires_grad=True),
    lambda lib: lib.frombuffer(bytearray(b"abcd"), dtype=lib.uint8, offset=1),
    # Numbers of NumPy and Python
    lambda lib: np.float64(2) + lib.ones(2),
    lambda lib: np.float64(2) * lib.ones(2, requires_grad=True),
    lambda lib: lib.ones(2) * np.float64(2),
    lambda lib: lib.ones(2) - np.int64(1),
    lambda lib: np.float32(3) * (lib.ones(2, requires_grad=True) * np.float32(2)),
    lambda lib: lib.tensor([1, 2]) * np.int32(2),
    lambda lib: lib.mul(lib.ones(2), np.float32(2)),
    lambda lib: lib.ones(2) * np.array([2.0, 3.0], dtype=np.float32),
    lambda lib: np.sin(lib.ones(2)),
    lambda lib: np.add(lib.ones(2), lib.ones(2)),
    lambda lib: np.maximum(lib.ones(1), np.zeros(1)),
    lambda lib: lib.ones(2) + np.ones(2),
    lambda lib: float(lib.ones(1, 1)),
    lambda lib: int(lib.tensor([3])),
    lambda lib: complex(lib.tensor(3.0)),
    lambda lib: 1 in lib.ones(2),
    lambda lib: 3 in lib.ones(2),
    # Dtypes and shapes
    lambda lib: [repr(lib.finfo(getattr(lib, d))) for d in ("float16", "bfloat16", "float32", "float64")],
    lambda lib: [repr(lib.iinfo(getattr(lib, d))) for d in ("uint8", "int8", "int16", "int32", "int64")],
    lambda lib: (lib.finfo().eps, lib.finfo(lib.float64).max, lib.finfo(lib.float32).bits, lib.finfo().dtype),
    lambda lib: (lib.iinfo(lib.int64).max, lib.iinfo(lib.int8).min, lib.iinfo(lib.int8).bits),
    lambda lib: str(lib.result_type(lib.ones(1), 2)),
    lambda lib: str(lib.result_type(1, 2.5)),
    lambda lib: str(lib.result_type(lib.ones(1, dtype=lib.int32), lib.tensor(2.0))),
    lambda lib: str(lib.promote_types(lib.int32, lib.float32)),
    lambda lib: str(lib.promote_types(lib.uint8, lib.int8)),
    lambda lib: (lib.can_cast(lib.float32, lib.int32), lib.can_cast(lib.int32, lib.float16)),
    lambda lib: [tuple(lib.broadcast_shapes(*s)) for s in (((2, 1), (3,)), (3, (2, 1)), (), ((0,), (1,)))],
    lambda lib: (lib.pi, lib.e, lib.inf, lib.newaxis, math.isnan(lib.nan)),
    lambda lib: [lib.float32.is_signed, lib.uint8.is_signed, lib.bool.is_signed, lib.float32.is_complex],
    lambda lib: (lib.numel(lib.ones(2, 3)), lib.is_floating_point(lib.ones(1)), lib.is_complex(lib.ones(1))),
    lambda lib: (lib.is_signed(lib.ones(1)), lib.is_nonzero(lib.ones(1)), lib.is_inference(lib.ones(1))),
    lambda lib: (lib.is_tensor(3), lib.is_storage(3), lib.typename(3), lib.typename(lib.ones(1))),
    lambda lib: lib.detach(lib.ones(1, requires_grad=True)),
    lambda lib: repr(lib.ones(2, 3).shape),
    lambda lib: [repr(s) for s in (lib.ones(2, 3).shape[1:], lib.ones(2).shape + lib.ones(1).shape)],
    lambda lib: lib.ones(2, 3).shape[1:].numel(),
    lambda lib: repr(lib.strided),
    lambda lib: repr(lib.channels_last),
    # Attributes of tensors
    *[
        lambda lib, name=name: getattr(lib.ones(2, 3) * 1.5, name)()
        for name in ("short", "byte", "char", "half", "double", "int", "long", "bool", "float")
    ],
    *[lambda lib, name=name: getattr(lib.ones(2, 3), name)() for name in METHODS.split()],
    *[lambda lib, name=name: getattr(lib.ones(2, 3), name) for name in ATTRIBUTES.split()],
    lambda lib: lib.ones(2, 3).type(),
    lambda lib: lib.ones(2, 3).type(lib.DoubleTensor),
    lambda lib: lib.ones(2, 3).type("torch.LongTensor"),
    lambda lib: lib.ones(2, 3).type(lib.int32),
    lambda lib: repr(lib.ones(1).layout),
    lambda lib: str(lib.ones(1).grad_dtype),
    lambda lib: lib.arange(6).view_as(lib.ones(2, 3)),
    lambda lib: lib.arange(6).reshape_as(lib.ones(2, 3)),
    lambda lib: lib.ones(3).expand_as(lib.ones(2, 3)),
    lambda lib: lib.tensor([6, -8]) << 2,
    lambda lib: 2 << lib.tensor([1, 2]),
    lambda lib: lib.tensor([6, -8]) >> lib.tensor([1, 70]),
    lambda lib: lib.zeros(2, 3).put(lib.tensor([0, 4]), lib.ones(2)),
    lambda lib: lib.zeros(2, 3).put_(lib.tensor([0, 0]), lib.ones(2), accumulate=True),
    lambda lib: lib.zeros(5, 3).fill_diagonal_(2, True),
    lambda lib: lib.zeros(5, 3).fill_diagonal_(2),
    lambda lib: lib.ones(2).apply_(lambda x: x + 1),
    lambda lib: lib.ones(2).map_(lib.ones(2), lambda a, b: a + b),
    lambda lib: lib.ones(2, 3).is_same_size(lib.zeros(2, 3)),
    lambda lib: lib.tensor([0.5, 2.0]).polygamma(1),
    lambda lib: reversed(lib.tensor([1.0, 2.0, 3.0], requires_grad=True)),
    lambda lib: reversed(lib.arange(6).reshape(2, 3)),
    lambda lib: reversed(lib.tensor(2.0)),
    # out=
    lambda lib: lib.add(lib.ones(2), 1, out=lib.empty(2)),
    lambda lib: lib.add(lib.ones(2), 1, out=None),
    lambda lib: lib.add(lib.ones(2), 1, out=lib.empty(0)),
    lambda lib: lib.add(lib.ones(2), 1, out=lib.empty(2, dtype=lib.float64)),
    lambda lib: lib.sum(lib.ones(2, 2), 0, out=lib.empty(2, dtype=lib.float64)),
    lambda lib: lib.matmul(lib.ones(2, 2), lib.ones(2, 2), out=lib.empty(2, 2)),
    lambda lib: lib.cat([lib.ones(2), lib.ones(2)], out=lib.empty(4)),
    lambda lib: lib.eq(lib.ones(2), 1, out=lib.empty(2)),
    lambda lib: lib.arange(3, out=lib.empty(3)),
    lambda lib: lib.zeros(2, out=lib.ones(2)),
    lambda lib: tuple(lib.max(lib.eye(2), 0, out=(lib.empty(2), lib.empty(2, dtype=lib.int64)))),
    lambda lib: tuple(lib.sort(lib.ones(2), out=(lib.empty(2), lib.empty(2, dtype=lib.int64)))),
    lambda lib: lib.linalg.inv(lib.eye(2), out=lib.empty(2, 2)),
    # What scripts ask at their start
    lambda lib: lib.cuda.is_available(),
    lambda lib: lib.cuda.device_count(),
    lambda lib: lib.cuda.empty_cache(),
    lambda lib: lib.cuda.is_initialized(),
    lambda lib: lib.cuda.manual_seed_all(3),
    lambda lib: lib.backends.cudnn.is_available(),
    lambda lib: lib.backends.mps.is_available(),
    lambda lib: lib.backends.cuda.is_built(),
    lambda lib: (lib.backends.cudnn.benchmark, lib.backends.cudnn.deterministic, lib.backends.cudnn.enabled),
    lambda lib: lib.backends.cuda.matmul.allow_tf32,
    lambda lib: lib.autograd.Variable(lib.ones(1), requires_grad=True),
    lambda lib: isinstance(lib.ones(1), lib.autograd.Variable),
    lambda lib: lib.version.cuda,
)
@pytest.mark.filterwarnings("ignore:__array_wrap__")
def test_it_is_torchs(call: Call) -> None:
    same(call)


@cases(
    # Constructors
    lambda lib: lib.Tensor("a"),
    lambda lib: lib.Tensor(2.5),
    lambda lib: lib.Tensor(None),
    lambda lib: lib.Tensor(True),
    lambda lib: lib.Tensor(-1),
    lambda lib: lib.LongTensor(3.5),
    lambda lib: lib.LongTensor(lib.ones(2)),
    lambda lib: lib.Tensor([1, [2]]),
    lambda lib: lib.asarray([1], copy=False),
    lambda lib: lib.asarray(lib.ones(1), dtype=lib.float64, copy=False),
    lambda lib: lib.asarray("a"),
    lambda lib: lib.frombuffer(bytearray(b"abc"), dtype=lib.int32),
    lambda lib: lib.frombuffer(bytearray(b""), dtype=lib.int32),
    lambda lib: lib.frombuffer(bytearray(b"abcd"), dtype=lib.int32, count=2),
    # Dtypes and shapes
    lambda lib: lib.finfo(lib.int32),
    lambda lib: lib.iinfo(lib.float32),
    lambda lib: lib.iinfo(lib.bool),
    lambda lib: lib.finfo(3),
    lambda lib: lib.numel(3),
    lambda lib: lib.is_floating_point(3),
    lambda lib: lib.promote_types(lib.int32, 3),
    lambda lib: lib.can_cast(3, lib.int32),
    lambda lib: lib.broadcast_shapes((2,), (3,)),
    lambda lib: lib.broadcast_shapes((2, -1)),
    # Attributes of tensors
    lambda lib: lib.ones(1).type("foo"),
    lambda lib: lib.ones(1).type(3),
    lambda lib: lib.ones(2, 3).stride(5),
    lambda lib: lib.ones(2, 3).stride("a"),
    lambda lib: lib.ones(2).H,
    lambda lib: lib.ones(2).mH,
    lambda lib: lib.ones(2).imag,
    lambda lib: lib.ones(2).pin_memory(),
    lambda lib: lib.ones(2).is_nonzero(),
    lambda lib: lib.ones(2) << 1,
    lambda lib: lib.tensor([True]) << lib.tensor([True]),
    lambda lib: lib.ones(2).float_power_(2),
    lambda lib: lib.ones(2).is_set_to(3),
    lambda lib: lib.ones(2).__delitem__(0),
    # Memory formats
    lambda lib: lib.ones(2, 3).contiguous(memory_format=lib.channels_last),
    lambda lib: lib.ones(2, 3).clone(memory_format=lib.channels_last),
    lambda lib: lib.ones(IMAGES).to(memory_format=lib.channels_last_3d),
    lambda lib: lib.ones(IMAGES).contiguous(memory_format="a"),
    lambda lib: lib.ones(2, 3).t().contiguous(memory_format=lib.preserve_format),
    # out=
    lambda lib: lib.add(lib.ones(2), 1, out=lib.empty(2, dtype=lib.int64)),
    lambda lib: lib.add(lib.ones(2, requires_grad=True), 1, out=lib.empty(2)),
    lambda lib: lib.add(lib.ones(2), 1, out=lib.empty(2, requires_grad=True)),
    lambda lib: lib.mm(lib.ones(2, 2), lib.ones(2, 2), out=lib.empty(2, 2, dtype=lib.float64)),
    lambda lib: lib.max(lib.eye(2), 0, out=(lib.empty(2), lib.empty(2))),
    lambda lib: lib.add(lib.ones(2), 1, out=(lib.empty(2),)),
    lambda lib: lib.zeros(2, out=lib.empty(2), dtype=lib.float64),
    lambda lib: lib.linalg.inv(lib.eye(2), out=lib.empty(2, 2, dtype=lib.float64)),
    # Settings
    lambda lib: lib.set_num_threads(0),
    lambda lib: lib.set_num_threads("a"),
    lambda lib: lib.set_num_interop_threads(0),
    lambda lib: lib.use_deterministic_algorithms(3),
    lambda lib: lib.set_deterministic_debug_mode("foo"),
    lambda lib: lib.set_deterministic_debug_mode(5),
    lambda lib: lib.set_default_device("foo"),
    lambda lib: lib.autograd.Variable(3),
)
def test_it_is_refused_as_by_torch(call: Call) -> None:
    same_error(call)


# Constructors -----------------------------------------------------------------------------------


def test_a_tensor_made_from_a_tensor_shares_its_memory() -> None:
    def run(lib: Any) -> Any:
        x = lib.ones(2)
        y, z = lib.Tensor(x), lib.asarray(x)
        y[0] = 5
        return x, z, z is x

    same(run)


def test_a_subclass_makes_its_own() -> None:
    class Mine(tg.Tensor):
        pass

    assert type(Mine([1.0])) is Mine
    assert Mine([1.0]).tolist() == [1.0]


@pytest.mark.parametrize(
    "data",
    [
        *([np.float64(2), 1], [1, np.float32(2)], [1.5, np.int32(2)], [np.int32(2), 3.5], [True, np.int8(3)]),
        *([np.bool_(True)], [np.ones(2), np.ones(2)], np.float64(2), [np.float16(1), True], []),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
def test_numbers_of_numpy_keep_their_dtype(data: Any) -> None:
    same(lambda lib: lib.tensor(data))


def test_what_has_an_array_is_read_as_one() -> None:
    class Series:
        """A class like a pandas Series: a sequence whose labels are not positions, with ``__array__``."""

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([1.5, 2.5])

        def __len__(self) -> int:
            return 2

        def __getitem__(self, label: str) -> float:
            raise KeyError(label)

    made = tg.tensor(Series())
    assert (made.dtype, made.tolist()) == (tg.float64, [1.5, 2.5])


# Numbers, NumPy and other libraries ---------------------------------------------------------------


@cases(
    lambda lib: float(lib.ones(2)),
    lambda lib: int(lib.ones(0)),
    lambda lib: np.exp(lib.ones(2, requires_grad=True)),
    lambda lib: "a" in lib.ones(2),
    lambda lib: lib.ones(2) + "a",
    lambda lib: lib.ones(2) << "a",
)
def test_wrong_numbers_are_refused_as_by_torch(call: Call) -> None:
    assert type(error_of(call, tg)) is not None
    theirs, ours = error_of(call, torch), error_of(call, tg)
    assert isinstance(ours, theirs.__class__)


@pytest.mark.parametrize("mix", [lambda t: tg.ones(2) + t, lambda t: t + tg.ones(2), lambda t: tg.ones(2) @ t])
def test_tensors_of_two_libraries_are_told_apart(mix: Call) -> None:
    with pytest.raises(TypeError, match=r"telegrad\.Tensor and torch\.Tensor") as raised:
        mix(torch.ones(2))
    assert "from_torch" in str(raised.value)


# Attributes of tensors -------------------------------------------------------------------------------


@cases(
    lambda x: x.t(),
    lambda x: x[1:],
    lambda x: x[:, 1],
    lambda x: x[::2, None],
    lambda x: x.t()[1:],
    lambda x: x.expand(2, 4, 3),
    lambda x: x.unfold(1, 2, 1),
    lambda x: x.diagonal(),
    lambda x: x.view(3, 4),
    lambda x: x.permute(1, 0)[0],
    lambda x: x.split(2)[1],
    lambda x: x.t().contiguous(),
)
def test_views_lie_in_memory_as_torchs(call: Call) -> None:
    def run(lib: Any) -> Any:
        x = lib.arange(12.0).reshape(4, 3)
        y = call(x)
        return (
            y.stride(),
            y.storage_offset(),
            y.is_contiguous(),
            y.data_ptr() - x.data_ptr() if y._is_view() else None,
            y.is_set_to(x),
        )

    same(run)


@cases(
    lambda lib, x: x.contiguous(memory_format=lib.channels_last),
    lambda lib, x: x.contiguous(memory_format=lib.contiguous_format),
    lambda lib, x: x.contiguous(memory_format=lib.channels_last).contiguous(),
    lambda lib, x: x.contiguous(memory_format=lib.channels_last).contiguous(memory_format=lib.channels_last),
    lambda lib, x: x.contiguous(memory_format=lib.preserve_format),
    lambda lib, x: x.clone(memory_format=lib.channels_last),
    lambda lib, x: x.clone(memory_format=lib.preserve_format),
    lambda lib, x: x.clone(memory_format=None),
    lambda lib, x: lib.clone(x, memory_format=lib.contiguous_format),
    lambda lib, x: x.to(memory_format=lib.channels_last),
    lambda lib, x: x.to("cpu", memory_format=lib.channels_last),
    lambda lib, x: x.to(lib.float64, memory_format=lib.channels_last),
    lambda lib, x: x.float(memory_format=lib.channels_last),
    lambda lib, x: x.half(memory_format=lib.preserve_format),
    lambda lib, x: x.unsqueeze(0).clone(memory_format=lib.channels_last_3d),
    lambda lib, x: lib.ones_like(x, memory_format=lib.channels_last),
)
def test_memory_formats(call: Callable[[Any, Any], Any]) -> None:
    def run(lib: Any) -> Any:
        x = lib.arange(48.0).reshape(IMAGES)
        y = call(lib, x)
        formats = [lib.contiguous_format, *([lib.channels_last] if y.dim() == 4 else [])]
        return y, y.stride(), [y.is_contiguous(memory_format=each) for each in formats], y is x

    same(run)


def test_gradients_flow_through_a_memory_format() -> None:
    def run(lib: Any) -> Any:
        x = lib.arange(48.0).reshape(IMAGES).requires_grad_()
        y = x.contiguous(memory_format=lib.channels_last)
        (y * y).sum().backward()
        with lib.no_grad():
            y.add_(1)
        return x.grad, x, y.sum()

    same(run)


@cases(
    lambda x: x.t().detach(),
    lambda x: x.t().data,
    lambda x: x[1:].detach(),
    lambda x: x[1:].detach()[1:],
    lambda x: x[1:, 1:].detach().t(),
)
def test_detached_views_lie_where_the_views_do(call: Call) -> None:
    def run(lib: Any) -> Any:
        x = lib.arange(12.0).reshape(4, 3)
        y = call(x)
        return y.stride(), y.storage_offset(), y.is_contiguous(), y.data_ptr() - x.data_ptr()

    same(run)


def test_a_device_is_a_context() -> None:
    with tg.device("cpu"):
        assert tg.ones(1).device.type == "cpu"
    with pytest.raises(RuntimeError, match="available: cpu"), tg.device("cuda"):
        pass


def test_data_ptr_identifies_memory() -> None:
    x = tg.ones(2, 3)
    assert x.data_ptr() == x.view(3, 2).data_ptr() == x.detach().data_ptr() == x.data_ptr()
    assert len({tg.ones(3).data_ptr(), x.data_ptr(), x.clone().data_ptr(), x[1].data_ptr()}) >= 3
    assert tg.ones(0).data_ptr() == 0
    assert x.is_set_to(x.view(2, 3))
    assert not x.is_set_to(x.clone())


def test_a_gradient_can_be_deleted() -> None:
    def run(lib: Any) -> Any:
        x = lib.ones(2, requires_grad=True)
        (x * 2).sum().backward()
        before = x.grad
        del x.grad
        return before, x.grad

    same(run)


def test_the_gradient_of_a_non_leaf_warns() -> None:
    x = tg.ones(2, requires_grad=True)
    y = x * 2
    with pytest.warns(UserWarning, match=r"The \.grad attribute of a Tensor that is not a leaf"):
        assert y.grad is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert x.grad is None
        assert y.detach().grad is None
        y.retain_grad()
        assert y.grad is None
        y.sum().backward()
        assert y.grad is not None


# out= ------------------------------------------------------------------------------------------------


def test_out_is_the_tensor_itself_and_its_views_see_it() -> None:
    out = tg.zeros(2, 2)
    view, version = out[0], out._version
    assert tg.add(tg.ones(2, 2), 1, out=out) is out
    assert view.tolist() == [2.0, 2.0]
    assert out._version > version


def test_out_of_another_shape_warns() -> None:
    out = tg.empty(3)
    with pytest.warns(
        UserWarning, match=r"since it had shape \[3\], which does not match the required output shape \[2\]"
    ):
        tg.add(tg.ones(2), 1, out=out)
    assert out.tolist() == [2.0, 2.0]


# Settings ----------------------------------------------------------------------------------------------


def test_settings_are_kept() -> None:
    def run(lib: Any) -> Any:
        lib.use_deterministic_algorithms(True)
        seen = [lib.are_deterministic_algorithms_enabled(), lib.get_deterministic_debug_mode()]
        lib.use_deterministic_algorithms(True, warn_only=True)
        seen.append(lib.is_deterministic_algorithms_warn_only_enabled())
        lib.set_deterministic_debug_mode("default")
        seen.append(lib.are_deterministic_algorithms_enabled())
        before = lib.get_num_threads()
        lib.set_num_threads(1)
        seen.append(lib.get_num_threads())
        lib.set_num_threads(before)
        seen.append(lib.get_float32_matmul_precision())
        seen.append(str(lib.get_default_device()))
        return seen

    same(run)


@cases(lambda lib: lib.cuda.current_device(), lambda lib: lib.cuda.get_device_name(), lambda lib: lib.cuda.init())
def test_there_is_no_gpu_to_name(call: Call) -> None:
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        call(tg)


def test_mixed_precision_has_its_old_name() -> None:
    from telegrad.cuda.amp import GradScaler, autocast

    with pytest.warns(FutureWarning, match=r"`torch\.cuda\.amp\.autocast\(args\.\.\.\)` is deprecated"):
        assert isinstance(autocast(), tg.autocast)
    with pytest.warns(FutureWarning, match=r"`torch\.cuda\.amp\.GradScaler\(args\.\.\.\)` is deprecated"):
        assert isinstance(GradScaler(), tg.amp.GradScaler)


# Modules ---------------------------------------------------------------------------------------------


@cases(
    lambda lib, m: m.to("cpu"),
    lambda lib, m: m.to(lib.device("cpu")),
    lambda lib, m: m.to(device=lib.device("cpu"), dtype=lib.float64),
    lambda lib, m: m.to(lib.device("cpu"), lib.float64),
    lambda lib, m: m.to(lib.ones(1, dtype=lib.float64)),
    lambda lib, m: m.to(lib.device("cpu"), lib.float64, True),
    lambda lib, m: m.to(memory_format=lib.channels_last) if False else m,
    lambda lib, m: m.cpu(),
    lambda lib, m: m.type(lib.float64),
    lambda lib, m: m.type("torch.DoubleTensor"),
    lambda lib, m: m.type(lib.DoubleTensor),
)
def test_modules_move(call: Callable[[Any, Any], Any]) -> None:
    def run(lib: Any) -> Any:
        module = lib.nn.BatchNorm1d(2)
        moved = call(lib, module)
        assert moved is module
        return [str(t.dtype) for t in moved.state_dict().values()]

    same(run)


def test_a_module_does_not_move_to_a_gpu_that_is_not_there() -> None:
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        tg.nn.Linear(1, 1).cuda()
    with pytest.raises(RuntimeError, match="available: cpu"):
        tg.nn.Linear(1, 1).to("cuda")


# Linear algebra, and shapes that depend on values ------------------------------------------------


def test_allclose_and_equal_answer_with_bools() -> None:
    m = tg.eye(2)
    assert tg.allclose(m, m + 1e-9) is True
    assert m.equal(m + 1) is False


def test_a_singular_matrix() -> None:
    for lib in (tg, torch):
        with pytest.raises(lib.linalg.LinAlgError, match="The diagonal element 2 is zero"):
            lib.linalg.inv(lib.tensor([[1.0, 2.0], [2.0, 4.0]])).tolist()


@pytest.mark.usefixtures("session")
def test_a_tensor_changes_its_own_geometry() -> None:
    def run(lib: Any) -> Any:
        x = lib.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
        y = x * 2
        row = y[0]
        y.t_().unsqueeze_(0)
        row.mul_(3)
        shape = tuple(y.shape)
        y.squeeze_()[1].mul_(5)
        (y * y).sum().backward()
        return shape, y, row, x.grad, y._version

    same(run)


@pytest.mark.usefixtures("session")
def test_shapes_that_depend_on_values_are_asked_for() -> None:
    def run(lib: Any) -> Any:
        x = lib.tensor([[1.0, 1.0, 0.0], [3.0, -2.0, -2.0]], requires_grad=True)
        picked = lib.masked_select(x, x > 0)
        (picked * picked).sum().backward()
        found = lib.unique(x.detach(), return_inverse=True, return_counts=True)
        return picked, x.grad, *found, lib.nonzero(x, as_tuple=True), lib.exp_(lib.nn.functional.relu_(x.detach()))

    same(run)
