"""``telegrad.save`` and ``telegrad.load`` for safetensors files; torch's own files are read as data, running no code.

A file is a plain safetensors container, so every library that reads those can read the tensors: those of a state dict
under their keys, nested ones under their path joined by dots. Everything that safetensors cannot represent (nesting,
numbers, strings, order) is JSON in the metadata, under the key "telegrad":

- numbers, strings, true, false, null and lists represent themselves;
- ``{"tensor": name, "requires_grad": …}`` is the container's tensor with this name;
- ``{"array": name}`` is a NumPy array, and ``{"scalar": name}`` a NumPy scalar;
- ``{"dict": [[key, value], …]}`` is a dict whose keys are strings or numbers;
- ``{"module": name, "state": …}`` is a module: its class's name and state dict, with the names of its parameters that
  are ``"frozen"`` and of its modules that are in ``"eval"`` mode;
- ``{"tuple": […]}`` is a tuple, ``{"set": […]}`` a set, ``{"bytes": text}`` bytes in base64, ``{"complex": [re, im]}``
  a complex number, ``{"dtype": name}`` a dtype.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from telegrad_engine import dtypes
from telegrad_engine.errors import InvalidArgument, InvalidValue, MalformedRequest
from telegrad_engine.program.safetensors import decode, encode

from .exclusions import attribute_of
from .nn.modules.module import Module
from .nn.parameter import Parameter
from .sessions.session import current
from .tensor.handle import Tensor, upload

if TYPE_CHECKING:
    from .torch_archive import SavedTensor

File = str | os.PathLike[str] | BinaryIO
KEY = "telegrad"
PLAIN = (str, int, float, bool, type(None))
DTYPES = {dtype.numpy for dtype in dtypes.ALL}
WRITTEN: dict[type, Callable[[Any], Any]] = {
    bytes: lambda value: {"bytes": base64.b64encode(value).decode()},
    complex: lambda value: {"complex": [value.real, value.imag]},
    dtypes.DType: lambda value: {"dtype": value.name},
}
"""The encoders of types that JSON lacks."""
READ: dict[str, Callable[[Any], Any]] = {
    "bytes": base64.b64decode,
    "complex": lambda parts: complex(*parts),
    "dtype": dtypes.parse,
}
"""The decoders of types that JSON lacks."""
ZIP, PICKLE = b"PK\x03\x04", b"\x80"
"""The first bytes of files written by torch.save, and of pickles of protocol 2 and up."""
PICKLE_TEXT = (
    "this file is a pickle, of the form that torch wrote before version 1.6 or another one, and reading one can run "
    "any code. Save it anew where you trust it: torch.save(torch.load(path), new_path)"
)

Safe = Callable[..., Any] | tuple[Callable[..., Any], str]
_safe: list[Safe] = []


def add_safe_globals(safe_globals: Sequence[Safe]) -> None:
    """Let :func:`load` rebuild modules of these classes, each called without arguments.

    An item is a class, or a pair of a function that returns such a module and the full name that the file has for its
    class, as in ``(lambda: Net(784), "__main__.Net")``.
    """
    _safe.extend(safe_globals)


def get_safe_globals() -> list[Safe]:
    """Return the items of :func:`add_safe_globals`."""
    return list(_safe)


def clear_safe_globals() -> None:
    """Remove all items of :func:`add_safe_globals`."""
    _safe.clear()


@contextmanager
def safe_globals(safe_globals: Sequence[Safe]) -> Iterator[None]:
    """Do :func:`add_safe_globals` for the block."""
    before = get_safe_globals()
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe[:] = before


def save(
    obj: Any,
    f: File,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write tensors, NumPy arrays, numbers and strings, in dicts, lists, tuples and sets, to a safetensors file.

    A module is written by value: its class's name, its state dict, and which parameters are frozen and which modules
    are in eval mode. Its other attributes are not saved. ``f`` is a path or a file opened for writing bytes. The values
    are fetched with one message per session. Raises TypeError for anything else in ``obj``, without writing anything.
    torch's other options (``pickle_module`` and ``pickle_protocol``) are accepted and have no effect: nothing is
    pickled.

    Examples:
        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
        >>> tg.save(tg.nn.Linear(2, 1).state_dict(), path)
        >>> sorted(tg.load(path))
        ['bias', 'weight']
    """
    writer = _Writer()
    structure = writer.describe(obj, "")
    metadata = {"format": "pt", KEY: json.dumps(structure, separators=(",", ":"))}
    body = encode(metadata, _fetch(writer.tensors))
    if isinstance(f, (str, os.PathLike)):
        Path(f).write_bytes(body)
    elif hasattr(f, "write"):
        f.write(body)
    else:
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute")


