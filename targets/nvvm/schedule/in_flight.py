"""Warpgroup products on single registers, for accumulators and optionally the lhs, with several in flight.

The dialect's operations take operands in shared memory only, and do not tie accumulators to the wait, so code that
uses them might move before it. Here a sequence of products is one piece of inline assembly, from the fence to the
commit of their group, and the wait takes the registers and returns them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import Value, inline_asm
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.runtime.records import dataclass
from mirlo.targets.nvvm.schedule.ring_buffer import PRODUCT_ROWS
from mirlo.targets.nvvm.schedule.tilemaps import described
from mirlo.targets.nvvm.schedule.units import ACCESS, Format

FENCE = "fence.acq_rel.cta;"
QUARTERS = 4
"""Registers of the lhs of one product."""


@dataclass(frozen=True)
class SharedOperand:
    """An operand in shared memory: its address, and the byte offset of each product."""

    address: Value
    moved: Sequence[int]
    along_k: bool = True
    """Whether it is contiguous along K, or along lines."""
    beside: int = ACCESS
    """Byte distance of adjacent 128-byte groups of lines, if contiguous along lines."""


def multiply(
    form: Format, columns: int, left: SharedOperand | Sequence[ir.Value], right: SharedOperand, sums: Sequence[ir.Value]
) -> list[ir.Value]:
    """Issue products of 64 rows by `columns`, added to accumulators or, without them, to zero, as one group.

    The lhs is in memory, or in four registers of two elements per product. The values of the accumulators are
    undefined until the wait (`wait_products`).
    """
    count = columns * PRODUCT_ROWS // 128
    starts = [right] if not isinstance(left, SharedOperand) else [left, right]
    held = [] if isinstance(left, SharedOperand) else list(left)
    kind = form.sums
    operands = [*sums, *held, *(described(factor.address, factor.beside) for factor in starts)]
    constraints = [f"={kind[0]}"] * count + [str(i) for i in range(len(sums))]
    constraints += ["r"] * len(held) + ["l"] * len(starts)
    first = count + len(sums)
    text = _assembly(form, columns, left, right, bool(sums), first)
    result = _asm(text, operands, constraints, [kind] * count)
    return registers(result, ir.Type.parse(kind), count)


def _assembly(
    form: Format, columns: int, left: Sequence[ir.Value] | SharedOperand, right: SharedOperand, adds: bool, first: int
) -> str:
    """Return the assembly; `first` is the number of the first operand after the accumulators."""
    count = columns * PRODUCT_ROWS // 128
    total = "{" + ", ".join(f"${i}" for i in range(count)) + "}"
    shape = f"m{PRODUCT_ROWS}n{columns}k{form.depth}.{form.sums}.{form.name}.{form.name}"
    start_right = first + (1 if isinstance(left, SharedOperand) else len(left))
    lines = [".reg .pred adds;", ".reg .b64 left, right;", "wgmma.fence.sync.aligned;"]
    transposed = f"{int(not right.along_k)}"
    if isinstance(left, SharedOperand):
        transposed = f"{int(not left.along_k)}, {transposed}"
    for step, moved in enumerate(right.moved):
        lines.append(f"setp.ne.b32 adds, {int(adds or step > 0)}, 0;")
        if isinstance(left, SharedOperand):
            lines.append(f"add.s64 left, ${first}, {left.moved[step] // ACCESS};")
            rows = "left"
        else:
            mine = range(first + QUARTERS * step, first + QUARTERS * (step + 1))
            rows = "{" + ", ".join(f"${i}" for i in mine) + "}"
        lines.append(f"add.s64 right, ${start_right}, {moved // ACCESS};")
        lines.append(f"wgmma.mma_async.sync.aligned.{shape} {total}, {rows}, right, adds, 1, 1, {transposed};")
    lines.append("wgmma.commit_group.sync.aligned;")
    return "{\n" + "\n".join(lines) + "\n}"


def wait_products(under_way: int, sums: Sequence[ir.Value], factor: Sequence[ir.Value] = ()) -> list[ir.Value]:
    """Wait until at most this many groups are in flight; then the accumulators are defined, and the lhs is read."""
    constraints = [f"={_letter(value)}" for value in sums] + [str(i) for i in range(len(sums))] + ["r"] * len(factor)
    result = _asm(
        f"wgmma.wait_group.sync.aligned {under_way};", [*sums, *factor], constraints, [str(v.type) for v in sums]
    )
    return registers(result, sums[0].type, len(sums))


def zeros(kind: ir.Type, count: int) -> ir.Value:
    """Return zero accumulators for the dialect's products, written before the fence that follows.

    The first product must not add to registers left from the previous tile: the assembler would connect the two
    tiles' accumulators and serialize the products.
    """
    zero = emit_constant(0, kind)
    return tied([zero] * count)


def after_wait(sums: Sequence[ir.Value]) -> list[ir.Value]:
    """Return accumulators after the wait, so that no use of them moves before it.

    The inline assembly holds back LLVM, the fence in it NVIDIA's assembler, which would otherwise treat later uses
    as between the products and serialize them.
    """
    return registers(tied(sums, FENCE), sums[0].type, len(sums))


def tied(sums: Sequence[ir.Value], text: str = "") -> ir.Value:
    """Emit assembly after which these registers are defined; return them."""
    constraints = [f"={_letter(value)}" for value in sums] + [str(i) for i in range(len(sums))]
    return _asm(text, sums, constraints, [str(value.type) for value in sums])


def order_before(value: ir.Value, limit: float, unused: Value) -> None:
    """Keep a following wait after the computation of this value, which never exceeds the limit.

    The assembler would otherwise wait first and compute later; but it does not move a wait before a store.
    """
    bits = struct.pack(">f", limit).hex().upper()
    text = f"{{\n.reg .pred never;\nsetp.gt.f32 never, $0, 0f{bits};\n@never st.shared.f32 [$1], $0;\n}}"
    i64 = ir.IntegerType.get_signless(64)
    ir.Operation.create(
        "llvm.inline_asm", operands=[value, create("arith.index_cast", i64, unused)],
        attributes={
            "asm_string": ir.StringAttr.get(text), "constraints": ir.StringAttr.get("f,l"),
            "has_side_effects": ir.UnitAttr.get(),
        },
    )  # fmt: skip


def registers(held: ir.Value, kind: ir.Type, count: int) -> list[ir.Value]:
    """Return the result registers of a piece of assembly."""
    return [create("llvm.extractvalue", kind, held, position=ir.DenseI64ArrayAttr.get([i])) for i in range(count)]


def steps_along(rows: int, products: int, step_bytes: int, row_bytes: int) -> list[int]:
    """Return the byte offset of each product in tiles of this many rows that are contiguous along K."""
    per_row = row_bytes // step_bytes
    return [i // per_row * rows * row_bytes + i % per_row * step_bytes for i in range(products)]


def _letter(value: ir.Value) -> str:
    """Return the constraint of a register: `f`, or `r` for integers."""
    return "f" if isinstance(value.type, ir.FloatType) else "r"


def _asm(text: str, operands: Sequence[ir.Value], constraints: Sequence[str], kinds: Sequence[str]) -> ir.Value:
    results = ir.Type.parse(f"!llvm.struct<({', '.join(kinds)})>")
    return inline_asm(text, ",".join(constraints), results, *operands, has_side_effects=True)
