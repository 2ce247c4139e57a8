"""The machine model of a prim function: with the choices that were measured best for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.passes.rules import RuleChoice
from mirlo.passes.schedule.choices import ChoiceError, ChoiceValues, check_choice
from mirlo.passes.schedule.tuned import tuned_values
from mirlo.targets.llvm.machine import MAX_ACCUMULATORS, Machine

ROWS, VECTORS, PACK = "tile_rows", "tile_vectors", "pack"
LEAD, BLOCK, UNROLL = "lead_bytes", "block_rows", "unroll"
OUTSIDE, ROW_BLOCK, DEPTH_BLOCK, SHARE, DOT = "rows_outside", "row_block", "depth_block", "share", "dot"
LANES = "lanes"
TRANSPOSED_ROWS, TRANSPOSED_COLUMNS = "transposed_rows", "transposed_columns"
TUNED_PARAMETERS = (LEAD, BLOCK, ROW_BLOCK, DEPTH_BLOCK, SHARE)
FLAGS = (PACK, OUTSIDE, DOT)
PER_LOOP = (LANES, UNROLL, TRANSPOSED_ROWS, TRANSPOSED_COLUMNS)
CONTRACTION_CHOICES = (
    RuleChoice(ROWS, range(1, 65), "rows of the register tile"),
    RuleChoice(VECTORS, range(1, 65), "vectors of columns of the register tile; at most 64 accumulators in all"),
    RuleChoice(PACK, range(2), "whether panels of columns are packed: weights once, others in each call"),
    RuleChoice(DOT, range(2), "whether the lanes run along K instead of the columns"),
    RuleChoice(OUTSIDE, range(2), "whether the loops over rows are outside of those over panels"),
    RuleChoice(
        ROW_BLOCK, range(1 << 20), "tiles of rows that are computed with a panel before the next one; 0 for all"
    ),
    RuleChoice(DEPTH_BLOCK, range(1 << 30), "extent of a block of K, 64 or more; 0 for all of K"),
    RuleChoice(LEAD, range(1 << 20), "prefetch distance, in bytes, of weights that one tile reads"),
    RuleChoice(SHARE, range(3), "what threads divide: 0 panels, 1 the rows of each, 2 both as one loop"),
)
BLOCK_CHOICES = (RuleChoice(BLOCK, range(1, 1 << 30), "rows of a block"),)
LOOP_CHOICES = (
    RuleChoice(LANES, tuple(1 << i for i in range(7)), "elements of a vector", is_per_loop=True),
    RuleChoice(UNROLL, range(1, 17), "vectors per iteration", is_per_loop=True),
)
_SQUARES = (2, 4, 8, 16, 32, 64)
ELEMENTWISE_CHOICES = (
    *LOOP_CHOICES,
    RuleChoice(TRANSPOSED_ROWS, _SQUARES, "rows of a tile that is transposed in registers", is_per_loop=True),
    RuleChoice(TRANSPOSED_COLUMNS, _SQUARES, "columns of it, no fewer than rows", is_per_loop=True),
)
_BY_NAME = {choice.name: choice for choice in (*CONTRACTION_CHOICES, *BLOCK_CHOICES, *ELEMENTWISE_CHOICES)}
PACKED = "tir.packed"
"""Attribute of a prim function: the panels of a constant operand were packed before."""


def tuned_machine(function: ir.OpView | ir.Operation, machine: Machine) -> Machine:
    """Return the machine with the choices that were measured best for a prim function."""
    chosen = with_choices(machine, tuned_values(function))
    if PACKED not in function.operation.attributes:
        return chosen
    return replace(chosen, chosen=replace(chosen.chosen, pack=None, is_packed=True))


def with_choices(machine: Machine, values: ChoiceValues) -> Machine:
    """Return the machine with these choices in place of the schedules' own."""
    for name, value in values.items():
        if name in _BY_NAME:
            check_choice(_BY_NAME[name], value)
    choices: dict[str, Any] = {name: values[name] for name in TUNED_PARAMETERS if name in values}
    choices |= {name: bool(values[name]) for name in FLAGS if name in values}
    for name in PER_LOOP:
        value = values.get(name, ())
        choices |= {name: value if isinstance(value, tuple) else (value,)} if value else {}
    if ROWS in values and VECTORS in values:
        rows, vectors = values[ROWS], values[VECTORS]
        assert isinstance(rows, int) and isinstance(vectors, int)
        if rows * vectors > MAX_ACCUMULATORS:
            found_tile = f"found {rows} * {vectors}"
            raise ChoiceError(f"{ROWS}, {VECTORS}: expected {MAX_ACCUMULATORS} accumulators or less, {found_tile}")
        choices["tile"] = (rows, vectors)
    return replace(machine, chosen=replace(machine.chosen, **choices)) if choices else machine
