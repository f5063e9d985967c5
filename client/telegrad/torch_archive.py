"""Reads files of ``torch.save`` as data, without executing or unpickling anything in them.

Such a file is a zip archive with a pickle of the structure and one file per storage. This module interprets the
pickle's opcodes itself: it builds numbers, strings and containers, and of the classes and functions that a pickle can
call it replaces those in ``NAMES`` by functions that make plain data. It rejects every other name.
"""

from __future__ import annotations

import io
import math
import pickletools
import zipfile
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from telegrad_engine import dtypes
from telegrad_engine.errors import InvalidValue

EXPANDED = 2**26
"""The bytes that a file's tensors may have beyond four times its size, since expanded tensors are written out."""
STORAGES: dict[str, tuple[str, Any]] = {
    "DoubleStorage": ("f8", None),
    "FloatStorage": ("f4", None),
    "HalfStorage": ("f2", None),
    "BFloat16Storage": ("u2", ml_dtypes.bfloat16),
    "LongStorage": ("i8", None),
    "IntStorage": ("i4", None),
    "ShortStorage": ("i2", None),
    "CharStorage": ("i1", None),
    "ByteStorage": ("u1", None),
    "BoolStorage": ("?", None),
    "UntypedStorage": ("u1", None),  # read in the dtype of its tensor
}
"""torch's storage classes: the dtype of their elements in the file, and the ml_dtypes dtype if NumPy lacks it."""


class SavedTensor(NamedTuple):
    """A tensor of the file."""

    array: Any
    requires_grad: bool
    is_parameter: bool = False


class _Name(NamedTuple):
    """The name of a class or function in a pickle."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class _Storage(NamedTuple):
    kind: str
    key: str
    size: int


def read(body: bytes, make: Callable[[SavedTensor], Any]) -> Any:
    """Return a file's contents; ``make`` converts each tensor in it. Raises ValueError for anything but data."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            return _Archive(archive, make, 4 * len(body) + EXPANDED).read()
    except (zipfile.BadZipFile, *DAMAGE) as error:
        raise InvalidValue(f"this file is damaged, or not what torch.save writes: {error}") from None


DAMAGE = (KeyError, IndexError, TypeError, AttributeError, OverflowError, EOFError, RecursionError, MemoryError)
"""The errors that reading a malformed file raises."""


class _Archive:
    """A file while it is read; ``limit`` is the maximum size of its tensors in bytes."""

    def __init__(self, archive: zipfile.ZipFile, make: Callable[[SavedTensor], Any], limit: int) -> None:
        self._archive, self._make, self._left = archive, make, limit
        self._done: dict[int, tuple[Any, Any]] = {}
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise InvalidValue("this zip archive is not what torch.save writes: it has no data.pkl")
        self._root = pickles[0].removesuffix("data.pkl")
        if f"{self._root}constants.pkl" in archive.namelist():
            raise InvalidValue("this file is a TorchScript program, which is not in Telegrad; save a state_dict()")
        self._arrays: dict[tuple[str, str], Any] = {}

    def read(self) -> Any:
        return _Unpacker(self._member("data.pkl"), self).run()

    def _member(self, name: str) -> bytes:
        info = self._archive.getinfo(self._root + name)
        if info.compress_type != zipfile.ZIP_STORED:
            raise InvalidValue(f"{info.filename} is compressed, which torch.save does not do")
        return self._archive.read(info)

    def _storage(self, storage: _Storage, of_tensor: Any) -> Any:
        code, dtype = STORAGES[storage.kind] if of_tensor is None else (of_tensor.numpy.str[1:], None)
        key = storage.key, code
        if key not in self._arrays:
            names = self._archive.namelist()
            big = f"{self._root}byteorder" in names and self._member("byteorder") == b"big"
            array = np.frombuffer(self._member(f"data/{storage.key}"), (">" if big else "<") + code)
            array = array.astype(array.dtype.newbyteorder("="), copy=False)
            self._arrays[key] = array if dtype is None else array.view(dtype)
        return self._arrays[key]

    # Functions for the names in a pickle ----------------------------------------------------

    def tensor(
        self, storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False, _: Any = None, *dtype: Any
    ) -> Any:
        """Implement ``torch._utils._rebuild_tensor_v3``: a tensor with a copy of part of a storage."""
        if not isinstance(storage, _Storage):
            raise InvalidValue("this file is damaged: a tensor without a storage")
        numbers = [offset, *size, *stride]
        if len(size) != len(stride) or not all(type(n) is int and n >= 0 for n in numbers):
            raise InvalidValue("this file is damaged: a tensor of no size")
        array = self._storage(storage, dtype[0] if storage.kind == "UntypedStorage" else None)
        count = math.prod(size)
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if count else 0
        if last >= max(len(array), 1) and count:
            raise InvalidValue("this file is damaged: a tensor is longer than its storage")
        self._left -= count * array.itemsize
        if self._left < 0:
            raise InvalidValue("the tensors of this file are much longer than the file")
        if not count:
            return SavedTensor(np.empty(size, array.dtype), bool(requires_grad))
        steps = [step * array.itemsize for step in stride]
        shown = np.lib.stride_tricks.as_strided(array[offset:], size, steps, writeable=False)
        return SavedTensor(np.array(shown), bool(requires_grad))

    def parameter(self, data: Any, requires_grad: Any = True, *_: Any) -> Any:
        """Implement ``torch._utils._rebuild_parameter``."""
        return SavedTensor(data.array, bool(requires_grad), True)

    def finished(self, value: Any) -> Any:
        """Convert a value of the file for the reader; a shared tensor or tuple is converted once."""
        if not isinstance(value, tuple):
            return value
        if id(value) not in self._done:
            made = self._make(value) if isinstance(value, SavedTensor) else tuple([self.finished(v) for v in value])
            self._done[id(value)] = value, made
        return self._done[id(value)][1]


