"""Module: the base class of models, a tree of parameters, buffers and submodules."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, Self, cast

from telegrad_engine import dtypes
from telegrad_engine.errors import InvalidArgument, InvalidValue
from telegrad_engine.schema.signature import given
from telegrad_engine.tensor.attributes import dtype_of_type

from ...tensor.devices import check_device, device
from ...tensor.handle import Tensor, functions
from ..parameter import Buffer, Parameter, type_name, zero_grads
from .hooks import Called
from .html import module_html
from .state_dict import Saved


def options(module: Any, *names: str) -> str:
    """Format the named attributes for ``extra_repr``; ``inplace`` is shown only if it is set."""
    shown = [name for name in names if name != "inplace" or module.inplace]
    return ", ".join(f"{name}={getattr(module, name)!r}" for name in shown)


def changed_options(module: Any, **usual: Any) -> str:
    """Format the attributes that differ from these defaults, as a continuation of ``extra_repr``."""
    changed = {name: getattr(module, name) for name, value in usual.items() if getattr(module, name) != value}
    return "".join(f", {name}={value}" for name, value in changed.items())


def expanded(value: Any, count: int) -> tuple[Any, ...]:
    """Return a tuple or list as a tuple, and any other value repeated ``count`` times."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * count


MISSING: Any = object()
HOOKS = [
    name for base in (Called, Saved) for name, kind in base.__annotations__.items() if kind in ("ModuleHooks", "Flags")
]
"""The attributes of a module with its hooks and their options."""


def _missing_forward(self: Any, *args: Any) -> NoReturn:
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


