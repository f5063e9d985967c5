"""The profiler: what a profile counts, held against torch's, and that it is not there when it is off."""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import telegrad_engine as tg
from telegrad_engine import profiler
from telegrad_engine.autograd import functional
from telegrad_engine.context import state
from telegrad_engine.devices import on
from telegrad_engine.program import Instruction
from telegrad_engine.session.session import Session

from .. import fake_gpu
from ..client.custom_functions import cube
from .twins import OURS, THEIRS, both_raise, leaf

WORLDS: list[tuple[Any, Any]] = [(OURS, profiler), (THEIRS, torch.profiler)]


def both_profiles(run: Callable[..., Any], **options: Any) -> list[Any]:
    """``run(t)`` under our profile and torch's: both profiles."""
    made = []
    for t, module in WORLDS:
        with module.profile(activities=[module.ProfilerActivity.CPU], **options) as profile:
            run(t)
        made.append(profile)
    return made


def counts(profile: Any) -> dict[str, int]:
    return {average.key: average.count for average in profile.key_averages()}


def train(t: Any) -> Any:
    x = leaf(t, [[1.0, 2.0], [3.0, 4.0]])
    for _ in range(3):
        ((x * x).exp() + x).sum().backward()


# What is counted ---------------------------------------------------------------------------------


def test_ops_and_nodes_are_counted_as_torch_counts_them() -> None:
    ours, theirs = map(counts, both_profiles(train))
    expected = {
        "aten::mul", "aten::exp", "aten::add", "aten::sum",
        "MulBackward0", "ExpBackward0", "AddBackward0", "SumBackward0", "torch::autograd::AccumulateGrad",
    }  # fmt: skip
    assert expected <= set(ours) & set(theirs)
    forward_only = expected - {"aten::mul", "aten::exp", "aten::add"}  # torch's backward runs these too
    assert {key: ours[key] for key in forward_only} == {key: theirs[key] for key in forward_only}
    assert [ours[key] for key in ("aten::mul", "aten::exp", "aten::add")] == [3, 3, 3]


@pytest.mark.parametrize(
    ("run", "keys"),
    [
        (lambda t: leaf(t).detach().mul_(2), {"aten::mul_": 1}),
        (lambda t: leaf(t).unbind(), {"aten::unbind": 1}),
        (lambda t: t.cat([leaf(t), leaf(t)]), {"aten::cat": 1}),
        (lambda t: leaf(t).max(0), {"aten::max": 1}),
        (lambda t: leaf(t).view(3, 1).matmul(leaf(t).view(1, 3)), {"aten::matmul": 1, "aten::view": 2}),
    ],
)
def test_kinds_of_ops(run: Callable[[Any], Any], keys: dict[str, int]) -> None:
    ours, theirs = map(counts, both_profiles(run))
    assert ours == keys
    assert all(theirs.get(key, count) == count for key, count in keys.items())


def test_ranges_nest_and_share_out_their_time() -> None:
    def run(t: Any) -> None:
        label = dict(WORLDS)[t].record_function
        with label("outer"):
            x = leaf(t)
            with label("inner"):
                y = x * 2
            y.exp()

    ours, theirs = both_profiles(run)
    for profile in (ours, theirs):
        parents = {event.name: event.cpu_parent and event.cpu_parent.name for event in profile.events()}
        assert (parents["outer"], parents["inner"]) == (None, "outer")
        assert (parents["aten::mul"], parents["aten::exp"]) == ("inner", "outer")
        averages = {average.key: average for average in profile.key_averages()}
        outer, inner, exp = averages["outer"], averages["inner"], averages["aten::exp"]
        assert outer.cpu_time_total >= inner.cpu_time_total + exp.cpu_time_total
        assert outer.self_cpu_time_total < outer.cpu_time_total
    whole = sum(event.cpu_time_total for event in ours.events() if event.cpu_parent is None)
    assert ours.self_cpu_time_total == pytest.approx(whole)
    assert ours.key_averages().total_average().self_cpu_time_total == pytest.approx(whole)


def test_kernels_of_a_derivative_are_inside_its_node() -> None:
    with profiler.profile() as profile:
        (leaf(OURS).view(1, 3) @ leaf(OURS).view(3, 1)).sum().backward()
    inside = {event.name for event in profile.events() if event.cpu_parent and event.cpu_parent.name == "MmBackward0"}
    assert {"aten::matmul", "aten::t"} <= inside


def test_a_custom_function_is_recorded_with_what_it_calls() -> None:
    with profiler.profile() as profile:
        cube(OURS).apply(leaf(OURS)).sum().backward()
    assert (counts(profile)["MyFnBackward"], counts(profile)["aten::pow"]) == (1, 1)


