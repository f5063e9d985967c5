"""``telegrad.autograd.gradcheck`` and ``gradgradcheck``: the engine's functions, for tensors of any kind."""

from telegrad_engine.autograd.gradcheck import gradcheck, gradgradcheck

__all__ = ["gradcheck", "gradgradcheck"]
