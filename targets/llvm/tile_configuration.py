"""The configuration of AMX's registers: their rows, and that each row has 64 bytes.

Each function that uses registers begins with it, that of each chunk of a parallel loop too: threads have registers of
their own. A configuration is lost where another function configures the registers.
"""

from __future__ import annotations

from collections.abc import Iterator

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.registry import PassError
from mirlo.targets.llvm.intrinsics.amx import MOST_ROWS, REGISTERS, ROW_BYTES, ROWS, call

CONFIGURATION_BYTES = 64
_PALETTE = 1
"""The kind of configuration: 8 registers of up to 1 KiB."""


def configure_tiles(module: ir.Module) -> None:
    """Emit the configuration at the start of each function that uses registers."""
    for function in module.body.operations:
        rows = _rows(function.operation)
        if rows:
            with ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]), function.location:
                _configure(_content(rows))


def _rows(function: ir.Operation) -> dict[int, int]:
    """Return the rows of each register that a function uses."""
    rows: dict[int, int] = {}
    for op in list(_operations(function)):
        if ROWS not in op.attributes:
            continue
        register = ir.IntegerAttr(op.operands[0].owner.attributes["value"]).value
        count = ir.IntegerAttr(op.attributes[ROWS]).value
        if rows.setdefault(register, count) != count or not 1 <= count <= MOST_ROWS:
            name = ir.StringAttr(function.attributes["sym_name"]).value
            raise PassError(
                f"'@{name}' uses register {register} of AMX with {rows[register]} and {count} rows: expected register "
                f"tiles of one shape in a function, of 1 to {MOST_ROWS} rows"
            )
        del op.attributes[ROWS]
    return rows


def _operations(root: ir.Operation) -> Iterator[ir.Operation]:
    """Yield the intrinsics in a function."""
    for region in root.regions:
        for block in region.blocks:
            for op in block.operations:
                if op.operation.name == "llvm.call_intrinsic":
                    yield op.operation
                yield from _operations(op.operation)


def _content(rows: dict[int, int]) -> list[int]:
    """Return the bytes of the configuration: palette, bytes of the rows as 16 bits, counts of rows."""
    used = [rows.get(register, 0) for register in range(REGISTERS)]
    widths = [part for count in used for part in ((ROW_BYTES if count else 0), 0)]
    content = [_PALETTE, *[0] * 15, *widths, *[0] * 16, *used]
    return content + [0] * (CONFIGURATION_BYTES - len(content))


def _configure(content: list[int]) -> None:
    byte, wide = ir.IntegerType.get_signless(8), ir.IntegerType.get_signless(64)
    kind = ir.VectorType.get([CONFIGURATION_BYTES], byte)
    alignment = ir.IntegerAttr.get(wide, CONFIGURATION_BYTES)
    buffer = memref.AllocaOp(ir.MemRefType.get([CONFIGURATION_BYTES], byte), [], [], alignment=alignment).result
    values = ir.DenseElementsAttr.get([ir.IntegerAttr.get(byte, value) for value in content], kind)
    index = ir.IndexType.get()
    zero = create("arith.constant", index, value=ir.IntegerAttr.get(index, 0))
    constant = create("arith.constant", kind, value=values)
    ir.Operation.create("vector.store", operands=[constant, buffer, zero])
    address = create("arith.index_cast", wide, create("memref.extract_aligned_pointer_as_index", index, buffer))
    call("ldtilecfg", create("llvm.inttoptr", ir.Type.parse("!llvm.ptr"), address))
