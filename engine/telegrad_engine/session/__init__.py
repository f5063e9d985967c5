"""Sessions: named tensors and their graph, the memory that they take, and programs that run on them."""
