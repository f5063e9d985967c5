"""Type stubs for editors and type checkers, which cannot see methods and functions that are created at import.

Builds of the distributions write them (``hatch_build.py``), and ``make stubs`` does in a checkout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from .graph.node import camel
from .schema.op import CATALOGUE, PREFIXES, Op
from .schema.parameters import DTypeKind, IntsKind, OperandKind, TensorListKind
from .schema.signature import REQUIRED, Param
from .tensor.methods import BINARY, COMPARISONS, CONVERSIONS, UNARY
from .tensor.namespace import functional_key, functional_names, public_names

HEADER = '''"""{doc} Generated; do not edit."""

from collections.abc import {abc}
from typing import {typing}
'''


def _type(param: Param, tensor: str) -> str:
    if isinstance(param.kind, DTypeKind):
        kind = "Any"
    elif isinstance(param.kind, TensorListKind):
        kind = f"Sequence[{tensor} | None]" if param.name == "indices" else f"Sequence[{tensor}]"
    elif isinstance(param.kind, OperandKind):
        kind = f"{tensor} | float"
    elif param.kind.is_tensor:
        kind = tensor
    else:
        kind = param.kind.stub
    return kind if param.default is not None or kind == "Any" else f"{kind} | None"


def _parameter(param: Param, tensor: str) -> str:
    text = f"{param.name}: {_type(param, tensor)}"
    return text if param.default is REQUIRED else f"{text} = {param.default!r}"


def _returns(op: Op, tensor: str) -> str:
    if op.lists_outputs:
        return f"tuple[{tensor}, ...]"
    if len(op.outputs) == 1:
        return tensor
    return f"{camel(op.name)}Result[{tensor}]"


def _arguments(op: Op, tensor: str, params: list[Param], splat: bool = False) -> str:
    """The parameters; with ``splat``, the last positional one is ``*args``, for ``view(2, 3)``."""
    parts = [_parameter(p, tensor) for p in params if not p.keyword_only]
    named = [_parameter(p, tensor) for p in params if p.keyword_only]
    if op.factory:
        named += ["requires_grad: bool = False", "device: Any = None"]
    if splat:
        last = [p for p in params if not p.keyword_only][-1]
        parts[-1] = f"*{last.name}: {'int' if isinstance(last.kind, IntsKind) else tensor}"
    elif named:
        parts.append("*")
    return ", ".join([*parts, *named])


def _definitions(
    name: str,
    ops: list[Op],
    tensor: str,
    *,
    method: bool = False,
    in_place: bool = False,
    added: str = "",
    returns: str | None = None,
) -> list[str]:
    """The lines that declare one function or method, with one overload per signature.

    ``added`` is a parameter besides those of the ops. What an editor shows beside the signature is the first paragraph
    of the docstring: with the parameters, the stubs would be several times as large.
    """
    signatures: list[tuple[str, str]] = []
    for op in ops:
        params = list(op.params)
        if method:
            own = next(i for i, p in enumerate(params) if p.kind.is_tensor)
            params.pop(own)
        result = returns or _returns(op, tensor)
        signatures.append((_arguments(op, tensor, params), result))
        if op.splat_at >= 0:
            signatures.append((_arguments(op, tensor, params, splat=True), result))
    signatures = list(dict.fromkeys(signatures))
    doc = f"In-place version of ``{name[:-1]}``." if in_place else ops[0].doc.partition("\n\n")[0].replace("\n", " ")
    lines: list[str] = []
    for index, (arguments, result) in enumerate(signatures):
        if len(signatures) > 1:
            lines.append("@overload")
        given = ", ".join(part for part in ("self" if method else "", arguments, added) if part)
        lines.append(f"def {name}({given}) -> {result}:{'' if index == 0 else ' ...'}")
        if index == 0:
            lines.append(f'    """{doc}"""')
    return lines


def _public(name: str) -> list[Op]:
    return [op for op in CATALOGUE.overloads[name] if not op.internal]


def _results() -> list[str]:
    """The named tuples of ops with several outputs."""
    several = {op.name: op for op in CATALOGUE if len(op.outputs) > 1 and not (op.lists_outputs or op.internal)}
    lines: list[str] = []
    for op in several.values():
        lines += ["", f"class {camel(op.name)}Result(NamedTuple, Generic[_T]):"]
        lines += [f"    {output}: _T" for output in op.outputs]
    return lines


def _operators() -> list[str]:
    """The operators of a tensor, whose methods are set at import."""
    lines = [
        "def __getitem__(self, index: Any) -> Self: ...",
        "def __setitem__(self, index: Any, value: Any) -> None: ...",
        "def __iter__(self) -> Iterator[Self]: ...",
    ]
    for dunder, name in BINARY.items():
        op = CATALOGUE.get(name)
        other = _type(op.params[1], "Self")
        lines.append(f"def __{dunder}__(self, other: {other}) -> Self: ...")
        lines.append(f"def __r{dunder}__(self, other: {other}) -> Self: ...")
        if op.inplace:
            lines.append(f"def __i{dunder}__(self, other: {other}) -> Self: ...")
    for name in COMPARISONS:
        ignore = "  # type: ignore[override]" if name in ("eq", "ne") else ""
        lines.append(f"def __{name}__(self, other: Any) -> Self: ...{ignore}")
    lines += [f"def __{dunder}__(self) -> Self: ..." for dunder in (*UNARY, "invert")]
    return lines


def method_stubs() -> str:
    """The stub of ``OpMethods``: each op's method and in-place method."""
    head = HEADER.format(
        doc="The methods that tensors get from the catalogue.",
        abc="Iterator, Sequence",
        typing="Any, Generic, NamedTuple, Self, TypeVar, overload",
    )
    lines = [head, '_T = TypeVar("_T")', *_results()]
    # In a class of their own, so that they do not hide the types of the same names.
    lines += ["", "class _Conversions:"]
    for name, dtype in CONVERSIONS.items():
        lines += [f"    def {name}(self, memory_format: Any = None) -> Self:", f'        """With the dtype {dtype}."""']
    lines += ["", "class OpMethods(_Conversions):", *("    " + line for line in _operators())]
    for name in sorted(CATALOGUE.overloads):
        methods = [op for op in _public(name) if op.method]
        if methods:
            answer = "bool" if methods[0].truth else None
            lines += ["    " + line for line in _definitions(name, methods, "Self", method=True, returns=answer)]
        changing = [op for op in CATALOGUE.overloads[name] if op.inplace]
        if changing:
            made = _definitions(f"{name}_", changing[:1], "Self", method=True, in_place=True, returns="Self")
            lines += ["    " + line for line in made]
    return "\n".join(lines) + "\n"


