"""Remembered programs as single executables: traced through the engine, forward, backward and optimizer step.

    analysis.py         a program before it runs
    memory_space.py     where arrays are
    graphs.py           the graphs behind the tensors that it takes and leaves
    input_signature.py  its inputs in a session, and what an executable depends on of them
    effects.py          what it leaves in a session, read from a trace and put in after a run
    plan.py             a list of NumPy calls
    bound_call.py       one call of such a list
    shared_buffer.py    memory that NumPy and XLA share
    executable.py       a program as one function, with its effects
    tracing.py          makes executables by running a program once on traced arrays
    tier.py             the two tiers: planned for NumPy, and compiled by XLA
    cache_entry.py      the executables of a program, and when to make the next
    reports.py          how programs ran
    compiler.py         runs programs, in the highest tier that they have

An executable changes nothing. Its effects are put into the session when it has returned and its guards hold, so until
then the program can be run one instruction at a time instead.
"""

from .compiler import Compiler
from .reports import Report
from .tier import COMPILED, PLANNED

__all__ = ["COMPILED", "PLANNED", "Compiler", "Report"]
