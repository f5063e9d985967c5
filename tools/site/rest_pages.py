"""The pages about the REST API, one for each tag of the OpenAPI document, and one about its schemas."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from .markdown import block, code, compact, joined, prose, summary, table

REST = "reference/rest"
OPENAPI = Path(__file__).resolve().parents[2] / "openapi" / "openapi.json"
METHODS = ("get", "post", "put", "patch", "delete")
JSON = "application/json"
MAX_EXAMPLES = 3
FLAT = re.compile(r"\[\s+([^\[\]{}]*?)\s+\]")
"""A list without lists and objects, over several lines."""
Member = dict[str, Any]


def rest_pages() -> dict[str, str]:
    """The pages, with the navigation of their folder."""
    document = json.loads(OPENAPI.read_text(encoding="utf-8"))
    operations: dict[str, list[tuple[str, str, Member]]] = defaultdict(list)
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                operations[item[method]["tags"][0]].append((method.upper(), path, item[method]))
    pages = {}
    titles = [("The REST API", "index.md")]
    for tag in document["tags"]:
        name = tag["name"]
        sections = [operation(document, *each) for each in operations[name]]
        pages[f"{REST}/{name}.md"] = joined(f"# REST: {name}", prose(tag["description"]), *sections)
        titles.append((name.capitalize(), f"{name}.md"))
    pages[f"{REST}/schemas.md"] = schema_page(document["components"]["schemas"])
    titles.append(("Schemas", "schemas.md"))
    pages[f"{REST}/index.md"] = index(document, operations)
    pages[f"{REST}/SUMMARY.md"] = summary(titles)
    return pages


def index(document: Member, operations: dict[str, list[tuple[str, str, Member]]]) -> str:
    """The page that links to all operations."""
    rows = [
        (f"`{method} {path}`", f"[{each['summary']}]({tag}.md#{each['operationId']})")
        for tag, found in operations.items()
        for method, path, each in found
    ]
    return joined(
        "# The REST API",
        document["info"]["description"].replace("docs/reference/stream.md", "[the stream](../stream.md)"),
        "A server serves this document at `/openapi.json`, and the same as interactive pages at `/docs` and `/redoc`.",
        table(("request", "what it does"), rows),
    )


def operation(document: Member, method: str, path: str, declared: Member) -> str:
    """What is said about one operation."""
    return joined(
        f"## {declared['summary']} {{ #{declared['operationId']} }}",
        f"`{method} {path}`",
        prose(declared.get("description", "")),
        parameters(document, declared.get("parameters", [])),
        body(document, declared.get("requestBody")),
        answers(declared["responses"]),
    )


def parameters(document: Member, declared: list[Member]) -> str:
    """The parameters of an operation in a table."""
    rows = []
    for parameter in (resolved(document, each) for each in declared):
        required = "yes" if parameter.get("required") else ""
        name = code(parameter["name"])
        rows.append(
            (name, parameter["in"], type_of(parameter["schema"]), required, prose(parameter.get("description", "")))
        )
    return table(("parameter", "in", "type", "required", "meaning"), rows)


def body(document: Member, declared: Member | None) -> str:
    """The body of a request: its members, its other media types and examples."""
    if declared is None:
        return ""
    content = declared["content"]
    others = [code(name) for name in content if name != JSON]
    parts = ["**Body**" + (f", also as {', '.join(others)}" if others and JSON in content else "")]
    if JSON not in content:
        return joined(f"**Body**: {', '.join(others)}")
    schema = content[JSON]["schema"]
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        parts[0] += f": [{name}](schemas.md#{name})"
        parts.append(members(document["components"]["schemas"][name]))
    examples = content[JSON].get("examples", {})
    found = [(each["summary"], each["value"]) for each in examples.values()]
    if "example" in content[JSON]:
        found.append(("An example", content[JSON]["example"]))
    for title, value in found[:MAX_EXAMPLES]:
        parts.append(joined(f"{title}:", example(value)))
    return joined(*parts)


def answers(responses: Member) -> str:
    """The answers of an operation: those with a body in a table, an example, and the statuses of problems."""
    rows = []
    problems = []
    shown = ""
    for status, answer in responses.items():
        content = answer.get("content", {})
        if int(status) >= 400:
            problems.append(code(status))
            continue
        if not shown and "example" in content.get(JSON, {}):
            shown = joined("An example of an answer:", example(content[JSON]["example"]))
        kinds = [code(media) if media != JSON else type_of(each.get("schema", {})) for media, each in content.items()]
        rows.append((code(status), ", ".join(kinds), prose(answer.get("description", ""))))
    told = f"Problems ([errors](../errors.md)): {', '.join(problems)}" if problems else ""
    return joined(table(("status", "body", "meaning"), rows), shown, told)


def example(value: Any) -> str:
    """A body as a block of JSON, with a line for each list of numbers and texts."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return block("json", FLAT.sub(lambda found: f"[{' '.join(found[1].split())}]", text))


def schema_page(schemas: Member) -> str:
    """The page about all schemas of the document."""
    sections = []
    for name, schema in sorted(schemas.items()):
        values = f"One of {', '.join(code(compact(value)) for value in schema['enum'])}." if "enum" in schema else ""
        kind = "" if schema.get("properties") or values else type_of(schema)
        sections.append(
            joined(f"## {name} {{ #{name} }}", prose(schema.get("description", "")), values, kind, members(schema))
        )
    return joined(
        "# REST: schemas", "The bodies of requests and answers, by the names that the OpenAPI document has.", *sections
    )


def members(schema: Member) -> str:
    """The members of a schema in a table."""
    required = schema.get("required", ())
    rows = []
    for name, each in schema.get("properties", {}).items():
        if not each.get("deprecated"):
            default = code(compact(each["default"])) if each.get("default") is not None else ""
            flag = "yes" if name in required else ""
            rows.append((code(name), type_of(each), flag, default, prose(each.get("description", ""))))
    return table(("member", "type", "required", "default", "meaning"), rows)


def type_of(schema: Member) -> str:
    """A schema in a few words, with a link if it has a name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](schemas.md#{name})"
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(type_of(each) for each in schema[key]))
    if "enum" in schema:
        return " or ".join(code(compact(value)) for value in schema["enum"])
    if "const" in schema:
        return code(compact(schema["const"]))
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {type_of(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))


def resolved(document: Member, schema: Member) -> Member:
    """A parameter, or the one that it refers to."""
    found: Member = document if "$ref" in schema else schema
    for part in schema.get("$ref", "").split("/")[1:]:
        found = found[part]
    return found