def function_stubs(namespace: str, names: Iterable[str], tensor_import: str) -> str:
    """The stub of the functions of one namespace: ``torch``, ``torch.linalg`` or ``torch.nn.functional``."""
    head = HEADER.format(
        doc=f"The functions of {namespace} that the catalogue has.", abc="Sequence", typing="Any, overload"
    )
    lines: list[str] = []
    for name in names:
        functional = namespace == "torch.nn.functional"
        ops = _public(functional_key(name) if functional else PREFIXES.get(namespace, "") + name)
        takes_inplace = functional and ops[0].takes_inplace
        added = "inplace: bool = False" if takes_inplace else ""
        lines += _definitions(name, ops, "Tensor", added=added, returns="bool" if ops[0].truth else None)
        if takes_inplace:
            lines += _definitions(f"{name}_", ops, "Tensor", in_place=True)
    results = sorted(set(re.findall(r"\w+Result\b", "\n".join(lines))))
    if results:
        head += f"\nfrom telegrad_engine.tensor._op_methods import {', '.join(results)}\n"
    return "\n".join([head, tensor_import, "", *lines]) + "\n"


def engine_stubs() -> dict[str, str]:
    """The text of each stub of the engine, by its path in the folder ``engine``."""
    return {"telegrad_engine/tensor/_op_methods.pyi": method_stubs()}


def client_stubs() -> dict[str, str]:
    """The text of each stub of the SDK, by its path in the folder ``client``."""
    torch = sorted(name for name in CATALOGUE.overloads if any(op.namespace == "torch" for op in _public(name)))
    parent = "from ..tensor.handle import Tensor"
    return {
        "telegrad/_functions.pyi": function_stubs("torch", torch, "from .tensor.handle import Tensor"),
        "telegrad/linalg/_linalg.pyi": function_stubs("torch.linalg", public_names("torch.linalg"), parent),
        "telegrad/nn/_functional.pyi": function_stubs("torch.nn.functional", functional_names(), parent),
    }


def write(folder: Path, stubs: dict[str, str]) -> None:
    """Write stubs in a distribution's folder, unless they are there already."""
    for name, text in stubs.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    checkout = Path(__file__).resolve().parents[2]
    write(checkout / "engine", engine_stubs())
    write(checkout / "client", client_stubs())
