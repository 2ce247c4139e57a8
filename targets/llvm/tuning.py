"""What can be chosen for kernels of target `llvm`: the register tile, and whether a panel of columns is copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mirlo.dialects.tir.view import PrimView
from mirlo.passes.rules import Decline
from mirlo.passes.schedule.tuned import tuned_values
from mirlo.targets.llvm.machine import Machine, find_machine

ROWS, VECTORS, PACK = "tile_rows", "tile_vectors", "pack"
NAMES = (ROWS, VECTORS, PACK)
CANDIDATES = 24
"""Most ways that are offered for one kernel; the model of the machine puts the likeliest first."""


def tuned_machine(function: Any, machine: Machine) -> Machine:
    """The machine as a prim function shall see it: with the choices that were measured best for it."""
    return with_choices(machine, tuned_values(function))


def with_choices(machine: Machine, values: Mapping[str, int]) -> Machine:
    known = {name: values[name] for name in NAMES if name in values}
    if not known:
        return machine
    tile = (known[ROWS], known[VECTORS]) if ROWS in known and VECTORS in known else None
    return replace(machine, tile=tile, pack=bool(known[PACK]) if PACK in known else None)


def space(function: Any, options: Any = None) -> list[dict[str, int]]:
    """What may be tried for a prim function in tensor form, the likeliest first; empty for what has no choices."""
    from mirlo.targets.llvm.schedule.contraction.plan import plan_of
    from mirlo.targets.llvm.schedule.contraction.tiles import VECTOR_COUNTS, register_need

    view = PrimView(function)
    if view.others or not view.blocks:
        return []
    machine = find_machine(None)
    plan = plan_of(view.blocks, frozenset(view.returned), machine)
    if isinstance(plan, Decline) or plan.dot:
        return []
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
    return other_packing + ranked


def _expected(question: Any, machine: Machine, rows: int, vectors: int) -> float:
    from mirlo.targets.llvm.schedule.contraction.tiles import tile_cycles

    return tile_cycles(rows, vectors, question, machine)
