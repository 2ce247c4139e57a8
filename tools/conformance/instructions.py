"""Comparison of a target's instructions with what they mean, and of programs of commands with their functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from mirlo.dialects.context import make_context
from mirlo.dialects.core.dtypes import dtype_of_mlir
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.exact.commands import compare_command, compare_program, program_intrinsics
from mirlo.passes.exact.intrinsics import compare_intrinsic
from mirlo.passes.exact.verdict import KernelVerdict
from mirlo.passes.schedule.primitives.command_intrin import CommandIntrin
from mirlo.passes.schedule.primitives.commands import CommandProgram
from mirlo.passes.schedule.primitives.tensorize import Instruction, TensorIntrin
from mirlo.passes.targets import find_target
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class InstructionCheck:
    """The verdict on an instruction, or on a program of commands."""

    name: str
    kind: str
    """The element type of the result."""
    verdict: KernelVerdict


def instructions_of(target: str) -> list[Instruction | CommandProgram]:
    """Return what the targets of a list declare, in order."""
    names = dict.fromkeys(Targets.parse(target).names)
    declared = [each for name in names for each in find_target(name).instructions()]
    return [each for each in declared if isinstance(each, (Instruction, CommandProgram))]


def compare_instruction(
    instruction: Instruction | CommandProgram, programs: Sequence[CommandProgram] = ()
) -> KernelVerdict | None:
    """Compare an instruction with what it means; None for one that only programs show."""
    if isinstance(instruction, CommandProgram):
        return compare_program(instruction)
    with make_context():
        if isinstance(instruction, TensorIntrin):
            return compare_intrinsic(instruction)
        assert isinstance(instruction, CommandIntrin)
        if instruction.simulate is None and any(instruction.name in program_intrinsics(each) for each in programs):
            return None
        return compare_command(instruction)


def check_instructions(
    target: str, only: Collection[str] | None, report: Callable[[str], None]
) -> Iterator[InstructionCheck]:
    """Compare the instructions and programs of a target, or those of `only`."""
    declared = instructions_of(target)
    programs = [each for each in declared if isinstance(each, CommandProgram)]
    chosen = [each for each in declared if only is None or each.name in only]
    for number, each in enumerate(chosen):
        report(f"instruction {each.name}, {number + 1} of {len(chosen)}")
        verdict = compare_instruction(each, programs)
        if verdict is not None:
            yield InstructionCheck(each.name, _kind_of(each), verdict)


def _kind_of(instruction: Instruction | CommandProgram) -> str:
    if isinstance(instruction, CommandProgram):
        outputs = [value.type.element_type for value in instruction.schedule.view.returned]
        kind = dtype_of_mlir(outputs[0])
        return kind.name if kind is not None else str(outputs[0])
    return next(str(each.dtype) for each in instruction.means.parameters if each.is_output)
