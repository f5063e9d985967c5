"""The page about optimizers: their settings, and their states over REST."""

from __future__ import annotations

from typing import Any

from telegrad_engine.optim.algorithms import OPTIMIZERS
from telegrad_service.resources.catalogue import OptimizerEntry, optimizer_entry

from .markdown import block, code, compact, joined, prose, table
from .op_pages import SESSION

NOTE = """In Python, `telegrad.optim` has PyTorch's classes. Over REST, one instruction `optim_step` moves all
parameters of a group, in place. Its inputs are the parameters, and one list of tensors for each state, in the order
below; the client makes the states before the first step. `GET /v1/optimizers` says the same as this page.

The examples are requests to a server at `http://127.0.0.1:8000`, in a session that this makes:"""
SHAPES = {
    "parameter": "the parameter's",
    "scalar": "none: a number",
    "row": "the parameter's, with size 1 in the last dimension",
    "column": "the parameter's, with size 1 in the last but one dimension",
}
SHAPE = [2, 3]


def optimizer_page() -> str:
    """All optimizers."""
    entries = [optimizer_entry(OPTIMIZERS[name]) for name in sorted(OPTIMIZERS)]
    return joined("# Optimizers", NOTE, block("sh", SESSION), *map(section, entries))


def section(entry: OptimizerEntry) -> str:
    """What is said about one optimizer."""
    described = [setting.model_dump() for setting in entry.settings]
    settings = [
        (
            code(each["name"]),
            each["kind"],
            "" if each["required"] else code(compact(each["default"])),
            prose(each.get("description") or ""),
        )
        for each in described
    ]
    states = [
        (code(state.name), SHAPES[state.shape], code(state.initial), code(state.only_with or ""))
        for state in entry.states
    ]
    return joined(
        f"## `{entry.name}` {{ #optimizer-{entry.name} }}",
        prose(entry.doc),
        table(("setting", "type", "default", "meaning"), settings),
        table(("state", "shape", "starts as", "only with"), states) or "It has no states.",
        block("sh", request(entry)),
    )


def request(entry: OptimizerEntry) -> str:
    """A command that makes a parameter and the states of an optimizer, and takes one step."""
    settings = {"lr": 0.1} if any(setting.name == "lr" for setting in entry.settings) else {}
    states = [state for state in entry.states if state.only_with is None]
    instructions: list[dict[str, Any]] = [
        {
            "op": "tensor",
            "outputs": ["w"],
            "attrs": {"data": [[0.5, -1.0, 2.0], [1.5, 0.0, -0.5]], "requires_grad": True},
        },
        {"op": "square", "inputs": ["w"], "outputs": ["squares"]},
        {"op": "sum", "inputs": ["squares"], "outputs": ["loss"]},
        {"op": "backward", "inputs": [["loss"]]},
        *({"op": "full", "attrs": initial(state, settings), "outputs": [state.name]} for state in states),
        {
            "op": "optim_step",
            "inputs": [["w"], [[state.name] for state in states]],
            "attrs": {"algorithm": entry.name, "settings": settings},
        },
        {"op": "fetch", "inputs": [["w"]]},
        {"op": "free", "inputs": [["w", "squares", "loss", *(state.name for state in states)]]},
    ]
    lines = ",\n  ".join(compact(each) for each in instructions)
    return f"curl $programs --json '{{\"instructions\": [\n  {lines}\n]}}'"


def initial(state: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The attributes of ``full`` that make a state."""
    sizes = {"parameter": SHAPE, "scalar": [], "row": [SHAPE[0], 1], "column": [1, SHAPE[1]]}
    value = settings[state.initial] if isinstance(state.initial, str) else state.initial
    return {"size": sizes[state.shape], "fill_value": float(value)}
