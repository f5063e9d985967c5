"""The profiler: time and memory of a block of code by op, forward and backward.

As ``torch.profiler``: ``with profile() as prof: …``, then ``prof.key_averages().table()``.

    context.py     the user API: profile and record_function, and the observer that reports operations to the recorder
    recorder.py    the open ranges of one thread, and the totals of closed ones
    readings.py    the results of a profile: averages, tables, Chrome traces and JSON data

A profile records only the thread that entered it. ``session.profile = profile()`` profiles a session: every program
that it runs is recorded, on whichever thread. A client does this with the verbs ``start_profile`` and
``stop_profile``.
"""

from .context import ProfilerActivity, check_activities, profile, record_function
from .readings import AveragedEvents, EventList, FunctionEventAvg, Readings, from_data, to_data
from .recorder import FunctionEvent

__all__ = ["AveragedEvents", "EventList", "FunctionEvent", "FunctionEventAvg"]
__all__ += ["ProfilerActivity", "Readings", "check_activities", "from_data", "profile", "record_function", "to_data"]
