"""AArch64 instructions without an upstream operation."""

from __future__ import annotations

import re

from mirlo.dialects.bindings import ir
from mirlo.targets.llvm.cpus import ARM
from mirlo.targets.llvm.processor import Processor

DOTS = {"sdot": "llvm.aarch64.neon.sdot.v4i32.v16i8", "udot": "llvm.aarch64.neon.udot.v4i32.v16i8"}
"""Products of four adjacent int8, signed and unsigned, added to each of four lanes."""
_LANES = 4
_CALL = re.compile(r'"llvm\.aarch64\.([\w.]+)"')


def missing_arm_instruction(text: str, processor: Processor) -> tuple[str, str] | None:
    """Return an intrinsic of AArch64 in a module's text that a processor lacks, and the feature that it needs."""
    for name in sorted(set(_CALL.findall(text))):
        needed = "dotprod" if name.startswith(("neon.sdot", "neon.udot")) else ARM
        if processor.arch != ARM or (needed != ARM and not processor.has(needed)):
            return f"llvm.aarch64.{name}", needed if processor.arch == ARM else ARM
    return None


def call_arm_dot(instruction: str, total: ir.Value, first: ir.Value, second: ir.Value) -> ir.Value:
    """Emit `total + sums of the products of four adjacent int8`, for a vector of up to four i32."""
    lanes = total.type.shape[0]
    if lanes < _LANES:
        whole = call_arm_dot(instruction, _widened(total, _LANES), _widened(first, 16), _widened(second, 16))
        return _shuffled(whole, list(range(lanes)))
    return ir.Operation.create(
        "llvm.call_intrinsic",
        results=[total.type],
        operands=[total, first, second],
        attributes={
            "intrin": ir.StringAttr.get(DOTS[instruction]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([3, 0]),
        },
    ).results[0]


def _widened(value: ir.Value, lanes: int) -> ir.Value:
    """Return a vector of more lanes, whose further ones repeat the first."""
    count = value.type.shape[0]
    return _shuffled(value, [i if i < count else 0 for i in range(lanes)])


def _shuffled(value: ir.Value, lanes: list[int]) -> ir.Value:
    kind = ir.VectorType.get([len(lanes)], value.type.element_type)
    return ir.Operation.create(
        "vector.shuffle", results=[kind], operands=[value, value],
        attributes={"mask": ir.DenseI64ArrayAttr.get(lanes)},
    ).results[0]  # fmt: skip
