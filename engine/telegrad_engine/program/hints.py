"""Hints: how to correct an instruction that failed, where the error's text is PyTorch's and does not say so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any

import numpy as np

from ..errors import (
    DTypeMismatch,
    GradRequired,
    InvalidArgument,
    InvalidOperation,
    NotImplementedForDType,
    TelegradError,
    UnknownTensor,
)
from ..optim.algorithms import OPTIMIZERS
from ..schema.parameters import TensorListKind
from ..schema.signature import Signature
from .instructions import Instruction, names_in
from .json_codec import NUMBER_WORDS
from .overloads import find_op
from .verb_params import OptionalTensorsKind, StateKind
from .verbs import VERBS

LISTS = TensorListKind, OptionalTensorsKind, StateKind
MAX_SHOWN = 120
"""The most characters of inputs that a hint repeats."""
MAX_COMPARED = 1000
"""The most names of tensors that a misspelt one is compared with."""
NO_NULLS = 'there is null at {}; JavaScript writes NaN as null, so write it as the string "NaN"'
NO_TEXT = "there is text at {}; numbers have no quotes, and a decimal point, as in 1.5"
WHOLE = (
    "{} int64: whole numbers in JSON become int64, and JavaScript writes 2.0 as 2. If they are data to compute with, "
    'make the tensor with "dtype": "float32"'
)


def hint_for(error: TelegradError, instruction: Instruction, tensors: Mapping[str, Any]) -> str | None:
    """Return how to correct a failed instruction, among a session's tensors; None if there is nothing to add."""
    if isinstance(error, UnknownTensor):
        return _similar(error.context.get("ids", ()), tensors)
    if isinstance(error, GradRequired) and "scalar outputs" in error.detail:
        return 'reduce it to one number first, with "sum" or "mean", or give the gradients that flow into it'
    if isinstance(error, InvalidArgument):
        return _setting(instruction) or _list(instruction) or _text(error, instruction)
    if isinstance(error, DTypeMismatch | NotImplementedForDType):
        return _whole_numbers(instruction, tensors)
    if isinstance(error, InvalidOperation):
        place = next(_places(lambda value: value is None, instruction.attrs.get("data", ()), "data"), None)
        return None if place is None else NO_NULLS.format(place)
    return None


def _text(error: TelegradError, instruction: Instruction) -> str | None:
    """The hint for numbers that are written as text."""
    if "invalid data type 'str'" not in error.detail:
        return None
    texts = _places(_is_text, instruction.attrs.get("data", ()), "data")
    return NO_TEXT.format(next(texts, "data"))


def _similar(unknown: Sequence[str], tensors: Mapping[str, Any]) -> str | None:
    found = get_close_matches(unknown[0], islice(tensors, MAX_COMPARED), n=1) if unknown else []
    return f"did you mean {found[0]!r}?" if found else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value not in NUMBER_WORDS


def _setting(instruction: Instruction) -> str | None:
    """The hint for an optimizer's setting among the attributes."""
    algorithm = OPTIMIZERS.get(str(instruction.attrs.get("algorithm")))
    if instruction.op != "optim_step" or algorithm is None:
        return None
    found = {name: value for name, value in instruction.attrs.items() if name in algorithm.defaults}
    return f'settings have an object of their own: "settings": {_shown(found)}' if found else None


def _list(instruction: Instruction) -> str | None:
    """The hint for tensors where a list of tensors belongs."""
    params = [*_signature(instruction).tensor_params]
    inputs = [*instruction.inputs]
    if not inputs or not params or not isinstance(params[0].kind, LISTS) or not isinstance(inputs[0], str):
        return None
    right: list[Any] = [inputs] if len(params) == 1 else [inputs[:1], *inputs[1:]]
    if len(params) > 1 and isinstance(params[1].kind, LISTS):
        right[1:] = [[each] if isinstance(each, str) else each for each in inputs[1:]]
    return f'the input {params[0].name!r} is a list of tensors: "inputs": {_shown(right)}'


def _signature(instruction: Instruction) -> Signature:
    try:
        return VERBS.get(instruction.op) or find_op(instruction.op)[0]
    except TelegradError:
        return Signature("", ())


def _whole_numbers(instruction: Instruction, tensors: Mapping[str, Any]) -> str | None:
    """The hint for integers that a client may have meant as floats."""
    names = [name for name in dict.fromkeys(names_in(instruction.inputs)) if name in tensors]
    whole = [name for name in names if tensors[name]._data.dtype == np.int64 and tensors[name].is_leaf]
    if not whole:
        return None
    return WHOLE.format(f"{', '.join(whole)} {'is' if len(whole) == 1 else 'are'}")


def _places(is_wrong: Callable[[Any], bool], value: Any, place: str) -> Iterator[str]:
    """The places in nested lists of what is wrong there."""
    if is_wrong(value):
        yield place
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            yield from _places(is_wrong, each, f"{place}[{index}]")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
