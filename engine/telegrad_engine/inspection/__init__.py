"""What a person looks at: the graph folded to a size that fits on a screen, its nodes, and what flowed through them.

    statistics.py   samples of arrays, and the statistics of a sample
    record.py       a graph as data: vertices with their inputs
    folding.py      a graph with groups of vertices as boxes
    details.py      one node
    passes.py       a backward pass step by step, which changes nothing
    observation.py  an observer that keeps what a step of a training loop computed

Nothing here changes a session or keeps its tensors alive.
"""
