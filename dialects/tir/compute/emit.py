"""Emission of scalar operations in the body of a block from expressions."""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.core.value import Value, compare, create, emit_constant
from mirlo.dialects.tir.compute.expr import BOOL, INDEX, Expr
from mirlo.dialects.tir.intrinsics import emit as emit_intrinsic

_FLOAT_OPS = {"add": "addf", "sub": "subf", "mul": "mulf", "div": "divf", "max": "maximumf", "min": "minimumf"}
_CONTRACTED = ("addf", "subf", "mulf")
_INT_OPS = {
    "add": "addi", "sub": "subi", "mul": "muli", "and": "andi", "or": "ori", "xor": "xori", "shl": "shli",
}  # fmt: skip
_SIGNED_OPS = {"div": "divsi", "floordiv": "floordivsi", "max": "maxsi", "min": "minsi", "shr": "shrsi"}
_UNSIGNED_OPS = {"div": "divui", "floordiv": "divui", "max": "maxui", "min": "minui", "shr": "shrui", "mod": "remui"}


def scalar_type(element: DType) -> ir.Type:
    """Return the MLIR type in which a scalar of this element type is computed."""
    return ir.Type.parse("i1" if element is BOOL else element.compute)


__all__ = ["BodyEmitter", "convert", "create", "emit_constant", "emit_intrinsic", "scalar_type"]


