"""Walking a module's tree: what is below it, and under which dotted name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from telegrad_engine.errors import InvalidValue

from ..tensor import Tensor
from .parameter import Parameter

if TYPE_CHECKING:
    from .module import Module


class Tree:
    """Modules within modules, and the parameters and buffers that they hold."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct submodules with their names, each module once."""
        return _once((name, m) for name, m in self._modules.items())

    def children(self) -> Iterator[Module]:
        """The direct submodules, each once."""
        return (module for _, module in self.named_children())

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, with dotted names; those in ``memo``, to which all are added, left out."""
        found = self._walk(prefix)
        if not remove_duplicate:
            return found
        return _once(found) if memo is None else _unseen(found, memo)

    def _walk(self, prefix: str) -> Iterator[tuple[str, Module]]:
        yield prefix, cast("Module", self)
        for name, module in self._modules.items():
            if module is not None:
                yield from module._walk(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters with dotted names, a shared one once."""
        return self._members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, a shared one once: what an optimizer takes."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers with dotted names, a shared one once."""
        return self._members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, a shared one once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def _members(self, table: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        whole = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        found = (
            (f"{path}.{name}" if path else name, member)
            for path, module in (whole if recurse else [(prefix, self)])
            for name, member in module.__dict__[table].items()
            if member is not None
        )
        return _once(found) if remove_duplicate else found

    # By name -----------------------------------------------------------------------------

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name, this one for "". Raises AttributeError."""
        from .module import Module

        found: Any = self
        for name in target.split(".") if target else ():
            found = _attribute(found, name)
            if not isinstance(found, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return cast(Module, found)

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module under a dotted name. Raises AttributeError if a module on the way, or with ``strict`` the
        last one, is not there, and ValueError for an empty name or what is no module.
        """
        from .module import Module

        if target == "":
            raise InvalidValue("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        if not isinstance(module, Module):
            raise InvalidValue(f"`module` is not an nn.Module, found {type(module)}")
        parent: Any = self if not path else None
        if parent is None:
            parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of a dotted name. Raises AttributeError."""
        path, _, name = target.rpartition(".")
        found = _attribute(self.get_submodule(path), name)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of a dotted name. Raises AttributeError."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        found = _attribute(module, name)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return cast(Tensor, found)


def _attribute(module: Any, name: str) -> Any:
    if not hasattr(module, name):
        raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
    return getattr(module, name)


def _once(found: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Each member at its first name only; empty places left out."""
    seen: set[int] = set()
    for name, member in found:
        if member is not None and id(member) not in seen:
            seen.add(id(member))
            yield name, member


def _unseen(found: Iterable[tuple[str, Module]], memo: set[Module]) -> Iterator[tuple[str, Module]]:
    for name, module in found:
        if module not in memo:
            memo.add(module)
            yield name, module
