"""Recognition of decomposed GELU: x / 2 * (1 + erf(x / sqrt 2)), or with its tanh approximation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field

from mirlo.dialects.bindings import ir
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import Rewriter, beside, defining
from mirlo.passes.rules import Decline, decline, recognize
from mirlo.runtime.records import dataclass

_CLOSE = 1e-3
"""Tolerance for constants in models that were stored as 16-bit floats."""
_DEEPEST = 6


@dataclass
class _Product:
    """A constant, times a power of x, times other values."""

    number: float = 1.0
    power: int = 0
    others: list[ir.Value] = field(default_factory=list)

    def is_(self, number: float, power: int, others: int = 0) -> bool:
        return math.isclose(self.number, number, rel_tol=_CLOSE) and (self.power, len(self.others)) == (power, others)


@recognize("relax.multiply")
def gelu(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Replace x * 0.5 * (1 + erf(x / sqrt 2)), in any order, and its tanh approximation, by GELU."""
    for term in _product(op.output, None, b).others:
        for x, approximate in _arguments(term, b):
            if x.type == op.output.type and beside(term, b) and _product(op.output, x, b).is_(0.5, 1, 1):
                return b.emit(OPS["gelu"], x, approximate=approximate)
    return decline("it is not a product of x, one half and 1 + erf or 1 + tanh")


def _arguments(term: ir.Value, b: Rewriter) -> Iterator[tuple[ir.Value, str]]:
    """Yield candidates for x in 1 + erf(..) or 1 + tanh(..), with the approximation."""
    total = defining(term, "relax.add")
    if total is None:
        return
    for one, function in ((total.lhs, total.rhs), (total.rhs, total.lhs)):
        if b.splat(one) != 1:
            continue
        erf, tanh = defining(function, "relax.erf"), defining(function, "relax.tanh")
        if erf is not None:
            scaled = defining(erf.x, "relax.divide") or defining(erf.x, "relax.multiply")
            for x in () if scaled is None else (scaled.lhs, scaled.rhs):
                if _product(erf.x, x, b).is_(math.sqrt(0.5), 1):
                    yield x, "none"
        if tanh is not None:
            yield from ((x, "tanh") for x in _cubic(tanh.x, b))


def _cubic(value: ir.Value, b: Rewriter) -> Iterator[ir.Value]:
    """Yield the x of sqrt(2 / pi) * (x + 0.044715 * x^3)."""
    scaled = _product(value, None, b)
    if not scaled.is_(math.sqrt(2 / math.pi), 0, 1):
        return
    total = defining(scaled.others[0], "relax.add")
    if total is not None:
        for x, cube in ((total.lhs, total.rhs), (total.rhs, total.lhs)):
            if _product(cube, x, b).is_(0.044715, 3):
                yield x


def _product(value: ir.Value, x: ir.Value | None, b: Rewriter, depth: int = 0) -> _Product:
    """Decompose a value into the operands of a product; x is not decomposed."""
    if x is not None and value == x:
        return _Product(power=1)
    number = b.splat(value)
    if number is not None:
        return _Product(number)
    parts: list[tuple[ir.Value, int]] = []
    if depth < _DEEPEST:
        parts = _factors_of(value, b)
    if not parts:
        return _Product(others=[value])
    result = _Product()
    for part, exponent in parts:
        inner = _product(part, x, b, depth + 1)
        if exponent < 0 and (inner.power or inner.others or inner.number == 0):
            return _Product(others=[value])
        result.number *= inner.number**exponent
        result.power += inner.power * exponent
        result.others += inner.others * max(exponent, 0)
    return result


def _factors_of(value: ir.Value, b: Rewriter) -> list[tuple[ir.Value, int]]:
    """Return the operands of a product, quotient or power, with their exponents."""
    if (product := defining(value, "relax.multiply")) is not None:
        return [(product.lhs, 1), (product.rhs, 1)]
    if (quotient := defining(value, "relax.divide")) is not None:
        return [(quotient.lhs, 1), (quotient.rhs, -1)]
    if (square := defining(value, "relax.square")) is not None:
        return [(square.x, 2)]
    power = defining(value, "relax.power")
    exponent = None if power is None else b.splat(power.rhs)
    return [(power.lhs, int(exponent))] if power is not None and exponent in (2, 3) else []
