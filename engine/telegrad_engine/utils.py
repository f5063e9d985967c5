"""What torch keeps in ``torch.utils``."""

from . import checkpoint as checkpoint
