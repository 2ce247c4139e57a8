"""Residues modulo a prime in place of floats: their order in a round, constants, and products of matrices.

A register of 32 bits that is a float has its residue. 16-bit floats keep theirs as long as they are in registers of
their own; in memory, and packed in pairs, they have its low 16 bits.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from mirlo.passes.exact.primes import VALUES, P
from mirlo.runtime.records import dataclass
from mirlo.testing.ptx.errors import PtxError
from mirlo.testing.ptx.text import Imm
from mirlo.testing.ptx.types import TYPES, Array

HALVES = ("f16", "bf16")
WORDS = ("f32", "tf32")
"""Kinds of 32 bits."""
HALF = 16
"""Bits of those of 16."""


UNKNOWN = 1 << 31
"""Above all residues: marks 16 bits that are an integer, or a float that the definition does not have."""


class MeaninglessError(PtxError):
    """An instruction without a meaning on residues."""


@dataclass(frozen=True)
class MatrixFactor:
    """Matrices that a unit multiplies, by their elements."""

    numbers: Array
    kind: str
    is_transposed: bool = False


@dataclass
class Residues:
    """The order of residues in the round that is executed."""

    factor: int = 1
    shift: int = 0
    constants: frozenset[float] | None = None
    """The floats that instructions may have; others are of approximations, or round. None for all."""
    half: str | None = None
    """The type of 16-bit floats, if there is one: their constants are written as bits."""

    def key(self, numbers: Array) -> Array:
        """Return the ranks of residues in the order."""
        return (numbers * np.uint64(self.factor) + np.uint64(self.shift)) % np.uint64(P)

    def constant(self, value: Imm) -> Array:
        """Return a float that is part of an instruction."""
        size = value.float_width // 8
        return self._residue(float(np.array([value.bits], f"u{size}").view(f"f{size}")[0]))

    def half_constant(self, value: Imm) -> Array:
        """Return 16 bits that are part of an instruction: a float of the definition, else `UNKNOWN` and these bits."""
        bits = np.array([value.bits], np.uint16)
        number = float("nan") if self.half is None else float(bits.view(TYPES[self.half])[0])
        if number and number not in (self.constants or ()):
            return bits.astype(np.uint32) | np.uint32(UNKNOWN)
        return self._residue(number)

    def _residue(self, number: float) -> Array:
        if not np.isfinite(number):
            raise MeaninglessError(f"the constant {number}")
        if self.constants is not None and number and number not in self.constants:
            raise MeaninglessError(f"the constant {number}, which its definition does not have")
        return np.array([VALUES.residue(Fraction(number))], np.uint32)

    def product(self, left: MatrixFactor, right: MatrixFactor, sums: Array, sign: int = 1) -> Array:
        """Return sums plus a product of matrices, as bits."""
        wide, other = _numbers(left).astype(np.float64), _numbers(right)
        # a sum of up to 32 products of 31 and 16 bits is exact as a 64-bit float
        halves = (other & ((1 << HALF) - 1), other >> HALF)
        low, high = ((wide @ half.astype(np.float64)).astype(np.int64) % P for half in halves)
        total = (low + (high << HALF)) % P
        result: Array = ((sums.astype(np.int64) + sign * total) % P).astype(np.uint32)
        return result


def _numbers(factor: MatrixFactor) -> Array:
    if factor.kind not in (*HALVES, *WORDS):
        raise MeaninglessError(f"a product of {factor.kind}")
    bits = np.ascontiguousarray(factor.numbers).view(f"u{TYPES[factor.kind].itemsize}").astype(np.int64) % P
    return bits.swapaxes(-1, -2) if factor.is_transposed else bits
