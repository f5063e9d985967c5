"""torch's own functions of matrices: what torch.linalg has too, under older names and signatures.

The work is done by torch.linalg's ops in ``inverses``, ``decompositions`` and ``spectra``.
"""

from __future__ import annotations

from typing import Any

from ..dtypes import float32, float64
from ..errors import LinAlgError, NotImplementedForDType, ShapeMismatch
from ..schema.op import composite
from ..schema.parameters import Array, Bool, Int, Number
from .inverses import check_square, square_rule

# Inverses and determinants ----------------------------------------------------------------------------


@composite()
def inverse(F: Any, input: Array) -> Any:
    """The inverse of each matrix: ``linalg.inv``."""
    return F.linalg_inv(input)


@composite()
def pinverse(F: Any, input: Array, rcond: Number = 1e-15) -> Any:
    """The Moore-Penrose pseudo-inverse; singular values up to ``rcond`` times the largest count as zero."""
    return F.linalg_pinv(input, rtol=rcond)


@composite()
def matrix_power(F: Any, input: Array, n: Int) -> Any:
    """The product of ``n`` equal square matrices; a negative ``n`` inverts them first."""
    return F.linalg_matrix_power(input, n)


@composite()
def det(F: Any, input: Array) -> Any:
    """The determinant of each matrix."""
    return F.linalg_det(input)


@composite(outputs=("sign", "logabsdet"))
def slogdet(F: Any, input: Array) -> Any:
    """The sign of each determinant and the logarithm of its magnitude; 0 and -inf for a singular matrix."""
    return slogdet.bundle(F.linalg_slogdet(input))


@composite()
def logdet(F: Any, input: Array) -> Any:
    """The logarithm of each determinant: -inf for 0, NaN for a negative one."""
    square_rule("logdet")(input._data)
    sign, logarithm = F.linalg_slogdet(input)
    return F.where(F.eq(sign, -1.0), float("nan"), logarithm)


# Decompositions ---------------------------------------------------------------------------------------


@composite()
def cholesky(F: Any, input: Array, upper: Bool = False) -> Any:
    """The triangular L with ``L @ L.mT == input``, or its transpose."""
    check_square(input._data, "cholesky")
    if input._data.dtype not in (float32.numpy, float64.numpy):
        raise NotImplementedForDType(f"\"cholesky_cpu\" not implemented for '{input.dtype.kernel_name}'")
    try:
        return F.linalg_cholesky(input, upper=upper)
    except LinAlgError as error:
        raise LinAlgError(error.detail.removeprefix("linalg.")) from None


@composite(
    outputs=("Q", "R"),
)
def qr(F: Any, input: Array, some: Bool = True) -> Any:
    """Q with orthonormal columns and R, upper triangular, with ``Q @ R == input``; all of Q unless ``some``."""
    return qr.bundle(F.linalg_qr(input, "reduced" if some else "complete"))


@composite(
    outputs=("U", "S", "V"),
)
def svd(F: Any, input: Array, some: Bool = True, compute_uv: Bool = True) -> Any:
    """U, the singular values S and V with ``U @ diag(S) @ V.mT == input``; zeros for U and V unless asked for."""
    if input.ndim < 2:
        raise ShapeMismatch(
            f"linalg.svd: input should have at least 2 dimensions, but has {input.ndim} dimensions instead"
        )
    if compute_uv:
        U, S, Vh = F.linalg_svd(input, not some)
        return svd.bundle((U, S, Vh.mT))
    *batch, m, n = input.shape
    S = F.linalg_svdvals(input)
    return svd.bundle((F.new_zeros(input, (*batch, m, m)), S, F.new_zeros(input, (*batch, n, n))))
