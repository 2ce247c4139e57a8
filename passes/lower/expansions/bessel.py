"""Bessel functions of the first kind, j0 and j1, and modified ones, i0 and i1, also scaled by e^-|x|."""

from __future__ import annotations

import math

from mirlo.passes.lower.expansions import bessel_tables as tables
from mirlo.passes.lower.expansions.elementary import INFINITY, elementary
from mirlo.passes.lower.expansions.gamma import on_interval
from mirlo.passes.lower.values import Num, ValueBuilder

FAR = 8.0
"""From here on, Hankel's expansion is used."""


def _wave(b: ValueBuilder, y: Num, order: int) -> Num:
    """Return Hankel's expansion for y ≥ 8: a wave that decays."""
    inverse = FAR / y
    square = inverse * inverse
    p = on_interval(b, square, (tables.P0, tables.P1)[order], 0.0, 1.0)
    q = inverse * on_interval(b, square, (tables.Q0, tables.Q1)[order], 0.0, 1.0)
    sine, cosine = b.call("sin", y), b.call("cos", y)
    both, difference = cosine + sine, sine - cosine
    wave = p * both - q * difference if order == 0 else p * difference + q * both
    decayed = wave / b.sqrt(y * math.pi)
    return b.select(y.equals(INFINITY), 0.0, decayed)


@elementary("j0")
def j0(b: ValueBuilder, x: Num) -> Num:
    y = b.abs(x)
    near = b.clamp_above(y, FAR)
    return b.select(y <= FAR, on_interval(b, near * near, tables.J0, 0.0, FAR**2), _wave(b, y, 0))


@elementary("j1")
def j1(b: ValueBuilder, x: Num) -> Num:
    y = b.abs(x)
    near = b.clamp_above(y, FAR)
    result = b.select(y <= FAR, y * on_interval(b, near * near, tables.J1, 0.0, FAR**2), _wave(b, y, 1))
    return b.select(x < 0.0, -result, b.select(x.equals(0.0), x, result))


def _scaled(b: ValueBuilder, y: Num, order: int) -> Num:
    """Return e^-y · I(y) for y ≥ 0."""
    near = on_interval(b, b.clamp_above(y, FAR), (tables.I0, tables.I1)[order], 0.0, FAR)
    inverse = b.select(y > FAR, FAR / y, 1.0)
    far = on_interval(b, inverse, (tables.I0_FAR, tables.I1_FAR)[order], 0.0, 1.0) / b.sqrt(y)
    return b.select(y <= FAR, near if order == 0 else y * near, far)


def _grown(b: ValueBuilder, y: Num, scaled: Num) -> Num:
    # In two steps: e^y overflows before the result does.
    half = b.call("exp", y * 0.5)
    return b.select(y.equals(INFINITY), INFINITY, (scaled * half) * half)


@elementary("i0e")
def i0e(b: ValueBuilder, x: Num) -> Num:
    return _scaled(b, b.abs(x), 0)


@elementary("i0")
def i0(b: ValueBuilder, x: Num) -> Num:
    y = b.abs(x)
    return _grown(b, y, _scaled(b, y, 0))


def _odd(b: ValueBuilder, x: Num, positive: Num) -> Num:
    return b.select(x < 0.0, -positive, b.select(x.equals(0.0), x, positive))


@elementary("i1e")
def i1e(b: ValueBuilder, x: Num) -> Num:
    return _odd(b, x, _scaled(b, b.abs(x), 1))


@elementary("i1")
def i1(b: ValueBuilder, x: Num) -> Num:
    y = b.abs(x)
    return _odd(b, x, _grown(b, y, _scaled(b, y, 1)))
