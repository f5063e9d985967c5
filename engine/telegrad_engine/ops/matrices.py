"""torch's own functions of matrices: what torch.linalg has too, under older names and signatures.

The work is done by torch.linalg's ops in ``inverses``, ``decompositions`` and ``spectra``.
"""

from __future__ import annotations

from typing import Any

from ..dtypes import float32, float64
from ..errors import LinAlgError, NotImplementedForDType, ShapeMismatch
from ..schema.cases import T, case
from ..schema.op import composite
from ..schema.parameters import Array, Bool, Int, Number
from .decompositions import POSITIVE, SQUARE, TALL, WIDE
from .inverses import INVERTED, POWERS, SINGULAR, check_square, square_rule
from .spectra import PSEUDO

# Inverses and determinants ----------------------------------------------------------------------------


@composite(cases=INVERTED)
def inverse(F: Any, input: Array) -> Any:
    """The inverse of each matrix: ``linalg.inv``."""
    return F.linalg_inv(input)


@composite(cases=PSEUDO)
def pinverse(F: Any, input: Array, rcond: Number = 1e-15) -> Any:
    """The Moore-Penrose pseudo-inverse; singular values up to ``rcond`` times the largest count as zero."""
    return F.linalg_pinv(input, rtol=rcond)


@composite(cases=POWERS)
def matrix_power(F: Any, input: Array, n: Int) -> Any:
    """The product of ``n`` equal square matrices; a negative ``n`` inverts them first."""
    return F.linalg_matrix_power(input, n)


@composite(cases=[*INVERTED, *SINGULAR])
def det(F: Any, input: Array) -> Any:
    """The determinant of each matrix."""
    return F.linalg_det(input)


@composite(outputs=("sign", "logabsdet"), cases=[*INVERTED, *SINGULAR])
def slogdet(F: Any, input: Array) -> Any:
    """The sign of each determinant and the logarithm of its magnitude; 0 and -inf for a singular matrix."""
    return slogdet.bundle(F.linalg_slogdet(input))


@composite(cases=[*INVERTED, *SINGULAR, case(T(values=[[2.0, 0.0], [0.0, -1.0]], constant=True))])
def logdet(F: Any, input: Array) -> Any:
    """The logarithm of each determinant: -inf for 0, NaN for a negative one."""
    square_rule("logdet")(input._data)
    sign, logarithm = F.linalg_slogdet(input)
    return F.where(F.eq(sign, -1.0), float("nan"), logarithm)


# Decompositions ---------------------------------------------------------------------------------------


@composite(
    cases=[
        case(T(values=POSITIVE)),
        case(T(values=POSITIVE), True),
        case(T(0, 0, dtype="float64")),
        case(T(2, 3)),
    ]
)
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
    cases=[case(T(values=SQUARE)), case(T(values=TALL)), case(T(values=WIDE), False), case(T(3))],
)
def qr(F: Any, input: Array, some: Bool = True) -> Any:
    """Q with orthonormal columns and R, upper triangular, with ``Q @ R == input``; all of Q unless ``some``."""
    return qr.bundle(F.linalg_qr(input, "reduced" if some else "complete"))


@composite(
    outputs=("U", "S", "V"),
    cases=[
        case(T(values=SQUARE)),
        case(T(values=TALL)),
        case(T(values=TALL, constant=True), some=False),
        case(T(values=TALL), compute_uv=False),
        case(T(3)),
    ],
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
