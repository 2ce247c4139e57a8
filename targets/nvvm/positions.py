"""Index widths: 64 bits for accesses that need them, 32 bits for comparisons that fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.walk import walk
from mirlo.passes.lower.calls import find_all, find_outermost

_ARITHMETIC = frozenset({
    "arith.addi", "arith.subi", "arith.muli", "arith.divui", "arith.divsi", "arith.remui", "arith.remsi", "arith.minui",
    "arith.minsi", "arith.maxui", "arith.maxsi", "arith.floordivsi", "arith.ceildivui", "arith.ceildivsi",
    "arith.select", "arith.index_cast", "affine.apply", "gpu.shuffle",
})  # fmt: skip
_INDEX_SOURCES = frozenset(
    {"gpu.thread_id", "gpu.block_id", "gpu.block_dim", "gpu.grid_dim", "scf.for", "scf.if", "scf.while"}
)
"""Other sources of indices: threads, blocks, and regions, whose results are those of their bodies."""
_LARGEST = 1 << 31


def narrow_comparisons(kernels: ir.Operation) -> None:
    """Compare indices in 32 bits in kernels whose tensors all have fewer than 2^31 elements.

    A 64-bit comparison takes two instructions, and masks have one for each score. Values loaded from data are left
    alone, because they may be anything.
    """
    other = _not_positions(kernels)
    for kernel in find_outermost(kernels, "gpu.func"):
        # These kernels have few comparisons, and the change makes the assembler serialize their products.
        used = find_all(kernel, "nvvm.wgmma.mma_async", "arith.cmpi")
        if not used["nvvm.wgmma.mma_async"]:
            _compare(used["arith.cmpi"], other)


def _compare(comparisons: Sequence[ir.Operation], other: set[ir.Value]) -> None:
    i32 = ir.IntegerType.get_signless(32)
    for op in comparisons:
        values = list(op.operands)
        if not isinstance(values[0].type, ir.IndexType) or any(value in other for value in values):
            continue
        with ir.InsertionPoint(op), op.location:
            for i, value in enumerate(values):
                op.operands[i] = ir.Operation.create("arith.index_cast", results=[i32], operands=[value]).results[0]


def _not_positions(kernels: ir.Operation) -> set[ir.Value]:
    """Return the integers that derive from anything but threads, blocks, loop indices and small constants."""
    positions: set[ir.Value] = set()
    left = list(_sources(kernels))
    while left:
        value = left.pop()
        if value not in positions:
            positions.add(value)
            left += [derived for use in value.uses for derived in _derived_values(use) if _is_integer(derived)]
    return positions


def _sources(kernels: ir.Operation) -> Iterator[ir.Value]:
    sources: list[ir.Value] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "arith.constant":
            value = op.attributes["value"]
            fits = not isinstance(value, ir.IntegerAttr) or abs(value.value) < _LARGEST
        else:
            fits = op.name in _INDEX_SOURCES or _is_arithmetic(op)
        values: list[ir.Value] = [] if fits else list(op.results)
        if op.name == "gpu.func":
            values += list(op.regions[0].blocks[0].arguments)
        sources.extend(value for value in values if _is_integer(value))
        return ir.WalkResult.ADVANCE

    walk(kernels, visit, ir.WalkOrder.PRE_ORDER)
    yield from sources


def _derived_values(use: ir.OpOperand) -> list[ir.Value]:
    """Return the values derived from a value at one of its uses."""
    op, number = use.owner.operation, use.operand_number
    if _is_arithmetic(op):
        return list(op.results)
    if op.name == "scf.for":
        # Bounds and the step come first.
        return [_argument(op, 0, 0)] if number < 3 else [op.results[number - 3], _argument(op, 0, number - 2)]
    if op.name == "scf.while":
        return [_argument(op, 0, number)]
    parent = op.parent if op.name in ("scf.yield", "scf.condition") else None
    if parent is None or (op.name == "scf.condition" and number == 0):
        return []
    if op.name == "scf.condition":
        return [parent.results[number - 1], _argument(parent, 1, number - 1)]
    if parent.name == "scf.while":
        return [_argument(parent, 0, number)]
    return [parent.results[number], *([_argument(parent, 0, number + 1)] if parent.name == "scf.for" else [])]


def _is_arithmetic(op: ir.Operation) -> bool:
    if op.name == "llvm.inline_asm":
        # This keeps a value from being computed early.
        return bool(ir.StringAttr(op.attributes["asm_string"]).value.startswith("mov."))
    return op.name in _ARITHMETIC


def _argument(op: ir.Operation, region: int, number: int) -> ir.Value:
    return op.regions[region].blocks[0].arguments[number]


def _is_integer(value: ir.Value) -> bool:
    kind = value.type
    return isinstance(kind, ir.IndexType) or (isinstance(kind, ir.IntegerType) and kind.width > 1)
