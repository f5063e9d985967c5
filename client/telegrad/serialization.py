"""``telegrad.save`` and ``telegrad.load``: safetensors files, never pickles.

A file is a plain safetensors container, so every library that reads those has the tensors: those of a state dict
under its keys, nested ones under their path joined by dots. What safetensors cannot say (nesting, numbers,
texts, the order) is JSON in the metadata, under the key "telegrad": in it

- numbers, texts, true, false, null and lists are themselves;
- ``{"tensor": name, "requires_grad": …}`` is the container's tensor of this name;
- ``{"dict": [[key, value], …]}`` is a dict, with keys that are texts or numbers;
- ``{"tuple": […]}`` is a tuple.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from telegrad_engine.errors import InvalidArgument, InvalidValue, MalformedRequest
from telegrad_engine.program.safetensors import decode, encode

from .sessions import current
from .tensor import Tensor, upload

Place = str | os.PathLike[str] | BinaryIO
KEY = "telegrad"
PLAIN = (str, int, float, bool, type(None))
PICKLES = (b"PK\x03\x04", b"\x80")
"""How the files begin that torch.save writes, and pickles of protocol 2 and up."""
PICKLE_TEXT = (
    "this file is a pickle, as torch.save writes it, and reading one can run any code; telegrad reads safetensors. "
    "Convert it where you trust it: safetensors.torch.save_file(torch.load(path), new_path)"
)


def save(obj: Any, f: Place) -> None:
    """Write a tensor, a state dict, or tensors, numbers and texts in dicts, lists and tuples, to a safetensors file.

    ``f`` is a path or a file opened for writing bytes. The values are fetched with one message for each session
    that they are in. Raises TypeError for anything else in ``obj``, and writes nothing then.
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


def load(f: Place, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """What :func:`save` wrote, with its tensors in the current session.

    Of any other safetensors file, one of ``safetensors.torch`` for example, a dict of its tensors by name.
    ``map_location`` and ``weights_only`` are accepted for torch's sake: tensors live where their session does, and
    there is nothing but data in a file. Raises ValueError for a pickle and for a damaged file.
    """
    if isinstance(f, (str, os.PathLike)):
        body = Path(f).read_bytes()
    elif hasattr(f, "read"):
        body = f.read()
    else:
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'read' attribute")
    if body.startswith(PICKLES) and not _plausible(body):
        raise InvalidValue(PICKLE_TEXT)
    metadata, arrays = decode(body)
    if KEY not in metadata:
        return {name: upload(current().recorder, array) for name, array in arrays.items()}
    try:
        return _rebuild(json.loads(metadata[KEY]), arrays)
    except (KeyError, TypeError, ValueError, RecursionError):
        raise MalformedRequest("the file's metadata does not describe what is in it") from None


class _Writer:
    """Describes an object as JSON, and gives each tensor in it a name."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def describe(self, value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            name = self._name(path or "tensor")
            self.tensors[name] = value
            return {"tensor": name, "requires_grad": value.requires_grad}
        if isinstance(value, PLAIN):
            return value
        if isinstance(value, Mapping):
            return {"dict": [self._item(key, item, path) for key, item in value.items()]}
        if isinstance(value, (list, tuple)):
            items = [self.describe(item, _join(path, i)) for i, item in enumerate(value)]
            return items if isinstance(value, list) else {"tuple": items}
        hint = "; save its state_dict()" if hasattr(value, "state_dict") else ""
        where = f" at {path!r}" if path else ""
        raise InvalidArgument(
            "only tensors, numbers, texts, None, and dicts, lists and tuples of these can be saved, not "
            f"{type(value).__name__}{where}{hint}"
        )

    def _item(self, key: Any, value: Any, path: str) -> list[Any]:
        if not isinstance(key, PLAIN):
            raise InvalidArgument(f"a key of a saved dict is a text or a number, not {type(key).__name__}")
        return [key, self.describe(value, _join(path, key))]

    def _name(self, path: str) -> str:
        """The path, with a number behind it if another tensor has that name."""
        name, count = path, 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{path}#{count}"
        return name


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _fetch(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The tensors' arrays by name."""
    recorders = {id(t._recorder): t._recorder for t in tensors.values()}
    values: dict[tuple[int, str], Any] = {}
    for key, recorder in recorders.items():
        ids = list(dict.fromkeys(t._id for t in tensors.values() if t._recorder is recorder))
        values |= {(key, name): value.array for name, value in recorder.fetch(ids).items()}
    return {name: values[id(t._recorder), t._id] for name, t in tensors.items()}


def _plausible(body: bytes) -> bool:
    """Whether a container starts like this too: its first 8 bytes are a length, and then comes JSON."""
    return int.from_bytes(body[:8], "little") <= len(body) and body[8:9] == b"{"


def _rebuild(value: Any, arrays: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_rebuild(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return upload(current().recorder, arrays[value["tensor"]], requires_grad=value["requires_grad"])
    if "tuple" in value:
        return tuple([_rebuild(item, arrays) for item in value["tuple"]])
    return {key: _rebuild(item, arrays) for key, item in value["dict"]}
