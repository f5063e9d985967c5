"""Common parametrizations of a weight: weight norm, spectral norm and orthogonal matrices."""

from __future__ import annotations

from typing import Any

from telegrad_engine import dtypes
from telegrad_engine.context import no_grad
from telegrad_engine.errors import IndexOutOfRange, InvalidValue, NotSupported

from ... import linalg
from ...tensor.handle import Tensor, functions
from .. import functional as F
from ..modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module
from .parametrize import register_parametrization


class _WeightNorm(Module):
    """Computes a weight from lengths and directions (Salimans and Kingma 2016)."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        """Return ``weight_v`` scaled to the lengths ``weight_g``."""
        return weight_v * (weight_g / functions.norm_except_dim(weight_v, 2, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lengths and the weight itself."""
        return functions.norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    """Compute the weight from its lengths (``original0``) and directions (``original1``).

    Each index along ``dim`` has its own length; with None, the whole weight has one. State dicts of the older
    ``weight_norm`` can be loaded.

    ``module`` is returned, and ``name`` is the name of the weight.

    Examples:
        >>> layer = tg.nn.utils.parametrizations.weight_norm(tg.nn.Linear(4, 2))
        >>> sorted(name for name, _ in layer.named_parameters())
        ['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def take_old_names(module: Any, state_dict: Any, prefix: str, *_: Any) -> None:
        old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module.register_load_state_dict_pre_hook(take_old_names)
    return module


def check_iterations(n_power_iterations: int) -> None:
    """Raise ValueError unless the number of power iterations is positive."""
    if n_power_iterations <= 0:
        raise InvalidValue(
            f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
        )


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """Return the weight as a matrix, with ``dim`` first and the other dimensions flattened."""
    if dim != 0:
        weight = weight.permute(dim, *[d for d in range(weight.dim()) if d != dim])
    return weight.flatten(1) if weight.dim() > 1 else weight.unsqueeze(1)


class _SpectralNorm(Module):
    """Divides a weight by its largest singular value (Miyato et al. 2018).

    It is estimated by power iteration on the singular vectors, the buffers ``_u`` and ``_v``.
    """

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.dim()
        if not -ndim <= dim < ndim:
            raise IndexOutOfRange(
                f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})"
            )
        check_iterations(n_power_iterations)
        self.dim, self.eps = dim % ndim, eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = as_matrix(weight.detach(), self.dim)
            for name, size in zip(("_u", "_v"), matrix.shape, strict=True):
                drawn = functions.randn(size, dtype=weight.dtype)
                self.register_buffer(name, F.normalize(drawn, dim=0, eps=eps))
            self.improve(matrix, 15)

    @no_grad()
    def improve(self, matrix: Tensor, iterations: int) -> None:
        """Run power iterations that update the buffers ``_u`` and ``_v`` in place."""
        for _ in range(iterations):
            self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
            self._v.copy_(F.normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight divided by its norm."""
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self.improve(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # the next use changes the buffers
        return weight.div(u.dot(matrix.mv(v)))

    def right_inverse(self, value: Tensor) -> Tensor:
        """Return the value itself."""
        return value


def weight_of(module: Module, name: str) -> Tensor:
    """Return the module's tensor of this name. Raises ValueError if there is none."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise InvalidValue(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


def output_dim(module: Module) -> int:
    """Return the output dimension of a module's weight."""
    return int(isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)))


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide the weight by its largest singular value, with ``n_power_iterations`` at each use in training.

    ``module`` is returned; ``name`` is the name of the weight, ``dim`` its dimension of outputs, and ``eps`` a small
    number that is added to norms.

    Examples:
        >>> layer = tg.nn.utils.parametrizations.spectral_norm(tg.nn.Linear(4, 2))
        >>> sorted(name for name, _ in layer.named_parameters())
        ['bias', 'parametrizations.weight.original']
    """
    weight = weight_of(module, name)
    own_dim = output_dim(module) if dim is None else dim
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, own_dim, eps))


# Orthogonal matrices ----------------------------------------------------------------------------


SQUARINGS, TERMS = 8, 13


def matrix_exp(matrix: Tensor) -> Tensor:
    """Compute the matrix exponential in float64 by scaling and squaring (Higham 2005) with a Taylor polynomial."""
    x = matrix.to(dtypes.float64) / 2**SQUARINGS
    identity = functions.eye(matrix.shape[-1], dtype=dtypes.float64)
    power: Any = identity
    for n in range(TERMS, 0, -1):
        power = identity + x @ power / n
    for _ in range(SQUARINGS):
        power = power @ power
    result: Tensor = power.to(matrix.dtype)
    return result


def _product_of_reflections(vectors: Tensor) -> Tensor:
    """Return the first columns of the product of the Householder reflections given by the columns of ``vectors``.

    The leading 1 of each column is not stored. Uses the compact form of Puglisi 1992: ``I - V inv(U) V'``, with ``U``
    the upper half of ``V' V``.
    """
    n, k = vectors.shape[-2], vectors.shape[-1]
    identity = functions.eye(n, k, dtype=vectors.dtype)
    v = vectors + identity
    gram = v.transpose(-2, -1) @ v
    upper = gram.triu(1) + functions.diag_embed(gram.diagonal(0, -2, -1) / 2)
    return identity - v @ linalg.solve_triangular(upper, v.transpose(-2, -1)[..., :k], upper=True)


def _with_positive_diagonal(matrix: Tensor) -> Tensor:
    """Return Q of the QR decomposition in which R's diagonal is positive."""
    q, r = linalg.qr(matrix)
    return q * r.diagonal(0, -2, -1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """Orthogonal matrices (Lezcano-Casado and Martínez-Rubio 2019; for ``householder``, Mhammedi et al. 2017)."""

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool = True) -> None:
        super().__init__()
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        self.use_trivialization = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        """Map any matrix to one with orthonormal columns, or rows if there are fewer of them."""
        transposed = X.shape[-2] < X.shape[-1]
        if transposed:
            X = X.transpose(-2, -1)
        n, k = X.shape[-2], X.shape[-1]
        if self.orthogonal_map == "householder":
            signs = X.diagonal(0, -2, -1).detach().trunc().unsqueeze(-2)
            q = _product_of_reflections(X.tril(-1)) * signs
        else:
            X = X.tril()
            if n != k:
                X = functions.cat([X, X.new_zeros((*X.shape[:-1], n - k))], -1)
            skew = X - X.transpose(-2, -1)
            if self.orthogonal_map == "matrix_exp":
                q = matrix_exp(skew)[..., :k]
            else:  # Cayley's transform
                identity = functions.eye(n, dtype=X.dtype)
                q = linalg.solve(identity - skew / 2, identity + skew / 2)[..., :k]
        if self.use_trivialization and self.base is not None:
            q = self.base @ q
        return q.transpose(-2, -1) if transposed else q

    @no_grad()
    def right_inverse(self, Q: Tensor) -> Tensor:
        """Return a matrix that maps to ``Q``, which is made orthogonal first if necessary."""
        if tuple(Q.shape) != tuple(self.shape):
            raise InvalidValue(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}."
            )
        if not self.use_trivialization:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                    "use_trivialization=False."
                )
            raise NotSupported("orthogonal: householder without trivialization needs geqrf, which is not in Telegrad")
        start: Tensor = functions.zeros_like(Q)
        start.diagonal(0, -2, -1).fill_(-1.0)
        tall = Q.transpose(-2, -1) if Q.shape[-2] < Q.shape[-1] else Q
        n, k = tall.shape[-2], tall.shape[-1]
        if n != k:
            rest = functions.randn(*tall.shape[:-1], n - k, dtype=tall.dtype)
            self.base = _with_positive_diagonal(functions.cat([tall, rest], -1))
        elif _is_orthogonal(tall):
            self.base = tall.clone()
        else:
            self.base = _with_positive_diagonal(tall)
        return start


def _is_orthogonal(q: Tensor) -> bool:
    identity = functions.eye(q.shape[-1], dtype=q.dtype)
    eps = {"float64": 2.2e-16, "float32": 1.2e-7}.get(q.dtype.name, 1e-2)
    return bool(functions.allclose(q.transpose(-2, -1) @ q, identity, atol=10.0 * q.shape[-2] * eps))


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Make the weight a matrix with orthonormal columns, or rows if there are fewer of them.

    ``orthogonal_map`` is "matrix_exp" (the default for square matrices), "cayley" or "householder" (otherwise). With
    ``use_trivialization``, the weight can be assigned to.

    ``module`` is returned, and ``name`` is the name of the weight. Raises ValueError for another map or a weight of
    fewer than two dimensions.

    Examples:
        >>> layer = tg.nn.utils.parametrizations.orthogonal(tg.nn.Linear(3, 3))
        >>> tg.allclose(layer.weight @ layer.weight.T, tg.eye(3), atol=1e-5)
        True
    """
    weight = weight_of(module, name)
    if weight.dim() < 2:
        raise InvalidValue(f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise InvalidValue(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    return register_parametrization(module, name, _Orthogonal(weight, orthogonal_map, use_trivialization), unsafe=True)