NAMES: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": lambda archive, items=(): OrderedDict(items),
    "collections.Counter": lambda archive, items=(): Counter(items),
    "collections.defaultdict": lambda archive, *_: defaultdict(),
    "builtins.set": lambda archive, items=(): set(items),
    "builtins.frozenset": lambda archive, items=(): frozenset(items),
    "builtins.complex": lambda archive, real, imaginary: complex(float(real), float(imaginary)),
    "_codecs.encode": lambda archive, text, encoding: text.encode("latin1"),
    "torch.Size": lambda archive, sizes=(): tuple(sizes),
    "torch.device": lambda archive, kind, *_: str(kind),
    "torch._utils._rebuild_tensor": _Archive.tensor,
    "torch._utils._rebuild_tensor_v2": _Archive.tensor,
    "torch._utils._rebuild_tensor_v3": _Archive.tensor,
    "torch._utils._rebuild_parameter": _Archive.parameter,
    "torch._utils._rebuild_parameter_with_state": _Archive.parameter,
}
"""The classes and functions that a pickle may call, with their replacements. None of these runs code of the file."""
CODE_TEXT = (
    "this file names {name}, which is code, and code in a file is never run; only tensors, numbers, texts and "
    "containers of them are read. Where you trust it, load it with torch and save a state_dict()"
)


class _Unpacker:
    """The stack machine of pickles, without the opcodes that are not needed for data."""

    def __init__(self, code: bytes, archive: _Archive) -> None:
        self._code, self._archive = code, archive
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Run the pickle and return its final value."""
        try:
            for opcode, argument, _ in pickletools.genops(self._code):
                if opcode.name == "STOP":
                    return self._archive.finished(self._stack.pop())
                self._step(opcode.name, argument)
        except ValueError as error:
            if isinstance(error, InvalidValue):
                raise
            raise InvalidValue(f"this file is damaged: {error}") from None
        raise InvalidValue("this file is damaged: it ends early")

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in LITERALS:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name]())
        elif name in ("PROTO", "FRAME"):
            pass
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._since_mark()
        elif name == "DUP":
            stack.append(stack[-1])
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name in MADE:
            stack.append(MADE[name](self._finished(self._since_mark())))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            items = stack[-count:]
            del stack[-count:]
            stack.append(tuple(items))
        elif name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS"):
            self._fill(name)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            stack.append(self._named(argument))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments = stack.pop()
            stack.append(self._made(stack.pop(), arguments))
        elif name == "BUILD":
            stack.pop()  # attributes, which plain data does not have
        elif name == "BINPERSID":
            stack.append(self._persistent(stack.pop()))
        else:
            raise InvalidValue(f"this file has the opcode {name}, which no file of data has")

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _finished(self, items: list[Any]) -> list[Any]:
        return [self._archive.finished(item) for item in items]

    def _fill(self, name: str) -> None:
        count = {"APPEND": 1, "SETITEM": 2}.get(name)
        if count is None:
            items = self._since_mark()
        else:
            items = self._stack[-count:]
            del self._stack[-count:]
        items = self._finished(items)
        target = self._stack[-1]
        if name in ("APPEND", "APPENDS") and type(target) is list:
            target.extend(items)
        elif name == "ADDITEMS" and type(target) is set:
            target.update(items)
        elif name in ("SETITEM", "SETITEMS") and isinstance(target, dict):
            target.update(zip(items[::2], items[1::2], strict=True))
        else:
            raise InvalidValue("this file is damaged: items for what holds none")

    def _named(self, argument: Any) -> Any:
        if argument is None:
            name, module = self._stack.pop(), self._stack.pop()
        else:
            module, _, name = argument.partition(" ")
        named = _Name("builtins" if module == "__builtin__" else str(module), str(name))
        if named.module in ("torch", "torch.storage") and named.name in STORAGES:
            return named
        if named.module == "torch" and named.name in DTYPES:
            return DTYPES[named.name]
        if named.module == "torch" and named.name.endswith("Storage"):
            raise InvalidValue(f"a tensor of this file has a dtype that is not in Telegrad: {named}")
        if str(named) not in NAMES:
            raise InvalidValue(CODE_TEXT.format(name=named))
        return named

    def _made(self, named: Any, arguments: Any) -> Any:
        if not isinstance(named, _Name) or str(named) not in NAMES or type(arguments) is not tuple:
            raise InvalidValue("this file is damaged: it calls what is no name")
        return NAMES[str(named)](self._archive, *arguments)

    def _persistent(self, reference: Any) -> _Storage:
        kind, storage, key, _, size = reference  # torch.save's form; others raise TypeError or ValueError
        if kind != "storage" or not isinstance(storage, _Name) or storage.name not in STORAGES:
            raise InvalidValue(f"a tensor of this file has a dtype that is not in Telegrad: {storage}")
        return _Storage(storage.name, str(key), int(size))


DTYPES = {name: dtype for dtype in dtypes.ALL for name in {dtype.name, dtype.name.rstrip("_")}}
CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
}
MADE: dict[str, Callable[[list[Any]], Any]] = {
    "LIST": list,
    "DICT": lambda items: dict(zip(items[::2], items[1::2], strict=True)),
    "FROZENSET": frozenset,
}
LITERALS = {
    *("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
