"""Optimizers, as torch.optim."""
