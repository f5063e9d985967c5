"""What torch keeps in ``torch.utils``."""

from .autograd import checkpoint as checkpoint
