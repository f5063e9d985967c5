"""The tape: what a session records, as a flat list of steps on slots, and how it is sent.

A call like an earlier one appends its prepared step (:mod:`.dispatch`, :mod:`.step`). The list up to an optimizer
step, or up to a wait for a value, is a segment (:mod:`.segment`), and its template is looked up by its steps and slots.
The autograd graph of these calls is built only when it is read (:mod:`.lazy_graph`).
"""
