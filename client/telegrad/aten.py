"""``telegrad.ops.aten``: ATen's op names, for the policies of selective checkpointing.

``telegrad.ops.aten.mm.default`` equals the op that a policy receives for a product of two matrices. The catalogue has
one op where ATen has overloads, so all overloads of a name are equal.
"""

from __future__ import annotations

from typing import Any

from telegrad_engine.schema.op import CATALOGUE, FUNCTIONAL, Op
from telegrad_engine.schema.parameters import OperandKind

ATTENTION = "scaled_dot_product_attention"
_KINDS = ("attention_math", "cudnn_attention", "efficient_attention", "flash_attention", "flash_attention_for_cpu")
ATTENTION_KERNELS = {f"_scaled_dot_product_{kind}" for kind in _KINDS}
"""ATen's attention kernels, all of which are one op of the catalogue."""
PRODUCTS = {(1, 1): "dot", (1, 2): "mm", (2, 1): "mv", (2, 2): "mm"}
"""ATen's matrix product by the operands' ``ndim``; others are ``bmm``, or ``mm`` with a matrix on the right."""


class OpOverload:
    """An op under its ATen name."""

    def __init__(self, name: str, overload: str = "default") -> None:
        self._name, self._overload = name, overload

    def name(self) -> str:
        """The qualified name."""
        return f"aten::{self._name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpOverload) and _canonical(self._name) == _canonical(other._name)

    def __hash__(self) -> int:
        return hash(_canonical(self._name))

    def __repr__(self) -> str:
        return f"aten.{self._name}.{self._overload}"


class OpOverloadPacket:
    """An ATen op name; its overloads are attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, overload: str) -> OpOverload:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return OpOverload(self._name, overload)

    def __repr__(self) -> str:
        return f"aten.{self._name}"


class Aten:
    """The ATen names that correspond to ops of the catalogue."""

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name.startswith("__") or (name not in CATALOGUE.overloads and name not in OTHER_NAMES):
            raise AttributeError(f"'telegrad.ops.aten' has no op {name!r}")
        return OpOverloadPacket(name)

    def __repr__(self) -> str:
        return "<telegrad.ops.aten>"


KERNELS = {
    "cast": "_to_copy",
    "softmax": "_softmax",
    "log_softmax": "_log_softmax",
    "layer_norm": "native_layer_norm",
    "group_norm": "native_group_norm",
    "batch_norm": "native_batch_norm",
    **{f"conv{kind}{dims}d": "convolution" for kind in ("", "_transpose") for dims in (1, 2, 3)},
}
"""ATen's kernel names for ops that have another name in the catalogue."""
OTHER_NAMES = {*KERNELS.values(), *ATTENTION_KERNELS}
"""ATen names that the catalogue does not have."""
aten = Aten()


NUMBERS_AS_TENSORS = {"add", "sub", "mul", "div", "floor_divide"}
"""The ops to which torch passes a number as a tensor."""


def in_place_name(op: Op, inputs: tuple[Any, ...]) -> str:
    """The qualified name of the in-place op that ATen dispatches to."""
    overload = ""
    if isinstance(op.tensor_params[-1].kind, OperandKind) and op.key not in ("copy", "index_put"):
        overload = ".Tensor" if hasattr(inputs[-1], "_data") or op.key in NUMBERS_AS_TENSORS else ".Scalar"
    return f"aten::{op.name}_{overload}"


def overload_of(op: Op, inputs: tuple[Any, ...]) -> OpOverload:
    """The op that ATen dispatches to for a catalogue op on these inputs."""
    name = op.name.removeprefix(FUNCTIONAL)
    if name == "matmul":
        return OpOverload(_product(*(x.dim() for x in inputs[:2])))
    if name == "linear":
        return OpOverload("mm" if inputs[2] is None else "addmm")
    return OpOverload(KERNELS.get(name, name))


def _product(left: int, right: int) -> str:
    return PRODUCTS.get((left, right)) or ("mm" if right == 2 else "mv" if right == 1 else "bmm")


def _canonical(name: str) -> str:
    return ATTENTION if name in ATTENTION_KERNELS else name
