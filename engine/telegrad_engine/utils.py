"""``torch.utils``."""

from .autograd import checkpoint as checkpoint
