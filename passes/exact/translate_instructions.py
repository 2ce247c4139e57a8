"""Translations of instructions of processors to plain operations, which any processor has."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.passes.exact.ir_text import FunctionText
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.translate_arith import extended
from mirlo.passes.exact.translate_tiles import tile_instruction
from mirlo.passes.exact.translate_vectors import as_lanes
from mirlo.passes.exact.translator import KernelTranslator, translates
from mirlo.passes.exact.values import FloatValue, IntValue, llvm_type

_LOOKUPS = (".permvar.sf.", ".permps", ".vpermi2var.ps.", ".pshuf.b", ".neon.tbl1.")
"""Parts of the names of instructions that read tables."""
_BYTES = 16
"""Bytes of the tables in which instructions look up bytes."""


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
    elif ".V6.vrmpy" in name:
        signs = "vrmpybv" in name, "vrmpyubv" not in name
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
    elif any(each in name for each in _LOOKUPS):
        result = _lookup(t, op, name)
    else:
        raise OutsideError(f"the instruction '{name}'")
    t.set(op, result)


def _lookup(t: KernelTranslator, op: ir.Operation, name: str) -> IntValue | FloatValue:
    """Return elements of tables of floats, or bytes of tables."""
    operands = list(op.operands)
    if ".pshuf.b" in name or ".neon.tbl1." in name:
        table, positions = (t.ints(value) for value in operands)
        return _bytes_looked_up(t, table, positions, 0x8F if ".pshuf.b" in name else 0xFF)
    return _looked_up(t, [t.floats(operands[i]) for i in range(0, len(operands), 2)], t.ints(operands[1]))


def _looked_up(t: KernelTranslator, tables: Sequence[FloatValue], positions: IntValue) -> FloatValue:
    """Return elements of consecutive tables, at positions whose higher bits do not count."""
    lanes = positions.lanes
    assert lanes is not None
    at = t.resized(positions, 64, is_signed=False)
    helper = _lookup_helper(t, lanes, len(tables))
    kind = llvm_type(t.arithmetic.element, lanes)
    planes = []
    for parts in zip(*(t.arithmetic.canonical(t.f, table).planes for table in tables), strict=True):
        operands = ", ".join(f"{kind} {part}" for part in parts)
        planes.append(t.f.op(f"call {kind} @{helper}(<{lanes} x i64> {at.name}, {operands}, ptr %round)"))
    return FloatValue(tuple(planes), lanes)


def _lookup_helper(t: KernelTranslator, lanes: int, count: int) -> str:
    """Return the name of a function that looks up elements of this many tables: kernels have hundreds of calls."""
    name = f"exact.lookup_{t.arithmetic.element}_{lanes}_{count}"
    if name in t.f.module.helpers:
        return name
    g = FunctionText(t.f.module, name)
    kind, places = llvm_type(t.arithmetic.element, lanes), llvm_type("i64", lanes)
    at = g.op(f"and {places} %at, {g.constant(lanes * count - 1, 64, lanes)}")
    result = "poison"
    for i in range(lanes * count):
        every = ", ".join([f"i32 {i % lanes}"] * lanes)
        table = f"%t{i // lanes}"
        entry = g.op(f"shufflevector {kind} {table}, {kind} {table}, <{lanes} x i32> <{every}>")
        is_here = g.op(f"icmp eq {places} {at}, {g.constant(i, 64, lanes)}")
        result = g.op(f"select <{lanes} x i1> {is_here}, {kind} {entry}, {kind} {result}") if i else entry
    g.effect(f"ret {kind} {result}")
    g.finish_helper(kind, at=places, **{f"t{k}": kind for k in range(count)})
    return name


def _bytes_looked_up(t: KernelTranslator, table: IntValue, positions: IntValue, mask: int) -> IntValue:
    """Return bytes of the 16 in the same 128 bits of a table, at the bits of positions that count; 0 beyond those."""
    lanes = positions.lanes
    assert lanes is not None
    positions = t.arith("and", positions, IntValue(t.f.constant(mask, positions.bits, lanes), positions.bits, lanes))
    result = IntValue(t.f.constant(0, positions.bits, lanes), positions.bits, lanes)
    for i in range(_BYTES):
        number = IntValue(t.f.constant(i, positions.bits, lanes), positions.bits, lanes)
        entry = t.lanes_at(table, [lane // _BYTES * _BYTES + i for lane in range(lanes)])
        chosen = t.select(t.compare("eq", positions, number), entry, result)
        assert isinstance(chosen, IntValue)
        result = chosen
    return result


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
    """Return sums of i32 as i16, saturated."""
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
