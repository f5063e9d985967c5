"""The functions of torch.linalg that the catalogue has. Written by ``make stubs``; do not edit."""

from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from ..tensor.handle import Tensor


class LinalgSlogdetResult(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class LinalgQrResult(NamedTuple):
    Q: Tensor
    R: Tensor


class LinalgEighResult(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class LinalgSvdResult(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


class TriangularSolveResult(NamedTuple):
    solution: Tensor
    cloned_coefficient: Tensor


class SlogdetResult(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class QrResult(NamedTuple):
    Q: Tensor
    R: Tensor


class SvdResult(NamedTuple):
    U: Tensor
    S: Tensor
    V: Tensor


class LinalgLstsqResult(NamedTuple):
    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class SortResult(NamedTuple):
    values: Tensor
    indices: Tensor


class TopkResult(NamedTuple):
    values: Tensor
    indices: Tensor


class KthvalueResult(NamedTuple):
    values: Tensor
    indices: Tensor


class MedianResult(NamedTuple):
    values: Tensor
    indices: Tensor


class ModeResult(NamedTuple):
    values: Tensor
    indices: Tensor


class AminmaxResult(NamedTuple):
    min: Tensor
    max: Tensor


class MaxResult(NamedTuple):
    values: Tensor
    indices: Tensor


class MinResult(NamedTuple):
    values: Tensor
    indices: Tensor


class CummaxResult(NamedTuple):
    values: Tensor
    indices: Tensor


class CumminResult(NamedTuple):
    values: Tensor
    indices: Tensor


class FrexpResult(NamedTuple):
    mantissa: Tensor
    exponent: Tensor


class Unique2Result(NamedTuple):
    values: Tensor
    inverse: Tensor
    counts: Tensor


class UniqueDimResult(NamedTuple):
    values: Tensor
    inverse: Tensor
    counts: Tensor


class RunsResult(NamedTuple):
    values: Tensor
    inverse: Tensor
    counts: Tensor


class HistogramResult(NamedTuple):
    hist: Tensor
    bin_edges: Tensor


class NanmedianResult(NamedTuple):
    values: Tensor
    indices: Tensor


class BatchNormWithMomentsResult(NamedTuple):
    result: Tensor
    batch_mean: Tensor
    batch_var: Tensor


class LargestResult(NamedTuple):
    result: Tensor
    taps: Tensor


class AdaptiveLargestResult(NamedTuple):
    result: Tensor
    indices: Tensor


class LstmResult(NamedTuple):
    output: Tensor
    h_n: Tensor
    c_n: Tensor


class GruResult(NamedTuple):
    output: Tensor
    h_n: Tensor


class RnnTanhResult(NamedTuple):
    output: Tensor
    h_n: Tensor


class RnnReluResult(NamedTuple):
    output: Tensor
    h_n: Tensor


class LstmCellResult(NamedTuple):
    h: Tensor
    c: Tensor


class LstmLayerResult(NamedTuple):
    result: Tensor
    last: Tensor


def cholesky(input: Tensor, *, upper: bool = False) -> Tensor: ...
def cond(input: Tensor, p: float | str | None | None = None) -> Tensor: ...
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor: ...
def det(A: Tensor) -> Tensor: ...
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor: ...
def eigh(input: Tensor, UPLO: str = 'L') -> LinalgEighResult: ...
def eigvalsh(input: Tensor, UPLO: str = 'L') -> Tensor: ...
def inv(A: Tensor) -> Tensor: ...
def lstsq(input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LinalgLstsqResult: ...
def matmul(input: Tensor, other: Tensor) -> Tensor: ...
@overload
def matrix_norm(input: Tensor, ord: str = 'fro', dim: int | Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Tensor: ...
@overload
def matrix_norm(input: Tensor, ord: float, dim: int | Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Tensor: ...
def matrix_power(input: Tensor, n: int) -> Tensor: ...
@overload
def matrix_rank(input: Tensor, *, atol: float | None = None, rtol: float | None = None, hermitian: bool = False) -> Tensor: ...
@overload
def matrix_rank(input: Tensor, tol: Tensor, hermitian: bool = False) -> Tensor: ...
@overload
def matrix_rank(input: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False) -> Tensor: ...
@overload
def matrix_rank(input: Tensor, tol: float, hermitian: bool = False) -> Tensor: ...
def multi_dot(tensors: Sequence[Tensor]) -> Tensor: ...
@overload
def norm(input: Tensor, ord: float | None = None, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor: ...
@overload
def norm(input: Tensor, ord: str, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor: ...
@overload
def pinv(input: Tensor, *, atol: float | None = None, rtol: float | None = None, hermitian: bool = False) -> Tensor: ...
@overload
def pinv(input: Tensor, rcond: float, hermitian: bool = False) -> Tensor: ...
def qr(A: Tensor, mode: str = 'reduced') -> LinalgQrResult: ...
def slogdet(A: Tensor) -> LinalgSlogdetResult: ...
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor: ...
def solve_triangular(input: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor: ...
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> LinalgSvdResult: ...
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor: ...
def tensorinv(input: Tensor, ind: int = 2) -> Tensor: ...
@overload
def tensorsolve(input: Tensor, other: Tensor, dims: int | Sequence[int] | None = None) -> Tensor: ...
@overload
def tensorsolve(input: Tensor, other: Tensor, *dims: int) -> Tensor: ...
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor: ...
def vector_norm(input: Tensor, ord: float = 2, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor: ...