def test_a_differentiable_backward_is_recorded_too() -> None:
    def run(t: Any) -> None:
        x = leaf(t)
        (g,) = t.autograd.grad((x * x * x).sum(), x, create_graph=True)
        t.autograd.grad(g.sum(), x)

    ours, theirs = map(counts, both_profiles(run))
    assert ours["MulBackward0"] == theirs["MulBackward0"]
    assert ours["SumBackward0"] == theirs["SumBackward0"]


def test_derivatives_of_many_rows_at_once_are_recorded() -> None:
    with profiler.profile() as profile:
        functional.jacobian(lambda x: x.exp() * 2, leaf(OURS))
    assert {"MulBackward0", "ExpBackward0"} <= set(counts(profile))


def test_a_backend_other_than_numpy_is_recorded_too() -> None:
    with fake_gpu.installed(), on("cuda"), profiler.profile(profile_memory=True) as profile:
        x = tg.tensor([[1.0, 2.0]], requires_grad=True)
        y = (x * x) @ x.t()
        y.detach().mul_(2)
        y.sum().backward()
    found = {average.key: average for average in profile.key_averages()}
    assert {"aten::matmul", "aten::mul_", "MulBackward0", "torch::autograd::AccumulateGrad"} <= set(found)
    assert found["aten::mul"].count == 1 and found["aten::mul"].cpu_memory_usage == 8
    assert (
        found["MulBackward0"].cpu_memory_usage >= 16
    )  # the two products, and their sum, which is no addition in place


def test_composites_hold_what_they_are_made_of() -> None:
    with profiler.profile() as profile:
        tg.functions.cosine_similarity(leaf(OURS, [[1.0, 2.0]]), leaf(OURS, [[3.0, 4.0]]))
    names = {event.name: event for event in profile.events()}
    assert names["aten::cosine_similarity"].cpu_parent is None
    children = [event for event in profile.events() if event.cpu_parent is names["aten::cosine_similarity"]]
    assert children


def test_input_shapes() -> None:
    def run(t: Any) -> None:
        a, b = t.tensor([[1.0, 2.0]]), t.tensor([[1.0], [2.0]])
        a @ b
        a * 2
        a * 2
        b * 2
        a.sum(0)

    for profile in both_profiles(run, record_shapes=True):
        grouped = profile.key_averages(group_by_input_shape=True)
        found = {(a.key, str(a.input_shapes)): a.count for a in grouped}
        assert found["aten::matmul", "[[1, 2], [2, 1]]"] == 1
        assert found["aten::mul", "[[1, 2], []]"] == 2
        assert found["aten::mul", "[[2, 1], []]"] == 1
        assert "Input Shapes" in grouped.table()
        merged = {a.key: a.count for a in profile.key_averages()}
        assert merged["aten::mul"] == 3


def test_memory() -> None:
    def run(t: Any) -> None:
        x = t.tensor([1.0] * 1000, requires_grad=True)
        y = x * x
        y.view(10, 100)
        y.sum().backward()

    ours, theirs = both_profiles(run, profile_memory=True)
    found, expected = ({a.key: a for a in p.key_averages()} for p in (ours, theirs))
    for key in ("aten::mul", "aten::sum", "aten::view"):
        count = found[key].count / expected[key].count  # torch's backward multiplies by a kernel of its own
        assert found[key].self_cpu_memory_usage == pytest.approx(expected[key].cpu_memory_usage * count)
    # Two products of 4000 bytes; torch also counts what it frees.
    assert found["MulBackward0"].cpu_memory_usage == expected["MulBackward0"].cpu_memory_usage == 8000
    assert "CPU Mem" in ours.table() and "3.91 KB" in ours.table()


def test_an_array_that_a_kernel_made_for_a_derivative_counts_once() -> None:
    a, b = leaf(OURS, [[1.0, 2.0]]), leaf(OURS, [[1.0], [2.0]])
    with profiler.profile(profile_memory=True) as profile:
        (a @ b).sum().backward()
    found = {average.key: average for average in profile.key_averages()}
    assert found["MmBackward0"].cpu_memory_usage == 16
    assert found["aten::matmul"].self_cpu_memory_usage == 4 + 16


def test_stacks_have_the_users_lines() -> None:
    with profiler.profile(with_stack=True) as profile:
        leaf(OURS).view(1, 3) @ leaf(OURS).view(3, 1)
    for event in profile.events():
        assert event.stack[0].startswith(f"{__file__}(") and event.stack[0].endswith(
            ": test_stacks_have_the_users_lines"
        )


