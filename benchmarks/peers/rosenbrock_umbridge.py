"""UM-Bridge: the gradient of Rosenbrock's function from a model server, or with a port as argument, the server."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import rosenbrock
import umbridge
from calls import LOOPBACK, answer, end_with_input, serving
from umbridge import um


class Rosenbrock(umbridge.Model):
    def __init__(self) -> None:
        super().__init__("rosenbrock")

    def get_input_sizes(self, config: Any = None) -> list[int]:
        return [rosenbrock.SIZE]

    def get_output_sizes(self, config: Any = None) -> list[int]:
        return [1]

    def supports_gradient(self) -> bool:
        return True

    def gradient(self, out_wrt: int, in_wrt: int, parameters: Any, sens: Any, config: Any = None) -> list[float]:
        gradient: list[float] = (rosenbrock.gradient(np.asarray(parameters[in_wrt])) * sens[0]).tolist()
        return gradient


def main(port: str | None = None) -> None:
    if port is not None:
        end_with_input()
        um.web.run_app = partial(um.web.run_app, host=LOOPBACK)  # serve_models listens on every interface
        umbridge.serve_models([Rosenbrock()], int(port))
        return
    with serving(__file__) as number:
        model = umbridge.HTTPModel(f"http://{LOOPBACK}:{number}", "rosenbrock")
        x = rosenbrock.point().tolist()
        rosenbrock.check(model.gradient(0, 0, [x], [1.0]))
        answer(lambda: model.gradient(0, 0, [x], [1.0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
