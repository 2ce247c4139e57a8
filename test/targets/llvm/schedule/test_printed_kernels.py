"""Kernels whose schedules `mirlo explain --kernel` prints as primitives: all but those of a documented list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from planned_kernels import MACHINES, PROGRAM
from snapshots import TESTS
from weightless import weightless_model

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import prim_functions
from mirlo.frontends.onnx.importer import import_model
from mirlo.passes.options import quote
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.schedule.schedule import ScheduleRecord
from mirlo.passes.session import Session
from mirlo.targets.llvm.pipeline import compile_pipeline
from mirlo.tools.conformance.case import TABLE
from mirlo.tools.conformance.derived import derive_cases
from mirlo.tools.conformance.programs import module_of, operator_program
from mirlo.tools.samples import GRAPHS

PASSES = "legalize{target=llvm},annotate-kinds,fuse-ops,fuse-tir,schedule{target=llvm}"


@cache
def documented() -> frozenset[str]:
    """Return the names in the first column of the list: of rules, and of kernels that are written as loops."""
    text = (TESTS.parent / "docs/decisions/7-primitives.md").read_text(encoding="utf-8")
    rows = text.partition("## Kernels without primitives")[2].split("\n| ")[2:]
    return frozenset(name for row in rows for name in re.findall("`([^`]+)`", row.partition(" | ")[0]))


def without_primitives(module: ir.Operation, session: Session) -> Iterator[str]:
    """Yield the rules of kernels that are one primitive, and the names of kernels that no rule schedules."""
    records = {note.function: note for note in session.notes if isinstance(note, ScheduleRecord)}
    yield from (record.rule.name for record in records.values() if record.is_applied)
    for function in prim_functions(module):
        name = symbol_name(function)
        if name not in records:
            yield re.sub(r"(_\d+)+$", "", name)


def of_operator(operator: str) -> set[str]:
    """Return what of the cases of an operator, of one element type, has no primitives."""
    kinds = [kinds[0] for _, kinds in TABLE.makers[operator]]
    found: set[str] = set()
    for case in (case for kind in dict.fromkeys(kinds) for case in TABLE.cases(operator, kind)):
        with make_context(), ir.Location.unknown():
            module, session = module_of([operator_program(operator, case)])[0], Session()
            Pipeline(PASSES).run(module, session, verify_each=False)
            found |= set(without_primitives(module.operation, session))
    return found


def test_kernels_of_operators() -> None:
    """All kernels of the cases of `check-target` have primitives, or are in the list; others are not in it."""
    derive_cases()
    found = {name for operator in TABLE.makers if "." not in operator for name in of_operator(operator)}
    assert found <= documented()
    assert {name for name in documented() if name in TABLE.makers} <= found


@pytest.mark.parametrize("machine", MACHINES["llvm"])
def test_kernels_of_all_families(machine: str) -> None:
    with make_context(), ir.Location.unknown():
        module, session = ir.Module.parse(PROGRAM.read_text(encoding="utf-8")), Session()
        scheduled = PASSES.replace("schedule{", f"schedule{{machine={quote(machine)} ")
        Pipeline(scheduled).run(module, session, verify_each=False)
        assert set(without_primitives(module.operation, session)) <= documented()


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", sorted(path.stem for path in GRAPHS.glob("*.onnx")))
def test_kernels_of_samples(name: str, tmp_path: Path) -> None:
    module, store = import_model(weightless_model(name, tmp_path))
    passes = compile_pipeline().partition(",lower-loops")[0] + ")"
    with module.context, ir.Location.unknown():
        session = Session(store)
        Pipeline(passes).run(module, session, verify_each=False)
        assert set(without_primitives(module.operation, session)) <= documented()
