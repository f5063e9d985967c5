"""``torch.nn.utils``: gradients and values of many parameters at once, parametrizations, pruning and fusion."""

from __future__ import annotations

from ...exclusions import attribute_of
from . import parametrizations, parametrize, prune, rnn, stateless
from .clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .convert_parameters import parameters_to_vector, vector_to_parameters
from .fusion import fuse_conv_bn_eval, fuse_conv_bn_weights, fuse_linear_bn_eval, fuse_linear_bn_weights, skip_init
from .memory_format import convert_conv2d_weight_memory_format, convert_conv3d_weight_memory_format
from .norm_hooks import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm

__getattr__ = attribute_of("nn.utils")

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]
__all__ += ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]
__all__ += ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]
__all__ += ["parameters_to_vector", "skip_init", "vector_to_parameters"]
__all__ += ["parametrizations", "parametrize", "prune", "rnn", "stateless"]
__all__ += ["remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"]
