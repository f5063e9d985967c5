"""Tesseract: the gradient of Rosenbrock's function from its runtime, which serves without a container.

With a port as argument, the script is the server; the runtime then loads this file as the Tesseract's API.
"""

from __future__ import annotations

import sys
from typing import Any

import rosenbrock
from calls import LOOPBACK, answer, end_with_input, serving
from pydantic import BaseModel
from tesseract_core.runtime import Array, Differentiable, Float64


class InputSchema(BaseModel):
    x: Differentiable[Array[(None,), Float64]]


class OutputSchema(BaseModel):
    y: Differentiable[Float64]


def apply(inputs: InputSchema) -> OutputSchema:
    return OutputSchema(y=rosenbrock.value(inputs.x))


def vector_jacobian_product(
    inputs: InputSchema, vjp_inputs: set[str], vjp_outputs: set[str], cotangent_vector: dict[str, Any]
) -> dict[str, Any]:
    return {"x": rosenbrock.gradient(inputs.x) * cotangent_vector["y"]}


def main(port: str | None = None) -> None:
    if port is not None:
        from tesseract_core.runtime.serve import serve

        end_with_input()
        serve(LOOPBACK, int(port), 1)
        return
    from tesseract_core import Tesseract

    with serving(__file__, TESSERACT_API_PATH=__file__) as number:
        served = Tesseract.from_url(f"http://{LOOPBACK}:{number}").with_encoding(output_format="json+base64")
        x = rosenbrock.point()

        def call() -> Any:
            return served.vector_jacobian_product({"x": x}, ["x"], ["y"], {"y": 1.0})["x"]

        rosenbrock.check(call())
        answer(call)


if __name__ == "__main__":
    main(*sys.argv[1:])
