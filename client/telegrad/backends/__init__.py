"""``telegrad.backends``: whether there are the libraries that torch asks about.

Their settings are kept for scripts that set them, and change nothing. Modules with few functions are made here.
"""

from __future__ import annotations

import sys
from types import ModuleType

from ..exclusions import attribute_of
from . import cuda, cudnn


class _Module(ModuleType):
    """A module of this package, whose functions are its methods, and which can be imported by its name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{__name__}.{name}", type(self).__doc__)
        sys.modules[self.__name__] = self


class _Cpu(_Module):
    """``telegrad.backends.cpu``: the processor that this process runs on."""

    def get_cpu_capability(self) -> str:
        """ "DEFAULT": NumPy chooses its instructions itself."""
        return "DEFAULT"


class _Mha(_Module):
    """``telegrad.backends.mha``: torch's fast path of attention in inference; attention has no fast path here."""

    _fastpath = True

    def get_fastpath_enabled(self) -> bool:
        """The value that :func:`set_fastpath_enabled` stored."""
        return self._fastpath

    def set_fastpath_enabled(self, value: bool) -> None:
        """Remember the setting; attention is computed in one way."""
        self._fastpath = value


class _Unused(_Module):
    """A library or device that no session computes with."""

    def is_available(self) -> bool:
        """False: no session computes with it."""
        return False


class _Mkl(_Unused):
    """``telegrad.backends.mkl``: Intel's math library, which no session computes with."""


class _Mkldnn(_Unused):
    """``telegrad.backends.mkldnn``: oneDNN, which no session computes with."""

    enabled = True
    deterministic = False
    allow_tf32 = True


class _Mps(_Unused):
    """``telegrad.backends.mps``: Apple's GPUs, which no session computes on."""

    def is_built(self) -> bool:
        """False: there is no kernel for them."""
        return False


class _Openmp(_Unused):
    """``telegrad.backends.openmp``: threads inside torch's kernels, which are not used here."""


class _OptEinsum(_Unused):
    """``telegrad.backends.opt_einsum``: the order of contractions, which ``einsum`` chooses itself."""

    enabled = False
    strategy: str | None = None

    def get_opt_einsum(self) -> None:
        """None: the package is not used."""
        return None


cpu, mha, mkl, mkldnn = _Cpu("cpu"), _Mha("mha"), _Mkl("mkl"), _Mkldnn("mkldnn")
mps, openmp, opt_einsum = _Mps("mps"), _Openmp("openmp"), _OptEinsum("opt_einsum")
__getattr__ = attribute_of("backends")

__all__ = ["cpu", "cuda", "cudnn", "mha", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]
