"""The two prime fields in which kernels are compared.

P = 2Q + 1: a residue modulo Q is an exponent of an element of order Q modulo P, so that exp(x + y) = exp(x) exp(y)
holds exactly for values that have a residue modulo both.
"""

from __future__ import annotations

from fractions import Fraction

from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class Plane:
    """A prime modulus 2^bits - c: numbers are folded by 2^bits = c."""

    index: int
    modulus: int
    bits: int
    c: int

    def residue(self, value: Fraction) -> int:
        """Return a rational number modulo the prime: denominators of floats are powers of two."""
        return value.numerator * pow(value.denominator, -1, self.modulus) % self.modulus


VALUES = Plane(0, 2**31 - 69, 31, 69)
EXPONENTS = Plane(1, 2**30 - 35, 30, 35)
P, Q = VALUES.modulus, EXPONENTS.modulus

MINUS_INFINITY, INFINITY, NAN = -1, 1 << 40, 1 << 41
"""Values outside of the field. As unsigned numbers all are at least P."""
