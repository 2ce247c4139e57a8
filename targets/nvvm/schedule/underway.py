"""Products of warpgroups whose sums, and perhaps the first factor, are single registers, several of them under way.

The dialect's operations know factors in shared memory only, and nothing ties sums to the wait for them: what is
computed from them might move before it. Here a run of products is one piece of assembly, from the fence to the end of
their group, and the wait takes the registers and gives them back.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.tir.compute.emit import create, emit_constant
from mirlo.targets.nvvm.schedule.slots import LINES
from mirlo.targets.nvvm.schedule.tilemaps import described
from mirlo.targets.nvvm.schedule.units import ACCESS, Format

FENCE = "fence.acq_rel.cta;"
QUARTERS = 4
"""Registers of the first factor of one product."""


@dataclass(frozen=True)
class InMemory:
    """A factor in shared memory: where it begins, and how many bytes further each of the products does."""

    address: Any
    moved: Sequence[int]
    along_sums: bool = True
    """Whether steps of the sums lie side by side, or lines."""
    beside: int = ACCESS
    """Bytes from 128 bytes of lines that lie side by side to the next."""


def multiply(
    form: Format, columns: int, left: InMemory | Sequence[Any], right: InMemory, sums: Sequence[Any]
) -> list[Any]:
    """64 rows by so many columns, added to these sums or, where there are none, to zero: a group of products.

    The first factor lies in memory or in registers of two numbers, four for each product. The sums are registers
    whose numbers nobody knows before they are waited for (`settle`).
    """
    count = columns * LINES // 128
    starts = [right] if not isinstance(left, InMemory) else [left, right]
    held = [] if isinstance(left, InMemory) else list(left)
    kind = form.sums
    operands = [*sums, *held, *(described(factor.address, factor.beside) for factor in starts)]
    constraints = [f"={kind[0]}"] * count + [str(i) for i in range(len(sums))]
    constraints += ["r"] * len(held) + ["l"] * len(starts)
    first = count + len(sums)
    text = _assembly(form, columns, left, right, bool(sums), first)
    made = _asm(text, operands, constraints, [kind] * count)
    return registers(made, ir.Type.parse(kind), count)


def _assembly(form: Format, columns: int, left: Any, right: InMemory, adds: bool, first: int) -> str:
    """The text; `first` is the number of the first operand that is no sum."""
    count = columns * LINES // 128
    total = "{" + ", ".join(f"${i}" for i in range(count)) + "}"
    shape = f"m{LINES}n{columns}k{form.depth}.{form.sums}.{form.name}.{form.name}"
    in_memory = isinstance(left, InMemory)
    start_right = first + 1 if in_memory else first + len(left)
    lines = [".reg .pred adds;", ".reg .b64 left, right;", "wgmma.fence.sync.aligned;"]
    turned = f"{int(not left.along_sums)}, {int(not right.along_sums)}" if in_memory else f"{int(not right.along_sums)}"
    for step, moved in enumerate(right.moved):
        lines.append(f"setp.ne.b32 adds, {int(adds or step > 0)}, 0;")
        if in_memory:
            lines.append(f"add.s64 left, ${first}, {left.moved[step] // ACCESS};")
            rows = "left"
        else:
            mine = range(first + QUARTERS * step, first + QUARTERS * (step + 1))
            rows = "{" + ", ".join(f"${i}" for i in mine) + "}"
        lines.append(f"add.s64 right, ${start_right}, {moved // ACCESS};")
        lines.append(f"wgmma.mma_async.sync.aligned.{shape} {total}, {rows}, right, adds, 1, 1, {turned};")
    lines.append("wgmma.commit_group.sync.aligned;")
    return "{\n" + "\n".join(lines) + "\n}"


def settle(under_way: int, sums: Sequence[Any], factor: Sequence[Any] = ()) -> list[Any]:
    """Wait until at most so many groups are under way; these sums are known then, and this first factor is read."""
    constraints = [f"={_letter(value)}" for value in sums] + [str(i) for i in range(len(sums))] + ["r"] * len(factor)
    made = _asm(
        f"wgmma.wait_group.sync.aligned {under_way};", [*sums, *factor], constraints, [str(v.type) for v in sums]
    )
    return registers(made, sums[0].type, len(sums))


def zeros(kind: Any, count: int) -> Any:
    """So many sums, all zero, as the dialect's products take them: written here, before the fence that follows.

    The first product must not add to registers that nobody wrote since the tile before, either: the assembler takes
    that tile's sums for a part of this one's then, and lets products wait for each other.
    """
    zero = emit_constant(0, kind)
    return _tied([zero] * count)


def known(sums: Sequence[Any]) -> list[Any]:
    """Registers of sums that were waited for, so that nothing that is computed of them moves before the wait.

    LLVM is held back by the piece of assembly, NVIDIA's assembler by the fence in it: without it, it takes what is
    computed later for something between the products, and lets these wait for each other.
    """
    return registers(_tied(sums, FENCE), sums[0].type, len(sums))


def _tied(sums: Sequence[Any], text: str = "") -> Any:
    constraints = [f"={_letter(value)}" for value in sums] + [str(i) for i in range(len(sums))]
    return _asm(text, sums, constraints, [str(value.type) for value in sums])


def stay_before(value: Any, limit: float, unused: Any) -> None:
    """Keep a wait that follows behind what this number is computed from, which is never above the limit.

    The assembler would wait first, where it is to wait anyway, and compute then; but it moves no wait before a store.
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


def registers(held: Any, kind: Any, count: int) -> list[Any]:
    """The registers that a piece of assembly gives."""
    return [create("llvm.extractvalue", kind, held, position=ir.DenseI64ArrayAttr.get([i])) for i in range(count)]


def steps_along(rows: int, products: int, step_bytes: int, row_bytes: int) -> list[int]:
    """Where each product begins in tiles of so many rows that hold steps of the sums side by side."""
    per_row = row_bytes // step_bytes
    return [i // per_row * rows * row_bytes + i % per_row * step_bytes for i in range(products)]


def _letter(value: Any) -> str:
    """The constraint of a register: `f`, or `r` for whole numbers."""
    return "f" if isinstance(value.type, ir.FloatType) else "r"


def _asm(text: str, operands: Sequence[Any], constraints: Sequence[str], kinds: Sequence[str]) -> Any:
    made = ir.Operation.create(
        "llvm.inline_asm", results=[ir.Type.parse(f"!llvm.struct<({', '.join(kinds)})>")], operands=list(operands),
        attributes={
            "asm_string": ir.StringAttr.get(text), "constraints": ir.StringAttr.get(",".join(constraints)),
            "has_side_effects": ir.UnitAttr.get(),
        },
    )  # fmt: skip
    return made.results[0]
