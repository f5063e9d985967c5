"""The parts of function transforms: batched tensors and the errors of ``vmap``."""