class BodyEmitter:
    """Emitter of expressions at the insertion point, each distinct one once.

    `leaf` returns the values of axes, loads and accumulators.
    """

    def __init__(self, leaf: Callable[[Expr, BodyEmitter], ir.Value]):
        self.leaf = leaf
        self.numbers: dict[tuple[object, ...], int] = {}
        self.known: dict[int, tuple[Expr, int]] = {}
        self.done: dict[int, ir.Value] = {}
        self.contract = ir.Attribute.parse("#arith.fastmath<contract>")

    def emit(self, expr: Expr) -> ir.Value:
        number = self._number(expr)
        value = self.done.get(number)
        if value is None:
            value = self.done[number] = self._emit(expr)
        return value

    def _number(self, expr: Expr) -> int:
        """Return a value number per distinct computation, so that comparing two does not walk their operands."""
        emitted = self.known.get(id(expr))
        if emitted is not None:
            return emitted[1]
        data = repr(expr.data) if isinstance(expr.data, float) else expr.data
        key = (expr.op, expr.dtype.name, data, tuple(map(self._number, expr.args)))
        number = self.numbers.setdefault(key, len(self.numbers))
        self.known[id(expr)] = (expr, number)
        return number

    def _emit(self, expr: Expr) -> ir.Value:
        if expr.op == "const":
            return emit_constant(expr.data, scalar_type(expr.dtype))
        if expr.op == "value":
            result: ir.Value = expr.data
            return result
        if expr.op == "size":
            return create("tir.size", ir.IndexType.get(), dim=ir.StringAttr.get(str(expr.data)))
        if expr.op in ("axis", "load", "acc"):
            return self.leaf(expr, self)
        args = [self.emit(arg) for arg in expr.args]
        handler = getattr(self, f"_emit_{expr.op}", None)
        return handler(expr, *args) if handler else self._emit_arithmetic(expr, *args)

    def _emit_arithmetic(self, expr: Expr, a: ir.Value, b: ir.Value) -> ir.Value:
        element = expr.dtype
        if element.is_float:
            if expr.op == "floordiv":
                return emit_intrinsic("floor", create("arith.divf", a.type, a, b))
            name = _FLOAT_OPS[expr.op]
            flags = {"fastmath": self.contract} if name in _CONTRACTED else {}
            return create(f"arith.{name}", a.type, a, b, **flags)
        specific = _UNSIGNED_OPS if element.is_unsigned else _SIGNED_OPS
        name = _INT_OPS.get(expr.op) or specific[expr.op]
        return create(f"arith.{name}", a.type, a, b)

    def _emit_mod(self, expr: Expr, a: ir.Value, b: ir.Value) -> ir.Value:
        if expr.dtype.is_unsigned:
            return create("arith.remui", a.type, a, b)
        # Python's remainder has the sign of the divisor.
        if expr.dtype.is_float:
            return self._float_mod(a, b)
        quotient = create("arith.floordivsi", a.type, a, b)
        return Value(a) - quotient * b

    def _float_mod(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Emit a remainder, exact for large quotients, numpy's for infinities; a zero has the divisor's sign."""
        i1, zero = ir.IntegerType.get_signless(1), emit_constant(0.0, a.type)
        rest = emit_intrinsic("fmod", a, b)
        crosses = create("arith.xori", i1, compare("lt", rest, zero), compare("lt", b, zero))
        moved = create("arith.select", a.type, crosses, Value(rest) + b, rest)
        return create("arith.select", a.type, compare("eq", rest, zero), emit_intrinsic("copysign", zero, b), moved)

    def _emit_neg(self, expr: Expr, a: ir.Value) -> ir.Value:
        if expr.dtype.is_float:
            return create("arith.negf", a.type, a)
        return create("arith.subi", a.type, emit_constant(0, a.type), a)

    def _emit_cmp(self, expr: Expr, a: ir.Value, b: ir.Value) -> ir.Value:
        is_unsigned = expr.args[0].dtype.is_unsigned and expr.data not in ("eq", "ne")
        return compare(f"u{expr.data}" if is_unsigned else expr.data, a, b)

    def _emit_select(self, expr: Expr, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        return create("arith.select", a.type, condition, a, b)

    def _emit_intrinsic(self, expr: Expr, *args: ir.Value) -> ir.Value:
        return emit_intrinsic(expr.data, *args)

    def _emit_op(self, expr: Expr, *args: ir.Value) -> ir.Value:
        name, attributes = expr.data
        parsed = {key: ir.Attribute.parse(text) for key, text in attributes}
        return create(name, scalar_type(expr.dtype), *args, **parsed)

    def _emit_bitcast(self, expr: Expr, a: ir.Value) -> ir.Value:
        return create("arith.bitcast", scalar_type(expr.dtype), a)

    def _emit_cast(self, expr: Expr, a: ir.Value) -> ir.Value:
        return convert(a, expr.args[0].dtype, expr.dtype)


def convert(value: ir.Value, source: DType, target: DType) -> ir.Value:
    """Convert a scalar to another element type."""
    result = scalar_type(target)
    if target is BOOL:
        return _to_bool(value, source)
    if INDEX in (source, target) and not (source.is_float or target.is_float):
        name = "arith.index_castui" if source.is_unsigned else "arith.index_cast"
        return create(name, result, value)
    if source is INDEX:
        return convert(create("arith.index_cast", scalar_type(DTYPES["i64"]), value), DTYPES["i64"], target)
    if target is INDEX:
        return create("arith.index_cast", result, convert(value, source, DTYPES["i64"]))
    if source.is_float and target.is_float:
        return _float_to_float(value, result)
    if source.is_float:
        return _float_to_int(value, target, result)
    if target.is_float:
        return create("arith.uitofp" if source.is_unsigned else "arith.sitofp", result, value)
    return _int_to_int(value, source, result)


def _to_bool(value: ir.Value, source: DType) -> ir.Value:
    return compare("ne", value, emit_constant(0, value.type))


def _float_to_float(value: ir.Value, result: ir.Type) -> ir.Value:
    if value.type == result:
        return value
    if value.type.width < result.width:
        return create("arith.extf", result, value)
    f32 = ir.F32Type.get()
    if value.type.width == result.width:  # f16 and bf16
        return create("arith.truncf", result, create("arith.extf", f32, value))
    if value.type.width == 64 and result.width == 16:
        # In two steps: processors have no instruction for it, and not every run-time library has the function.
        return create("arith.truncf", result, create("arith.truncf", f32, value))
    return create("arith.truncf", result, value)


def _float_to_int(value: ir.Value, target: DType, result: ir.Type) -> ir.Value:
    # Narrow integers go through i32, so that out-of-range values wrap as in C and numpy.
    wide = result if result.width >= 32 else ir.IntegerType.get_signless(32)
    unsigned = target.is_unsigned and result.width >= 32
    op = create("arith.fptoui" if unsigned else "arith.fptosi", wide, value)
    return op if wide == result else create("arith.trunci", result, op)


def _int_to_int(value: ir.Value, source: DType, result: ir.Type) -> ir.Value:
    width = value.type.width
    if width == result.width:
        return value
    if width > result.width:
        return create("arith.trunci", result, value)
    return create("arith.extui" if source.is_unsigned else "arith.extsi", result, value)
