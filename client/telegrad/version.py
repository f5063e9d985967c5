"""``telegrad.version``: this package's version. ``cuda``, ``hip`` and ``xpu`` are None: it has no compiled kernels."""

from __future__ import annotations

from telegrad_engine import __version__ as __version__  # the three distributions have one version

cuda: str | None = None
hip: str | None = None
xpu: str | None = None
debug = False
git_version: str | None = None
