"""Instructions of AArch64 and Hexagon without an upstream operation, which most sum products."""

from __future__ import annotations

import re

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import call_intrinsic, create, emit_constant
from mirlo.passes.schedule.vectors import shuffle
from mirlo.targets.llvm.processor import Processor

DOTS = {
    "sdot": "llvm.aarch64.neon.sdot.v4i32.v16i8",
    "udot": "llvm.aarch64.neon.udot.v4i32.v16i8",
    "usdot": "llvm.aarch64.neon.usdot.v4i32.v16i8",
    "bfdot": "llvm.aarch64.neon.bfdot.v4f32.v8bf16",
}
"""Products of adjacent elements, added to each of four lanes: four of int8, signed, unsigned, or of an unsigned and a
signed operand, and two of bf16."""
MATRICES = {
    "smmla": "llvm.aarch64.neon.smmla.v4i32.v16i8",
    "ummla": "llvm.aarch64.neon.ummla.v4i32.v16i8",
    "usmmla": "llvm.aarch64.neon.usmmla.v4i32.v16i8",
    "bfmmla": "llvm.aarch64.neon.bfmmla",
}
"""Products of two rows and two columns of 8 bytes, added to a matrix of 2 x 2; signs as for `DOTS`."""
LOOKUP = "llvm.aarch64.neon.tbl1.v16i8"
"""Bytes of a table of 16."""
_LANES, _BITS = 4, 128
HVX_DOTS = {
    ("u8", "i8"): "llvm.hexagon.V6.vrmpybusv.acc.128B",
    ("u8", "u8"): "llvm.hexagon.V6.vrmpyubv.acc.128B",
    ("i8", "i8"): "llvm.hexagon.V6.vrmpybv.acc.128B",
}
"""`vrmpy` of Hexagon's vectors of 128 bytes: products of four adjacent int8, added to each of 32 lanes, by signs."""
_HVX_LANES = 32
_CALL = re.compile(r'"llvm\.((?:aarch64|hexagon)\.[\w.]+)"')
_NEEDS = (
    (r"aarch64\.neon\.(sdot|udot)", "dotprod"), (r"aarch64\.neon\.(usdot|smmla|ummla|usmmla)", "i8mm"),
    (r"aarch64\.neon\.bf(dot|mmla)", "bf16"), (r"hexagon\.V6\.", "hvx-length128b"),
)  # fmt: skip


def missing_dot_instruction(text: str, processor: Processor) -> tuple[str, str] | None:
    """Return an intrinsic of these processors in a module's text that another lacks, and the feature that it needs."""
    if '"llvm.aarch64.' not in text and '"llvm.hexagon.' not in text:
        return None
    for name in sorted(set(_CALL.findall(text))):
        arch = name.partition(".")[0]
        needed = next((feature for pattern, feature in _NEEDS if re.match(pattern, name)), arch)
        if processor.arch != arch or (needed != arch and not processor.has(needed)):
            return f"llvm.{name}", needed if processor.arch == arch else arch
    return None


def call_arm_dot(instruction: str, total: ir.Value, first: ir.Value, second: ir.Value) -> ir.Value:
    """Emit `total + sums of the products of adjacent elements`, for a vector of up to four i32 or f32."""
    lanes = total.type.shape[0]
    if lanes < _LANES:
        full = _BITS // element_width(first)
        whole = call_arm_dot(instruction, _widened(total, _LANES), _widened(first, full), _widened(second, full))
        return shuffle(whole, whole, range(lanes))
    return call_intrinsic(DOTS[instruction], total.type, total, first, second)


def call_hvx_dot(signs: tuple[str, str], first: ir.Value, second: ir.Value, total: ir.Value) -> ir.Value:
    """Emit `total + sums of the products of four adjacent int8` of these signs, for a vector of up to 32 i32."""
    if signs not in HVX_DOTS:
        signs, first, second = signs[::-1], second, first
    kind, words = total.type, [create("vector.bitcast", total.type, value) for value in (first, second)]
    lanes = kind.shape[0]
    if lanes == _HVX_LANES:
        return call_intrinsic(HVX_DOTS[signs], kind, total, *words)
    # Lane by lane: LLVM 22 shuffles vectors of 2, 4 and 8 lanes wrong.
    wide = ir.VectorType.get([_HVX_LANES], kind.element_type)
    whole = call_intrinsic(HVX_DOTS[signs], wide, *(_lanes_moved(each, wide) for each in (total, *words)))
    return _lanes_moved(whole, kind)


def _lanes_moved(value: ir.Value, kind: ir.Type) -> ir.Value:
    """Return a vector of another length with the first lanes of this one, and zeros."""
    result, positions = emit_constant(0, kind), range(min(kind.shape[0], value.type.shape[0]))
    for position in (ir.DenseI64ArrayAttr.get([i]) for i in positions):
        lane = create("vector.extract", kind.element_type, value, static_position=position)
        result = create("vector.insert", kind, lane, result, static_position=position)
    return result


def call_matrices(instruction: str, total: ir.Value, first: ir.Value, second: ir.Value) -> ir.Value:
    """Emit `total + first x second`: a matrix of 2 x 2, two rows, and two columns."""
    return call_intrinsic(MATRICES[instruction], total.type, total, first, second)


def call_arm_lookup(table: ir.Value, codes: ir.Value) -> ir.Value:
    """Emit the byte of a table of 16 that each byte from 0 to 15 names."""
    return call_intrinsic(LOOKUP, table.type, table, codes)


def element_width(value: ir.Value) -> int:
    """Return the bits of an element of a vector."""
    return int(value.type.element_type.width)


def _widened(value: ir.Value, lanes: int) -> ir.Value:
    """Return a vector of more lanes, whose further ones repeat the first."""
    count = value.type.shape[0]
    return shuffle(value, value, [i if i < count else 0 for i in range(lanes)])
