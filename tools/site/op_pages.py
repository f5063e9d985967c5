"""The pages about ops, one for each family, and the page about verbs, from what ``GET /v1/ops`` says."""

from __future__ import annotations

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import tests.op_cases

import telegrad_engine.ops
from telegrad_engine.inspection.derivative_text import derivative_texts
from telegrad_engine.schema.descriptions import example
from telegrad_engine.schema.op import CATALOGUE, Op
from telegrad_service.resources.catalogue import OpEntry, entries

from .markdown import block, code, compact, joined, prose, summary, table
from .op_examples import example_request
from .verb_examples import example_program

OPS = "reference/ops"
TORCH = "https://docs.pytorch.org/docs/stable/generated"
GROUPS = {
    "math": "Math",
    "shape": "Shapes and indices",
    "linalg": "Linear algebra",
    "nn": "Neural networks",
    "random": "Random numbers",
}
INTRODUCTION = """Each op has an example in Python, where `tg` is Telegrad, and one over REST, for a server at
`http://127.0.0.1:8000`: a request that makes the inputs, applies the op, fetches the result and frees all of them. The
requests need a session, which this makes:"""
IMPORT = "import telegrad as tg"
SESSION = """api=http://127.0.0.1:8000/v1/sessions
session=$api/$(curl -sS $api --json '{}' | sed 's/.*"id":"\\([^"]*\\)".*/\\1/')
programs=$session/programs"""
READING = """An op has the name, the parameters and the results of PyTorch's function or method. In Python, it is a
function of `telegrad`, `telegrad.nn.functional` or `telegrad.linalg`, and a method of tensors where PyTorch has one.
Over REST it is an instruction of a program, or the last part of `POST /v1/sessions/{session}/ops/{op}`; parameters
that are tensors are in `inputs`, in this order, and the others in `attrs`, by name.

Under *Derivative*, `grad` is the gradient of the result (`grads` are those of several), `F` has the ops,
`input_shape` is the shape of `input`, and what broadcasting and casts change is undone afterwards, for all ops alike.
An op without that heading is written in other ops, whose derivatives it has, or it has none."""


VERBS = """A program also has these instructions, which are called verbs: uploads, gradients, optimizer steps, names and
modes. `GET /v1/ops?kind=verb` lists them. They are sent as instructions of a program (`POST …/programs`), not to
`POST …/ops/{op}`; a parameter that is a list of tensors is a list in `inputs`: `"inputs": [["loss"]]`. Each has an
example, which frees what it makes; the examples need a session:"""


def op_pages() -> dict[str, str]:
    """The pages, with the navigation of their folder."""
    families = by_family()
    described = {entry.key: entry for entry in entries()}
    pages = {}
    titles = []
    for (group, family), ops in families.items():
        title = f"{GROUPS[group]}: {family.replace('_', ' ')}"
        path = f"{group}/{family}.md"
        titles.append((title, path))
        sections = [section(op, described[op.key]) for op in sorted(ops, key=lambda op: op.key)]
        pages[f"{OPS}/{path}"] = joined(
            f"# {title}", about(group, family), INTRODUCTION, block("sh", SESSION), block("python", IMPORT), *sections
        )
    pages[f"{OPS}/verbs.md"] = verb_page(entry for entry in described.values() if entry.kind == "verb")
    pages[f"{OPS}/index.md"] = index(families)
    pages[f"{OPS}/SUMMARY.md"] = summary(
        [("All ops", "index.md"), *titles, ("Instructions that are no ops", "verbs.md")]
    )
    return pages