def load(
    f: File,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Load an object written by :func:`save`, with its tensors in the current session.

    A module is rebuilt only if its class was passed to :func:`add_safe_globals`: the class is called without arguments,
    and the state dict is loaded. For other safetensors files, such as those of ``safetensors.torch``, the result is a
    dict of tensors by name. For files of ``torch.save`` it is the saved object: their opcodes are read as data, and
    nothing is executed. The other arguments (``map_location``, ``pickle_module``, ``weights_only`` and ``mmap``) are
    torch's and have no effect: tensors live in their session, and only data is ever read. Raises ValueError for classes
    that were not passed, files that refer to code, older pickles and damaged files.

    Examples:
        >>> import io
        >>> file = io.BytesIO()
        >>> tg.save({"w": tg.ones(2)}, file)
        >>> _ = file.seek(0)
        >>> tg.load(file)
        {'w': tensor([1., 1.])}
    """
    if isinstance(f, (str, os.PathLike)):
        body = Path(f).read_bytes()
    elif hasattr(f, "read"):
        body = f.read()
    else:
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'read' attribute")
    # A safetensors container starts with an 8-byte length, followed by JSON.
    is_container = int.from_bytes(body[:8], "little") <= len(body) and body[8:9] == b"{"
    if body.startswith((ZIP, PICKLE)) and not is_container:
        from . import torch_archive  # imports zipfile and pickletools

        if not body.startswith(ZIP):
            raise InvalidValue(PICKLE_TEXT)
        return torch_archive.read(body, _uploaded)
    if not is_container:
        name = str(f) if isinstance(f, (str, os.PathLike)) else "the file"
        raise MalformedRequest(f"{name} was written neither by telegrad.save, nor by safetensors, nor by torch.save")
    metadata, arrays = decode(body)
    if KEY not in metadata:
        return {name: upload(current().recorder, array) for name, array in arrays.items()}
    try:
        found = _rebuild(json.loads(metadata[KEY]), arrays)
    except (KeyError, TypeError, ValueError, RecursionError):
        raise MalformedRequest("the file's metadata does not describe what is in it") from None
    return _finished(found)


def _finished(value: Any) -> Any:
    """Return a value of the file with its modules rebuilt."""
    if isinstance(value, dict):
        return {key: _finished(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return type(value)([_finished(item) for item in value])
    return value() if isinstance(value, partial) else value


def _module(name: str, state: Mapping[str, Any], frozen: Sequence[str], evaluated: Sequence[str]) -> Module:
    """Return a module of the class that the user passed for its name. The class is called after the file was read."""
    known = {name: function for function, name in map(_named, _safe)}
    if name not in known:
        raise InvalidValue(
            f"Weights only load failed. Unsupported global: GLOBAL {name} was not an allowed global by default. "
            f"Please use `telegrad.serialization.add_safe_globals([{name}])` or the "
            f"`telegrad.serialization.safe_globals([{name}])` context manager to allowlist this global if you "
            "trust this class/function. The class is called without arguments; if it needs some, pass instead "
            f"`(make, {name!r})`, where `make()` returns a module with the same parts."
        )
    module = known[name]()
    if not isinstance(module, Module):
        raise InvalidArgument(f"the safe global {name} must return a Module, not {type(module).__name__}")
    for key, own in module.state_dict(keep_vars=True).items():
        if isinstance(value := state.get(key), Tensor) and value.dtype != own.dtype:
            own.data = own.data.to(value.dtype)
    module.load_state_dict(state)
    for key, parameter in module.named_parameters():
        parameter.requires_grad_(key not in frozen)
    for key, part in module.named_modules():
        part.training = key not in evaluated
    return module


def _named(item: Safe) -> tuple[Callable[..., Any], str]:
    return item if isinstance(item, tuple) else (item, f"{item.__module__}.{item.__qualname__}")


def _uploaded(saved: SavedTensor) -> Tensor:
    """Upload a tensor of torch's file to the current session."""
    tensor = upload(current().recorder, saved.array, None, saved.requires_grad and not saved.is_parameter)
    return Parameter(tensor, saved.requires_grad) if saved.is_parameter else tensor


class _Writer:
    """Describes an object as JSON, and names each tensor in it."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}

    def describe(self, value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            name = self._name(path or "tensor")
            self.tensors[name] = value
            return {"tensor": name, "requires_grad": value.requires_grad}
        if isinstance(value, (np.ndarray, np.generic)):
            return self._describe_array(value, path)
        if isinstance(value, PLAIN):
            return value
        if type(value) in WRITTEN:
            return WRITTEN[type(value)](value)
        if isinstance(value, Module):
            return {
                "module": _named(type(value))[1],
                "state": self.describe(value.state_dict(), path),
                "frozen": [name for name, parameter in value.named_parameters() if not parameter.requires_grad],
                "eval": [name for name, part in value.named_modules() if not part.training],
            }
        if isinstance(value, (set, frozenset)):
            return {"set": [self.describe(item, _join(path, i)) for i, item in enumerate(value)]}
        if isinstance(value, Mapping):
            return {"dict": [self._item(key, item, path) for key, item in value.items()]}
        if isinstance(value, (list, tuple)):
            items = [self.describe(item, _join(path, i)) for i, item in enumerate(value)]
            return items if isinstance(value, list) else {"tuple": items}
        hint = "; save its state_dict()" if hasattr(value, "state_dict") else ""
        where = f" at {path!r}" if path else ""
        raise InvalidArgument(
            "only tensors, arrays, modules, numbers, texts, None, and dicts, lists, tuples and sets of these can be "
            f"saved, not {type(value).__name__}{where}{hint}"
        )

    def _describe_array(self, value: Any, path: str) -> dict[str, str]:
        if value.dtype not in DTYPES:
            raise InvalidArgument(f"an array of {value.dtype} cannot be saved: safetensors has no such numbers")
        name = self._name(path or "array")
        self.tensors[name] = np.asarray(value)
        return {"array" if isinstance(value, np.ndarray) else "scalar": name}

    def _item(self, key: Any, value: Any, path: str) -> list[Any]:
        if not isinstance(key, PLAIN):
            raise InvalidArgument(f"a key of a saved dict is a text or a number, not {type(key).__name__}")
        return [key, self.describe(value, _join(path, key))]

    def _name(self, path: str) -> str:
        """The path, with a number appended if another tensor has that name."""
        name, count = path, 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{path}#{count}"
        return name


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _fetch(values_by_name: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays by name, with tensors replaced by their fetched values."""
    tensors = {name: value for name, value in values_by_name.items() if isinstance(value, Tensor)}
    recorders = {id(t._recorder): t._recorder for t in tensors.values()}
    values: dict[tuple[int, str], Any] = {}
    for key, recorder in recorders.items():
        ids = list(dict.fromkeys(t._id for t in tensors.values() if t._recorder is recorder))
        values |= {(key, name): value.array for name, value in recorder.fetch(ids).items()}
    fetched = {name: values[id(t._recorder), t._id] for name, t in tensors.items()}
    return {name: fetched.get(name, value) for name, value in values_by_name.items()}


def _rebuild(value: Any, arrays: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_rebuild(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return upload(current().recorder, arrays[value["tensor"]], requires_grad=value["requires_grad"])
    if "array" in value:
        return np.array(arrays[value["array"]])
    if "scalar" in value:
        return arrays[value["scalar"]][()]
    if "module" in value:
        return partial(_module, value["module"], _rebuild(value["state"], arrays), value["frozen"], value["eval"])
    for kind, read in READ.items():
        if kind in value:
            return read(value[kind])
    if "tuple" in value:
        return tuple([_rebuild(item, arrays) for item in value["tuple"]])
    if "set" in value:
        return {_rebuild(item, arrays) for item in value["set"]}
    return {key: _rebuild(item, arrays) for key, item in value["dict"]}


__getattr__ = attribute_of("serialization")
