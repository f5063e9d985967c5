"""Schemas of functions.

The engine checks the contents of a definition, and its errors name the wrong instruction; the models of programs and
instructions here only document it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from ..catalogue.schemas import Parameters
from ..routing.pages import Page
from ..routing.schemas import Answer, Request, Tensor, TensorId, Unchecked, also

FunctionScope = TypeAliasType("FunctionScope", Literal["session", "server"])
Name = Annotated[str, Field(description="A letter, then letters, digits and _.", examples=["my_power"])]


class FunctionInstruction(Request):
    """One step of a function: an op, or `apply`, `cond`, `while_loop`, `scan`, `detach`, `tensor`, `index_get/set`."""

    op: str = Field(description="An op of `GET /v1/ops`; a trailing _ names its in-place form.", examples=["mul"])
    inputs: list[Any] = Field(
        default=[],
        description='Tensors of the program by name, numbers, lists of these, and expressions: {"attr": "power"} '
        '(deprecated: "param"), {"shape": ["x", 0]}, {"sub": [{"attr": "power"}, 1]}. Deprecated: `in`.',
    )
    outputs: list[str] = Field(default=[], description="Names for its outputs, each used once. Deprecated: `out`.")
    attrs: dict[str, Any] = Field(
        default={}, description="Attributes by name, which may contain expressions; for control flow, the programs."
    )


class FunctionBlock(Request):
    """A program: the names of its inputs, its instructions, and the names of its outputs."""

    inputs: list[str] = Field(default=[], examples=[["x"]], description="The names of its inputs.")
    instructions: list[FunctionInstruction] = Field(default=[], description="In the order in which they run.")
    outputs: list[str | None] = Field(
        examples=[["y"]], description="The names of its outputs; null where backward gives no gradient."
    )


class ForwardBlock(FunctionBlock):
    """The forward program; `inputs` are the tensors that the function takes."""

    saves: list[str] = Field(default=[], description="The tensors that backward receives, before the gradients.")
    non_differentiable: list[str] = Field(default=[], description="The outputs that have no gradient.")


class FunctionAttr(Request):
    """An attribute of a function: a parameter that is no tensor."""

    name: str = Field(examples=["power"])
    type: Literal["number", "int", "bool", "str", "ints", "list", "dtype"] = Field(default="number")
    default: Any = Field(default=None, description="Absent for a required attribute.")


Derivative = Annotated[FunctionBlock, Unchecked]


class Definition(Request):
    """A function as data."""

    name: Name
    doc: str = Field(default="", description="What it does, for people.")
    attrs: Annotated[list[FunctionAttr], Unchecked] = Field(
        default=[], validation_alias=also("attrs", "parameters"), description="Deprecated: `parameters`."
    )
    order: list[str] | None = Field(
        default=None, description="Inputs and attributes in the order of a call; all inputs first if absent."
    )
    forward: Annotated[ForwardBlock, Unchecked]
    backward: Derivative | None = Field(
        default=None,
        description="Takes the saved tensors and the outputs' gradients, returns the inputs' gradients. "
        "Without it, forward is recorded op by op.",
    )
    jvp: Derivative | None = Field(
        default=None, description="Takes the saved tensors and the inputs' tangents, returns the outputs' tangents."
    )
    once_differentiable: bool = Field(default=False, description="Whether the results of backward have no derivative.")


class FunctionCreate(Definition):
    """A function, and where it is registered."""

    scope: FunctionScope = Field(default="session", description="`server`: for all sessions of this server.")
    verify: bool = Field(default=False, description="Check its derivative on random inputs first.")
    shapes: list[list[int]] | None = Field(
        default=None, description="Shapes of those inputs; found by trial if absent."
    )


class FunctionEntry(Parameters):
    """A function that the session can apply."""

    name: Name
    scope: FunctionScope
    signature: str = Field(examples=["my_power(Tensor x, Number power = 2)"])
    doc: str = Field(examples=[""])
    outputs: int = Field(description="The number of its outputs.", examples=[1])
    definition: dict[str, Any] | None = Field(
        description="As it was registered; null in a list, and for the server operator's Python functions.",
        examples=[None],
    )


class FunctionPage(Page[FunctionEntry]):
    """Functions of a session and of the server, ordered by name."""


class FunctionArguments(Request):
    """Tensors, attributes, and ids for the outputs."""

    inputs: list[TensorId] = Field(description="Its tensor inputs, in order.", examples=[["x"]])
    attrs: dict[str, Any] = Field(
        default={},
        validation_alias=also("attrs", "params"),
        description="Its attributes by name. Deprecated: `params`.",
        examples=[{"power": 3}],
    )
    outputs: list[TensorId] | None = Field(
        default=None, description="Ids for the outputs; the server chooses them if this is absent."
    )


class FunctionResult(Answer):
    """The function's outputs."""

    outputs: list[Tensor] = Field(description="In the function's order.")
