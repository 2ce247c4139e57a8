"""The two prime fields in which kernels are compared.

P = 2Q + 1: a residue modulo Q is an exponent of an element of order Q modulo P, so that exp(x + y) = exp(x) exp(y)
holds exactly for values that have a residue modulo both.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import numpy.typing as npt

from mirlo.runtime.records import dataclass

_SIGNIFICAND = 53
"""Bits of the significand of a 64-bit float."""
_LEAST_EXPONENT = 1074
"""Its exponents, of fractions below one, are greater than minus this."""


@dataclass(frozen=True)
class Plane:
    """A prime modulus 2^bits - c: numbers are folded by 2^bits = c."""

    index: int
    modulus: int
    bits: int
    c: int

    @property
    def loose(self) -> int:
        """Return the limit of sums of products: a multiple of the modulus, and more than any product of residues."""
        return self.modulus * (self.modulus - 1)

    def reduced(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return products of residues modulo the prime: 2^bits = c, which is faster than a division."""
        low = (1 << self.bits) - 1
        for _ in range(2):
            numbers = (numbers & low) + (numbers >> self.bits) * self.c
        return numbers - (numbers >= self.modulus) * self.modulus

    def residue(self, value: Fraction) -> int:
        """Return a rational number modulo the prime: denominators of floats are powers of two."""
        return value.numerator * pow(value.denominator, -1, self.modulus) % self.modulus

    def residues(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return finite floats modulo the prime, exactly: the significand times a power of two."""
        fractions, exponents = np.frexp(numbers)
        significands = np.ldexp(fractions, _SIGNIFICAND).astype(np.int64) % self.modulus
        residues: npt.NDArray[np.int64] = significands * _powers(self)[exponents + _LEAST_EXPONENT] % self.modulus
        return residues


@cache
def _powers(plane: Plane) -> npt.NDArray[np.int64]:
    """Return the residues of the powers of two that significands of 64-bit floats are multiplied by."""
    exponents = range(-_LEAST_EXPONENT - _SIGNIFICAND, 1026 - _SIGNIFICAND)
    return np.array([plane.residue(Fraction(2) ** exponent) for exponent in exponents], np.int64)


VALUES = Plane(0, 2**31 - 69, 31, 69)
EXPONENTS = Plane(1, 2**30 - 35, 30, 35)
P, Q = VALUES.modulus, EXPONENTS.modulus

RESIDUE = np.dtype(np.int32)
"""The type of residues in memory."""
MINUS_INFINITY, INFINITY, NAN = -1, 2**31 - 2, 2**31 - 1
"""Values outside of the field, in the order of numbers. As unsigned ones all are at least P."""