def by_family() -> dict[tuple[str, str], list[Op]]:
    """The ops that programs can name, by group and family: the file that declares them."""
    places = {key: place for place, keys in tested_families() for key in keys}
    families: dict[tuple[str, str], list[Op]] = defaultdict(list)
    for op in CATALOGUE:
        if not op.private:
            group, family = places.get(op.key) or op.raw.__module__.rsplit(".", 2)[-2:]
            families[group, "recurrent" if family == "recurrent_layers" else family].append(op)
    order = list(GROUPS)
    return dict(sorted(families.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


def tested_families() -> Iterator[tuple[tuple[str, str], Iterable[str]]]:
    """The keys of the cases of each file of cases, which has the name of the file that declares the ops."""
    for found in pkgutil.walk_packages(tests.op_cases.__path__, "tests.op_cases."):
        if not found.ispkg and found.name.count(".") == 3:
            group, family = found.name.split(".")[2:]
            yield (group, family), getattr(importlib.import_module(found.name), "CASES", {})


def about(group: str, family: str) -> str:
    """What the file of a family says about it, in one paragraph."""
    module = importlib.import_module(f"{telegrad_engine.ops.__name__}.{group}.{family}")
    return prose((module.__doc__ or "").split("\n\n")[0])


def section(op: Op, entry: OpEntry) -> str:
    """What is said about one op."""
    request, lines = example_request(op), example(op.module, op.keys)
    return joined(
        f"## `{op.key}` {{ #{anchor(op.key)} }}",
        code(op.signature),
        prose(entry.doc),
        parameters(entry),
        facts(op, entry),
        derivative(op),
        block("pycon", "\n".join(lines)) if lines else "",
        block("sh", request) if request else "",
    )


def anchor(key: str) -> str:
    """The id of an op's heading."""
    return f"op-{key}"


def parameters(entry: OpEntry) -> str:
    """The parameters of an op or a verb in a table."""
    rows = []
    for param in sorted([*entry.inputs, *entry.attrs], key=lambda each: each.position):
        described: dict[str, Any] = param.model_dump()
        default = "" if param.required else code(compact(param.default))
        meaning = described.get("description") or ""
        rows.append((code(param.name), param.kind, f"`{param.source}s`", default, prose(meaning)))
    if any(row[-1] for row in rows):
        return table(("parameter", "type", "in", "default", "meaning"), rows)
    return table(("parameter", "type", "in", "default"), [row[:-1] for row in rows])


def facts(op: Op, entry: OpEntry) -> str:
    """The results, the names and the kind of an op, in one line each."""
    names = ", ".join(code(name) for name in op.outputs)
    lines = [f"Returns: {prose(entry.returns)}"] if entry.returns else []
    if len(op.outputs) > 1:
        lines.append(f"Names of the results: {names}")
    if entry.aliases:
        lines.append("Other names: " + ", ".join(code(name) for name in entry.aliases))
    if entry.inplace:
        lines.append(f"In place: {code(op.name + '_')}")
    traits = {"Its result is a view of its input": entry.view, "It draws random numbers": entry.random}
    lines += [text for text, holds in traits.items() if holds]
    lines.append(place(op))
    return "\n".join(f"- {line}" for line in lines)


def place(op: Op) -> str:
    """Where PyTorch has an op, with a link to its page."""
    if not op.torch_name:
        return "Internal: it serves other ops, and PyTorch has no function of this name"
    name = code(op.torch_name)
    return f"In PyTorch: {name if '__' in name else f'[{name}]({TORCH}/{op.torch_name}.html)'}"


def derivative(op: Op) -> str:
    """The rules of an op's derivative."""
    short, long = [], []
    for name, text in derivative_texts(op).items():
        if "\n" in text or len(text) > 160:
            long.append(f"{code(name)}:\n\n{block('text', text)}")
        else:
            short.append(f"- {code(name)}: {code(text)}")
    return joined("**Derivative**", "\n".join(short), *long) if short or long else ""


def verb_page(verbs: Iterable[OpEntry]) -> str:
    """The page about the instructions that are no ops."""
    sections = [
        joined(
            f"## `{verb.key}` {{ #verb-{verb.key} }}",
            prose(verb.doc),
            parameters(verb),
            block("sh", example_program(verb.key)),
        )
        for verb in sorted(verbs, key=lambda verb: verb.key)
    ]
    return joined("# Instructions that are no ops", VERBS, block("sh", SESSION), *sections)


def index(families: dict[tuple[str, str], list[Op]]) -> str:
    """The page that links to all ops but the internal ones."""
    count = internal = 0
    parts = []
    for (group, family), ops in families.items():
        path = f"{group}/{family}.md"
        public = [op for op in sorted(ops, key=lambda op: op.key) if op.torch_name]
        count, internal = count + len(public), internal + len(ops) - len(public)
        links = [f"[`{op.key}`]({path}#{anchor(op.key)})" for op in public]
        parts.append(f"## [{GROUPS[group]}: {family.replace('_', ' ')}]({path})\n\n" + ", ".join(links))
    told = f"""The catalogue has {count} ops, and [instructions that are no ops](verbs.md). {internal} internal ops,
which serve others and appear in graphs, are only on the pages of their families."""
    return joined("# All ops", told, READING, *parts)
