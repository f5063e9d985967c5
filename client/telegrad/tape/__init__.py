"""The tape: what a session records, as paths in a tree of the instructions that it recorded before.

A loop records the same instructions again and again, with different ids and numbers. So each instruction is a node
of a tree (:mod:`.node`), and recording moves a cursor along it (:mod:`.segment`): to a child that is there, or to a new
one. A path from the root is a segment: the instructions up to an optimizer step, or up to a wait for a value. Its
template is written once. A function that recorded a node before records it again without resolving its arguments
(:mod:`.shortcut`, :mod:`.dispatch`), and its part of the autograd graph is built only when it is read
(:mod:`.lazy_graph`). So is that of a call which records several instructions (:mod:`.graph_pattern`).
"""
