"""``telegrad.backends``: whether there are the libraries that torch asks about.

Their settings are kept for scripts that set them, and change nothing.
"""

from __future__ import annotations

from ..exclusions import attribute_of
from . import cpu, cuda, cudnn, mha, mkl, mkldnn, mps, openmp, opt_einsum

__getattr__ = attribute_of("backends")

__all__ = ["cpu", "cuda", "cudnn", "mha", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]
