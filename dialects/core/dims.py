"""Dimensions of tensors: a number, or an integer expression over named symbols; what is asked about them.

The expressions themselves, and how they are computed with, are in `dim_algebra.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.core.dim_algebra import (
    UNKNOWN,
    Atom,
    Dim,
    Monomial,
    SymbolicDim,
    UndecidedDim,
    apply,
    atom_parts,
    decide_less,
    is_nonnegative,
    is_symbol_name,
    parse,
    substitute,
    symbol,
    terms_of,
)

__all__ = [
    "Atom",
    "Dim",
    "Monomial",
    "SymbolicDim",
    "TYPICAL",
    "UNKNOWN",
    "UndecidedDim",
    "apply",
    "atom_parts",
    "ceildiv",
    "decide_less",
    "guess",
    "is_nonnegative",
    "is_static",
    "is_symbol_name",
    "known",
    "maximum",
    "minimum",
    "parse",
    "product",
    "same_product",
    "substitute",
    "symbol",
    "symbols_of",
]


def ceildiv(left: Dim, right: Dim) -> Dim:
    return (left + right - 1) // right


def maximum(left: Dim, right: Dim) -> Dim:
    return apply("max", left, right)


def minimum(left: Dim, right: Dim) -> Dim:
    return apply("min", left, right)


def product(dims: tuple[Dim, ...] | list[Dim]) -> Dim:
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def same_product(left: Dim, right: Dim) -> bool:
    """Whether both are a number times one and the same product of atoms."""
    both = [terms_of(left), terms_of(right)]
    return all(len(terms) == 1 for terms in both) and both[0][0][0] == both[1][0][0]


def known(test: Callable[[], bool]) -> bool:
    """Whether a comparison of dims is known to hold; not, where that depends on the sizes at run time."""
    try:
        return test()
    except UndecidedDim:
        return False


TYPICAL = 64
"""What a symbol is taken for where a choice needs a number that it cannot know."""


def guess(dim: Dim) -> int:
    """About how large a dim may be: for choices that are right in any case, and good for such sizes.

    At least 1, also for what is there at other sizes only, `4 - n`: costs are products and quotients of such numbers.
    """
    if isinstance(dim, int):
        return dim
    found = substitute(dim, dict.fromkeys(dim.symbols(), TYPICAL))
    assert isinstance(found, int)
    return max(1, found)


def symbols_of(dim: Dim) -> set[str]:
    """Names of the symbols that a dim depends on."""
    return set() if isinstance(dim, int) else dim.symbols()


def is_static(dim: Dim) -> bool:
    return isinstance(dim, int)
