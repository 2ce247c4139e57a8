"""The table of intrinsics: pure operations on scalars or vectors. A row is the whole definition.

name: operands, kind of the operands, kind of the result ('same' or 'bool'). Its meaning is the function in
`tools/conformance/meanings.py` and the table in `docs/intrinsics.md`; its lowering is a rule of a target.
"""

from __future__ import annotations

import difflib

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.op import OpError, operand, result
from mirlo.dialects.tir.block import TirOp
from mirlo.dialects.tir.own_intrinsics import OWN, emit_own
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class Intrinsic:
    name: str
    arity: int
    operands: str
    """Kinds of the operands: 'float', 'int', or 'float_int', a float and an integer."""
    result: str
    """'same' as the first operand, or 'bool'."""
    doc: str = ""
    """What it computes, of operands named x, y, z."""

    @property
    def operand_kinds(self) -> tuple[str, ...]:
        return ("float", "int") if self.operands == "float_int" else (self.operands,) * self.arity


# name, operands (f: float, i: integer), meaning; '?' after the operands: the result is i1
_ROWS = """
exp       f    e^x
exp2      f    2^x
expm1     f    e^x - 1, accurate near zero
log       f    natural logarithm
log2      f    logarithm to base 2
log10     f    logarithm to base 10
log1p     f    log(1 + x), accurate near zero
sqrt      f    square root
rsqrt     f    1 / sqrt(x)
cbrt      f    cube root, also of negative numbers
sin       f    sine of x radians
cos       f    cosine
tan       f    tangent
asin      f    inverse sine
acos      f    inverse cosine
atan      f    inverse tangent
sinh      f    hyperbolic sine
cosh      f    hyperbolic cosine
tanh      f    hyperbolic tangent
asinh     f    inverse hyperbolic sine
acosh     f    inverse hyperbolic cosine
atanh     f    inverse hyperbolic tangent
erf       f    error function
erfc      f    1 - erf(x), accurate for large x
erfinv    f    inverse of erf, for x from -1 to 1
lgamma    f    logarithm of |gamma(x)|
tgamma    f    gamma function, (x - 1)!
digamma   f    derivative of log gamma(x)
j0        f    Bessel function of the first kind of order 0
j1        f    Bessel function of the first kind of order 1
i0        f    modified Bessel function of the first kind of order 0
i0e       f    e^-|x| · i0(x)
i1        f    modified Bessel function of the first kind of order 1
i1e       f    e^-|x| · i1(x)
sigmoid   f    1 / (1 + e^-x)
floor     f    largest integer not above x
ceil      f    smallest integer not below x
trunc     f    x without its fraction
round     f    nearest integer, halves away from zero
roundeven f    nearest integer, halves to even
abs       f    x without its sign
pow       ff   x^y, with the special cases of C's pow
atan2     ff   angle of the point (y, x): the first operand is the height
fmod      ff   x - n·y with n = trunc(x / y), exact; sign of x
remainder ff   x - n·y with n = x / y rounded to even, exact (C's remainder, not Python's %)
hypot     ff   sqrt(x² + y²) without overflow
copysign  ff   x with the sign of y
nextafter ff   next number of the format from x towards y
fma       fff  x·y + z, rounded once
fmuladd   fff  x·y + z, rounded once where the processor has an instruction for it, else twice
ldexp     fi   x · 2^y, rounded once
isnan     f?   x is NaN
isinf     f?   x is an infinity
isfinite  f?   x is neither NaN nor an infinity
popcount  i    number of one bits
clz       i    number of zero bits above the highest one; the width, of zero
ctz       i    number of zero bits below the lowest one; the width, of zero
sat_adds  ii   x + y as signed integers, saturated to the range of the type
sat_addu  ii   x + y as unsigned integers, saturated
sat_subs  ii   x - y as signed integers, saturated
sat_subu  ii   x - y as unsigned integers, zero where that is negative
shl       ii   x · 2^y, zero where y (unsigned) is the width or more
shrs      ii   signed x / 2^y, rounded down; 0 or -1 where y (unsigned) is the width or more
shru      ii   unsigned x / 2^y, rounded down; zero where y (unsigned) is the width or more
fixed_mul iii  signed x · y / 2^z, halves up, wrapped to the type; z is unsigned, at most twice the width less 2
"""


