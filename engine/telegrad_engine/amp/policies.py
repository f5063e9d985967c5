"""Autocast policies: the ops that run in each precision, by device, as torch lists them.

An op in no list runs in the dtypes it is given; if it is composite, the ops it is composed of are looked up. A listed
op is cast as a whole, and the ops it is composed of are not looked up.
"""

from __future__ import annotations

from enum import Enum


class Policy(Enum):
    """How autocast casts the inputs of an op."""

    LOWER = "lower precision"
    """Cast to autocast's dtype."""
    FLOAT32 = "float32"
    """Cast to float32."""
    RESULT_FLOAT32 = "a float32 result"
    """Compute in float32, unless the call names a dtype."""
    PROMOTE = "the widest of the inputs' dtypes"
    """Cast to autocast's dtype, or to float32 if one of the inputs is float32."""
    AS_GIVEN = "the dtypes given"
    """Cast neither the op's inputs nor those of the ops it is composed of."""
    REFUSED = "refused"
    """Raise an error that names the safe alternative: the op is unsafe in low precision."""


_LOWER_EVERYWHERE = """
    addbmm addmm baddbmm bmm conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding conv_transpose1d
    conv_transpose2d conv_transpose3d linalg_multi_dot linalg_vecdot
    linear matmul mm prelu scaled_dot_product_attention
"""
_FLOAT32_EVERYWHERE = """
    cdist cosine_embedding_loss hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss
    multi_margin_loss multilabel_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
    triplet_margin_loss binary_cross_entropy_with_logits
"""
_CPU = {
    Policy.LOWER: _LOWER_EVERYWHERE,
    Policy.FLOAT32: _FLOAT32_EVERYWHERE
    + """
        adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d binary_cross_entropy cholesky cholesky_inverse
        cholesky_solve cross_entropy ctc_loss grid_sample inverse linalg_cholesky linalg_cond linalg_eigh
        linalg_eigvalsh linalg_inv linalg_lstsq linalg_matrix_rank linalg_matrix_rank.tensor linalg_matrix_rank.tol
        linalg_matrix_rank.tol_tensor linalg_qr linalg_solve
        linalg_svd linalg_svdvals lu_solve max_pool3d max_unpool1d max_unpool2d max_unpool3d nanquantile pinverse prod
        prod.dim qr quantile svd trace triangular_solve
    """,
    Policy.PROMOTE: "cat index_copy stack",
    Policy.AS_GIVEN: "addmv dot mv outer vdot",
}
_CUDA = {
    Policy.LOWER: _LOWER_EVERYWHERE + "addmv addr chain_matmul convolution einsum mv",
    Policy.FLOAT32: _FLOAT32_EVERYWHERE
    + """
        acos asin cosh cosine_similarity cross_entropy dist erfinv exp expm1 group_norm interpolate layer_norm log log10
        log1p log2 logsumexp norm pdist pow reciprocal renorm rms_norm rsqrt sinh softplus tan
    """,
    Policy.RESULT_FLOAT32: """
        cumprod cumsum linalg_matrix_norm linalg_matrix_norm.ord linalg_vector_norm log_softmax prod prod.dim softmax
        softmin sum
    """,
    Policy.PROMOTE: """
        addcdiv addcmul atan2 bilinear cat cross dot grid_sample index_put scatter_add stack
        tensordot tensordot.dims vdot
    """,
    Policy.REFUSED: "binary_cross_entropy",
}


def _by_op(lists: dict[Policy, str]) -> dict[str, Policy]:
    return {key: policy for policy, keys in lists.items() for key in keys.split()}


POLICIES: dict[str, dict[str, Policy]] = {"cpu": _by_op(_CPU), "cuda": _by_op(_CUDA)}
"""The policies by device type and op key."""
