"""Symbols on which dims depend through quotients only, such as the sizes of one level of a pyramid.

A kernel whose dims are `floordiv(n + 7, 8)` and `floordiv(n + 15, 16)` computes the same as one whose
dims are m and `floordiv(m + 1, 2)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.runtime.records import dataclass


@dataclass(frozen=True, order=True)
class SymbolQuotient:
    """The atom `floordiv(symbol + shift, divisor)`."""

    divisor: int
    shift: int
    atom: D.Atom

    @property
    def is_size(self) -> bool:
        return self.shift >= 0


def quotients_by_symbol(dims: Iterable[Dim]) -> dict[str, list[SymbolQuotient]]:
    """Return the quotients of each symbol that occurs in nothing else, if all of them are functions of the first."""
    by_symbol: dict[str, set[SymbolQuotient]] = {}
    others: set[str] = set()
    for dim in dims:
        _collect(dim, by_symbol, others)
    ordered = {name: sorted(quotients) for name, quotients in by_symbol.items() if name not in others}
    return {name: quotients for name, quotients in ordered.items() if _are_functions_of_first(quotients)}


def in_finest(quotients: Sequence[SymbolQuotient], finest: Dim) -> Mapping[D.Atom, Dim]:
    """Return each quotient as a function of the first quotient, whose value is `finest`."""
    first = quotients[0]
    return {
        each.atom: (finest + (each.shift - first.shift) // first.divisor) // (each.divisor // first.divisor)
        for each in quotients
    }


def _are_functions_of_first(quotients: Sequence[SymbolQuotient]) -> bool:
    first = quotients[0]
    return first.is_size and all(
        each.divisor % first.divisor == 0 and (each.shift - first.shift) % first.divisor == 0 for each in quotients
    )


def _collect(dim: Dim, quotients: dict[str, set[SymbolQuotient]], others: set[str]) -> None:
    """Add the quotients in a dim, and the symbols that occur in something else."""
    for atoms, _ in () if isinstance(dim, int) else dim.terms:
        for atom in atoms:
            parts = D.atom_parts(atom)
            if parts is None:
                others.add(atom)
                continue
            function, left, right = parts
            shifted = _shifted_symbol(left) if function == "floordiv" and isinstance(right, int) else None
            if shifted is not None and isinstance(right, int) and right > 0:
                name, shift = shifted
                quotients.setdefault(name, set()).add(SymbolQuotient(right, shift, atom))
            else:
                _collect(left, quotients, others)
                _collect(right, quotients, others)


def _shifted_symbol(dim: Dim) -> tuple[str, int] | None:
    """Return the symbol and the number that a dim is the sum of, or None."""
    if isinstance(dim, int):
        return None
    terms = dict(dim.terms)
    shift = terms.pop((), 0)
    [(atoms, factor), *more] = terms.items()
    if more or factor != 1 or len(atoms) != 1 or D.atom_parts(atoms[0]) is not None:
        return None
    return atoms[0], shift
