"""What stands for ``cupyx.scipy``."""
