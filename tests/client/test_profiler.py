"""Profiling a session: its times, in the engine's classes, with torch's counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import telegrad as tg
from telegrad_engine.profiler import AveragedEvents, EventList

from .parity import same, same_error

pytestmark = [pytest.mark.usefixtures("session"), pytest.mark.full]


def counts(prof: Any) -> dict[str, int]:
    """How often each op and node ran, for those that have the same name in both libraries."""
    wanted = {"aten::sin", "aten::exp", "aten::sum", "SinBackward0", "ExpBackward0", "SumBackward0", "mine"}
    prefix = "autograd::engine::evaluate_function: "
    found = {average.key.removeprefix(prefix): average.count for average in prof.key_averages()}
    return {name: found[name] for name in sorted(wanted) if name in found}


def test_counts_are_torchs() -> None:
    def run(lib: Any) -> Any:
        with lib.profiler.profile(activities=[lib.profiler.ProfilerActivity.CPU]) as prof:
            for _ in range(3):
                with lib.profiler.record_function("mine"):
                    x = lib.ones(4, 4, requires_grad=True)
                    y = x.sin().exp()
                    assert y[0, 0].item() > 2
                y.sum().backward()
        return counts(prof)

    found = same(run)
    assert found["mine"] == 3 and len(found) == 7


def test_what_is_outside_is_not_in_it() -> None:
    x = tg.ones(3)
    before = x.cos()
    with tg.profiler.profile() as prof:
        x.sin()
    x.tan().tolist()
    before.tolist()
    keys = {average.key for average in prof.key_averages()}
    assert "aten::sin" in keys
    assert not keys & {"aten::cos", "aten::tan"}


def test_the_engines_classes_shapes_and_memory() -> None:
    with tg.profiler.profile(record_shapes=True, profile_memory=True) as prof:
        for n in (2, 2, 3):
            tg.ones(n, n).sin()
    averages = prof.key_averages(group_by_input_shape=True)
    assert isinstance(averages, AveragedEvents)
    sines = {str(a.input_shapes): (a.count, a.cpu_memory_usage) for a in averages if a.key == "aten::sin"}
    assert sines == {"[[2, 2]]": (2, 32), "[[3, 3]]": (1, 36)}
    table = averages.table(sort_by="self_cpu_time_total", row_limit=5)
    assert "Input Shapes" in table and "CPU Mem" in table and "Self CPU time total" in table
    assert averages.self_cpu_time_total > 0
    assert prof.self_cpu_time_total == pytest.approx(averages.self_cpu_time_total)


def test_events_are_in_each_other() -> None:
    with tg.profiler.profile() as prof, tg.profiler.record_function("outer"):
        x = tg.ones(3, requires_grad=True)
        with tg.profiler.record_function("inner"):
            y = x.sin().sum()
        y.item()  # a message, in the middle of a range
        y.backward()
    events = prof.events()
    assert isinstance(events, EventList)
    (outer,) = [e for e in events if e.name == "outer"]
    (inner,) = [e for e in events if e.name == "inner"]
    (sine,) = [e for e in events if e.name == "aten::sin"]
    (pass_,) = [e for e in events if e.name == "telegrad::backward"]
    assert (outer.cpu_parent, inner.cpu_parent, sine.cpu_parent, pass_.cpu_parent) == (None, outer, inner, outer)
    assert outer.cpu_time_total >= inner.cpu_time_total >= sine.cpu_time_total > 0
    assert outer.time_range.start <= sine.time_range.start <= sine.time_range.end <= outer.time_range.end


def test_a_chrome_trace(tmp_path: Path) -> None:
    def run(lib: Any) -> Any:
        path = tmp_path / f"{lib.__name__}.json"
        with lib.profiler.profile() as prof, lib.profiler.record_function("mine"):
            lib.ones(3).sin()
        prof.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
        return {(e["ph"], e["cat"], e["name"]) for e in events if e["name"] in ("mine", "aten::sin")}

    assert same(run) == {("X", "cpu_op", "aten::sin"), ("X", "user_annotation", "mine")}


def test_decorated_and_without_a_profile(session: tg.Session) -> None:
    @tg.profiler.record_function("labelled")
    def function(x: Any) -> Any:
        return x.sin()

    function(tg.ones(2))
    assert [i.op for i in session.recorder.pending] == ["ones", "sin"]
    with tg.profiler.profile() as prof:
        function(function(tg.ones(2)))
    assert {a.key: a.count for a in prof.key_averages()}["labelled"] == 2


def test_it_takes_no_message_to_begin(session: tg.Session) -> None:
    before = session.requests
    prof = tg.profiler.profile()
    prof.start()
    tg.ones(2).sin()
    assert session.requests == before
    prof.stop()
    assert session.requests == before + 1


SCHEDULES: list[dict[str, int]] = [
    {"wait": 1, "warmup": 1, "active": 2, "repeat": 2},
    {"wait": 0, "warmup": 0, "active": 3},
    {"wait": 1, "warmup": 0, "active": 5, "skip_first": 1},
    {"wait": 2, "warmup": 1, "active": 1, "skip_first": 1, "skip_first_wait": 1},
]


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup:UserWarning")
@pytest.mark.parametrize("options", SCHEDULES)
def test_only_some_steps_are_recorded(options: dict[str, int]) -> None:
    """The schedule is compared with torch's, but not the profile: torch can crash when it stops during a recording."""
    names = same(lambda lib: [lib.profiler.schedule(**options)(number).name for number in range(20)])
    records: list[tuple[int, int]] = []

    def ready(prof: Any) -> None:
        found = {average.key: average.count for average in prof.key_averages()}
        records.append((found["ProfilerStep*"], found.get("aten::sin", 0)))

    steps = 9
    with tg.profiler.profile(schedule=tg.profiler.schedule(**options), on_trace_ready=ready) as prof:
        for number in range(steps):
            for _ in range(number + 1):
                tg.ones(2).sin()
            prof.step()
    expected, count, sines = [], 0, 0
    for number in range(steps + 1):  # the last step has begun and is empty
        if names[number].startswith("RECORD"):
            count, sines = count + 1, sines + (number + 1 if number < steps else 0)
        if names[number] == "RECORD_AND_SAVE" or (number == steps and count):
            expected.append((count, sines))
            count = sines = 0
    assert records == expected
    assert prof.step_num == steps


