"""Limits of values that depend on data: whether arithmetic on them overflows, and whether they are clamped."""

from __future__ import annotations

from mirlo.dialects.core.index_expr import FloorDiv, IndexExpr, loop_index
from mirlo.passes.bounds.prover import Facts, Prover
from mirlo.runtime.records import dataclass

SAFE = 1 << 62
"""Bound of the sums of sizes: callers keep products of sizes below 2^60 (`tir.extents`), so that these are exact."""
LOW, HIGH = 1, -1


@dataclass(frozen=True)
class Limits:
    """The limits of values that depend on data; those of sizes and loops are limited by their nature.

    A value is *exact* if sums of sizes and numbers limit it, so that arithmetic on it does not overflow. It is
    *clamped* if anything but its type limits it, whether to the right bounds or not.
    """

    prover: Prover
    only_clamped: bool = False
    """Whether it is enough that a value is clamped."""

    def holds(self, value: IndexExpr, facts: Facts = ()) -> bool:
        """Return whether each variable of a value is limited at both ends where the facts hold."""
        return all(self._limits_variable(name, facts, end) for name in value.variables() for end in (LOW, HIGH))

    def _limits_variable(self, name: int, facts: Facts, end: int) -> bool:
        known = self.prover.variables[name]
        if not known.from_data or _is_limited_by(loop_index(name), facts, end):
            return True
        if known.is_free and self.only_clamped:
            return False
        limit = known.low if end == LOW else known.high
        if limit is not None and (self.only_clamped or abs(limit) < SAFE):
            return True
        if any(self.holds(bound) for bound in (known.lows if end == LOW else known.highs)):
            return True
        if self.only_clamped:
            parts = known.operands if known.unwrapped is None else (known.unwrapped,)
            if parts:
                return all(self.holds(part, facts) for part in parts)
        return bool(known.cases) and all(self._limits_sum(case.value, case.facts, end) for case in known.cases)

    def _limits_sum(self, value: IndexExpr, facts: Facts, end: int) -> bool:
        """Return whether one end of a sum is limited."""
        if _is_limited_by(value, facts, end):
            return True
        for atom, factor in value.terms.items():
            if isinstance(atom, FloorDiv) or not isinstance(factor, int):
                if not self.holds(IndexExpr({atom: 1}), facts):
                    return False
            elif not self._limits_variable(atom, facts, end if factor > 0 else -end):
                return False
        return True


def _is_limited_by(value: IndexExpr, facts: Facts, end: int) -> bool:
    """Return whether a fact puts a sum of sizes and numbers at an end of a value."""
    return any((value - fact * end).is_constant for fact in facts)
