"""Remembered programs as single executables: traced through the engine on JAX, forward, backward and optimizer step.

    outline.py   what can be said of a program before it runs
    facts.py     what it finds in a session: the kinds of tensors that it was compiled for, or not
    tracing.py   running it once without values; backends/tracing.py is the array library
    harvest.py   reading off that what it leaves in a session
    outcome.py   putting that into a session, once there are values
    spent.py     the graphs behind it, which nobody can differentiate again
    trial.py     comparing it with what the eager run leaves
    compiler.py  when all this is done, and when not

An executable changes nothing: only when it has returned, and what was taken for granted of values has proved true,
is its outcome put into the session. So until then the program can always be run one instruction at a time instead.
"""

from .compiler import AFTER, Compiler, Report

__all__ = ["AFTER", "Compiler", "Report"]
