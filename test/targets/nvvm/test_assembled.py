"""Every operator and intrinsic becomes PTX that NVIDIA's assembler takes, for some chip. Nothing is executed here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from assembled import assemble, needs_ptxas

from mirlo.targets.nvvm.chips import CHIPS, DEFAULT
from mirlo.tools.conformance.check import checks_of, names
from mirlo.tools.conformance.programs import BATCH, TestProgram

pytestmark = needs_ptxas()


def programs_of(chip: str, whole: bool) -> list[TestProgram]:
    """One element type of each operator for the oldest chip, or all; the other chips take the operators in turn."""
    others = [name for name in CHIPS if name != DEFAULT]
    found = []
    for number, name in enumerate(names()):
        kinds: dict[str, list[TestProgram]] = {}
        for kind, program, _ in checks_of(name):
            kinds.setdefault(kind, []).append(program)
        if chip == DEFAULT:
            chosen = list(kinds.values())
            chosen = chosen if whole else chosen[number % len(chosen) :][:1]
            found += [program for programs in chosen for program in programs]
        elif others[number % len(others)] == chip:
            found += next(iter(kinds.values()))[:1]
    return found


def batches(programs: list[TestProgram]) -> Iterator[list[TestProgram]]:
    for first in range(0, len(programs), BATCH):
        yield programs[first : first + BATCH]


@pytest.mark.sample(0)
@pytest.mark.parametrize("chip", CHIPS)
def test_every_operator_and_intrinsic_assembles_without_spills(chip: str, whole: bool) -> None:
    for batch in batches(programs_of(chip, whole)):
        made = assemble(batch, chip)
        assert made is None or made.spilled_bytes == 0, [program.name for program in batch]
