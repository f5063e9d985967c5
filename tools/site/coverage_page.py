"""The page that says what of PyTorch is covered: the catalogue of ops, and the names that are missing, by reason."""

from __future__ import annotations

from collections import Counter, defaultdict

from telegrad.exclusions import TABLE, Exclusion
from telegrad_engine.optim.algorithms import OPTIMIZERS
from telegrad_engine.schema.op import CATALOGUE, Op

from .markdown import code, joined, table

MOST_NAMES = 60
"""Longer lists of names are folded."""
NOTE = """To find a name, press `/` and type it. If the search finds an op or a class of the
[SDK](../reference/sdk/index.md), Telegrad has it; if it finds this page, the heading above the name says why not.

This page is made from the catalogue of ops and from the list of PyTorch's names that Telegrad leaves out. A
name that is left out raises an `AttributeError` that says the same as this page. The tests compare Telegrad's names
with PyTorch's, and every op with PyTorch's numbers, errors, first and second derivatives."""


def coverage_page() -> str:
    """What is covered, and what is not, by reason."""
    ops = [op for op in CATALOGUE if not op.private]
    missing: dict[Exclusion, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for (namespace, name), exclusion in TABLE.items():
        missing[exclusion][f"torch.{namespace}".rstrip(".")].append(name)
    planned = {exclusion: names for exclusion, names in missing.items() if exclusion.planned}
    rest = {exclusion: names for exclusion, names in missing.items() if not exclusion.planned}
    return joined(
        "# What is covered",
        NOTE,
        "## What there is",
        table(("what", "how many"), counts(ops)),
        "## What is planned" if planned else "",
        *(section(exclusion, names) for exclusion, names in planned.items()),
        "## What is left out",
        *(section(exclusion, names) for exclusion, names in rest.items()),
    )


def counts(ops: list[Op]) -> list[tuple[str, str]]:
    """How many ops there are of each kind."""
    by_namespace = Counter(op.namespace for op in ops if not op.internal)
    rows = [
        (f"[ops](../reference/ops/index.md) in {code(namespace)}", str(count))
        for namespace, count in by_namespace.most_common()
    ]
    rows.append(("ops that only tensor methods and other ops use", str(sum(op.internal for op in ops))))
    rows.append(("ops with an in-place form", str(sum(op.inplace for op in ops))))
    rows.append(("ops with a derivative", str(sum(op.differentiable for op in ops))))
    rows.append(("optimizers", f"{len(OPTIMIZERS)}: see [optimizers](../reference/optimizers.md)"))
    return rows


def section(exclusion: Exclusion, names: dict[str, list[str]]) -> str:
    """The names that are missing for one reason."""
    title = exclusion.reason[0].upper() + exclusion.reason[1:]
    lists = []
    for namespace, found in names.items():
        listed = ", ".join(code(name) for name in sorted(found, key=str.lower))
        if len(found) <= MOST_NAMES:
            lists.append(f"- {code(namespace)}: {listed}")
        else:
            lists.append(f"- {code(namespace)}: {len(found)} names, such as {', '.join(map(code, sorted(found)[:8]))}")
    return joined(f"### {title}", f"Instead: {exclusion.instead}." if exclusion.instead else "", "\n".join(lists))
