"""What can be chosen for kernels of target `llvm`.

Of products the register tile, whether a panel of columns is copied, and how far ahead weights are fetched; of attention
the rows of a block; of everything else how many vectors are computed side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mirlo.dialects.tir.view import PrimView
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.blocks.group import Group, unfit
from mirlo.passes.schedule.tuned import tuned_values
from mirlo.targets.llvm.machine import Machine, find_machine

ROWS, VECTORS, PACK = "tile_rows", "tile_vectors", "pack"
LEAD, BLOCK, UNROLL = "lead_bytes", "block_rows", "unroll"
CANDIDATES = 24
"""Most tiles that are offered for one kernel; the model of the machine puts the likeliest first."""
LEADS = (0, 2048, 8192)
BLOCKS = (16, 32, 64, 96, 128, 192, 256, 512)
UNROLLS = (1, 2, 4, 8)


def tuned_machine(function: Any, machine: Machine) -> Machine:
    """The machine as a prim function shall see it: with the choices that were measured best for it."""
    return with_choices(machine, tuned_values(function))


def with_choices(machine: Machine, values: Mapping[str, int]) -> Machine:
    """The machine with these choices in place of the schedules' own."""
    numbers: dict[str, Any] = {name: values[name] for name in (LEAD, BLOCK, UNROLL) if name in values}
    if ROWS in values and VECTORS in values:
        numbers["tile"] = (values[ROWS], values[VECTORS])
    if PACK in values:
        numbers["pack"] = bool(values[PACK])
    return replace(machine, **numbers) if numbers else machine


def space(function: Any, options: Any = None) -> list[dict[str, int]]:
    """What may be tried for a prim function in tensor form, the likeliest first; empty for what has no choices."""
    from mirlo.targets.llvm.schedule.blocked import plan_blocked
    from mirlo.targets.llvm.schedule.contraction.plan import plan_of

    view = PrimView(function)
    machine = find_machine(None)
    group = Group(tuple(view.blocks), frozenset(view.returned), machine)
    if unfit(view) is not None:
        return []
    plan = plan_of(view.blocks, group.kept, machine)
    if not isinstance(plan, Decline):
        return [] if plan.dot else _of_products(plan, machine)
    blocked = plan_blocked(view, group)
    if not isinstance(blocked, Decline):
        rows = {min(count, blocked.extent) for count in BLOCKS} - {blocked.block}
        return [{BLOCK: count} for count in sorted(rows, key=lambda count: abs(count - blocked.block))]
    return [{UNROLL: count} for count in UNROLLS]


def _of_products(plan: Any, machine: Machine) -> list[dict[str, int]]:
    from mirlo.targets.llvm.schedule.contraction.tiles import VECTOR_COUNTS, register_need

    own = {ROWS: plan.tile_rows, VECTORS: plan.tile_vectors}
    question = plan.question
    found: list[tuple[float, dict[str, int]]] = []
    for vectors in VECTOR_COUNTS:
        for rows in range(1, min(question.rows, machine.vector_registers) + 1):
            if vectors > -(-question.columns // question.lanes):
                continue
            if register_need(rows, vectors, question) > machine.vector_registers:
                continue
            cost = _expected(question, machine, rows, vectors)
            found.append((cost, {ROWS: rows, VECTORS: vectors}))
    ranked = [values for _, values in sorted(found, key=lambda entry: entry[0]) if values != own][:CANDIDATES]
    other_packing = [{**own, PACK: int(plan.packing is None)}] if plan.may_pack else []
    leads = [{LEAD: count} for count in LEADS] if plan.question.rows <= plan.tile_rows else []
    return other_packing + leads + ranked


def _expected(question: Any, machine: Machine, rows: int, vectors: int) -> float:
    from mirlo.targets.llvm.schedule.contraction.tiles import tile_cycles

    return tile_cycles(rows, vectors, question, machine)
