"""``telegrad.utils._pytree``: nested containers of tensors, as ``torch.utils._pytree``, based on the optree library.

None is a leaf, dicts keep the order of their keys, and named tuples, deques, OrderedDicts and defaultdicts are nodes.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import optree
from optree import PyTreeSpec as TreeSpec

PyTree = Any
_NAMESPACE = "telegrad"
_OPTIONS: dict[str, Any] = {"none_is_leaf": True, "namespace": _NAMESPACE}


# Entered permanently: dicts of this namespace are flattened in the order of their keys, as in torch.
_IN_ORDER = optree.dict_insertion_ordered(True, namespace=_NAMESPACE)
_IN_ORDER.__enter__()


def tree_flatten(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """Return the leaves of a tree in order, and its structure."""
    return optree.tree_flatten(tree, is_leaf, **_OPTIONS)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """Return a tree of this structure with these leaves. Raises ValueError if their number differs."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            "tree_unflatten(leaves, treespec): Expected `treespec` to be instance of PyTreeSpec but got item of type "
            f"{type(treespec)}."
        )
    return optree.tree_unflatten(treespec, leaves)


def tree_leaves(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree in order."""
    return optree.tree_leaves(tree, is_leaf, **_OPTIONS)


def tree_iter(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> Iterable[Any]:
    """An iterator over the leaves of a tree."""
    return optree.tree_iter(tree, is_leaf, **_OPTIONS)


def tree_structure(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The structure of a tree."""
    return optree.tree_structure(tree, is_leaf, **_OPTIONS)


def tree_map(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> PyTree:
    """Return a tree of the results of ``func`` on the corresponding leaves of all trees."""
    return optree.tree_map(func, tree, *rests, is_leaf=is_leaf, **_OPTIONS)


def tree_map_(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> PyTree:
    """Call ``func`` on the leaves for its side effects, and return ``tree``."""
    return optree.tree_map_(func, tree, *rests, is_leaf=is_leaf, **_OPTIONS)


def map_only(
    type_or_types_or_pred: type | tuple[type, ...] | Callable[[Any], bool], /
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Decorate a function of a leaf to return leaves of other types, or that fail the predicate, unchanged."""
    if isinstance(type_or_types_or_pred, (type, tuple)):
        kind = type_or_types_or_pred
        return lambda function: lambda leaf: function(leaf) if isinstance(leaf, kind) else leaf
    if callable(type_or_types_or_pred):
        applies = type_or_types_or_pred
        return lambda function: lambda leaf: function(leaf) if applies(leaf) else leaf
    raise TypeError("Argument must be a type, a tuple of types, or a callable.")


def tree_map_only(
    type_or_types_or_pred: Any, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: Any = None
) -> PyTree:
    """Apply ``tree_map`` only to leaves of these types, or that satisfy the predicate."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(
    type_or_types_or_pred: Any, /, func: Callable[[Any], Any], tree: PyTree, is_leaf: Any = None
) -> PyTree:
    """Apply ``tree_map_`` only to leaves of these types, or that satisfy the predicate."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Any = None) -> bool:
    """Whether all leaves satisfy ``pred``."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Any = None) -> bool:
    """Whether any leaf satisfies ``pred``."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(kind: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: Any = None) -> bool:
    """Whether all leaves of these types satisfy ``pred``."""
    return all(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, kind))


def tree_any_only(kind: Any, /, pred: Callable[[Any], bool], tree: PyTree, is_leaf: Any = None) -> bool:
    """Whether any leaf of these types satisfies ``pred``."""
    return any(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, kind))


def tree_is_leaf(tree: PyTree, is_leaf: Any = None) -> bool:
    """Whether a value is a leaf, not a container."""
    return optree.tree_is_leaf(tree, is_leaf, **_OPTIONS)


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> list[Any]:
    """The leaves of a call's arguments."""
    return [leaf for value in (*args, *kwargs.values()) for leaf in tree_leaves(value)]


def tree_flatten_with_path(tree: PyTree, is_leaf: Any = None) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """The leaves of a tree, each with its path of keys, and the tree's structure."""
    paths, leaves, treespec = optree.tree_flatten_with_path(tree, is_leaf, **_OPTIONS)
    return list(zip(paths, leaves, strict=True)), treespec


def tree_leaves_with_path(tree: PyTree, is_leaf: Any = None) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves of a tree, each with its path of keys."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Any = None) -> PyTree:
    """Apply ``tree_map`` with a function that gets the leaf's path of keys as its first argument."""
    return optree.tree_map_with_path(func, tree, *rests, is_leaf=is_leaf, **_OPTIONS)


def keystr(path: Iterable[Any]) -> str:
    """Format a path of keys as an index expression."""
    return "".join(f"[{key!r}]" for key in path)


def key_get(tree: PyTree, path: Iterable[Any]) -> Any:
    """Return the value at a path of keys."""
    for key in path:
        tree = getattr(tree, key) if isinstance(key, str) and not isinstance(tree, Mapping) else tree[key]
    return tree


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    **_: Any,
) -> None:
    """Register a class as a container: ``flatten_fn`` returns children and a context for ``unflatten_fn``."""
    optree.register_pytree_node(
        cls,
        lambda value: tuple(flatten_fn(value)),
        lambda context, children: unflatten_fn(children, context),
        namespace=_NAMESPACE,
    )


def register_dataclass(
    cls: type, *, field_names: list[str] | None = None, drop_field_names: Any = None, **_: Any
) -> None:
    """Register a dataclass as a container of these fields, by default those that its initializer takes."""
    names = field_names or [f.name for f in dataclasses.fields(cls) if f.init]
    names = [name for name in names if name not in (drop_field_names or ())]
    register_pytree_node(
        cls,
        lambda value: ([getattr(value, name) for name in names], None),
        lambda children, _: cls(**dict(zip(names, children, strict=True))),
    )


def treespec_leaf() -> TreeSpec:
    """The structure of a leaf."""
    return optree.treespec_leaf(none_is_leaf=True)


def treespec_tuple(iterable: Iterable[TreeSpec] = ()) -> TreeSpec:
    """The structure of a tuple of trees."""
    return optree.treespec_tuple(iterable, **_OPTIONS)


def treespec_dict(mapping: Any = (), **kwargs: TreeSpec) -> TreeSpec:
    """The structure of a dict of trees."""
    return optree.treespec_dict({**dict(mapping), **kwargs}, **_OPTIONS)


def treespec_pprint(treespec: TreeSpec) -> str:
    """Format a structure as a tree with stars for leaves."""
    return str(tree_unflatten([_Star()] * treespec.num_leaves, treespec))


def described(treespec: TreeSpec, indent: int = 0) -> str:
    """Format a structure as in torch's error texts."""
    if treespec.type is None:
        return "*"
    context = treespec.entries() if treespec.type in (dict, OrderedDict, defaultdict) else None
    children = f",\n{' ' * (indent + 2)}".join([described(child, indent + 2) for child in treespec.children()])
    return f"TreeSpec({treespec.type.__name__}, {context}, [{children}])"


class _Star:
    def __repr__(self) -> str:
        return "*"


def broadcast_prefix(prefix: PyTree, tree: PyTree) -> list[Any]:
    """Return the leaves of ``prefix``, each repeated for every leaf of ``tree`` below it.

    Raises ValueError unless ``prefix`` is a prefix of ``tree``.
    """
    return list(optree.broadcast_prefix(prefix, tree, **_OPTIONS))


__all__ = ["PyTree", "TreeSpec", "arg_tree_leaves", "key_get", "keystr", "map_only", "register_dataclass"]
__all__ += ["register_pytree_node"]
__all__ += ["tree_all", "tree_all_only", "tree_any", "tree_any_only", "tree_flatten", "tree_flatten_with_path"]
__all__ += ["tree_is_leaf", "tree_iter", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_"]
__all__ += ["tree_map_only", "tree_map_only_"]
__all__ += ["tree_map_with_path", "tree_structure", "tree_unflatten"]
__all__ += ["treespec_dict", "treespec_leaf", "treespec_pprint", "treespec_tuple"]
