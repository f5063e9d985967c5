"""The computation graph, to look at."""
