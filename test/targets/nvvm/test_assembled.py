"""Every operator and intrinsic becomes PTX that NVIDIA's assembler takes, for each chip. Nothing is executed here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from assembled import assemble, needs_ptxas

from mirlo.targets.nvvm.chips import CHIPS, DEFAULT
from mirlo.tools.conformance.check import _checks, names
from mirlo.tools.conformance.programs import BATCH, TestProgram

pytestmark = needs_ptxas()


def programs_of(chip: str) -> list[TestProgram]:
    """All element types for the oldest chip; the first one of each operator for the others."""
    found = []
    for name in names():
        kinds: dict[str, list[TestProgram]] = {}
        for kind, program, _ in _checks(name):
            kinds.setdefault(kind, []).append(program)
        for number, programs in enumerate(kinds.values()):
            found += programs if chip == DEFAULT else programs[:1] if number == 0 else []
    return found


def batches(programs: list[TestProgram]) -> Iterator[list[TestProgram]]:
    for first in range(0, len(programs), BATCH):
        yield programs[first : first + BATCH]


@pytest.mark.parametrize("chip", CHIPS)
def test_every_operator_and_intrinsic_assembles_without_spills(chip: str) -> None:
    for batch in batches(programs_of(chip)):
        made = assemble(batch, chip)
        assert made is None or made.spilled_bytes == 0, [program.name for program in batch]
