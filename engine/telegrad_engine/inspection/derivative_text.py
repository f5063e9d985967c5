"""The rules of derivatives as text, as they are written in the declarations of ops."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import lru_cache
from textwrap import dedent
from types import CodeType
from typing import Any

from ..schema.op import CATALOGUE, Op


def derivative_texts(op: Op) -> Mapping[str, str]:
    """The rule for each input that has one, by the input's name; a rule for several inputs has all their names.

    A call of an op that only serves derivatives is replaced with the formula in its documentation, if that has one.
    """
    rules: dict[str, Callable[..., Any]] = dict(op.rules)
    if op.joint_rule is not None:
        rules[", ".join(param.name for param in op.tensor_params)] = op.joint_rule
    texts = {name: rule_text(rule) for name, rule in rules.items()}
    return {name: _spelled_out(text) for name, text in texts.items() if text is not None}


class _Formulas(ast.NodeTransformer):
    """Replaces calls of internal ops with their formulas."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        op = CATALOGUE.get(called) if called.endswith("_backward") else None
        formula = None if op is None else _formula_of(op.doc)
        if op is None or formula is None or node.keywords:
            return node
        values = dict(zip([param.name for param in op.params], node.args, strict=False))
        names = {each.id for each in ast.walk(formula) if isinstance(each, ast.Name)}
        return _Substitution(values).visit(deepcopy(formula)) if names <= {*values} else node


class _Substitution(ast.NodeTransformer):
    """Replaces names with expressions."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._values[node.id]


def _formula_of(doc: str) -> ast.expr | None:
    """The first expression in a documentation that is more than a name; None if there is none."""
    for text in re.findall(r"``([^`]+)``", doc):
        try:
            found = ast.parse(text, mode="eval").body
        except SyntaxError:
            continue
        if isinstance(found, ast.BinOp):
            return found
    return None


def _spelled_out(text: str) -> str:
    if "_backward(" not in text:
        return text
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    return ast.unparse(_Formulas().visit(tree))


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
