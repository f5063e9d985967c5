"""The parts of function transforms: the stack of active transforms, batched tensors, and pullbacks."""
