"""The emulation of AMX's registers (`tiles=emulated`) computes what its instructions are declared to mean, exactly.

Its floats are those of the processor: products of bf16 run on integers, for which they are exact.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mirlo.passes.exact.commands import compare_program
from mirlo.passes.exact.verdict import DIFFERENT, EQUAL
from mirlo.runtime.host_cpu import host_cpu
from mirlo.targets.llvm.emulated_tiles import emulate_tiles
from mirlo.targets.llvm.tile_programs import FACTORS, module_of, tile_program, tile_programs
from mirlo.tools.conformance.instructions import check_instructions


@pytest.mark.skipif(not {"avx2", "fma"} <= host_cpu().features, reason="needs AVX2 and FMA")
def test_check_target_has_a_row_for_each_instruction() -> None:
    checks = list(check_instructions("llvm", None, lambda step: None))
    assert [(check.name, check.verdict.status) for check in checks] == [(name, EQUAL) for name in FACTORS]
    assert [check.kind for check in checks] == ["f32", "i32", "i32", "i32", "i32"]


def test_instructions_that_this_machine_cannot_emulate_have_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirlo.targets.llvm.tile_programs.host_cpu", lambda: SimpleNamespace(features=("sse4.2",)))
    assert tile_programs() == ()


SIGNS, OTHER = {"s": "sext", "u": "zext"}, {"s": "u", "u": "s"}
FAULTS = [
    ("tdpbf16ps", "%a1 = extractelement <2 x i16> %ap, i32 1", "%a1 = extractelement <2 x i16> %ap, i32 0"),
    ("tdpbf16ps", "fadd <16 x float> %n0, %n1", "fadd <16 x float> %n0, %n0"),
    ("tdpbf16ps", "fadd <16 x float> %oldz, %bothz", "fadd <16 x float> %bothz, %bothz"),
    ("tdpbf16ps", "phi <16 x float> [zeroinitializer, %row], [%n1", "phi <16 x float> [%old, %row], [%n1"),
    *((name, "%pb, i64 %bo", "%pa, i64 %bo") for name in FACTORS),
    *((name, "%groups = lshr i64 %deep, 2", "%groups = lshr i64 %deep, 3") for name in FACTORS),
    *((name, "%o = shl i64 %i, 6\n  %cp", "%o = shl i64 %i, 5\n  %cp") for name in FACTORS),
    *((name, "add <16 x i32> %n1, %m2", "add <16 x i32> %n0, %m2") for name in list(FACTORS)[1:]),
    *((f"tdpb{a}{b}d", f"%wb3 = {SIGNS[b]}", f"%wb3 = {SIGNS[OTHER[b]]}") for a in "su" for b in "su"),
    *((f"tdpb{a}{b}d", f"%wa0 = {SIGNS[a]}", f"%wa0 = {SIGNS[OTHER[a]]}") for a in "su" for b in "su"),
]  # fmt: skip
"""Faults: the instruction, and what of its emulation is replaced by what."""


@pytest.mark.parametrize(("name", "right", "wrong"), FAULTS)
def test_a_fault_of_the_emulation_is_found(name: str, right: str, wrong: str) -> None:
    text = emulate_tiles(module_of(name))
    assert right in text
    faulty = text.replace("call void @tile.require", "; require").replace(right, wrong)
    assert compare_program(tile_program(name, faulty)).status == DIFFERENT
