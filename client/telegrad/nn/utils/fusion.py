"""Fusion of a convolution or linear layer with the batch norm after it, for evaluation."""

from __future__ import annotations

import copy
import inspect
from typing import Any

from telegrad_engine.errors import InvalidChoice, InvalidOperation

from ...tensor.handle import Tensor, functions
from ..modules.module import Module
from ..parameter import Parameter

Pair = tuple[Parameter, Parameter]


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """Return a copy of ``conv`` fused with ``bn``. Raises AssertionError unless both are in evaluation mode.

    ``transpose`` says that ``conv`` is a transposed convolution.

    Examples:
        >>> conv, norm = tg.nn.Conv2d(3, 8, 3).eval(), tg.nn.BatchNorm2d(8).eval()
        >>> tg.nn.utils.fuse_conv_bn_eval(conv, norm)(tg.ones(1, 3, 8, 8)).shape
        telegrad.Size([1, 8, 6, 6])
    """
    _check_modes(conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(fused.weight, fused.bias, *_statistics(bn), transpose=transpose)
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> Pair:
    """Return the weight and bias of a convolution (or transposed convolution) fused with a batch norm.

    ``conv_w`` is (O, C, …), or (C, O, …) with ``transpose``; ``conv_b``, ``bn_rm``, ``bn_rv``, ``bn_w`` and ``bn_b``
    are (O): the bias, running mean, running variance, factor and summand. ``bn_eps`` is added to the variance.

    Examples:
        >>> ones = tg.ones(8)
        >>> weight, bias = tg.nn.utils.fuse_conv_bn_weights(tg.ones(8, 3, 3, 3), None, ones, ones, 1e-5, ones, ones)
        >>> weight.shape, bias.shape
        (telegrad.Size([8, 3, 3, 3]), telegrad.Size([8]))
    """
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """Return a copy of ``linear`` fused with ``bn``. Raises AssertionError unless both are in evaluation mode.

    Examples:
        >>> linear, norm = tg.nn.Linear(4, 2).eval(), tg.nn.BatchNorm1d(2).eval()
        >>> tg.nn.utils.fuse_linear_bn_eval(linear, norm)(tg.ones(3, 4)).shape
        telegrad.Size([3, 2])
    """
    _check_modes(linear, bn)
    if bn.num_features not in (1, linear.out_features):
        raise InvalidChoice(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, *_statistics(bn))
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> Pair:
    """Return the weight and bias of a linear layer fused with a batch norm.

    ``linear_w`` is (O, I), ``linear_b`` (O); the other arguments are those of ``fuse_conv_bn_weights``.

    Examples:
        >>> ones = tg.ones(2)
        >>> weight, bias = tg.nn.utils.fuse_linear_bn_weights(tg.ones(2, 4), None, ones, ones, 1e-5, ones, ones)
        >>> weight.shape, bias.shape
        (telegrad.Size([2, 4]), telegrad.Size([2]))
    """
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def _check_modes(layer: Module, bn: Module) -> None:
    if layer.training or bn.training:
        raise InvalidChoice("Fusion only for eval!")


def _statistics(bn: Any) -> tuple[Any, Any, Any, Any, Any]:
    if bn.running_mean is None or bn.running_var is None:
        raise InvalidChoice("bn.running_mean and bn.running_var must not be None")
    return bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias


def _fused(
    w: Tensor, b: Tensor | None, mean: Tensor, var: Tensor, eps: float, scale: Any, shift: Any, shape: list[int]
) -> Pair:
    """Return the fused weight and bias; a batch norm without weight or bias counts as having 1 or 0."""
    bias = functions.zeros_like(mean) if b is None else b
    factor = (var + eps).rsqrt() if scale is None else scale * (var + eps).rsqrt()
    moved = (bias - mean) * factor
    new_b = (moved if shift is None else moved + shift).to(bias.dtype if b is not None else w.dtype)
    new_w = (w * factor.reshape(shape)).to(w.dtype)
    return Parameter(new_w, w.requires_grad), Parameter(new_b, bias.requires_grad)


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a ``module_cls`` with unspecified values. Raises RuntimeError unless it is a Module with ``device``.

    Other arguments are the module's.

    Examples:
        >>> tg.nn.utils.skip_init(tg.nn.Linear, 4, 2)
        Linear(in_features=4, out_features=2, bias=True)
    """
    if not issubclass(module_cls, Module):
        raise InvalidOperation(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise InvalidOperation("Module must support a 'device' arg to skip initialization")
    return module_cls(*args, **kwargs)
