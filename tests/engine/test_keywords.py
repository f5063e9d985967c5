"""The keywords that torch's functions take: their own, NumPy's names for them, and those of linear algebra."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import telegrad_engine as tg

from . import oracle

CALLS = """
torch.sum(x, axis=0, keepdims=True)
torch.sum(a=x, axis=0)
torch.add(x1=x, x2=2)
x.mean(axis=1)
torch.softmax(x, axis=0)
torch.cat([x, x], axis=1)
torch.sort(x, axis=0)
torch.squeeze(x, axis=0)
torch.split(tensor=x, split_size_or_sections=1, dim=0)
torch.sum(x, dim=0, axis=0)
torch.sum(x, axes=0)
torch.gather(x, 0, x.long() * 0, sparse_grad=False)
torch.nonzero(x > 2, as_tuple=True)
torch.linalg.cholesky(input=s)
torch.linalg.cholesky(input=s, upper=True)
torch.linalg.eigh(input=s, UPLO="U")
torch.linalg.eigvalsh(input=s)
torch.linalg.svdvals(A=s, driver=None)
torch.linalg.svd(A=s, full_matrices=False, driver="gesvd")
torch.linalg.pinv(input=s, atol=0.1)
torch.linalg.solve_triangular(input=s, B=s, upper=True, left=True, unitriangular=False)
torch.linalg.vector_norm(x=s, ord=2, dim=0, keepdim=True)
torch.linalg.matrix_power(input=s, n=2)
torch.linalg.solve(A=s, B=s, left=True)
torch.linalg.inv(A=s)
torch.linalg.det(A=s)
torch.linalg.slogdet(A=s)
torch.linalg.qr(A=s, mode="reduced")
torch.linalg.lstsq(input=s, b=s)
torch.linalg.norm(input=s, ord="fro")
torch.linalg.matrix_norm(input=s, ord="fro")
torch.linalg.cross(input=x, other=x, dim=-1)
torch.linalg.cholesky(A=s)
torch.linalg.matrix_power(A=s, n=2)
""".strip().splitlines()


@pytest.mark.parametrize("call", CALLS)
def test_keywords(call: str) -> None:
    """A call by keyword gives what torch's gives, or the same class of error."""

    def run(functions: Any, tensor: Any) -> Any:
        x, s = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), tensor([[4.0, 1.0], [1.0, 3.0]])
        return oracle.attempt(lambda: eval(call, {"torch": functions, "x": x, "s": s}))

    theirs, ours = run(torch, torch.tensor), run(tg.functions, tg.tensor)
    if isinstance(theirs, oracle.Failure):
        assert isinstance(ours, oracle.Failure), f"torch raises {theirs}"
        assert ours.kind is theirs.kind
        return
    assert not isinstance(ours, oracle.Failure), ours
    for mine, other in zip(ours, theirs, strict=True):
        oracle.assert_close(mine, other, call)
