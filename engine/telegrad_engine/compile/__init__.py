"""Cached programs as single executables: traced through the engine, with forward, backward and optimizer step.

    memory_space.py     where arrays are stored
    graphs.py           the graphs behind the tensors that a program takes and leaves
    input_signature.py  the inputs of a program in a session, and their signature, on which an executable depends
    effects.py          executables and their effects on a session, applied after a run
    plan.py             a program as a list of NumPy calls
    xla.py              a program that XLA compiled
    tracing.py          runs a program once on traced arrays, to find its effects
    tier.py             the two tiers: planned for NumPy, and compiled by XLA, and how they make executables
    cache_entry.py      the executables of a program, and when to make the next one
    reports.py          how programs ran
    compiler.py         runs programs in the highest tier that they have

An executable changes nothing. Its effects are applied to the session after it has returned and if its guards hold, so
until then the program can run one instruction at a time instead.
"""

from .compiler import Compiler
from .reports import Report
from .tier import COMPILED, PLANNED

__all__ = ["COMPILED", "PLANNED", "Compiler", "Report"]
