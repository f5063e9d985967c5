"""Plans: cached programs, with forward, backward and optimizer step, as lists of NumPy calls.

    graphs.py           the graphs behind the tensors that a program takes and leaves
    input_signature.py  the inputs of a program in a session, and their signature, on which a plan depends and by which
                        earlier runs differ
    effects.py          the effects of a plan on a session
    plan.py             a program as a list of NumPy calls
    change.py           applies the effects after a run
    tracing.py          runs a program once on traced arrays, to make its plan
    compiler.py         the plans of programs, when to make the next one, the runs of programs as plans, and reports

A plan changes nothing. Its effects are applied to the session after it has returned and if its guards hold, so until
then the program can run one instruction at a time instead.
"""

from .compiler import Compiler, Report

__all__ = ["Compiler", "Report"]
