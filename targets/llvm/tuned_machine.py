"""The machine model of a prim function: with the choices that were measured best for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.passes.schedule.tuned import tuned_values
from mirlo.targets.llvm.machine import Machine

ROWS, VECTORS, PACK = "tile_rows", "tile_vectors", "pack"
LEAD, BLOCK, UNROLL = "lead_bytes", "block_rows", "unroll"
OUTSIDE, ROW_BLOCK, DEPTH_BLOCK, SHARE, DOT = "rows_outside", "row_block", "depth_block", "share", "dot"
TUNED_PARAMETERS = (LEAD, BLOCK, UNROLL, ROW_BLOCK, DEPTH_BLOCK, SHARE)
FLAGS = (PACK, OUTSIDE, DOT)


def tuned_machine(function: ir.OpView | ir.Operation, machine: Machine) -> Machine:
    """Return the machine with the choices that were measured best for a prim function."""
    return with_choices(machine, tuned_values(function))


def with_choices(machine: Machine, values: Mapping[str, int]) -> Machine:
    """Return the machine with these choices in place of the schedules' own."""
    found: dict[str, Any] = {name: values[name] for name in TUNED_PARAMETERS if name in values}
    found |= {name: bool(values[name]) for name in FLAGS if name in values}
    if ROWS in values and VECTORS in values:
        found["tile"] = (values[ROWS], values[VECTORS])
    return replace(machine, chosen=replace(machine.chosen, **found)) if found else machine
