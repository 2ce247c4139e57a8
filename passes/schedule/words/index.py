"""Index expressions over named loops: sums of multiples, with quotients and remainders where loops were fused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir

Range = tuple[int, int]
"""The smallest and the largest value."""


@dataclass(frozen=True)
class Division:
    """A quotient, rounded down, or a non-negative remainder."""

    value: Index
    divisor: int
    is_remainder: bool

    def __str__(self) -> str:
        return f"({self.value}) {'%' if self.is_remainder else '//'} {self.divisor}"


Atom = str | Division


@dataclass(frozen=True)
class Index:
    """A sum: `terms` are atoms with nonzero coefficients, in a fixed order."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.constant + other)
        return made(dict_sum(dict(self.terms), dict(other.terms)), self.constant + other.constant)

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def __mul__(self, factor: int) -> Index:
        return made({atom: count * factor for atom, count in self.terms}, self.constant * factor)

    def __str__(self) -> str:
        parts = [_term(atom, count) for atom, count in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)

    @property
    def loops(self) -> set[str]:
        """Return the names of the loops that it depends on."""
        found: set[str] = set()
        for atom, _ in self.terms:
            found |= {atom} if isinstance(atom, str) else atom.value.loops
        return found

    def factor(self, loop: str) -> int | None:
        """Return the step of the expression along a loop; None if it is not constant."""
        total = 0
        for atom, count in self.terms:
            if atom == loop:
                total += count
            elif isinstance(atom, Division) and loop in atom.value.loops:
                return None
        return total

    def replaced(self, values: Mapping[str, Index]) -> Index:
        """Substitute expressions for loops."""
        result = Index((), self.constant)
        for atom, count in self.terms:
            if isinstance(atom, str):
                result = result + values.get(atom, loop_index(atom)) * count
            else:
                result = result + divided(atom.value.replaced(values), atom.divisor, atom.is_remainder) * count
        return result

    def range(self, extents: Mapping[str, Range]) -> Range:
        """Return the smallest and the largest value, for loops in these ranges."""
        low = high = self.constant
        for atom, count in self.terms:
            a, b = extents[atom] if isinstance(atom, str) else _division_range(atom, extents)
            low, high = low + min(a * count, b * count), high + max(a * count, b * count)
        return low, high

    def emit(self, values: Mapping[str, Any]) -> Any:
        """Emit arithmetic on these index values."""
        from mirlo.dialects.tir.scalars import create, emit_constant

        kind = ir.IndexType.get()
        total = None
        for atom, count in self.terms:
            value = values[atom] if isinstance(atom, str) else _emit_division(atom, values)
            if count != 1:
                value = create("arith.muli", kind, value, emit_constant(count, kind))
            total = value if total is None else create("arith.addi", kind, total, value)
        if total is None:
            return emit_constant(self.constant, kind)
        return create("arith.addi", kind, total, emit_constant(self.constant, kind)) if self.constant else total


def loop_index(name: str) -> Index:
    return Index(((name, 1),))


def number(value: int) -> Index:
    return Index((), value)


def made(terms: Mapping[Atom, int], constant: int) -> Index:
    """Return an expression of these terms."""
    kept = [(atom, count) for atom, count in terms.items() if count]
    return Index(tuple(sorted(kept, key=lambda term: str(term[0]))), constant)


def dict_sum(left: dict[Atom, int], right: dict[Atom, int]) -> dict[Atom, int]:
    return {atom: left.get(atom, 0) + right.get(atom, 0) for atom in {**left, **right}}


def divided(value: Index, divisor: int, is_remainder: bool) -> Index:
    """Return a quotient or a remainder, simplified by the terms that the divisor divides."""
    whole = {atom: count for atom, count in value.terms if count % divisor == 0}
    rest = made({atom: count for atom, count in value.terms if count % divisor}, value.constant % divisor)
    taken = made({atom: count // divisor for atom, count in whole.items()}, value.constant // divisor)
    if not rest.terms:
        return number(rest.constant) if is_remainder else taken
    atom = Index(((Division(rest, divisor, is_remainder), 1),))
    return atom if is_remainder else taken + atom


def of_affine(expr: Any, dims: list[Index]) -> Index:
    """Read an `ir.AffineExpr` whose dims are these expressions."""
    if isinstance(expr, ir.AffineDimExpr):
        return dims[expr.position]
    if isinstance(expr, ir.AffineConstantExpr):
        return number(expr.value)
    left, right = of_affine(expr.lhs, dims), of_affine(expr.rhs, dims)
    if isinstance(expr, ir.AffineAddExpr):
        return left + right
    if isinstance(expr, ir.AffineMulExpr):
        return left * right.constant if not right.terms else right * left.constant
    if isinstance(expr, ir.AffineCeilDivExpr):
        return divided(left + (right.constant - 1), right.constant, False)
    return divided(left, right.constant, isinstance(expr, ir.AffineModExpr))


def _term(atom: Atom, count: int) -> str:
    text = atom if isinstance(atom, str) else str(atom)
    return text if count == 1 else f"{count}*{text}" if isinstance(atom, str) else f"{count}*({text})"


def _division_range(atom: Division, extents: Mapping[str, Range]) -> Range:
    low, high = atom.value.range(extents)
    if not atom.is_remainder:
        return low // atom.divisor, high // atom.divisor
    if low // atom.divisor == high // atom.divisor:
        return low % atom.divisor, high % atom.divisor
    return 0, atom.divisor - 1


def _emit_division(atom: Division, values: Mapping[str, Any]) -> Any:
    from mirlo.dialects.tir.scalars import create, emit_constant

    kind = ir.IndexType.get()
    value, divisor = atom.value.emit(values), emit_constant(atom.divisor, kind)
    may_be_negative = atom.value.constant < 0 or any(count < 0 for _, count in atom.value.terms)
    if not atom.is_remainder:
        return create("arith.floordivsi" if may_be_negative else "arith.divui", kind, value, divisor)
    if not may_be_negative:
        return create("arith.remui", kind, value, divisor)
    quotient = create("arith.floordivsi", kind, value, divisor)
    return create("arith.subi", kind, value, create("arith.muli", kind, quotient, divisor))