def test_a_schedule_that_makes_no_sense() -> None:
    same_error(lambda lib: lib.profiler.schedule(wait=-1, warmup=0, active=1))


def test_the_older_way() -> None:
    from telegrad.autograd.profiler import profile, record_function

    with profile(enabled=False) as off, record_function("mine"):
        tg.ones(2).sin()
    assert len(off.key_averages()) == 0
    with profile(record_shapes=True) as on, record_function("mine"):
        tg.ones(2).sin()
    assert counts(on) == {"aten::sin": 1, "mine": 1}


def test_ready_and_mistakes() -> None:
    ready: list[Any] = []
    prof = tg.profiler.profile(on_trace_ready=ready.append)
    with prof, pytest.raises(RuntimeError, match="not reentrant"):
        tg.profiler.profile().start()
    assert ready == [prof]
    with pytest.raises(RuntimeError, match="not running"):
        prof.stop()
    for lib in (torch, tg):
        with pytest.raises(AssertionError, match="No valid profiler activities found"):
            lib.profiler.profile(activities=["cpu"])
    with pytest.warns(UserWarning, match="with_stack is ignored"):
        tg.profiler.profile(with_stack=True)


def test_what_the_user_raises_comes_out(session: tg.Session) -> None:
    with pytest.raises(KeyError), tg.profiler.profile():
        tg.ones(2).sin()
        raise KeyError("mine")
    with pytest.raises(RuntimeError, match="positive-definite"), tg.profiler.profile():
        tg.linalg.cholesky(tg.zeros(2, 2)).tolist()
    with tg.profiler.profile() as prof:
        tg.ones(2).sin()
    assert counts(prof) == {"aten::sin": 1}