class Tree:
    """A tree of modules with their parameters and buffers."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Iterate over the direct submodules with their names, each module once."""
        return _once((name, m) for name, m in self._modules.items())

    def children(self) -> Iterator[Module]:
        """Iterate over the direct submodules, each once."""
        return (module for _, module in self.named_children())

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Iterate over this module and all submodules, with dotted names; skip those in ``memo`` and add the rest."""
        found = self._walk(prefix)
        if not remove_duplicate:
            return found
        return _once(found) if memo is None else _unseen(found, memo)

    def _walk(self, prefix: str) -> Iterator[tuple[str, Module]]:
        yield prefix, cast(Module, self)
        for name, module in self._modules.items():
            if module is not None:
                yield from module._walk(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """Iterate over this module and all submodules, each once."""
        return (module for _, module in self.named_modules())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Iterate over the parameters with dotted names, a shared one once.

        ``prefix`` is put before the names; without ``recurse``, those of submodules are left out; without
        ``remove_duplicate``, a shared one is repeated.

        Examples:
            >>> [name for name, _ in tg.nn.Sequential(tg.nn.Linear(2, 1)).named_parameters()]
            ['0.weight', '0.bias']
        """
        return self._members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Iterate over the parameters, a shared one once, for example to pass them to an optimizer.

        Without ``recurse``, those of submodules are left out.

        Examples:
            >>> [tuple(p.shape) for p in tg.nn.Linear(2, 1).parameters()]
            [(1, 2), (1,)]
        """
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Iterate over the buffers with dotted names, a shared one once."""
        return self._members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Iterate over the buffers, a shared one once."""
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
        """Return the submodule with a dotted name, or this module for "". Raises AttributeError if there is none."""
        found: Any = self
        for name in target.split(".") if target else ():
            found = _attribute(found, name)
            if not isinstance(found, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return cast(Module, found)

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Set the submodule with a dotted name.

        Raises AttributeError if a parent module (or, with ``strict``, the submodule itself) is missing, and ValueError
        if the name is empty or ``module`` is not a Module.
        """
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
        """Return the parameter with a dotted name. Raises AttributeError if there is none."""
        path, _, name = target.rpartition(".")
        found = _attribute(self.get_submodule(path), name)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer with a dotted name. Raises AttributeError if there is none."""
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        found = _attribute(module, name)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return cast(Tensor, found)


class Module(Tree, Called, Saved):
    """Base class of all models. A subclass assigns parameters and modules to attributes and defines ``forward``.

    ``parameters()`` and ``state_dict()`` go through all submodules, ``train()`` and ``eval()`` set the mode, ``to()``
    converts, and hooks see calls. A call of the module calls ``forward``. Raises AttributeError for a parameter that
    is assigned before ``super().__init__()``.

    Examples:
        >>> class Net(tg.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.hidden = tg.nn.Linear(4, 8)
        ...         self.output = tg.nn.Linear(8, 1)
        ...     def forward(self, x):
        ...         return self.output(self.hidden(x).relu())
        >>> net = Net()
        >>> net(tg.ones(5, 4)).shape
        telegrad.Size([5, 1])
        >>> sum(p.numel() for p in net.parameters())
        49
    """

    training: bool = True
    dump_patches = False
    call_super_init = False
    """Whether ``__init__`` passes its arguments on to the other base classes of a subclass."""
    forward: Callable[..., Any] = _missing_forward

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            if kwargs:
                raise TypeError(
                    f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'"
                )
            if args:
                raise TypeError(
                    f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given"
                )
        # Bypass __setattr__, which needs these attributes.
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            _is_full_backward_hook=None,
            **{name: OrderedDict() for name in HOOKS},
            _modules={},
        )
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # Attributes --------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self._need_init("parameters")
            self._clear_name(name, self._buffers, self._modules)
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._need_init("module")
            self._clear_name(name, self._parameters, self._buffers)
            self._modules[name] = value
        elif name in self.__dict__.get("_parameters", ()):
            self._assign(self._parameters, name, value, "parameter", "torch.nn.Parameter")
        elif name in self.__dict__.get("_modules", ()):
            self._assign(self._modules, name, value, "child module", "torch.nn.Module")
        elif name in self.__dict__.get("_buffers", ()):
            if isinstance(value, Tensor):
                self._buffers[name] = value
            else:
                self._assign(self._buffers, name, value, "buffer", "torch.Tensor")
        elif isinstance(value, Buffer):
            self._need_init("buffers")
            self._clear_name(name, self._parameters, self._modules)
            self.register_buffer(name, value, value.persistent)
        else:
            object.__setattr__(self, name, value)

    def _assign(self, table: dict[str, Any], name: str, value: Any, role: str, wanted: str) -> None:
        """Set a registered name to None. Raises TypeError for any other value."""
        if value is not None:
            raise TypeError(f"cannot assign '{type_name(value)}' as {role} '{name}' ({wanted} or None expected)")
        table[name] = None

    def _need_init(self, what: str) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")

    def _clear_name(self, name: str, *others: dict[str, Any]) -> None:
        """Remove a name from ``__dict__`` and the other tables; in its own table it keeps its position."""
        for table in (self.__dict__, *others):
            table.pop(name, None)
        if name not in self._buffers:
            self._non_persistent_buffers_set.discard(name)

    def __getattr__(self, name: str) -> Any:
        for table in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(table, {}).get(name, MISSING)
            if found is not MISSING:
                return found
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._parameters, *self._buffers, *self._modules})

    # Registering -------------------------------------------------------------------------

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or None to reserve its name. Raises KeyError for a taken or dotted name."""
        self._need_init("parameter")
        self._check_name("parameter", name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{type_name(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)"
            )
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is part of the module's state but not a parameter; it is saved if ``persistent``.

        Examples:
            >>> layer = tg.nn.Linear(2, 1)
            >>> layer.register_buffer("count", tg.tensor(0))
            >>> list(layer.state_dict())
            ['weight', 'bias', 'count']
        """
        self._need_init("buffer")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{type_name(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
            )
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule under a name that need not be an identifier."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type_name(module)} is not a Module subclass")
        self._check_name("module", name, self._modules)
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        """Alias of ``add_module``."""
        self.add_module(name, module)

    def _check_name(self, role: str, name: Any, own: Mapping[str, Any]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{role} name should be a string. Got {type_name(name)}")
        if "." in name:
            raise KeyError(f'{role} name can\'t contain "."' + (f", got: {name}" if role == "module" else ""))
        if not name:
            raise KeyError(f'{role} name can\'t be empty string ""')
        if name not in own and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    # Changing all modules and tensors ----------------------------------------------------

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call ``fn`` with every module, the innermost first.

        ``fn`` takes the module. The module itself is returned.

        Examples:
            >>> model = tg.nn.Sequential(tg.nn.Linear(2, 2), tg.nn.ReLU())
            >>> _ = model.apply(lambda module: print(type(module).__name__))
            Linear
            ReLU
            Sequential
        """
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode for this module and all submodules.

        ``mode`` False is evaluation mode. The module itself is returned.

        Examples:
            >>> tg.nn.Dropout(0.5).eval().train().training
            True
        """
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Set evaluation mode for this module and all submodules.

        Examples:
            >>> tg.nn.Dropout(0.5).eval().training
            False
        """
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether gradients are computed for the parameters.

        ``requires_grad`` says whether. The module itself is returned.

        Examples:
            >>> layer = tg.nn.Linear(2, 1).requires_grad_(False)
            >>> layer(tg.ones(2)).requires_grad
            False
        """
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of the parameters, or fill them with zeros.

        ``set_to_none`` says that they are cleared.

        Examples:
            >>> layer = tg.nn.Linear(2, 1)
            >>> layer(tg.ones(2)).backward()
            >>> layer.zero_grad()
            >>> layer.weight.grad is None
            True
        """
        zero_grads(self.parameters(), set_to_none)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Convert parameters and buffers to a device, a dtype (floating tensors only) or the dtype of a tensor.

        Raises TypeError for a dtype that is not floating, RuntimeError for a device that the session does not have.

        Examples:
            >>> tg.nn.Linear(2, 1).to(tg.float64).weight.dtype
            telegrad.float64
        """
        target = _target(args, kwargs)
        dtype = target.pop("dtype", None)
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype=torch.{dtype.name}"
            )
        return self._replace(lambda tensor: _moved(tensor, dtype, target))

    def _replace(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Replace every parameter, gradient and buffer with the result of ``change`` for it."""
        for tensor in self.parameters():
            grad = tensor.grad
            tensor.data = change(tensor)
            if grad is not None:
                tensor.grad = change(grad)
        for module in self.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = change(buffer)
        return self

    def float(self) -> Self:
        """Convert parameters and floating buffers to float32."""
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """Convert parameters and floating buffers to float64."""
        return self.to(dtypes.float64)

    def half(self) -> Self:
        """Convert parameters and floating buffers to float16."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Convert parameters and floating buffers to bfloat16."""
        return self.to(dtypes.bfloat16)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Give parameters and buffers new uninitialized memory on ``device``."""
        for tensor in self.parameters(recurse):
            tensor.data = functions.empty_like(tensor.detach(), device=device)
        for module in self.modules() if recurse else [self]:
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = functions.empty_like(buffer, device=device)
        return self

    def share_memory(self) -> Self:
        """Return the module itself: its tensors are in the session, which threads share."""
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile ``forward`` from the next call on. The arguments are those of ``telegrad.compile``."""
        package: Any = sys.modules[__name__.partition(".")[0]]  # its function compile depends on this module
        self.forward = package.compile(self.forward, *args, **kwargs)

    def type(self, dst_type: Any) -> Self:
        """Convert parameters and all buffers to ``dst_type``: a dtype, a typed constructor or its name."""
        dtype = dtype_of_type(dst_type)
        return self._replace(lambda tensor: tensor.detach().to(dtype=dtype))

    def cpu(self) -> Self:
        """Return the module itself: values are fetched on demand."""
        return self

    def cuda(self, device: Any = None) -> Self:
        """Return the module itself. Raises AssertionError unless the session computes on a GPU."""
        return self._replace(lambda tensor: tensor.detach().cuda(device))

    # Printing ----------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """Return the text that ``repr`` shows between the parentheses; a subclass may override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + repr(m).replace("\n", "\n  ") for name, m in self._modules.items()]
        if len(lines) <= 1 and not children:
            return f"{type(self).__name__}({extra})"
        return f"{type(self).__name__}(" + "".join(f"\n  {line}" for line in lines + children) + "\n)"

    def _repr_html_(self) -> str:
        return module_html(self)


def _target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Parse the arguments of ``to`` into ``device``, ``dtype`` and ``non_blocking``, as far as they are given."""
    target = {name: value for name, value in kwargs.items() if name != "memory_format"}
    for position, value in enumerate(args):
        if isinstance(value, Tensor):
            target["dtype"] = value.dtype
        elif isinstance(value, dtypes.DType):
            target["dtype"] = value
        elif position == 0 and (isinstance(value, (str, device)) or type(value) is int):
            target["device"] = value
        elif isinstance(value, bool) and position:
            target["non_blocking"] = value
        elif value is not None:
            raise InvalidArgument(f"to() received an invalid combination of arguments - got ({given(args, kwargs)})")
    if target.get("device") is not None:
        target["device"] = str(check_device(target["device"]))
    return target


def _moved(tensor: Tensor, dtype: Any, target: Mapping[str, Any]) -> Tensor:
    """Return the detached tensor converted for ``to``; only floating tensors change their dtype."""
    kind = {} if dtype is None or not tensor.is_floating_point() else {"dtype": dtype}
    return tensor.detach().to(**target, **kind)


def _attribute(module: Any, name: str) -> Any:
    if not hasattr(module, name):
        raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
    return getattr(module, name)


def _once(found: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield each member once, with its first name, and skip None."""
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
