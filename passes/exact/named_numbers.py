"""The numbers that rounded constants stand for, as rules of graphs replace x / 3 by x * 0.33333334.

A constant that is the nearest float to a small quotient, or to one times a root or a logarithm that formulas have, is
that number. Two floats never stand for the same one.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np

from mirlo.passes.exact.arithmetic import LOG2_E
from mirlo.passes.exact.double import EXACT_BITS

LARGEST = 512
"""The most that a denominator or a numerator may be."""
LARGEST_OF_ROOTS = 64


def _as_float(number: float) -> Fraction:
    return Fraction(float(np.float32(number)))


_BASES = (*map(_as_float, (math.sqrt(2), math.sqrt(math.pi), math.sqrt(2 / math.pi))), Fraction(LOG2_E))
_ROOTS = tuple(
    (value, element) for base in _BASES for value, element in ((float(base), base), (1 / float(base), 1 / base))
)
"""Numbers, and the elements that stand for them: a root as an f32, and its inverse."""


@cache
def named(value: float) -> Fraction:
    """Return the number that a finite constant of f32 or f64 stands for."""
    exact = Fraction(value)
    if abs(exact.numerator).bit_length() <= EXACT_BITS or exact == 0:
        return exact
    for base, element in _ROOTS:  # a root of two is twice its inverse, which no residue is
        for sign in (1, -1):
            if _is_nearest(value, sign * base):
                return sign * element
    for base, element, largest in ((1.0, Fraction(1), LARGEST), *((b, e, LARGEST_OF_ROOTS) for b, e in _ROOTS)):
        ratio = value / base
        for quotient in (Fraction(ratio).limit_denominator(largest), _inverse(ratio, largest)):
            if quotient and _is_nearest(value, float(quotient) * base):
                return quotient * element
    return exact


def _inverse(ratio: float, largest: int) -> Fraction:
    inverse = Fraction(1 / ratio).limit_denominator(largest)
    return 1 / inverse if inverse else Fraction(0)


def _is_nearest(value: float, number: float) -> bool:
    """Return whether a float is the nearest one to a number, as f32 if it is one."""
    if float(np.float32(value)) == value:
        return float(np.float32(number)) == value
    return number == value