def test_what_raises_is_closed() -> None:
    with profiler.profile() as profile:
        with pytest.raises(RuntimeError):
            tg.tensor([[1.0]]) @ tg.tensor([[1.0], [2.0]])
        with pytest.raises(ZeroDivisionError), profiler.record_function("fails"):
            raise ZeroDivisionError
        tg.tensor([1.0]) * 2
    assert all(event.cpu_parent is None for event in profile.events())
    assert counts(profile)["fails"] == counts(profile)["aten::mul"] == 1


# Reading it --------------------------------------------------------------------------------------


def test_the_table_reads_like_torchs() -> None:
    ours, theirs = (
        profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=3).splitlines()
        for profile in both_profiles(train, profile_memory=True)
    )
    assert len(ours) == len([line for line in theirs if line])
    columns = lambda line: [part.strip() for part in line.split("  ") if part.strip()]  # noqa: E731
    assert columns(ours[1]) == columns(theirs[1])
    assert set(ours[0]) == {"-", " "} and ours[0] == ours[2] == ours[-2]
    assert ours[-1].startswith("Self CPU time total: ")
    assert {len(line) for line in ours[:-1]} == {len(ours[0])}


def test_sorting_and_limits() -> None:
    with profiler.profile() as profile:
        train(OURS)
    averages = profile.key_averages()
    for key in ("count", "cpu_time_total", "self_cpu_time_total", "cpu_time"):
        rows = [line.split()[0] for line in averages.table(sort_by=key).splitlines()[3:-2]]
        values = [getattr(next(a for a in averages if a.key == row), key) for row in rows]
        assert len(rows) == len(averages) and values == sorted(values, reverse=True)
    assert len(averages.table(row_limit=2).splitlines()) == 7
    assert len(averages.table(row_limit=-1).splitlines()) == 5 + len(averages)
    assert averages.table(header="a header").splitlines()[0].strip() == "a header"
    assert "torch::aut..." in averages.table(max_name_column_width=13)
    with pytest.raises(AttributeError):
        averages.table(sort_by="nonsense")


def test_an_empty_profile() -> None:
    with profiler.profile() as profile:
        pass
    assert profile.events() == [] and profile.self_cpu_time_total == 0
    assert "Self CPU time total: 0.000us" in profile.table()
    assert profile.total_average().count == 0


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_chrome_trace(tmp_path: Path, name: str) -> None:
    with profiler.profile(record_shapes=True) as profile, profiler.record_function('a "label" \\ with\nmarks'):
        train(OURS)
    path = tmp_path / name
    profile.export_chrome_trace(str(path))
    raw = path.read_bytes()
    trace = json.loads(gzip.decompress(raw) if name.endswith("gz") else raw)
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(complete) == len(profile.events())
    assert all({"name", "cat", "pid", "tid", "ts", "dur", "args"} <= set(event) for event in complete)
    assert {event["name"] for event in trace["traceEvents"] if event["ph"] == "M"} == {"process_name", "thread_name"}
    (label,) = [event for event in complete if event["cat"] == "user_annotation"]
    end = label["ts"] + label["dur"]
    assert all(label["ts"] <= event["ts"] and event["ts"] + event["dur"] <= end + 1e-3 for event in complete)
    product = next(event for event in complete if event["name"] == "aten::mul")
    assert product["cat"] == "cpu_op" and product["args"]["Input Dims"] == [[2, 2], [2, 2]]


def test_the_chrome_trace_has_torchs_form(tmp_path: Path) -> None:
    forms = []
    for index, profile in enumerate(both_profiles(train, record_shapes=True)):
        profile.export_chrome_trace(str(tmp_path / str(index)))
        trace = json.loads((tmp_path / str(index)).read_text())
        product = next(event for event in trace["traceEvents"] if event["name"] == "aten::mul")
        forms.append((set(trace), {key: type(value) for key, value in product.items()}, set(product["args"])))
    (ours, fields, args), (theirs, their_fields, their_args) = forms
    assert ours <= theirs and fields == their_fields and args <= their_args


def test_as_json() -> None:
    with profiler.profile(record_shapes=True, profile_memory=True) as profile:
        train(OURS)
    data = json.loads(profile.to_json())
    assert data == json.loads(json.dumps(profile.as_dict()))
    assert data["events"] == len(profile.events()) and data["events_dropped"] == 0
    times = [average["self_cpu_time_us"] for average in data["averages"]]
    assert times == sorted(times, reverse=True)
    assert sum(times) == pytest.approx(data["self_cpu_time_total_us"])
    shaped = profile.as_dict(group_by_input_shape=True)["averages"]
    assert [[2, 2], [2, 2]] in [a["input_shapes"] for a in shaped if a["key"] == "aten::mul"]


