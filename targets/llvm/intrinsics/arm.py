"""AArch64 instructions without an upstream operation."""

from __future__ import annotations

import re

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import call_intrinsic
from mirlo.passes.schedule.vectors import shuffle
from mirlo.targets.llvm.cpus import ARM
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
_CALL = re.compile(r'"llvm\.aarch64\.([\w.]+)"')
_NEEDS = (
    (r"neon\.(sdot|udot)", "dotprod"), (r"neon\.(usdot|smmla|ummla|usmmla)", "i8mm"), (r"neon\.bf(dot|mmla)", "bf16"),
)  # fmt: skip


def missing_arm_instruction(text: str, processor: Processor) -> tuple[str, str] | None:
    """Return an intrinsic of AArch64 in a module's text that a processor lacks, and the feature that it needs."""
    if '"llvm.aarch64.' not in text:
        return None
    for name in sorted(set(_CALL.findall(text))):
        needed = next((feature for pattern, feature in _NEEDS if re.match(pattern, name)), ARM)
        if processor.arch != ARM or (needed != ARM and not processor.has(needed)):
            return f"llvm.aarch64.{name}", needed if processor.arch == ARM else ARM
    return None


def call_arm_dot(instruction: str, total: ir.Value, first: ir.Value, second: ir.Value) -> ir.Value:
    """Emit `total + sums of the products of adjacent elements`, for a vector of up to four i32 or f32."""
    lanes = total.type.shape[0]
    if lanes < _LANES:
        full = _BITS // element_width(first)
        whole = call_arm_dot(instruction, _widened(total, _LANES), _widened(first, full), _widened(second, full))
        return shuffle(whole, whole, range(lanes))
    return call_intrinsic(DOTS[instruction], total.type, total, first, second)


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