def _row(line: str) -> Intrinsic:
    name, operands, doc = line.split(maxsplit=2)
    kinds = operands.rstrip("?")
    kind = "float_int" if kinds == "fi" else {"f": "float", "i": "int"}[kinds[0]]
    return Intrinsic(name, len(kinds), kind, "bool" if operands.endswith("?") else "same", doc)


INTRINSICS: dict[str, Intrinsic] = {row.name: row for row in map(_row, _ROWS.strip().splitlines())}


SINGLE_INSTRUCTIONS = frozenset({"floor", "ceil", "trunc", "roundeven", "abs", "sqrt", "fma", "fmuladd"})
"""Intrinsics that most processors have an instruction for; the others expand to a dozen operations or more."""


def _element(mlir_type: ir.Type) -> ir.Type:
    return mlir_type.element_type if isinstance(mlir_type, ir.VectorType) else mlir_type


def _shape(mlir_type: ir.Type) -> tuple[int, ...] | None:
    return tuple(mlir_type.shape) if isinstance(mlir_type, ir.VectorType) else None


def _is_float(mlir_type: ir.Type) -> bool:
    return isinstance(mlir_type, ir.FloatType)


def _is_int(mlir_type: ir.Type) -> bool:
    return isinstance(mlir_type, (ir.IntegerType, ir.IndexType))


class IntrinsicOp(TirOp):
    """Elementwise on scalars or vectors of one shape."""

    ROW: Intrinsic

    def check(self) -> None:
        types = [value.type for value in self.operation.operands]
        for i, (kind, actual) in enumerate(zip(self.ROW.operand_kinds, types, strict=True)):
            wanted = _is_float if kind == "float" else _is_int
            if not wanted(_element(actual)):
                words = "floating point" if kind == "float" else "integer"
                raise OpError(f"operand #{i} must be {words}, a scalar or a vector, got {actual}")
        if self.ROW.operands == "float_int":
            if _shape(types[0]) != _shape(types[1]):
                raise OpError(f"operands must have one shape, got {types[0]} and {types[1]}")
        elif any(t != types[0] for t in types):
            raise OpError(f"operands must have one type, got {', '.join(map(str, types))}")
        actual = self.operation.results[0].type
        with self.operation.location:
            expected = result_type(self.ROW, types[0])
        if actual != expected:
            raise OpError(f"result must be {expected}, got {actual}")


def _define(row: Intrinsic) -> type[IntrinsicOp]:
    fields = {f"x{i}": operand() for i in range(row.arity)}
    for name, field in fields.items():
        field.__set_name__(IntrinsicOp, name)
    body = {**fields, "output": result(), "ROW": row, "__module__": __name__}
    return type(row.name.capitalize(), (IntrinsicOp,), body, name=row.name)


OPS: dict[str, type[IntrinsicOp]] = {name: _define(row) for name, row in INTRINSICS.items()}


def result_type(row: Intrinsic, first: ir.Type) -> ir.Type:
    """Return the MLIR type of the result for a first operand of this type."""
    if row.result == "same":
        return first
    i1 = ir.IntegerType.get_signless(1)
    return ir.VectorType.get(first.shape, i1) if isinstance(first, ir.VectorType) else i1


def emit(name: str, *values: ir.Value) -> ir.Value:
    """Emit the intrinsic `tir.<name>` at the insertion point and return its value."""
    if name in OWN:
        results = emit_own(name, *values).results
        if not len(results):
            raise ValueError(f"intrinsic '{name}' has no result")
        return results[0]
    row = INTRINSICS.get(name)
    if row is None:
        near = difflib.get_close_matches(name, [*INTRINSICS, *OWN], n=1)
        raise ValueError(f"there is no intrinsic 'tir.{name}'{f'; did you mean {near[0]!r}?' if near else ''}")
    if len(values) != row.arity:
        raise ValueError(f"intrinsic 'tir.{name}' takes {row.arity} operands, found {len(values)}")
    return ir.Operation.create(
        f"tir.{name}", results=[result_type(row, values[0].type)], operands=list(values)
    ).results[0]
