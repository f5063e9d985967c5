"""A registered function in a notebook: its signature, and the programs that it was traced to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import html_output

DERIVATIVES = ("backward", "jvp")


def function_html(signature: str, definition: Mapping[str, Any]) -> str:
    """Return the signature and the programs of a function's definition, one instruction a line."""
    given = [name for name in DERIVATIVES if definition.get(name)]
    title = html_output.properties(
        signature,
        [(name, "its own" if name in given else "from the forward program") for name in DERIVATIVES],
    )
    programs = ["\n".join([name, *_lines(definition[name])]) for name in ("forward", *given)]
    return html_output.block("function", title, html_output.preformatted("\n\n".join(programs)))


def _lines(program: Mapping[str, Any]) -> Iterator[str]:
    for step in program["instructions"]:
        arguments = [*map(_argument, step["inputs"])]
        arguments += [f"{name}={_argument(value)}" for name, value in step.get("attrs", {}).items()]
        yield f"  {', '.join(map(_argument, step['outputs']))} = {step['op']}({', '.join(arguments)})"
    yield f"  return {', '.join(map(_argument, program['outputs']))}"


def _argument(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join(map(_argument, value))}]"
    if isinstance(value, Mapping) and value.keys() == {"attr"}:
        return str(value["attr"])
    return repr(value)
