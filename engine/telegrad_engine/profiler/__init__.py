"""The profiler: time and memory of a stretch of code by op, forward and backward.

As ``torch.profiler``: ``with profile() as prof: …``, then ``prof.key_averages().table()``.

    context.py     what a user writes: profile and record_function
    recorder.py    the open ranges of one thread, and what closed ones add up to
    observer.py    reports what a thread executes to the recorder, while a profile runs on it
    readings.py    what a profile tells once it has recorded; data.py has it travel
    averages.py    what a profile shows: events and their averages; table.py prints them
    trace.py       the events as a Chrome trace

A profile sees the thread that entered it and no other. A session is profiled by ``session.profile =
profile()``: then every program that it runs is recorded, on whichever thread; its client does so by the verbs
``start_profile`` and ``stop_profile``.
"""

from .averages import AveragedEvents, EventList, FunctionEventAvg
from .context import ProfilerActivity, check_activities, profile, record_function
from .data import from_data, to_data
from .readings import Readings
from .recorder import FunctionEvent

__all__ = [
    "AveragedEvents",
    "EventList",
    "FunctionEvent",
    "FunctionEventAvg",
    "ProfilerActivity",
    "Readings",
    "check_activities",
    "from_data",
    "profile",
    "record_function",
    "to_data",
]
