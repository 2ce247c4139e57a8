"""Operand groups of dot-product instructions: four int8, two int16, or two bf16 per lane; 8 bytes for matrices."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.index_expr import IndexExpr
from mirlo.passes.schedule.blocks.contraction.body import MultiplyAdd, ProductInput
from mirlo.passes.schedule.blocks.contraction.forms import BlockAxis, fuse
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.intrinsics.dot_instructions import MATRICES
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.schedule.contraction.operands import ContractionOperand

NEVER = 1 << 62
LARGEST_PAIR = ((1 << 15) - 1) // 255
"""The largest sum of two adjacent i8 weights whose products with any u8 fit 16 bits."""


@dataclass(frozen=True)
class DotGroup:
    """Elements adjacent along K that one instruction multiplies."""

    size: int
    instruction: str
    """`vpdpbusd`, `vpmaddubsw`, `vpmaddwd` or `vdpbf16ps`; `vrmpy`; a name of `DOTS` or `MATRICES` on AArch64."""
    unsigned_columns: bool = False
    """Whether the columns are unsigned; `vpdpbusd` takes one unsigned and one signed operand."""
    widens: bool = False
    """Whether int8 of the rows is extended to int16, in registers, or in a copy if they are read several times.

    So is int8 of the columns, in registers, or in a copy of a panel that many rows are multiplied with.
    """
    flips: bool = False
    """Whether the rows' sign bit is flipped, because the instruction takes no operands of these signs.

    That adds 128 to each element, or subtracts it; its contribution to the accumulators is computed as one more row
    of the tile.
    """
    is_stored: bool = False
    """Whether `pack-weights` has stored the column operand in groups."""
    tail: int = 0
    """Elements in the last group, if it is partial."""

    @property
    def is_matrix(self) -> bool:
        """Return whether the instruction multiplies two rows and two columns."""
        return self.instruction in MATRICES

    @property
    def temporaries(self) -> int:
        """Return the registers of products before they are added, and of what they are multiplied by meanwhile.

        `vpmaddwd` and `vpmaddubsw` have no accumulator; pairs of the latter are multiplied by ones, which adds them.
        """
        return {"vpmaddwd": 1, "vpmaddubsw": 2}.get(self.instruction, 0)

    @property
    def multiplications(self) -> int:
        """Return the instructions that multiply for a group of a vector."""
        return 2 if self.instruction == "vpmaddubsw" else 1


def kind_of_group(
    product: MultiplyAdd,
    rows: ProductInput,
    columns: ProductInput,
    machine: Machine,
    is_tall: bool = False,
    has_small_pairs: bool = False,
) -> DotGroup | None:
    """Select the instruction for products of these operands, if the machine has one.

    `is_tall` is whether columns are multiplied by several rows, `has_small_pairs` whether two adjacent products fit 16
    bits.
    """
    if isinstance(product.accumulate_type, ir.F32Type):
        is_bf16 = all(_widened_by(factor, ("arith.extf",)) is not None for factor in (rows, columns)) and all(
            isinstance(factor.argument.type, ir.BF16Type) for factor in (rows, columns)
        )
        if is_bf16 and "bfmmla" in machine.dots:
            return DotGroup(4, "bfmmla") if is_tall else DotGroup(2, "bfdot")
        return DotGroup(2, "vdpbf16ps") if is_bf16 and machine.has_fast_bf16 else None
    if product.accumulate_type != ir.IntegerType.get_signless(32):
        return None
    casts = [_widened_by(factor, ("arith.extsi", "arith.extui")) for factor in (rows, columns)]
    if not all(casts):
        return None
    i8, i16 = (ir.IntegerType.get_signless(bits) for bits in (8, 16))
    if any(factor.argument.type != i8 for factor in (rows, columns)):
        is_signed = all(factor.argument.type == i16 for factor in (rows, columns)) and set(casts) == {"arith.extsi"}
        return DotGroup(2, "vpmaddwd") if is_signed and "i16" in machine.dots else None
    return group_of_bytes((casts[0] == "arith.extui", casts[1] == "arith.extui"), machine, is_tall, has_small_pairs)


def group_of_bytes(
    unsigned: tuple[bool, bool], machine: Machine, is_tall: bool = False, has_small_pairs: bool = False
) -> DotGroup | None:
    """Select the instruction for products of int8, by which of the rows and the columns are unsigned."""
    is_mixed = unsigned[0] != unsigned[1]
    if "i8mm" in machine.dots and (is_tall or is_mixed):
        size, name = (8, "mmla") if is_tall else (4, "dot")
        return DotGroup(size, ("us" if is_mixed else "u" if unsigned[1] else "s") + name, unsigned[1])
    if "vrmpy" in machine.dots:
        return DotGroup(4, "vrmpy", unsigned[1])
    if "i8xi8" in machine.dots:
        # Both operands are signed or both are not: rows of the other kind have their sign bit flipped.
        instruction = "udot" if unsigned[1] else "sdot"
        return DotGroup(4, instruction, unsigned[1], flips=is_mixed)
    if "u8xi8" in machine.dots:
        return DotGroup(4, "vpdpbusd", unsigned[1], flips=not is_mixed)
    if "i16" not in machine.dots:
        return None
    if has_small_pairs:
        return DotGroup(4, "vpmaddubsw", unsigned[1], flips=not is_mixed)
    return DotGroup(2, "vpmaddwd", unsigned[1], widens=True)


def multiplies_words(product: MultiplyAdd, machine: Machine) -> bool:
    """Return whether `vpmaddwd` multiplies single int8 in the lanes of their i32 accumulators.

    It takes one instruction of the multipliers where `vpmulld` takes two.
    """
    i8 = ir.IntegerType.get_signless(8)
    operands = (product.lhs, product.rhs)
    return (
        "i16" in machine.dots
        and product.accumulate_type == ir.IntegerType.get_signless(32)
        and all(operand.argument.type == i8 for operand in operands)
        and all(_widened_by(operand, ("arith.extsi", "arith.extui")) is not None for operand in operands)
    )


def are_small_pairs(columns: np.ndarray, axis: int) -> bool:
    """Return whether adjacent products with these columns fit 16 bits for any rows, as `vpmaddubsw` adds them.

    Signed columns are multiplied by values from 0 to 255, unsigned ones by values from -128 to 127.
    """
    pairs = np.moveaxis(columns, axis, -1).astype(np.int16)
    sums = pairs[..., 0::2] + pairs[..., 1::2]
    if columns.dtype == np.uint8:
        return not sums.size or int(sums.max()) * 128 <= 1 << 15
    # Values of one sign add up; of two with different signs the larger magnitude counts, which fits by itself.
    return not sums.size or int(np.abs(sums).max()) <= LARGEST_PAIR


def _widened_by(factor: ProductInput, casts: Sequence[str]) -> str | None:
    """Return the cast that an element undergoes before the product, if it is the only operation."""
    if not factor.body_ops:
        return "none" if factor.result == factor.argument and "arith.extf" in casts else None
    name = factor.body_ops[0].name
    is_plain = len(factor.body_ops) == 1 and factor.body_ops[0].operands[0] == factor.argument
    return name if is_plain and name in casts else None


@dataclass(frozen=True)
class GroupedSum:
    """The loops of a reduction whose innermost loop steps by groups."""

    group: DotGroup
    reduce: list[BlockAxis]
    """Innermost last; its extent counts whole groups."""
    rows: IndexExpr
    columns: IndexExpr


def grouped_sum(
    group: DotGroup,
    rows: ContractionOperand,
    columns: ContractionOperand,
    order: Sequence[BlockAxis],
    lane_axis: BlockAxis,
    apart: Collection[int],
    may_pack: bool,
) -> GroupedSum | None:
    """Split the reduction into groups; None if the rows are not contiguous along its innermost axis.

    `may_pack` is whether packing the columns pays, if they are not stored in groups.
    """
    if not order or columns.padded_shape is not None or rows.edge is not None:
        return None
    last, taps = order[-1], {window.tap.id for window in rows.guards}
    if last.id in taps or not isinstance(last.extent, int):
        return None
    if rows.form.stride(last) != 1 or rows.form.stride(lane_axis) != 0:
        return None
    if columns.form.stride(last) == 1 and columns.form.stride(lane_axis) == group.size == last.extent:
        reduce, (row_form, column_form) = fuse(order[:-1], [rows.form, columns.form], apart)
        return GroupedSum(replace(group, is_stored=True), reduce, row_form, column_form)
    if not may_pack:
        return None
    fused, (row_form, column_form) = fuse(order, [rows.form, columns.form], apart)
    inner = fused[-1]
    by_group = [_by_groups(form, inner, group.size) for form in (row_form, column_form)]
    whole = [*fused[:-1], replace(inner, extent=inner.extent // group.size)]
    return GroupedSum(replace(group, tail=inner.extent % group.size), whole, by_group[0], by_group[1])


def _by_groups(form: IndexExpr, axis: BlockAxis, size: int) -> IndexExpr:
    terms = dict(form.terms)
    if axis.id in terms:
        terms[axis.id] *= size
    return IndexExpr(terms, form.constant)


def reserve_registers(group: DotGroup | None, machine: Machine) -> Machine:
    """Return the machine with the registers that remain for a tile whose size is not chosen.

    Flipped signs need accumulators too, a vector of columns is two operands of matrices, and a partial group has a mask
    and elements of rows that are put together.
    """
    if group is None:
        return machine
    reserved = 4 if group.flips or group.is_matrix else 2 if group.tail else 0
    return replace(machine, vector_registers=max(machine.vector_registers - reserved, 4)) if reserved else machine
