"""Module: a tree of parameters, buffers and submodules that computes something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Self

from telegrad_engine import dtypes
from telegrad_engine.errors import InvalidArgument
from telegrad_engine.signature import given

from ..tensor import Tensor
from .hooks import Called
from .parameter import Parameter, type_name, zero_grads
from .state_dict import IncompatibleKeys, load, save
from .tree import Tree

MISSING: Any = object()


def _missing_forward(self: Any, *args: Any) -> NoReturn:
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


class Module(Tree, Called):
    """Base of all models. A subclass assigns parameters and modules to attributes and defines ``forward``."""

    training: bool = True
    _transient: set[str]
    """Names of buffers that are not part of the state dict."""
    forward: Callable[..., Any] = _missing_forward

    def __init__(self) -> None:
        # Past __setattr__, which needs them.
        self.__dict__.update(_parameters={}, _buffers={}, _modules={}, _transient=set(), training=True)

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
        else:
            object.__setattr__(self, name, value)

    def _assign(self, table: dict[str, Any], name: str, value: Any, role: str, wanted: str) -> None:
        """Empty the place of a registered name; anything but None has the wrong type."""
        if value is not None:
            raise TypeError(f"cannot assign '{type_name(value)}' as {role} '{name}' ({wanted} or None expected)")
        table[name] = None

    def _need_init(self, what: str) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")

    def _clear_name(self, name: str, *others: dict[str, Any]) -> None:
        """Free a name from what it stood for; within its own table it keeps its place."""
        for table in (self.__dict__, *others):
            table.pop(name, None)
        if name not in self._buffers:
            self._transient.discard(name)

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
                self._transient.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._parameters, *self._buffers, *self._modules})

    # Registering -------------------------------------------------------------------------

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or a place for one (None). Raises KeyError for a taken or dotted name."""
        self._need_init("parameter")
        self._check_name("parameter", name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{type_name(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)"
            )
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is part of the module's state, but no parameter; saved if ``persistent``."""
        self._need_init("buffer")
        self._check_name("buffer", name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{type_name(tensor)}' object to buffer '{name}' (torch Tensor or None required)"
            )
        self._buffers[name] = tensor
        if persistent:
            self._transient.discard(name)
        else:
            self._transient.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule under a name that need not be an identifier."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type_name(module)} is not a Module subclass")
        self._check_name("module", name, self._modules)
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        """The same as ``add_module``."""
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

    # Changing everything -----------------------------------------------------------------

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call ``fn`` with every module, the innermost first."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Set the mode that Dropout and its like look at, here and below."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Leave training mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set whether gradients are computed for the parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of the parameters, or fill them with zeros."""
        zero_grads(self.parameters(), set_to_none)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move parameters and buffers to a dtype (floating ones only), a device or the like of a tensor."""
        target: dict[str, Any] = dict(kwargs)
        for value in args:
            if isinstance(value, Tensor):
                target["dtype"] = value.dtype
            elif isinstance(value, str):
                target["device"] = value
            elif isinstance(value, dtypes.DType):
                target["dtype"] = value
            elif value is not None and not isinstance(value, bool):
                raise InvalidArgument(
                    f"to() received an invalid combination of arguments - got ({given(args, kwargs)})"
                )
        dtype = target.pop("dtype", None)
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype=torch.{dtype.name}"
            )
        for tensor in self.parameters():
            grad = tensor.grad
            tensor.data = _moved(tensor, dtype, target)
            if grad is not None:
                tensor.grad = _moved(grad, dtype, target)
        for module in self.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = _moved(buffer, dtype, target)
        return self

    def float(self) -> Self:
        """Parameters and floating buffers as float32."""
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """Parameters and floating buffers as float64."""
        return self.to(dtypes.float64)

    def half(self) -> Self:
        """Parameters and floating buffers as float16."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Parameters and floating buffers as bfloat16."""
        return self.to(dtypes.bfloat16)

    def type(self, dst_type: Any) -> Self:
        """Parameters and floating buffers as ``dst_type``."""
        return self.to(dst_type)

    def cpu(self) -> Self:
        """The module itself: values are fetched when asked for."""
        return self

    # The state dict ----------------------------------------------------------------------

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
        """Parameters and persistent buffers by dotted name: live values, detached unless ``keep_vars``."""
        return save(self, prefix, keep_vars)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Copy values in place: tensors, NumPy arrays or another library's tensors, by dotted name.

        Raises RuntimeError, after copying what fits, for shapes that do not match and, if ``strict``,
        for missing and unexpected keys; otherwise those are what it returns.
        """
        return load(self, state_dict, strict)

    # Printing ----------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What a subclass prints between its parentheses."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + repr(m).replace("\n", "\n  ") for name, m in self._modules.items()]
        if len(lines) <= 1 and not children:
            return f"{type(self).__name__}({extra})"
        return f"{type(self).__name__}(" + "".join(f"\n  {line}" for line in lines + children) + "\n)"


def _moved(tensor: Tensor, dtype: Any, target: Mapping[str, Any]) -> Tensor:
    """The value as ``to`` wants it: only floating ones change their dtype."""
    kind = {} if dtype is None or not tensor.is_floating_point() else {"dtype": dtype}
    moved: Tensor = tensor.detach().to(**target, **kind)
    return moved
