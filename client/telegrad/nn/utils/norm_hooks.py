"""The older ``weight_norm`` and ``spectral_norm``: hooks that compute a weight before each ``forward``."""

from __future__ import annotations

import warnings
from typing import Any

from telegrad_engine.context import no_grad
from telegrad_engine.errors import InvalidOperation, InvalidValue

from ...tensor.handle import Tensor, functions
from .. import functional as F
from ..modules.module import Module
from ..parameter import Parameter
from .parametrizations import as_matrix, check_iterations, output_dim


def _hooks_of(module: Module, kind: type) -> list[tuple[int, Any]]:
    """Return the module's forward pre-hooks of this kind, with their keys."""
    return [(key, hook) for key, hook in module._forward_pre_hooks.items() if isinstance(hook, kind)]


def _check_first(module: Module, kind: type, name: str, what: str) -> None:
    if any(hook.name == name for _, hook in _hooks_of(module, kind)):
        raise InvalidOperation(f"Cannot register two {what} hooks on the same parameter {name}")


def _remove(module: Any, kind: type, name: str, what: str) -> Any:
    for key, hook in _hooks_of(module, kind):
        if hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise InvalidValue(f"{what} of '{name}' not found in {module}")


class WeightNorm:
    """Computes a weight from the parameters ``NAME_g`` (its lengths) and ``NAME_v`` (its directions)."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """Return the weight."""
        lengths, directions = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        weight: Tensor = directions * (lengths / functions.norm_except_dim(directions, 2, self.dim))
        return weight

    def __call__(self, module: Module, inputs: Any) -> None:
        """Compute the weight and assign it to the module."""
        setattr(module, self.name, self.compute_weight(module))

    def remove(self, module: Module) -> None:
        """Make the weight a parameter again."""
        weight = self.compute_weight(module).detach()
        for name in (self.name, f"{self.name}_g", f"{self.name}_v"):
            delattr(module, name)
        setattr(module, self.name, Parameter(weight))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Apply weight normalization (Salimans and Kingma 2016). Deprecated: use ``parametrizations.weight_norm``.

    ``module`` is returned; ``name`` is the name of the weight, and ``dim`` the dimension whose slices have a length
    each.

    Examples:
        >>> import warnings; warnings.simplefilter("ignore")
        >>> layer = tg.nn.utils.weight_norm(tg.nn.Linear(4, 2))
        >>> sorted(name for name, _ in layer.named_parameters())
        ['bias', 'weight_g', 'weight_v']
    """
    warnings.warn(
        "`torch.nn.utils.weight_norm` is deprecated in favor of `torch.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    _check_first(module, WeightNorm, name, "weight_norm")
    hook = WeightNorm(name, dim)
    weight = getattr(module, name).detach()
    delattr(module, name)
    module.register_parameter(f"{name}_g", Parameter(functions.norm_except_dim(weight, 2, hook.dim)))
    module.register_parameter(f"{name}_v", Parameter(weight))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Make the weight a parameter again. Raises ValueError if it has no ``weight_norm``.

    ``module`` is returned; ``name`` is the name of the weight.

    Examples:
        >>> import warnings; warnings.simplefilter("ignore")
        >>> layer = tg.nn.utils.weight_norm(tg.nn.Linear(4, 2))
        >>> isinstance(tg.nn.utils.remove_weight_norm(layer).weight, tg.nn.Parameter)
        True
    """
    return _remove(module, WeightNorm, name, "weight_norm")


class SpectralNorm:
    """Divides ``NAME_orig`` by its largest singular value, whose vectors are ``NAME_u`` and ``NAME_v``."""

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        check_iterations(n_power_iterations)
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        """Return the weight as a matrix, with ``dim`` first and the other dimensions flattened."""
        return as_matrix(weight, self.dim)

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """Return the weight; with ``do_power_iteration``, refine the vectors in place first."""
        weight, u, v = (getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.t().mv(u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix.mv(v), dim=0, eps=self.eps))
                u, v = u.clone(), v.clone()  # the next call changes the buffers
        scaled: Tensor = weight / u.dot(matrix.mv(v))
        return scaled

    def __call__(self, module: Module, inputs: Any) -> None:
        """Compute the weight and assign it to the module."""
        setattr(module, self.name, self.compute_weight(module, module.training))

    def remove(self, module: Module) -> None:
        """Make the weight a parameter again."""
        with no_grad():
            weight = self.compute_weight(module, False)
        for name in (self.name, *[f"{self.name}_{part}" for part in ("u", "v", "orig")]):
            delattr(module, name)
        module.register_parameter(self.name, Parameter(weight.detach()))


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Apply spectral normalization (Miyato et al. 2018). ``parametrizations.spectral_norm`` is newer.

    ``module`` is returned; ``name`` is the name of the weight, ``dim`` its dimension of outputs,
    ``n_power_iterations`` the number of iterations at each use in training, and ``eps`` a small number that is added
    to norms.

    Examples:
        >>> layer = tg.nn.utils.spectral_norm(tg.nn.Linear(4, 2))
        >>> sorted(name for name, _ in layer.named_parameters())
        ['bias', 'weight_orig']
    """
    _check_first(module, SpectralNorm, name, "spectral_norm")
    hook = SpectralNorm(name, n_power_iterations, output_dim(module) if dim is None else dim, eps)
    weight = module._parameters[name]
    if weight is None:
        raise InvalidValue(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    sizes = hook.reshape_weight_to_matrix(weight.detach()).shape
    u, v = (F.normalize(functions.randn(size, dtype=weight.dtype), dim=0, eps=eps) for size in sizes)
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.detach())
    module.register_buffer(f"{name}_u", u)
    module.register_buffer(f"{name}_v", v)
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Make the weight a parameter again. Raises ValueError if it has no ``spectral_norm``.

    ``module`` is returned; ``name`` is the name of the weight.

    Examples:
        >>> layer = tg.nn.utils.spectral_norm(tg.nn.Linear(4, 2))
        >>> isinstance(tg.nn.utils.remove_spectral_norm(layer).weight, tg.nn.Parameter)
        True
    """
    return _remove(module, SpectralNorm, name, "spectral_norm")
