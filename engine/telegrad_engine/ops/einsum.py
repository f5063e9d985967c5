"""Einsum, reduced to diagonals, sums, permutations and batched matrix products.

So its derivative, of any order, is theirs.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import InvalidOperation, InvalidValue, ShapeMismatch
from ..schema.op import composite
from ..schema.parameters import ManyArrays, Str


def _einsum_terms(equation: str, shapes: list[Any]) -> tuple[list[str], str, dict[str, int]]:
    """The subscripts of each operand, of the output, and every subscript's size.

    An ellipsis becomes capital letters that the equation does not use, counted from the right.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        more = "fewer" if len(terms) > len(shapes) else "more"
        raise InvalidOperation(f"einsum(): {more} operands were provided than specified in the equation")
    free = [c for c in "ZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in equation]
    widest = 0
    for term, shape in zip(terms, shapes, strict=True):
        if "..." in term:
            widest = max(widest, len(shape) - len(term.replace("...", "")))
    dots = "".join(reversed(free[:widest]))
    expanded = []
    for i, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        plain = term.replace("...", "")
        if not all(c.isascii() and c.isalpha() for c in plain):
            at = next(k for k, c in enumerate(equation) if not (c in " .,->" or (c.isascii() and c.isalpha())))
            raise InvalidOperation(
                f"einsum(): invalid subscript given at index {at} in the equation string, subscripts must "
                "be in "
                "[a-zA-Z]"
            )
        n = len(shape) - len(plain)
        if n < 0 or (n > 0 and "..." not in term):
            raise InvalidOperation(
                f"einsum(): the number of subscripts in the equation ({len(plain)}) does not match the "
                "number of "
                f"dimensions ({len(shape)}) for operand {i} and no ellipsis was given"
            )
        expanded.append(term.replace("...", dots[widest - n :] if n else ""))
    sizes = _subscript_sizes(expanded, shapes)
    if not arrow:
        letters = "".join(expanded)
        right = dots + "".join(sorted({c for c in letters if letters.count(c) == 1 and c not in dots}))
    else:
        right = right.replace("...", dots)
    for c in right:
        if c not in sizes:
            raise InvalidOperation(
                f"einsum(): output subscript {c} does not appear in the equation for any input operand"
            )
        if right.count(c) > 1:
            raise InvalidOperation(f"einsum(): output subscript {c} appears more than once in the output")
    return expanded, right, sizes


def _subscript_sizes(terms: list[str], shapes: list[Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for i, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        for c, n in zip(term, shape, strict=True):
            if sizes.get(c, 1) not in (1, n) and n != 1:
                raise ShapeMismatch(
                    f"einsum(): subscript {c} has size {n} for operand {i} which does not broadcast with "
                    f"previously seen size {sizes[c]}"
                )
            sizes[c] = n if sizes.get(c, 1) == 1 else sizes[c]
    return sizes


@composite(
    may_alias=True,
    method=False,
)
def einsum(F: Any, equation: Str, operands: ManyArrays = ()) -> Any:
    """The sum of products that ``equation`` names: ``"ij,jk->ik"`` is a matrix product."""
    if not operands:
        raise InvalidValue(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its "
            "subscripts list"
        )
    terms, out, sizes = _einsum_terms(equation, [tuple(x.shape) for x in operands])
    pending = []
    for i, (x, term) in enumerate(zip(operands, terms, strict=True)):
        x, term = _take_diagonals(F, x, term)
        elsewhere = out + "".join(terms[:i] + terms[i + 1 :])
        pending.append(_sum_unless(F, x, term, elsewhere))
    x, term = pending[0]
    for i, (y, other) in enumerate(pending[1:], 1):
        later = out + "".join(t for _, t in pending[i + 1 :])
        x, term = _contract(F, x, term, y, other, later, sizes)
    x, term = _sum_unless(F, x, term, out)
    return F.permute(x, tuple(term.index(c) for c in out)) if out != term else x


def _take_diagonals(F: Any, x: Any, term: str) -> tuple[Any, str]:
    """Each repeated subscript once: the diagonal of its two dimensions."""
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            i = term.index(c)
            j = term.index(c, i + 1)
            n = x.shape[i]
            rest = [k for k in range(len(term)) if k not in (i, j)]
            flat = F.reshape(F.permute(x, (i, j, *rest)), (n * n, *[x.shape[k] for k in rest]))
            x = flat[:: n + 1]
            term = c + "".join(term[k] for k in rest)
    return x, term


def _sum_unless(F: Any, x: Any, term: str, kept: str) -> tuple[Any, str]:
    """Sum out the subscripts that nothing else mentions."""
    gone = tuple(i for i, c in enumerate(term) if c not in kept)
    return (F.sum(x, gone), "".join(c for c in term if c in kept)) if gone else (x, term)


def _contract(F: Any, x: Any, a: str, y: Any, b: str, later: str, sizes: dict[str, int]) -> tuple[Any, str]:
    """The product of two operands as one batched matrix product, summed over what is not needed later."""
    batch = "".join(c for c in a if c in b and c in later)
    summed = "".join(c for c in a if c in b and c not in later)
    left = "".join(c for c in a if c not in b)
    right = "".join(c for c in b if c not in a)

    def arrange(tensor: Any, term: str, groups: tuple[str, str, str]) -> Any:
        tensor = F.permute(tensor, tuple(term.index(c) for c in "".join(groups)))
        tensor = F.expand(tensor, tuple(sizes[c] for c in "".join(groups)))
        return F.reshape(tensor, tuple(math.prod(sizes[c] for c in group) for group in groups))

    multiply = F.bmm if summed else F.mul  # which promotes, as torch's does
    product = multiply(arrange(x, a, (batch, left, summed)), arrange(y, b, (batch, summed, right)))
    term = batch + left + right
    return F.reshape(product, tuple(sizes[c] for c in term)), term
