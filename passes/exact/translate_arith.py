"""Translations of `arith`, `affine` and `ub`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.translator import KernelTranslator, translates
from mirlo.passes.exact.values import (
    FloatValue,
    IntValue,
    Number,
    PackedFloats,
    bits_of,
    element_of,
    is_float,
    lanes_of,
    llvm_type,
)

_INTEGER = {
    "addi": "add", "subi": "sub", "muli": "mul", "divsi": "sdiv", "divui": "udiv", "remsi": "srem", "remui": "urem",
    "andi": "and", "ori": "or", "xori": "xor", "shli": "shl", "shrsi": "ashr", "shrui": "lshr",
}  # fmt: skip
EXTREMES = {"minsi": "smin", "maxsi": "smax", "minui": "umin", "maxui": "umax"}
_FLOAT = {
    "addf": "add", "subf": "sub", "mulf": "mul", "divf": "div", "maximumf": "maximum", "minimumf": "minimum",
    "maxnumf": "maximum", "minnumf": "minimum",
}  # fmt: skip
_INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_FLOAT_PREDICATES = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
)  # fmt: skip
POISON_FLOAT, POISON_INT = 12345.678, 0x5A5A5A5A
"""What stands for a value that is not defined: nothing else is equal to it."""


def _short(op: ir.Operation) -> str:
    return op.name.partition(".")[2]


@translates(*(f"arith.{name}" for name in _INTEGER))
def integer_arithmetic(t: KernelTranslator, op: ir.Operation) -> None:
    if op.name == "arith.andi":
        for value, mask in (op.operands, reversed(op.operands)):
            packed = t.value(value)
            if isinstance(packed, PackedFloats):
                t.set(op, _masked_floats(t, packed, mask))
                return
    a, b = t.int_operands(op)
    t.set(op, t.arith(_INTEGER[_short(op)], a, b))


def _masked_floats(t: KernelTranslator, packed: PackedFloats, mask: ir.Value) -> PackedFloats:
    """Return bits of floats and a constant of which each float is kept, or is zero."""
    owner = mask.owner.operation if isinstance(mask, ir.OpResult) else None
    if owner is None or owner.name != "arith.constant":
        raise OutsideError("bits of floats masked by no constant")
    attribute, lanes = owner.attributes["value"], packed.lanes or 1
    width = bits_of(element_of(mask.type)) // packed.group
    listed = _elements(ir.DenseIntElementsAttr(attribute)) if packed.lanes else [ir.IntegerAttr(attribute).value]
    every = (1 << width) - 1
    parts = [int(number) >> (width * k) & every for number in listed for k in range(packed.group)]
    if not {0, every}.issuperset(parts):
        raise OutsideError("a part of the bits of a float")
    count = lanes * packed.group
    zeros = t.arithmetic.constant(t.f, 0.0, count)
    floats = t.shuffled(packed.floats, zeros, [i if part else count + i for i, part in enumerate(parts)])
    assert isinstance(floats, FloatValue)
    return PackedFloats(floats, packed.group, packed.lanes)


@translates(*(f"arith.{name}" for name in EXTREMES))
def integer_extreme(t: KernelTranslator, op: ir.Operation) -> None:
    a, b = t.int_operands(op)
    t.set(op, IntValue(t.f.extreme(EXTREMES[_short(op)], a.name, b.name, a.bits, a.lanes), a.bits, a.lanes))


@translates("arith.floordivsi", "arith.ceildivsi")
def rounded_quotient(t: KernelTranslator, op: ir.Operation) -> None:
    a, b = t.int_operands(op)
    t.set(op, quotient(t, a, b, is_floor=op.name == "arith.floordivsi"))


def quotient(t: KernelTranslator, a: IntValue, b: IntValue, is_floor: bool) -> IntValue:
    """Return a quotient that is rounded down, or up."""
    lanes = a.lanes if a.lanes is not None else b.lanes
    a, b = t.splat_ints(a, lanes), t.splat_ints(b, lanes)
    shift = _power_of_two(b)
    if is_floor and shift is not None:
        return t.arith("ashr", a, IntValue(t.f.constant(shift, a.bits, lanes), a.bits, lanes))
    cut, rest = t.arith("sdiv", a, b), t.arith("srem", a, b)
    zero, one = (IntValue(t.f.constant(n, a.bits, lanes), a.bits, lanes) for n in (0, 1))
    is_inexact = t.compare("ne", rest, zero)
    is_beyond = t.compare("slt" if is_floor else "sge", t.arith("xor", rest, b), zero)
    moved = t.arith("sub" if is_floor else "add", cut, one)
    result = t.select(t.arith("and", is_inexact, is_beyond), moved, cut)
    assert isinstance(result, IntValue)
    return result


def _power_of_two(x: IntValue) -> int | None:
    """Return n where a number is the constant 2^n."""
    number = x.constant
    return number.bit_length() - 1 if number is not None and number > 0 and number & (number - 1) == 0 else None


@translates(*(f"arith.{name}" for name in _FLOAT))
def float_arithmetic(t: KernelTranslator, op: ir.Operation) -> None:
    a, b = t.float_operands(op)
    t.set(op, getattr(t.arithmetic, _FLOAT[_short(op)])(t.f, a, b))


@translates("arith.negf")
def negation(t: KernelTranslator, op: ir.Operation) -> None:
    t.set(op, t.arithmetic.neg(t.f, t.floats(op.operands[0])))


@translates("arith.cmpi")
def integer_comparison(t: KernelTranslator, op: ir.Operation) -> None:
    a, b = t.int_operands(op)
    t.set(op, t.compare(_INTEGER_PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value], a, b))


@translates("arith.cmpf")
def float_comparison(t: KernelTranslator, op: ir.Operation) -> None:
    a, b = t.float_operands(op)
    predicate = _FLOAT_PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
    t.set(op, t.arithmetic.compare(t.f, predicate, a, b))


@translates("arith.select")
def selection(t: KernelTranslator, op: ir.Operation) -> None:
    condition, a, b = op.operands
    t.set(op, t.select(t.ints(condition), t.number(a), t.number(b)))


@translates("arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.index_castui")
def integer_cast(t: KernelTranslator, op: ir.Operation) -> None:
    bits = bits_of(element_of(op.results[0].type))
    t.set(op, t.resized(t.ints(op.operands[0]), bits, op.name not in ("arith.extui", "arith.index_castui")))


@translates("arith.sitofp", "arith.uitofp")
def float_of_integer(t: KernelTranslator, op: ir.Operation) -> None:
    t.set(op, t.arithmetic.from_int(t.f, t.ints(op.operands[0]), op.name == "arith.sitofp"))


@translates("arith.fptosi", "arith.fptoui")
def integer_of_float(t: KernelTranslator, op: ir.Operation) -> None:
    bits = bits_of(element_of(op.results[0].type))
    t.set(op, t.arithmetic.to_int(t.f, t.floats(op.operands[0]), bits, _short(op)))


@translates("arith.extf")
def widened_float(t: KernelTranslator, op: ir.Operation) -> None:
    t.set(op, t.number(op.operands[0]))


@translates("arith.truncf")
def narrowed_float(t: KernelTranslator, op: ir.Operation) -> None:
    t.set(op, t.arithmetic.truncated(t.f, t.floats(op.operands[0]), str(element_of(op.results[0].type))))


@translates("arith.bitcast")
def bits(t: KernelTranslator, op: ir.Operation) -> None:
    x, element = t.number(op.operands[0]), element_of(op.results[0].type)
    if isinstance(x, FloatValue) and not is_float(element):
        t.set(op, t.arithmetic.to_bits(t.f, x, str(element_of(op.operands[0].type))))
    elif isinstance(x, IntValue) and is_float(element):
        t.set(op, t.arithmetic.from_bits(t.f, x, str(element)))
    else:
        t.set(op, x)


@translates("arith.constant")
def constant(t: KernelTranslator, op: ir.Operation) -> None:
    attribute = op.attributes["value"]
    if attribute not in t.constants:
        t.constants[attribute] = _constant(t, attribute, op.results[0].type)
    t.set(op, t.constants[attribute])


def _constant(t: KernelTranslator, attribute: ir.Attribute, kind: ir.Type) -> Number:
    lanes, element = lanes_of(kind), element_of(kind)
    if lanes is None:
        return t.scalar_constant(attribute, element, None)
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        return t.scalar_constant(attribute.get_splat_value(), element, lanes)
    return _dense(t, attribute, element, lanes)


def _dense(t: KernelTranslator, attribute: ir.Attribute, element: ir.Type, lanes: int) -> Number:
    """Return a vector of constants."""
    if is_float(element):
        parts = [t.arithmetic.constant(t.f, float(x), None) for x in _elements(ir.DenseFPElementsAttr(attribute))]
        planes = zip(*(part.planes for part in parts), strict=True)
        kind = t.arithmetic.element
        return FloatValue(tuple("<" + ", ".join(f"{kind} {x}" for x in plane) + ">" for plane in planes), lanes)
    width = bits_of(element)
    numbers = [bool(x) if width == 1 else int(x) for x in _elements(ir.DenseIntElementsAttr(attribute))]
    text = ", ".join(f"i{width} {t.f.constant(int(n), width, None)}" for n in numbers)
    return IntValue(f"<{text}>", width, lanes)


def _elements(attribute: ir.Attribute) -> Iterator[float]:
    dense: Any = attribute
    return (dense[i] for i in range(len(dense)))


@translates("ub.poison")
def poison(t: KernelTranslator, op: ir.Operation) -> None:
    lanes, element = lanes_of(op.results[0].type), element_of(op.results[0].type)
    if is_float(element):
        t.set(op, t.arithmetic.constant(t.f, POISON_FLOAT, lanes))
    else:
        t.set(op, IntValue(t.f.constant(POISON_INT, bits_of(element), lanes), bits_of(element), lanes))


# -------------------------------------------------------------------------------------------------------------- affine


@translates("affine.apply")
def affine_value(t: KernelTranslator, op: ir.Operation) -> None:
    (result,) = _affine_results(t, op)
    t.set(op, result)


@translates("affine.min", "affine.max")
def affine_extreme(t: KernelTranslator, op: ir.Operation) -> None:
    total, *others = _affine_results(t, op)
    for other in others:
        total = IntValue(t.f.extreme("smin" if op.name == "affine.min" else "smax", total.name, other.name), 64)
    t.set(op, total)


def _affine_results(t: KernelTranslator, op: ir.Operation) -> list[IntValue]:
    map_ = ir.AffineMapAttr(op.attributes["map"]).value
    operands = [t.ints(value) for value in op.operands]
    return [affine(t, each, operands[: map_.n_dims], operands[map_.n_dims :]) for each in map_.results]


def affine(
    t: KernelTranslator, expression: ir.AffineExpr, dims: Sequence[IntValue], symbols: Sequence[IntValue] = ()
) -> IntValue:
    """Return the value of an affine expression."""
    if isinstance(expression, ir.AffineDimExpr):
        return dims[expression.position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return symbols[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return t.index(expression.value)
    left, right = (affine(t, each, dims, symbols) for each in (expression.lhs, expression.rhs))
    if isinstance(expression, ir.AffineAddExpr):
        return t.arith("add", left, right)
    if isinstance(expression, ir.AffineMulExpr):
        return t.arith("mul", left, right)
    if isinstance(expression, ir.AffineFloorDivExpr):
        return quotient(t, left, right, is_floor=True)
    if isinstance(expression, ir.AffineModExpr):
        return t.arith("sub", left, t.arith("mul", quotient(t, left, right, is_floor=True), right))
    if isinstance(expression, ir.AffineCeilDivExpr):
        return quotient(t, left, right, is_floor=False)
    raise OutsideError(f"the affine expression {expression}")


def vector_of(t: KernelTranslator, parts: Sequence[Number]) -> Number:
    """Return a vector of scalars."""
    lanes = len(parts)
    result = t.splat(parts[0], lanes)
    for i, part in enumerate(parts[1:], 1):
        result = t.shuffled(result, t.splat(part, lanes), [lanes if k == i else k for k in range(lanes)])
    return result


def extended(t: KernelTranslator, x: IntValue, is_signed: bool, bits: int = 32) -> IntValue:
    """Return an integer vector with wider lanes."""
    how = "sext" if is_signed else "zext"
    text = f"{how} {llvm_type(f'i{x.bits}', x.lanes)} {x.name} to {llvm_type(f'i{bits}', x.lanes)}"
    return IntValue(t.f.op(text), bits, x.lanes)
