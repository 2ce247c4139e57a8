"""Dims of tensors: an integer, or an integer expression over named symbols; queries on them.

The expressions and their arithmetic are in `dim_algebra.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from mirlo.dialects.core.dim_algebra import (
    UNKNOWN,
    Atom,
    Dim,
    DimTooLarge,
    Monomial,
    SymbolicDim,
    UndecidedDim,
    apply,
    atom_parts,
    decide_less,
    is_nonnegative,
    is_symbol_name,
    parse,
    search_bounds,
    substitute,
    symbol,
    terms_of,
)
from mirlo.dialects.core.errors import OpError

__all__ = [
    "Atom",
    "Dim",
    "DimTooLarge",
    "Monomial",
    "SymbolicDim",
    "TYPICAL",
    "UNKNOWN",
    "UndecidedDim",
    "apply",
    "atom_parts",
    "ceildiv",
    "decide_less",
    "estimate_dim",
    "is_nonnegative",
    "is_static",
    "is_symbol_name",
    "is_certain",
    "maximum",
    "minimum",
    "parse",
    "product",
    "same_product",
    "search_bounds",
    "static_dim",
    "substitute",
    "symbol",
    "symbols_of",
    "terms_of",
]


def ceildiv(left: Dim, right: Dim) -> Dim:
    return (left + right - 1) // right


def maximum(left: Dim, right: Dim) -> Dim:
    return apply("max", left, right)


def minimum(left: Dim, right: Dim) -> Dim:
    return apply("min", left, right)


def product(dims: tuple[Dim, ...] | list[Dim]) -> Dim:
    return _product(tuple(dims))


@lru_cache(maxsize=4096)
def _product(dims: tuple[Dim, ...]) -> Dim:
    result: Dim = 1
    for dim in dims:
        result = result * dim
    return result


def same_product(left: Dim, right: Dim) -> bool:
    """Return whether both are a constant times the same product of atoms."""
    both = [terms_of(left), terms_of(right)]
    return all(len(terms) == 1 for terms in both) and both[0][0][0] == both[1][0][0]


def is_certain(test: Callable[[], bool]) -> bool:
    """Return whether a comparison of dims is known to hold; False if it depends on run-time sizes."""
    try:
        return test()
    except UndecidedDim:
        return False


def is_multiple(dim: Dim, number: Dim) -> bool:
    """Return whether a dim is known to be a multiple of a number; False if it depends on run-time sizes."""
    return is_certain(lambda: dim % number == 0)


TYPICAL = (64, 512, 4096, 32768)
"""The values assumed for symbols where a heuristic needs a number: larger ones where a dim would be at most 1."""


def estimate_dim(dim: Dim) -> int:
    """Return an estimate of a dim, for choices that are correct at all sizes and fast at typical ones.

    The result is at least 1, also for dims that may be negative (`4 - n`): costs multiply and divide by it.
    """
    return dim if isinstance(dim, int) else _estimate(dim)


@lru_cache(maxsize=4096)
def _estimate(dim: SymbolicDim) -> int:
    symbols = dim.symbols()
    estimates = (substitute(dim, dict.fromkeys(symbols, size)) for size in TYPICAL)
    return next((size for size in estimates if isinstance(size, int) and size > 1), 1)


_NONE: frozenset[str] = frozenset()


def symbols_of(dim: Dim) -> frozenset[str]:
    """Return the names of the symbols that a dim depends on."""
    return _NONE if isinstance(dim, int) else dim.symbols()


def is_static(dim: Dim) -> bool:
    return isinstance(dim, int)


def static_dim(dim: Dim) -> int:
    """Return a dim, which must be static, as an integer."""
    assert isinstance(dim, int)
    return dim


class DimsDiffer(OpError):
    """Raised for two dims that must be equal and are not known to be; symbols may still be equal at run time."""

    def __init__(self, text: str, left: Dim, right: Dim) -> None:
        super().__init__(text)
        self.left = left
        self.right = right


class BroadcastDiffers(DimsDiffer):
    """Raised for two dims that must be equal or 1; run time may decide, where the operands are expanded."""

    def __init__(
        self, text: str, left: Dim, right: Dim, axis: int, shapes: Sequence[tuple[Dim, ...]], target: Dim | None = None
    ) -> None:
        super().__init__(text, left, right)
        self.axis = axis
        """The axis, counted from the last one of the operands."""
        self.shapes = shapes
        """The shapes of the operands that broadcast."""
        self.target = target
        """The dim that operands broadcast to, for one-sided broadcasts."""
