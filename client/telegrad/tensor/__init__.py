"""The SDK's Tensor, and the functions and methods that are not ops."""
