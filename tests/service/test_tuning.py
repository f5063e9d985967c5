"""What a server makes of its process when it begins."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASKING = """
from threadpoolctl import threadpool_info
from telegrad_engine.arrays import NUMPY, blocked_matmul
from telegrad_service.process import tune
tune({threads})
kernels = [library.get("architecture") in blocked_matmul.KERNELS for library in threadpool_info()]
print(NUMPY.dot is blocked_matmul.dot_in_blocks, any(kernels))
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_products_are_taken_in_pieces_where_blas_has_one_thread_and_such_kernels(threads: int) -> None:
    asking = [sys.executable, "-c", ASKING.format(threads=threads)]
    told = subprocess.run(asking, capture_output=True, text=True, check=True).stdout
    in_pieces, such_kernels = (word == "True" for word in told.split())
    assert in_pieces == (such_kernels and threads == 1)
