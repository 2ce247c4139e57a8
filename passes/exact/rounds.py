"""The constants of a round: the order of residues, the key of hashes, the base of powers."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mirlo.passes.exact.field import HASH_KEY, ORDER_FACTOR, ORDER_SHIFT
from mirlo.passes.exact.ir_text import ROUND_TABLES, TABLE_WORDS, WINDOW, WINDOWS
from mirlo.passes.exact.primes import VALUES, P
from mirlo.passes.exact.translate_memory import ADDRESS
from mirlo.runtime.records import dataclass

_TRIES = 200_000
_ORDERED = 4
"""The most constants whose order is kept: more are unlikely to be in order by chance."""
_SHARES, _CUT_SHARES = (0.05, 0.2), (0.3, 0.4)
"""The least and the greatest share of residues below the first constant, and above the last one."""


@dataclass(frozen=True)
class OrderBounds:
    """The constants between which a kernel keeps its results."""

    least: float | None
    greatest: float | None
    are_ends: bool
    """Whether all numbers are between them in this round; otherwise most are not."""


def round_constants(
    seed: int, compared: Sequence[float], bounds: OrderBounds | None = None, has_powers: bool = True
) -> npt.NDArray[np.int64]:
    """Return the constants of a round, with those of which exponentials are products if `has_powers`.

    The constants that a kernel compares with keep their order: the first one is low and the last one high, so that most
    values are between them, as clip passes them on, and a tenth on each side. A single one lies low or high in turn.
    Where they are known `bounds` of results, all values are between them in one round, and most are not in others.
    """
    rng = np.random.default_rng(seed)
    table = np.zeros(TABLE_WORDS, np.int64)
    if bounds is not None and bounds.are_ends:
        order = _order_with_ends(rng, bounds)
    elif bounds is not None:
        shares = _SHARES if len(compared) == 1 else _CUT_SHARES
        order = _order(rng, compared, bounds.least is None, shares)
    else:
        order = _order(rng, compared, seed % 2 == 0, _SHARES)
    table[ORDER_FACTOR], table[ORDER_SHIFT] = order
    table[HASH_KEY] = rng.integers(0, 2**62)
    table[ADDRESS] = 0 if seed % 2 == 0 else 4 * int(rng.integers(1, 1 << 20)) + 4
    base = pow(int(rng.integers(2, P - 1)), 2, P)  # a square: of order Q
    for window in range(WINDOWS if has_powers else 0):
        factor, power = pow(base, 1 << (WINDOW * window), P), 1
        for digit in range(1 << WINDOW):
            table[ROUND_TABLES + (window << WINDOW) + digit] = power
            power = power * factor % P
    return table


def _order_with_ends(rng: np.random.Generator, bounds: OrderBounds) -> tuple[int, int]:
    """Return a and b of an order by a * x + b mod P in which bounds are 0 and P - 1."""
    least, greatest = (None if x is None else VALUES.residue(Fraction(x)) for x in (bounds.least, bounds.greatest))
    a = int(rng.integers(1, P))
    if least is not None and greatest is not None:
        a = -pow(greatest - least, -1, P) % P
    return a, -a * least % P if least is not None else (-1 - a * (greatest or 0)) % P


def _order(
    rng: np.random.Generator, compared: Sequence[float], is_low: bool, shares: tuple[float, float]
) -> tuple[int, int]:
    """Return a and b of the order by a * x + b mod P."""
    residues = [VALUES.residue(Fraction(value)) for value in sorted(compared)]
    for _ in range(_TRIES):
        a, b = int(rng.integers(1, P)), int(rng.integers(0, P))
        keys = [(a * residue + b) % P / P for residue in residues]
        if not keys or len(keys) > _ORDERED or _is_in_order(keys, is_low, shares):
            break
    return a, b


def _is_in_order(keys: Sequence[float], is_low: bool, shares: tuple[float, float]) -> bool:
    least, most = shares
    first, last = least < keys[0] < most, least < 1 - keys[-1] < most
    if len(keys) == 1:
        return first if is_low else last
    gap = 1 / (6 * (len(keys) + 1))
    return first and last and all(y - x >= gap for x, y in zip(keys, keys[1:], strict=False))
