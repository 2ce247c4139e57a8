"""Kernels prepared for execution: their variables have places, their basic blocks are lists of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mirlo.runtime.records import dataclass
from mirlo.testing.ptx.errors import KernelError, PtxError
from mirlo.testing.ptx.flow import BasicBlock, arguments_of, basic_blocks, results_of
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.instructions import MEETING, builder_of, wait_builder_of
from mirlo.testing.ptx.prepare import KernelPreparation, Step
from mirlo.testing.ptx.residues import MeaninglessError, Residues
from mirlo.testing.ptx.text import Function, Module, Negated, PtxInstruction, PtxSymbol, PtxVariable, Reg
from mirlo.testing.ptx.types import Array

Ending = Callable[[Group], list[Group]]


@dataclass
class Code:
    """A basic block, ready to be executed."""

    steps: list[Step]
    instructions: list[PtxInstruction]
    ending: Ending
    live: tuple[int, ...]
    meets: Callable[[Group], Array] | None = None
    """Which lanes of its warp each thread waits for before it goes on, as a mask, where there are any."""


class PtxKernel:
    """A kernel of a module, prepared for execution."""

    def __init__(self, module: Module, name: str, residues: Residues | None = None) -> None:
        function = module.functions[name]
        self.name = name
        self.residues = residues
        self.function = function
        symbols, self.constants = _place_globals(module)
        symbols |= _lay_out(function.params)
        self.params_size = max((v.offset + v.size for v in function.params), default=0)
        local = [v for v in function.variables if v.space == "local"]
        symbols |= _lay_out(local)
        self.local_size = max((v.offset + v.size for v in local), default=0)
        used = _symbols_of(function)
        shared = [v for v in (*function.variables, *module.variables) if v.space == "shared"]
        shared = [v for v in shared if v in function.variables or v.name in used]
        # What the launch brings, which has no size here, lies after the rest.
        shared.sort(key=lambda v: v.size == 0)
        symbols |= _lay_out(shared)
        self.shared_size = max((v.offset + v.size for v in shared), default=0)
        digits = "".join(c for c in module.target if c.isdigit())
        p = KernelPreparation(
            function, symbols, frozenset(v.name for v in shared), module.target, divmod(int(digits), 10), residues
        )
        self.blocks = [_prepare(p, block) for block in basic_blocks(function, MEETING)]
        self.numbers = p.numbers
        self.opcodes = frozenset(instruction.opcode for instruction in function.body)
        self.registers = len(p.numbers)

    def instruction(self, at: int) -> PtxInstruction:
        """Return the first instruction of a basic block."""
        return self.blocks[at].instructions[0]


def _symbols_of(function: Function) -> set[str]:
    match = set()
    for instruction in function.body:
        for operand in instruction.operands:
            base = getattr(operand, "base", operand)
            if isinstance(base, PtxSymbol):
                match.add(base.name)
    return match


def _lay_out(variables: Sequence[PtxVariable]) -> dict[str, int]:
    """Assign addresses to variables in their space, one after the other."""
    end = 0
    for variable in variables:
        variable.offset = -(-end // max(variable.alignment, 1)) * max(variable.alignment, 1)
        end = variable.offset + variable.size
    return {variable.name: variable.offset for variable in variables}


def _place_globals(module: Module) -> tuple[dict[str, int], list[tuple[int, Array, str]]]:
    """Memory for the constants of a module: addresses, bytes and names."""
    symbols, kept = {}, []
    for variable in module.variables:
        if variable.space not in ("global", "const"):
            continue
        room = np.zeros(variable.size + 256, np.uint8)
        start = int(room.__array_interface__["data"][0])
        skip = -start % 256
        room[skip : skip + len(variable.initial)] = np.frombuffer(variable.initial, np.uint8)
        symbols[variable.name] = start + skip
        kept.append((start + skip, room[skip : skip + variable.size], f"the constant '{variable.name}'"))
    return symbols, kept


# Preparing


def _prepare(p: KernelPreparation, block: BasicBlock) -> Code:
    instructions = p.function.body[block.first : block.last]
    steps = []
    ending: Ending | None = None
    meets = None
    for number, instruction in enumerate(instructions):
        try:
            if number == len(instructions) - 1:
                ending = _ending(p, instruction, block)
                match = wait_builder_of(instruction)
                if match is not None:
                    ending, meets = match(p, instruction, block.targets[0] if block.targets else -1)
                if ending is not None:
                    break
            steps.append(_guarded(p, instruction, builder_of(p, instruction)))
        except MeaninglessError:
            raise
        except PtxError as error:
            raise PtxError(f"'{p.function.name}', line {instruction.line}, {instruction.opcode}: {error}") from None
    live = tuple(p.number(name) for name in block.live)
    return Code(steps, instructions, ending or _go_on(block), live, meets)


def _go_on(block: BasicBlock) -> Ending:
    if not block.targets:
        return _leave
    (target,) = block.targets

    def ending(group: Group) -> list[Group]:
        group.at = target
        return [group]

    return ending


def _leave(group: Group) -> list[Group]:
    group.batch.alive[group.tids] = False
    group.batch.cluster_barrier.settle()
    return []


def _ending(p: KernelPreparation, i: PtxInstruction, block: BasicBlock) -> Ending | None:
    if i.name in ("ret", "exit"):
        return _leave if i.guard is None else _branch(p, i.guard, None, block.targets[-1])
    if i.name == "trap":

        def trap(group: Group) -> list[Group]:
            raise KernelError("the kernel traps")

        return trap
    if i.name == "brx":
        return _branch_by_index(p, i, block)
    if i.name != "bra":
        return None
    if i.guard is None:
        return _go_on(BasicBlock(0, 0, block.targets[:1]))
    return _branch(p, i.guard, block.targets[0], block.targets[-1])


def _branch(p: KernelPreparation, guard: Reg | Negated, target: int | None, behind: int) -> Ending:
    condition = p.read(guard, "pred")

    def ending(group: Group) -> list[Group]:
        taken = condition(group)
        if taken.all():
            parts = [(group, target)]
        elif not taken.any():
            parts = [(group, behind)]
        else:
            blocks = group.batch.kernel.blocks
            live = blocks[target].live if target is not None else ()
            parts = [(group.part(taken, live, 0), target), (group.part(~taken, blocks[behind].live, 0), behind)]
        result = []
        for part, to in parts:
            if to is None:
                _leave(part)
            else:
                part.at = to
                result.append(part)
        return result

    return ending


def _branch_by_index(p: KernelPreparation, i: PtxInstruction, block: BasicBlock) -> Ending:
    index = p.read(i.operands[0], "u32")

    def ending(group: Group) -> list[Group]:
        chosen = group.spread(index(group))
        if int(chosen.max()) >= len(block.targets):
            raise KernelError(f"index {int(chosen.max())} of {len(block.targets)} targets")
        blocks = group.batch.kernel.blocks
        return [group.part(chosen == one, blocks[block.targets[one]].live, block.targets[one])
                for one in np.unique(chosen)]  # fmt: skip

    return ending


def _guarded(p: KernelPreparation, i: PtxInstruction, step: Step) -> Step:
    """Return a step for those threads of a group whose predicate says so."""
    if i.guard is None:
        return step
    condition = p.read(i.guard, "pred")
    results = [p.number(name) for name in results_of(i)]
    needed = [p.number(name) for name in arguments_of(i)]

    def guarded(group: Group) -> None:
        chosen = condition(group)
        if chosen.all():
            step(group)
            return
        if not chosen.any():
            return
        part = group.part(chosen, needed, group.at)
        step(part)
        for number in results:
            new, old = part.regs[number], group.regs[number]
            result = np.zeros(group.size, new.dtype) if old is None else group.spread(old).copy()
            result[chosen] = new
            group.regs[number] = result

    return guarded
