"""Arithmetic on sizes while importing: what programs compute from the dims of their inputs.

It is exact, or not done: a result that depends on the values of symbols raises `Undecided`, and the call computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim


class Undecided(Exception):
    """The answer depends on the values of symbols."""


def quotient(total: Dim, part: Dim) -> Dim | None:
    """Return `total / part` if it is exact for all values of the symbols, else None."""
    if part == 0:
        return None
    return D.apply("floordiv", total, part) if D.apply("mod", total, part) == 0 else None


@dataclass(frozen=True)
class SizeArithmetic:
    """Arithmetic of integer operators on dims whose symbols have a least value."""

    least: int

    def is_nonnegative(self, dim: Dim) -> bool:
        """Return whether a dim is never negative."""
        if self.least and not isinstance(dim, int):
            dim = D.substitute(dim, {name: D.symbol(name) + self.least for name in dim.symbols()})
        return D.is_nonnegative(dim)

    def sign(self, dim: Dim) -> int:
        """Return the sign of a dim, which all values of its symbols agree on."""
        if dim == 0:
            return 0
        if self.is_nonnegative(dim - 1):
            return 1
        if self.is_nonnegative(dim * -1 - 1):
            return -1
        raise Undecided

    def divide(self, left: Dim, right: Dim) -> Dim:
        """Return the integer quotient, rounded towards zero."""
        if right == 0:
            raise Undecided
        if isinstance(left, int) and isinstance(right, int):
            return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        exact = quotient(left, right)
        if exact is not None:
            return exact
        if not self.is_nonnegative(right):
            raise Undecided
        if self.is_nonnegative(left):
            return D.apply("floordiv", left, right)
        if isinstance(right, int) and self.is_nonnegative(left + (right - 1)):  # less than one divisor below zero
            return D.maximum(D.apply("floordiv", left, right), 0)
        raise Undecided

    def mod(self, left: Dim, right: Dim) -> Dim:
        """Return the remainder of a floor division, which has the sign of the divisor."""
        if right == 0 or not (isinstance(right, int) or (self.is_nonnegative(left) and self.is_nonnegative(right))):
            raise Undecided
        return D.apply("mod", left, right)

    def fmod(self, left: Dim, right: Dim) -> Dim:
        """Return the remainder of `divide`, which has the sign of the dividend."""
        if isinstance(left, int) and isinstance(right, int) and right:
            return abs(left) % abs(right) * (1 if left >= 0 else -1)
        if not self.is_nonnegative(left) or not self.is_nonnegative(right):
            raise Undecided
        return self.mod(left, right)

    def maximum(self, left: Dim, right: Dim) -> Dim:
        """Return the larger dim: one of the two where that is known."""
        return left if self.is_nonnegative(left - right) else D.maximum(left, right)

    def minimum(self, left: Dim, right: Dim) -> Dim:
        """Return the smaller dim: one of the two where that is known."""
        return right if self.is_nonnegative(left - right) else D.minimum(left, right)

    def equal(self, left: Dim, right: Dim) -> bool:
        """Return whether two dims are equal."""
        return self.sign(left - right) == 0

    def less(self, left: Dim, right: Dim) -> bool:
        """Return whether a dim is less than another; the difference may be zero, but not negative."""
        return not self.is_nonnegative(left - right) and self.sign(right - left) > 0

    def function(self, operator: str) -> Callable[[Dim, Dim], Dim]:
        """Return what an elementwise operator of relax computes of two dims."""
        functions: dict[str, Callable[[Dim, Dim], Dim]] = {
            "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
            "divide": self.divide, "mod": self.mod, "fmod": self.fmod, "maximum": self.maximum,
            "minimum": self.minimum, "equal": self.equal, "not_equal": lambda a, b: not self.equal(a, b),
            "less": self.less, "greater": lambda a, b: self.less(b, a),
            "less_equal": lambda a, b: not self.less(b, a), "greater_equal": lambda a, b: not self.less(a, b),
        }  # fmt: skip
        return functions[operator]


OF_ARRAYS = SizeArithmetic(0)
"""Arithmetic on dims of arrays, which may be empty."""
OF_INPUTS = SizeArithmetic(1)
"""Arithmetic on dims of inputs that are not empty, as programs of JAX have them."""


@dataclass(frozen=True)
class DimFraction:
    """A dim, which may be negative, divided by a power of two."""

    numerator: Dim
    denominator: int = 1

    @staticmethod
    def of(numerator: Dim, denominator: int) -> DimFraction:
        """Return a fraction in lowest terms."""
        terms = [numerator] if isinstance(numerator, int) else [factor for _, factor in numerator.terms]
        common = math.gcd(denominator, *terms)
        return DimFraction(numerator // common, denominator // common)

    def __add__(self, other: DimFraction) -> DimFraction:
        return DimFraction.of(*self._common(other, lambda a, b: a + b))

    def __sub__(self, other: DimFraction) -> DimFraction:
        return DimFraction.of(*self._common(other, lambda a, b: a - b))

    def __mul__(self, other: DimFraction) -> DimFraction:
        if not isinstance(self.numerator, int) and not isinstance(other.numerator, int):
            raise Undecided  # a product of dims may exceed what f32 holds exactly
        return DimFraction.of(self.numerator * other.numerator, self.denominator * other.denominator)

    def __truediv__(self, other: DimFraction) -> DimFraction:
        number = other.numerator
        if not isinstance(number, int) or number <= 0 or number & (number - 1):
            raise Undecided
        return self * DimFraction(other.denominator, number)

    def maximum(self, other: DimFraction) -> DimFraction:
        return DimFraction.of(*self._common(other, D.maximum))

    def minimum(self, other: DimFraction) -> DimFraction:
        return DimFraction.of(*self._common(other, D.minimum))

    def floor(self) -> DimFraction:
        return DimFraction(self.numerator // self.denominator)

    def ceil(self) -> DimFraction:
        return DimFraction(D.ceildiv(self.numerator, self.denominator))

    def truncated(self) -> Dim:
        """Return the integer towards zero."""
        if self.denominator == 1:
            return self.numerator
        if not D.is_nonnegative(self.numerator):
            raise Undecided
        return self.numerator // self.denominator

    def _common(self, other: DimFraction, apply: Callable[[Dim, Dim], Dim]) -> tuple[Dim, int]:
        """Return the result of a function of both numerators over a common denominator."""
        common = math.lcm(self.denominator, other.denominator)
        left, right = (each.numerator * (common // each.denominator) for each in (self, other))
        return apply(left, right), common
