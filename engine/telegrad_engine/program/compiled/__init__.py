"""Remembered programs as single executables: traced through the engine, forward, backward and optimizer step.

    analysis.py     what can be said of a program before it runs
    space.py      where arrays are, as executables see it
    facts.py       what it finds in a session: the kinds of tensors that it was compiled for, or not
    tracing.py     running it once on JAX without values, or on a tape of NumPy calls (backends/tracing.py, taping.py)
    reader.py     reading off that what it leaves in a session
    plan.py        the tape as a list of calls, with what memory they use
    lowering.py    the functions in C that NumPy's functions in Python come to
    executable.py  what is called then
    effects.py     putting what that came to into a session
    graphs.py      the graphs behind what it takes and what it leaves
    trial.py       comparing it with what the eager run leaves
    ways.py        the two ways: planned for NumPy, and compiled by JAX
    entry.py       what is known of a program's runs
    compiler.py    when all this is done, and when not
    misses.py      what keeps a program from an executable that there is already
    reports.py     what became of each program

An executable changes nothing: only when it has returned, and what was taken for granted of values has proved true,
is its effects put into the session. So until then the program can always be run one instruction at a time instead.
"""

from .compiler import Compiler
from .reports import Report
from .tier import COMPILED, PLANNED

__all__ = ["COMPILED", "PLANNED", "Compiler", "Report"]
