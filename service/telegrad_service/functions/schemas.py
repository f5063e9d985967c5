"""Functions as they travel.

What stands inside a definition is checked by the engine, whose errors say which instruction is wrong; the models of
programs and instructions here are its documentation.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation

from ..catalogue.schemas import OpParam
from ..schemas import Answer, Request, Tensor, TensorId

Scope = Literal["session", "server"]
Name = Annotated[str, Field(description="a letter, then letters, digits and _", examples=["my_power"])]


class FunctionInstruction(Request):
    """One step of a function: an op, or `apply`, `cond`, `while_loop`, `scan`, `detach`, `tensor`, `index_get/set`."""

    op: str = Field(description="an op of `GET /v1/ops`; a trailing _ is its in-place form", examples=["mul"])
    inputs: list[Any] = Field(
        default=[],
        alias="in",
        description='tensors of the program by name, numbers, lists of these, and expressions: {"param": "power"}, '
        '{"shape": ["x", 0]}, {"sub": [{"param": "power"}, 1]}',
    )
    outputs: list[str] = Field(default=[], alias="out", description="names for its outputs, each given once")
    attrs: dict[str, Any] = Field(
        default={}, description="attributes by name; expressions may stand in them; for control flow, the programs"
    )


class FunctionBlock(Request):
    """A program: names of its inputs, its instructions, and which tensors are its outputs."""

    inputs: list[str] = Field(default=[], examples=[["x"]])
    instructions: list[FunctionInstruction] = []
    outputs: list[str | None] = Field(examples=[["y"]], description="null where backward gives no gradient")


class ForwardBlock(FunctionBlock):
    """The forward program; `inputs` are the tensors that the function takes."""

    saves: list[str] = Field(default=[], description="tensors that backward is given, before the gradients")
    non_differentiable: list[str] = Field(default=[], description="outputs that have no gradient")


class Parameter(Request):
    """What a function takes besides tensors."""

    name: str = Field(examples=["power"])
    type: Literal["number", "int", "bool", "str", "ints", "list", "dtype"] = "number"
    default: Any = Field(default=None, description="absent where it must be given")


# Described here, checked by the engine: what is skipped stays as it came.
Forward = Annotated[ForwardBlock, SkipValidation]
Derivative = Annotated[FunctionBlock, SkipValidation]


class Definition(Request):
    """A function as data."""

    name: Name
    doc: str = ""
    parameters: Annotated[list[Parameter], SkipValidation] = []
    order: list[str] | None = Field(
        default=None, description="inputs and parameters in the order of a call; all inputs first if absent"
    )
    forward: Forward
    backward: Derivative | None = Field(
        default=None, description="takes what forward saves and the outputs' gradients, returns the inputs' gradients; "
        "without it, forward is recorded op by op"
    )  # fmt: skip
    jvp: Derivative | None = Field(
        default=None, description="takes what forward saves and the inputs' tangents, returns the outputs' tangents"
    )
    once_differentiable: bool = Field(default=False, description="whether what backward gives has no derivative")


class RegisterFunction(Definition):
    """A function, and where it is to be known."""

    scope: Scope = Field(default="session", description="`server`: for all sessions of this server")
    verify: bool = Field(default=False, description="check its derivative on random inputs first")
    shapes: list[list[int]] | None = Field(default=None, description="the shapes of those inputs; tried out if absent")


class Function(Answer):
    """A function that the session knows."""

    name: Name
    scope: Scope
    signature: str = Field(examples=["my_power(Tensor x, Number power = 2)"])
    doc: str
    outputs: int = Field(description="how many tensors it gives")
    params: list[OpParam]
    definition: dict[str, Any] | None = Field(
        description="what was registered; null in a list, and for Python that the server's operator installed"
    )


class FunctionPage(Answer):
    """Some of the functions that a session knows, ordered by name."""

    items: list[Function]
    next_cursor: str | None = Field(description="`cursor` of the next page; null after the last")


class ApplyFunction(Request):
    """Tensors, parameters, and ids for the outputs."""

    inputs: list[TensorId] = Field(examples=[["x"]])
    params: dict[str, Any] = Field(default={}, examples=[{"power": 3}])
    outputs: list[TensorId] | None = Field(
        default=None, description="ids of its outputs; the server chooses them if absent"
    )


class ApplyAnswer(Answer):
    """The function's outputs."""

    outputs: list[Tensor]


POWER: dict[str, Any] = {
    "name": "my_power",
    "parameters": [{"name": "power", "type": "number", "default": 2}],
    "forward": {
        "inputs": ["x"],
        "instructions": [{"op": "pow", "in": ["x", {"param": "power"}], "out": ["y"]}],
        "outputs": ["y"],
        "saves": ["x"],
    },
    "backward": {
        "inputs": ["x", "grad"],
        "instructions": [
            {"op": "pow", "in": ["x", {"sub": [{"param": "power"}, 1]}], "out": ["root"]},
            {"op": "mul", "in": ["root", {"param": "power"}], "out": ["slope"]},
            {"op": "mul", "in": ["slope", "grad"], "out": ["grad_x"]},
        ],
        "outputs": ["grad_x"],
    },
}
RELU: dict[str, Any] = {
    "name": "my_relu",
    "forward": {
        "inputs": ["x"],
        "instructions": [{"op": "clamp", "in": ["x", 0], "out": ["y"]}],
        "outputs": ["y"],
        "saves": ["x"],
    },
    "backward": {
        "inputs": ["x", "grad"],
        "instructions": [
            {"op": "lt", "in": ["x", 0], "out": ["negative"]},
            {"op": "masked_fill", "in": ["grad", "negative", 0], "out": ["grad_x"]},
        ],
        "outputs": ["grad_x"],
    },
}
REGISTER_EXAMPLES: dict[str, Any] = {
    "power": {"summary": "With a parameter, its derivative checked", "value": {**POWER, "verify": True}},
    "relu": {"summary": "For all sessions", "value": {**RELU, "scope": "server"}},
    "conditional": {
        "summary": "A branch on a value; without backward, its ops are differentiated",
        "value": {
            "name": "double_or_half",
            "forward": {
                "inputs": ["x"],
                "instructions": [
                    {"op": "sum", "in": ["x"], "out": ["total"]},
                    {"op": "gt", "in": ["total", 0], "out": ["positive"]},
                    {
                        "op": "cond",
                        "in": ["positive"],
                        "out": ["y"],
                        "attrs": {
                            "then": {
                                "instructions": [{"op": "mul", "in": ["x", 2], "out": ["double"]}],
                                "outputs": ["double"],
                            },
                            "else": {
                                "instructions": [{"op": "div", "in": ["x", 2], "out": ["half"]}],
                                "outputs": ["half"],
                            },
                        },
                    },
                ],
                "outputs": ["y"],
            },
        },
    },
}
APPLY_EXAMPLES: dict[str, Any] = {
    "power": {"summary": "With a parameter", "value": {"inputs": ["x"], "params": {"power": 3}, "outputs": ["y"]}}
}
