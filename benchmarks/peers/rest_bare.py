"""A bare FastAPI app: routes with a pydantic body and a response model that compute nothing.

It reads and answers what Telegrad does for the same requests. uvicorn has the settings that a Telegrad server gives it.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from calls import LOOPBACK, end_with_input
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

app = FastAPI()
DATA = [2.0, 4.0, 6.0, 8.0]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class OpArguments(Body):
    inputs: list[Any] = []
    attrs: dict[str, Any] = {}
    outputs: list[str] | None = None


class TensorCreate(Body):
    data: Any
    id: str | None = None
    dtype: str | None = None
    requires_grad: bool = False


class BackwardArguments(Body):
    tensors: list[str]
    gradients: list[str | None] | None = None
    retain_graph: bool | None = None
    create_graph: bool = False
    inputs: list[str] | None = None


class Instruction(Body):
    op: str
    inputs: list[Any] = Field(default=[], alias="in")
    outputs: list[str] = Field(default=[], alias="out")
    attrs: dict[str, Any] | None = None


class Program(Body):
    instructions: list[Instruction]


class Tensor(BaseModel):
    id: str
    shape: list[int]
    dtype: str
    device: str
    requires_grad: bool
    is_leaf: bool
    grad_fn: str | None
    version: int
    data: Any


class OpResult(BaseModel):
    outputs: list[Tensor]


class BackwardResult(BaseModel):
    grads: list[str]
    pending: str | None


class ProgramResult(BaseModel):
    values: dict[str, Tensor]
    pending: str | None


def tensor(name: str, data: Any = None) -> Tensor:
    return Tensor(
        id=name,
        shape=[4],
        dtype="float32",
        device="cpu",
        requires_grad=False,
        is_leaf=True,
        grad_fn=None,
        version=0,
        data=data,
    )


@app.post("/ops/mul")
async def run_op(body: OpArguments) -> OpResult:
    return OpResult(outputs=[tensor("v1")])


@app.post("/tensors", status_code=201)
async def create_tensor(body: TensorCreate) -> Tensor:
    return tensor("v1")


@app.get("/tensors/x")
async def get_tensor() -> Tensor:
    return tensor("x", DATA)


@app.post("/backward")
async def backward(body: BackwardArguments) -> BackwardResult:
    return BackwardResult(grads=["x"], pending=None)


@app.post("/programs")
async def run_program(body: Program) -> ProgramResult:
    return ProgramResult(values={"s": tensor("s", 20.0)}, pending=None)


def main(port: str) -> None:
    end_with_input()
    uvicorn.run(
        app,
        host=LOOPBACK,
        port=int(port),
        http="httptools",
        loop="uvloop",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