def test_a_long_profile_is_bounded() -> None:
    with profiler.profile(max_events=10) as profile:
        x = tg.tensor([1.0])
        for _ in range(100):
            x = x * 2
    assert len(profile.events()) == 10
    assert counts(profile) == {"aten::mul": 100}
    assert profile.as_dict()["events_dropped"] == 90


# When it is on, and for whom ---------------------------------------------------------------------


def test_nothing_of_it_remains_when_it_is_off() -> None:
    with profiler.profile(), contextlib.suppress(ZeroDivisionError), profiler.profile():
        assert state.observer is not None
        raise ZeroDivisionError
    assert state.observer is None


def test_gradients_are_the_same_under_it() -> None:
    def gradients() -> Any:
        x = leaf(OURS, [[1.0, 2.0], [3.0, 4.0]])
        y = x.detach().clone().requires_grad_()
        ((x @ y).relu() * x.sum(0)).sum().backward()
        parts = x.unbind()
        (parts[0] * parts[1]).sum().backward(retain_graph=True, create_graph=True)
        return x.grad.tolist(), y.grad.tolist()

    expected = gradients()
    with profiler.profile(profile_memory=True, record_shapes=True, with_stack=True):
        assert gradients() == expected
    assert gradients() == expected


def test_errors_are_the_same_under_it() -> None:
    with profiler.profile(profile_memory=True):

        def run(t: Any) -> None:
            x = leaf(t)
            y = x.exp().sum()
            y.backward()
            y.backward()

        both_raise(run)


def test_another_thread_is_not_recorded() -> None:
    entered, finish = threading.Event(), threading.Event()
    profiles: list[profiler.profile] = []

    def other() -> None:
        with profiler.profile() as profile:
            profiles.append(profile)
            tg.tensor([1.0]).exp()
            entered.set()
            finish.wait(30)

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(30)
    with profiler.profile() as mine:
        train(OURS)
    train(OURS)
    finish.set()
    thread.join()
    assert counts(profiles[0]) == {"aten::exp": 1}
    assert counts(mine)["aten::exp"] == 3


def test_on_and_off_and_on_again() -> None:
    profile = profiler.profile()
    x = tg.tensor([1.0])
    profile.start()
    x.exp()
    profile.stop()
    x.exp()
    with profile:
        x.exp()
        with pytest.raises(RuntimeError, match="not reentrant"):
            profile.start()
    assert counts(profile) == {"aten::exp": 2}
    with pytest.raises(RuntimeError, match="not running"):
        profile.stop()


def test_an_inner_profile_takes_over() -> None:
    x = tg.tensor([1.0])
    with profiler.profile() as outer:
        with profiler.profile() as inner:
            x.exp()
        x.log()
    assert (counts(outer), counts(inner)) == ({"aten::log": 1}, {"aten::exp": 1})


def test_a_label_without_a_profile_and_as_a_decorator() -> None:
    @profiler.record_function("labelled")
    def work(x: Any) -> Any:
        """Doubles."""
        return x * 2

    assert work(tg.tensor([1.0])).item() == 2 and work.__doc__ == "Doubles."
    label = profiler.record_function("left open")
    with profiler.profile() as profile:
        work(tg.tensor([1.0]))
        label.__enter__()
    label.__exit__(None, None, None)
    assert counts(profile) == {"labelled": 1, "aten::mul": 1, "left open": 1}


def test_a_session_is_profiled_on_whichever_thread_it_runs() -> None:
    session, other = Session(), Session()
    upload = Instruction("tensor", (), ("x",), {"data": [1.0, 2.0], "requires_grad": True})
    program = [
        Instruction("mul", ("x", "x"), ("y",)),
        Instruction("sum", ("y",), ("z",)),
        Instruction("backward", (("z",),), ()),
        Instruction("free", (("y", "z"),), ()),
    ]
    for each in (session, other):
        each.run([upload])
    session.profile = profile = profiler.profile()
    session.run(program)
    thread = threading.Thread(target=session.run, args=(program,))
    thread.start()
    thread.join()
    other.run(program)
    found = counts(profile)
    assert found["aten::mul"] == found["MulBackward0"] == found["telegrad::backward"] == 2
    session.profile = None
    session.run(program)
    assert counts(profile) == found
    assert len({event.thread for event in profile.events()}) == 2
