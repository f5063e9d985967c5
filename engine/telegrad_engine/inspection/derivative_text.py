"""The rules of derivatives as text, as they are written in the declarations of ops."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from textwrap import dedent
from types import CodeType
from typing import Any

from ..schema.op import Op


def derivative_texts(op: Op) -> Mapping[str, str]:
    """The rule for each input that has one, by the input's name; a rule for several inputs has all their names."""
    rules: dict[str, Callable[..., Any]] = dict(op.rules)
    if op.joint_rule is not None:
        rules[", ".join(param.name for param in op.tensor_params)] = op.joint_rule
    texts = {name: rule_text(rule) for name, rule in rules.items()}
    return {name: text for name, text in texts.items() if text is not None}


@lru_cache(maxsize=2048)
def rule_text(rule: Callable[..., Any]) -> str | None:
    """The expression that a rule returns, or the source of a longer one; None if its source is not there.

    ``grad`` is the gradient of the output, and ``F`` has the ops.
    """
    code: CodeType | None = getattr(rule, "__code__", None)
    if code is None:
        return None
    try:
        if code.co_name != "<lambda>":
            return _function_text(dedent(inspect.getsource(rule)))
        tree = _parsed(code.co_filename)
    except (OSError, SyntaxError):
        return None
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and _contains(node, code)]
    return ast.unparse(max(found, key=lambda node: (node.lineno, node.col_offset)).body) if found else None


@lru_cache(maxsize=64)
def _parsed(path: str) -> ast.Module:
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


def _contains(node: ast.Lambda, code: CodeType) -> bool:
    """Whether all of the code is from within a lambda expression."""
    start, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    places = []
    for line, last, column, until in code.co_positions():
        if line is None or last is None or column is None or until is None or (line, column) == (last, until):
            continue  # an instruction that stands for no text
        places.append(((line, column), (last, until)))
    return bool(places) and all(start <= begun and ended <= end for begun, ended in places)


def _function_text(source: str) -> str:
    """The expression that a function returns if it does nothing else, or else its source without its docstring."""
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
        return ast.unparse(body[0].value)
    return "\n".join(map(ast.unparse, body))
