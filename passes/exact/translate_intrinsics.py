"""Translations of tir's intrinsics, and of sizes."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import parse
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.ir_text import FunctionText
from mirlo.passes.exact.translator import KernelTranslator, translates
from mirlo.passes.exact.values import FloatValue, IntValue, llvm_type

EXPONENTIALS = ("tir.exp", "tir.exp2", "tir.expm1", "tir.sigmoid")
LARGEST_EXPONENT = 8
"""The greatest constant exponent of powers that are products."""
CLASSES = ("isnan", "isinf", "isfinite")
_FLOAT_FUNCTIONS = [
    f"tir.{row.name}" for row in INTRINSICS.values() if row.operands == "float" and row.result == "same"
]
_MATH = {"math.absf": "abs", "math.roundeven": "roundeven", "math.fma": "fma"}
"""Operations of `math`, and the intrinsics that they are."""
_SATURATING = {"sat_adds": "sadd", "sat_addu": "uadd", "sat_subs": "ssub", "sat_subu": "usub"}


@translates("tir.size")
def size(t: KernelTranslator, op: ir.Operation) -> None:
    known = t.dim(parse(op.opview.dim))
    t.set(op, known if isinstance(known, IntValue) else t.index(known))


@translates(*_FLOAT_FUNCTIONS)
def float_function(t: KernelTranslator, op: ir.Operation) -> None:
    operands = t.float_operands(op)
    exponent = _constant_of(op.operands[1]) if op.name == "tir.pow" else None
    if exponent is not None and (2 * exponent).is_integer() and abs(exponent) <= LARGEST_EXPONENT:
        t.set(op, _power(t.arithmetic, t.f, operands[0], int(2 * exponent)))
        return
    t.set(op, _function(t.arithmetic, t.f, op.name.partition(".")[2], operands))


def _constant_of(value: ir.Value) -> float | None:
    """Return the number that a value is in all lanes, if it is a constant."""
    if not isinstance(value, ir.OpResult):
        return None
    op = value.owner.operation
    if op.name == "vector.broadcast":
        return _constant_of(op.operands[0])
    if op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        return float(attribute.get_splat_value().value) if attribute.is_splat else None
    return float(ir.FloatAttr(attribute).value)


def _power(w: Arithmetic, f: FunctionText, x: FloatValue, halves: int) -> FloatValue:
    """Return a power by a multiple of a half: a product, perhaps of a root, perhaps its inverse."""
    one = w.constant(f, 1.0, x.lanes)
    whole, half = divmod(abs(halves), 2)
    result = w.function(f, "sqrt", [x]) if half else one
    for _ in range(whole):
        result = w.mul(f, result, x)
    return w.div(f, one, result) if halves < 0 else result


def _function(w: Arithmetic, f: FunctionText, name: str, operands: list[FloatValue]) -> FloatValue:
    x = operands[0]
    if name == "exp":
        return w.exp(f, x)
    if name == "exp2":
        return w.exp2(f, x)
    if name == "abs":
        return w.absolute(f, x)
    if name in ("fma", "fmuladd"):
        return w.fma(f, *operands)
    one = w.constant(f, 1.0, x.lanes)
    if name == "expm1":
        return w.sub(f, w.exp(f, x), one)
    if name == "sigmoid":
        return w.div(f, one, w.add(f, one, w.exp(f, w.neg(f, x))))
    if name == "rsqrt":
        return w.div(f, one, w.function(f, "sqrt", operands))
    return w.function(f, name, operands)


@translates(*_MATH)
def math_function(t: KernelTranslator, op: ir.Operation) -> None:
    """Emit an operation of `math` that kernels have before their intrinsics are lowered."""
    t.set(op, _function(t.arithmetic, t.f, _MATH[op.name], t.float_operands(op)))


@translates(*(f"tir.{name}" for name in CLASSES))
def classification(t: KernelTranslator, op: ir.Operation) -> None:
    t.set(op, t.arithmetic.classify(t.f, op.name.partition(".")[2], t.floats(op.operands[0])))


@translates(*(f"tir.{name}" for name in _SATURATING))
def saturating(t: KernelTranslator, op: ir.Operation) -> None:
    a, b = t.int_operands(op)
    name = _SATURATING[op.name.partition(".")[2]]
    t.set(op, IntValue(t.f.extreme(f"{name}.sat", a.name, b.name, a.bits, a.lanes), a.bits, a.lanes))


@translates("tir.popcount", "tir.clz", "tir.ctz")
def counted_bits(t: KernelTranslator, op: ir.Operation) -> None:
    x = t.ints(op.operands[0])
    name = {"popcount": "ctpop", "clz": "ctlz", "ctz": "cttz"}[op.name.partition(".")[2]]
    kind = llvm_type(f"i{x.bits}", x.lanes)
    suffix = f"i{x.bits}" if x.lanes is None else f"v{x.lanes}i{x.bits}"
    arguments = [(kind, x.name), *([] if name == "ctpop" else [("i1", "false")])]
    t.set(op, IntValue(t.f.call(kind, f"llvm.{name}.{suffix}", *arguments), x.bits, x.lanes))


@translates("tir.shl", "tir.shrs", "tir.shru")
def guarded_shift(t: KernelTranslator, op: ir.Operation) -> None:
    x, by = t.int_operands(op)
    width = IntValue(t.f.constant(x.bits, x.bits, x.lanes), x.bits, x.lanes)
    last = IntValue(t.f.constant(x.bits - 1, x.bits, x.lanes), x.bits, x.lanes)
    held = IntValue(t.f.extreme("umin", by.name, last.name, x.bits, x.lanes), x.bits, x.lanes)
    moved = t.arith({"tir.shl": "shl", "tir.shrs": "ashr", "tir.shru": "lshr"}[op.name], x, held)
    zero = IntValue(t.f.constant(0, x.bits, x.lanes), x.bits, x.lanes)
    t.set(op, moved if op.name == "tir.shrs" else t.select(t.compare("ult", by, width), moved, zero))
