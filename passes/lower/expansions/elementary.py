"""Shared parts of the rules for elementary functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.passes.rules import Decline, decline, intrinsic

if TYPE_CHECKING:
    from mirlo.passes.lower.intrinsics import IntrinsicCall

INFINITY = math.inf
NAN = math.nan


def elementary(name: str, *kinds: str) -> Callable[[Callable[..., Num]], Callable[..., Num]]:
    """Register `f(b, x, ...)` of Nums as the rule for an intrinsic on these element types; f32 and f64 by default."""
    accepted = kinds or ("f32", "f64")

    def register(function: Callable[..., Num]) -> Callable[..., Num]:
        @functools.wraps(function)
        def rule(op: IntrinsicCall, b: ValueBuilder) -> Decline | Num:
            if op.dtype not in accepted:
                return decline(f"only for {' and '.join(accepted)}", dtype=op.dtype)
            return function(b, *op.nums)

        intrinsic(name)(rule)
        return function

    return register


def is_infinite(b: ValueBuilder, x: Num) -> Num:
    return b.abs(x).equals(INFINITY)


def sign_bit(b: ValueBuilder, x: Num) -> Num:
    """Return the sign bit of x in place, all other bits zero."""
    return b.bits(x) & x.format.sign_bit


def flip_sign(b: ValueBuilder, x: Num, sign: Num) -> Num:
    """Return x, negated where `sign` (as of `sign_bit`) is set."""
    return b.from_bits(b.bits(x) ^ sign, x.kind)


def identity_near_zero(b: ValueBuilder, x: Num, result: Num) -> Num:
    """Return `result`, but x where f(x) rounds to x; keeps the sign of zero."""
    return b.select(b.abs(x) < 2.0 ** -(x.format.fraction // 2 + 1), x, result)
