"""JSON schemas in the forms that client generators support, and example values for them.

Pydantic's schemas are correct, but generators name classes after ``title``, read integers without a ``format`` as 32
bits wide, and do not support ``const``. They are rewritten here for the whole document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]
NULL = {"type": "null"}
FORMATS = {"integer": "int64", "number": "double"}
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
# The keys whose values contain schemas.
IN_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
IN_VALUES = ("items", "additionalProperties")
# The keys whose values are data, not schemas.
DATA = frozenset({"example", "examples", "default", "enum"})
_CODE = re.compile(r"``(.+?)``")
_ROLE = re.compile(r":[a-z]+:`~?(?:[\w.]*\.)?([^`]+)`")


def simplified_document(part: Any) -> Any:
    """A part of an OpenAPI document, with simplified schemas and Markdown descriptions."""
    if isinstance(part, list):
        return [simplified_document(item) for item in part]
    if not isinstance(part, dict):
        return part
    found: dict[str, Any] = {}
    for key, value in part.items():
        if key in DATA:
            found[key] = value
        elif key == "schemas":
            found[key] = {name: simplified(schema) for name, schema in value.items()}
        elif key == "schema":
            found[key] = simplified(value)
        elif key in ("description", "summary") and isinstance(value, str):
            found[key] = plain_text(value)
        else:
            found[key] = simplified_document(value)
    return found


def simplified(schema: Any) -> Any:
    """A schema without titles and ``const``, with formats, Markdown text, and the shortest form of ``X | None``."""
    if not isinstance(schema, dict):
        return schema
    found = {key: value for key, value in schema.items() if key != "title"}
    for key in IN_LISTS:
        if key in found:
            found[key] = [simplified(each) for each in found[key]]
    for key in IN_VALUES:
        if key in found:
            found[key] = simplified(found[key])
    if "properties" in found:
        found["properties"] = {name: simplified(each) for name, each in found["properties"].items()}
    if "const" in found:
        constant = found.pop("const")
        if not isinstance(constant, bool):
            found["enum"] = [constant]
    if "description" in found:
        found["description"] = plain_text(found["description"])
    _make_precise(found)
    return _shorten_nullable(found)


def _make_precise(schema: Schema) -> None:
    kind = schema.get("type")
    if kind == "integer":
        schema.update({key: int(schema[key]) for key in BOUNDS if key in schema})
        # The largest and the smallest value, which generators can hold: 2**63 is no int64.
        if "exclusiveMaximum" in schema:
            schema["maximum"] = schema.pop("exclusiveMaximum") - 1
        if "exclusiveMinimum" in schema:
            schema["minimum"] = schema.pop("exclusiveMinimum") + 1
    if kind in FORMATS:
        schema.setdefault("format", FORMATS[kind])


def _shorten_nullable(schema: Schema) -> Schema:
    """Rewrite ``anyOf: [X, null]`` as X with type ``[…, "null"]``, or as ``oneOf`` if X is a reference or an enum."""
    options = schema.get("anyOf", [])
    if NULL not in options or len(options) != 2:
        return schema
    (option,) = (each for each in options if each != NULL)
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    if "$ref" in option or "enum" in option:
        return {"oneOf": [option, NULL], **rest}
    if "type" in option:
        return {**option, "type": [option["type"], "null"], **rest}
    return {**option, **rest}


def without_null(schema: Schema) -> Schema:
    """The part of a schema that describes values other than null."""
    kind = schema.get("type")
    if isinstance(kind, list):
        schema = {**schema, "type": kind[0]} if len(kind) == 2 else schema
    if NULL in schema.get("oneOf", []) and len(schema["oneOf"]) == 2:
        (option,) = (each for each in schema["oneOf"] if each != NULL)
        schema = {**option, **{key: value for key, value in schema.items() if key != "oneOf"}}
    return schema


def plain_text(text: str) -> str:
    """A docstring as Markdown: roles and literals become names in single backticks."""
    return _CODE.sub(r"`\1`", _ROLE.sub(r"`\1`", text))


def example(schema: Schema, schemas: Mapping[str, Schema]) -> Any:
    """A value that matches the schema: its own example, or one composed of its parts' examples."""
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return example(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    for options in ("oneOf", "anyOf"):
        if options in schema:
            return example(schema[options][0], schemas)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        properties = {name: example(each, schemas) for name, each in schema.get("properties", {}).items()}
        more = schema.get("additionalProperties")
        return properties or ({"x": example(more, schemas)} if isinstance(more, dict) else {})
    if kind == "array":
        return [example(schema["items"], schemas)]
    raise ValueError(f"the schema needs examples: {schema}")
