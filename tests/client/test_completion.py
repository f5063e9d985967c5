"""What ``dir`` lists, and names that objects show: a user finds what there is, under our names."""

from __future__ import annotations

import telegrad as tg


def test_dir_lists_what_there_is() -> None:
    for namespace in (tg, tg.nn.functional, tg.linalg):
        assert all(hasattr(namespace, name) for name in dir(namespace))
    assert {"matmul", "softmax", "where", "Tensor", "float32", "numel", "nn"} <= set(dir(tg))
    assert not {"builtins", "math", "annotations", "TYPE_CHECKING", "Any"} & set(dir(tg))


def test_ops_lists_what_users_may_call() -> None:
    name = "everyday_double"
    tg.register_function(name, lambda x: x * 2)
    try:
        assert name in dir(tg.ops)
        assert {"register_function", "remove_function"} <= set(dir(tg.ops))
        assert not {"Tracer", "custom", "annotations"} & set(dir(tg.ops))
    finally:
        tg.remove_function(name)
    assert name not in dir(tg.ops)


def test_nothing_shows_as_torchs() -> None:
    x = tg.ones(2, 2, dtype=tg.float64)
    shown = [
        x,
        x.dtype,
        x.shape,
        x.max(0),
        x.type(),
        tg.FloatTensor,
        x.layout,
        tg.preserve_format,
        tg.finfo(),
        x.device,
    ]
    assert not [text for text in map(repr, shown) if "torch" in text]
