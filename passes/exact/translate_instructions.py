"""The meanings of instructions of processors, in plain operations: none needs that processor."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.translate_arith import extended
from mirlo.passes.exact.translate_tiles import tile_instruction
from mirlo.passes.exact.translate_vectors import as_lanes
from mirlo.passes.exact.translator import KernelTranslator, translates
from mirlo.passes.exact.values import FloatValue, IntValue


@translates("llvm.call_intrinsic")
def instruction(t: KernelTranslator, op: ir.Operation) -> None:
    name = ir.StringAttr(op.attributes["intrin"]).value
    operands = list(op.operands)
    if ".tile" in name or ".tdp" in name:
        tile_instruction(t, op, name)
        return
    if ".pmadd.wd" in name or ".pmaddw.d" in name:
        result: IntValue | FloatValue = _dot(t, [t.ints(value) for value in operands], 16, 2, (True, True))
    elif ".pmadd.ub.sw" in name or ".pmaddubs.w" in name:
        result = _saturated(t, _dot(t, [t.ints(value) for value in operands], 8, 2, (False, True)))
    elif "vpdpbusd" in name and "vpdpbusds" not in name:
        result = _dot(t, [t.ints(value) for value in operands], 8, 4, (False, True))
    elif "vpdpwssd" in name and "vpdpwssds" not in name:
        result = _dot(t, [t.ints(value) for value in operands], 16, 2, (True, True))
    elif any(f".neon.{each}" in name for each in ("sdot", "udot", "usdot")):
        signs = ".sdot" in name, ".udot" not in name
        result = _dot(t, [t.ints(value) for value in operands], 8, 4, signs)
    elif "mmla." in name and "bf" not in name:
        total, a, b = (t.ints(value) for value in operands)
        result = _matrices(t, total, a, b, (".smmla" in name, ".ummla" not in name))
    elif "bfmmla" in name:
        sums, x, y = (t.floats(value) for value in operands)
        result = _float_matrices(t, sums, x, y)
    elif "dpbf16ps" in name or "bfdot" in name:
        sums, x, y = (t.floats(value) for value in operands)
        result = _float_pairs(t, sums, x, y)
    else:
        raise OutsideError(f"the instruction '{name}'")
    t.set(op, result)


def _dot(
    t: KernelTranslator, operands: Sequence[IntValue], bits: int, group: int, are_signed: tuple[bool, bool]
) -> IntValue:
    """Return the sums of `group` adjacent products, in i32; the first of three operands is a total."""
    *total, a, b = operands
    a, b = as_lanes(t, a, bits), as_lanes(t, b, bits)
    assert a.lanes is not None
    lanes = a.lanes // group
    result = total[0] if total else IntValue(t.f.constant(0, 32, lanes), 32, lanes)
    for j in range(group):
        x = extended(t, t.lanes_at(a, range(j, a.lanes, group)), are_signed[0])
        y = extended(t, t.lanes_at(b, range(j, a.lanes, group)), are_signed[1])
        result = t.arith("add", result, t.arith("mul", x, y))
    return result


def _saturated(t: KernelTranslator, wide: IntValue) -> IntValue:
    """Return sums of i32 as i16, held to its range."""
    least, most = (t.f.constant(n, 32, wide.lanes) for n in (-(1 << 15), (1 << 15) - 1))
    held = t.f.extreme("smax", t.f.extreme("smin", wide.name, most, 32, wide.lanes), least, 32, wide.lanes)
    return t.resized(IntValue(held, 32, wide.lanes), 16, is_signed=True)


def _matrices(
    t: KernelTranslator, total: IntValue, a: IntValue, b: IntValue, are_signed: tuple[bool, bool]
) -> IntValue:
    """Return a total of 2 x 2 and rows of a (2 x 8) times rows of b (2 x 8)."""
    rows = [*range(8), *range(8), *range(8, 16), *range(8, 16)]
    x = extended(t, t.lanes_at(a, rows), are_signed[0])
    y = extended(t, t.lanes_at(b, [*range(16), *range(16)]), are_signed[1])
    product = t.arith("mul", x, y)
    for j in range(8):
        total = t.arith("add", total, t.lanes_at(product, [8 * k + j for k in range(4)]))
    return total


def _float_pairs(t: KernelTranslator, total: FloatValue, a: FloatValue, b: FloatValue) -> FloatValue:
    """Return the total and the sums of two adjacent products."""
    for j in (0, 1):
        x, y = (t.float_lanes_at(v, range(j, v.lanes or 1, 2)) for v in (a, b))
        total = t.arithmetic.fma(t.f, x, y, total)
    return total


def _float_matrices(t: KernelTranslator, total: FloatValue, a: FloatValue, b: FloatValue) -> FloatValue:
    """Return a total of 2 x 2 and rows of a (2 x 4) times rows of b (2 x 4)."""
    for j in range(4):
        x, y = t.float_lanes_at(a, [j, j, 4 + j, 4 + j]), t.float_lanes_at(b, [j, 4 + j, j, 4 + j])
        total = t.arithmetic.fma(t.f, x, y, total)
    return total
