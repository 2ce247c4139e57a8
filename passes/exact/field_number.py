"""A residue as a number in Python, for operators that numpy defines.

It is computed here independently of `field.py`, which translates kernels, to the same residues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from numbers import Rational

import numpy as np

from mirlo.passes.exact.arithmetic import LOG2_E
from mirlo.passes.exact.field import EXPONENTIAL, HASH_KEY, ORDER_FACTOR, ORDER_SHIFT, hash_key
from mirlo.passes.exact.ir_text import ROUND_TABLES
from mirlo.passes.exact.memory import Array
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.primes import EXPONENTS, INFINITY, MINUS_INFINITY, NAN, P, Plane
from mirlo.runtime.records import dataclass

_WORD = 1 << 64


@dataclass(frozen=True)
class NumberField:
    """The planes and the order of the residues of a round."""

    moduli: tuple[Plane, ...]
    factor: int
    shift: int
    seed: int
    """The key of the hashes of the round."""

    primes: tuple[int, ...]
    """The moduli as numbers."""
    base: int
    """What exponentials are powers of."""

    @staticmethod
    def of_round(moduli: tuple[Plane, ...], table: Array) -> NumberField:
        factor, shift, seed, base = (int(table[at]) for at in (ORDER_FACTOR, ORDER_SHIFT, HASH_KEY, ROUND_TABLES + 1))
        return NumberField(moduli, factor, shift, seed, tuple(plane.modulus for plane in moduli), base)

    def key(self, residue: int) -> int:
        """Return the rank of a residue in the order: the least value, those of the field, the greatest, NaN."""
        return residue if residue < 0 or residue >= P else (residue * self.factor + self.shift) % P

    def function(self, name: str, x: FieldNumber) -> FieldNumber:
        """Return a residue that depends on the operand and the round, for a function without another meaning."""
        return FieldNumber(self, tuple(self._hashed(x.residues[0], hash_key(name), plane) for plane in self.moduli))

    def power_of_two(self, x: FieldNumber) -> FieldNumber:
        """Return 2 to the power of a number: a power of the base, whose exponent is the residue modulo Q."""
        if len(self.moduli) == 1:
            raise OutsideError("an exponential, where what it is compared with has none")
        power = 0 if x.is_special else pow(self.base, x.residues[1], P)  # exp(-inf) = 0
        return FieldNumber(self, (power, self._hashed(power, EXPONENTIAL, EXPONENTS)))

    def _hashed(self, x: int, key: int, plane: Plane) -> int:
        x = (x + self.seed) * (0x9E3779B97F4A7C15 + 2 * (key * 0x1F3D5B79 + plane.index * 0x51ED27)) % _WORD
        x = (x ^ (x >> 31)) * 0xBF58476D1CE4E5B9 % _WORD
        return (x >> (64 - plane.bits)) % plane.modulus

    def number(self, value: object) -> FieldNumber:
        """Return a number of Python or numpy as an element of the field."""
        if isinstance(value, FieldNumber):
            return value
        if isinstance(value, (float, np.floating)) and not math.isfinite(value):
            special = NAN if math.isnan(value) else INFINITY if value > 0 else MINUS_INFINITY
            return FieldNumber(self, (special,) * len(self.moduli))
        exact = Fraction(int(value) if isinstance(value, (np.integer, np.bool_)) else value)  # type: ignore[call-overload]
        return FieldNumber(self, tuple(plane.residue(exact) for plane in self.moduli))

    def array(self, planes: list[Array], shape: list[int]) -> Array:
        """Return residues as an array of numbers."""
        numbers = np.empty(len(planes[0]), object)
        numbers[:] = [FieldNumber(self, tuple(map(int, each))) for each in zip(*planes, strict=True)]
        return numbers.reshape(shape)

    def planes(self, numbers: Array) -> list[Array]:
        """Return an array of numbers as residues."""
        residues = [self.number(each).residues for each in numbers.reshape(-1)]
        return [np.array([each[i] for each in residues], np.int64) for i in range(len(self.moduli))]


_Residues = Sequence[int]


def _arithmetic(
    compute: Callable[[_Residues, _Residues, _Residues], _Residues],
) -> Callable[[FieldNumber, object], FieldNumber]:
    """Return the method that computes residues from those of two numbers and the primes.

    Definitions take millions of these steps: nothing is called for a residue.
    """

    def method(left: FieldNumber, other: object) -> FieldNumber:
        field = left.field
        right = other if type(other) is FieldNumber else field.number(other)
        x, y = left.residues, right.residues
        if not 0 <= x[0] < P:
            return left
        if not 0 <= y[0] < P:
            return right
        return FieldNumber(field, tuple(compute(x, y, field.primes)))

    return method


class FieldNumber:
    """An element of the field, or a value outside of it, which stays as it is in sums and products."""

    __slots__ = ("field", "residues")

    def __init__(self, field: NumberField, residues: tuple[int, ...]):
        self.field, self.residues = field, residues

    def __repr__(self) -> str:
        return f"FieldNumber({self.residues})"

    @property
    def is_special(self) -> bool:
        return not 0 <= self.residues[0] < P

    @property
    def key(self) -> int:
        return self.field.key(self.residues[0])

    __add__ = _arithmetic(lambda x, y, primes: [(a + b) % p for a, b, p in zip(x, y, primes, strict=True)])
    __sub__ = _arithmetic(lambda x, y, primes: [(a - b) % p for a, b, p in zip(x, y, primes, strict=True)])
    __mul__ = _arithmetic(lambda x, y, primes: [a * b % p for a, b, p in zip(x, y, primes, strict=True)])
    __truediv__ = _arithmetic(
        lambda x, y, primes: [a * pow(b, p - 2, p) % p for a, b, p in zip(x, y, primes, strict=True)]
    )

    def __radd__(self, other: object) -> FieldNumber:
        return self.field.number(other) + self

    def __rmul__(self, other: object) -> FieldNumber:
        return self.field.number(other) * self

    def __rtruediv__(self, other: object) -> FieldNumber:
        return self.field.number(other) / self

    def __rsub__(self, other: object) -> FieldNumber:
        return self.field.number(other) - self

    def __neg__(self) -> FieldNumber:
        return self.field.number(0) - self

    def __abs__(self) -> FieldNumber:
        return max(self, -self)

    def __lt__(self, other: object) -> bool:
        return self.key < self.field.number(other).key

    def __le__(self, other: object) -> bool:
        return self.key <= self.field.number(other).key

    def __gt__(self, other: object) -> bool:
        return self.key > self.field.number(other).key

    def __ge__(self, other: object) -> bool:
        return self.key >= self.field.number(other).key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (FieldNumber, Rational, float, np.number)) and (
            self.residues[0] == self.field.number(other).residues[0]
        )

    def __hash__(self) -> int:
        return hash(self.residues)

    def __bool__(self) -> bool:
        return self.residues[0] != 0

    def __pow__(self, exponent: object) -> FieldNumber:
        halves = 2 * Fraction(exponent) if isinstance(exponent, (Rational, float)) else Fraction(1, 2)
        if halves.denominator != 1:
            raise OutsideError("a power by other than a multiple of a half")
        whole, half = divmod(abs(int(halves)), 2)
        result = self.sqrt() if half else self.field.number(1)
        for _ in range(whole):
            result = result * self
        return 1 / result if halves < 0 else result

    # Functions of numpy on arrays of objects call the methods of their names.

    def exp2(self) -> FieldNumber:
        return self.field.power_of_two(self)

    def exp(self) -> FieldNumber:
        return self.field.power_of_two(self * LOG2_E)

    def expm1(self) -> FieldNumber:
        return self.exp() - 1

    def fabs(self) -> FieldNumber:
        return abs(self)

    def rint(self) -> FieldNumber:
        return self.field.function("roundeven", self)

    def sqrt(self) -> FieldNumber:
        return self.field.function("sqrt", self)

    def tanh(self) -> FieldNumber:
        return self.field.function("tanh", self)

    def log(self) -> FieldNumber:
        return self.field.function("log", self)

    def floor(self) -> FieldNumber:
        return self.field.function("floor", self)

    def ceil(self) -> FieldNumber:
        return self.field.function("ceil", self)

    def __int__(self) -> int:
        """Return the number as a signed integer of 32 bits."""
        return self.field.function("fptosi", self).residues[0]

    def __float__(self) -> float:
        raise OutsideError("a residue as a float of Python; numpy's functions, such as np.exp, take residues")
