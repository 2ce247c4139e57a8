"""The basic blocks of a function, and which registers are still needed where they begin."""

from __future__ import annotations

from collections.abc import Iterator

from mirlo.runtime.records import dataclass, field
from mirlo.testing.ptx.errors import PtxError
from mirlo.testing.ptx.text import (
    Address,
    Bracket,
    Function,
    Negated,
    Operand,
    Pair,
    PtxInstruction,
    PtxSymbol,
    Reg,
    Vector,
)

JUMPS = ("bra", "brx", "ret", "exit", "trap")
STORES = ("st", "red", "stmatrix", "prefetch", "bar", "barrier", "mbarrier", "cp", "fence", "membar", "wgmma")
"""Instructions whose first operand is not written."""


@dataclass
class BasicBlock:
    """Instructions that are executed one after the other."""

    first: int
    last: int
    """One after the last instruction."""
    targets: tuple[int, ...] = ()
    """The blocks that may follow."""
    live: frozenset[str] = frozenset()
    """Registers that are read before they are written, here or later."""
    live_out: frozenset[str] = field(default=frozenset())


def registers_of(operand: Operand) -> Iterator[str]:
    """Return the registers that an operand names."""
    if isinstance(operand, Reg):
        yield operand.name
    elif isinstance(operand, Negated):
        yield operand.reg.name
    elif isinstance(operand, (Vector, Bracket)):
        for part in operand.parts:
            yield from registers_of(part)
    elif isinstance(operand, Pair):
        yield from registers_of(operand.first)
        yield from registers_of(operand.second)
    elif isinstance(operand, Address) and isinstance(operand.base, Reg):
        yield operand.base.name


def writes(instruction: PtxInstruction) -> bool:
    """Return whether the first operand is a result."""
    if instruction.name in JUMPS or not instruction.operands:
        return False
    if instruction.name == "mbarrier":
        return isinstance(instruction.operands[0], Reg)
    if instruction.name == "wgmma":
        return instruction.modifiers[0] == "mma_async"
    if instruction.name == "tcgen05":
        return instruction.modifiers[0] == "ld"
    if instruction.name == "barrier" and instruction.has("red"):
        return True
    return instruction.name not in STORES


CARRY = "%carry"
"""The register of the carry, which no instruction names: those with `.cc` write it, `addc`, `subc`, `madc` read it."""


def results_of(instruction: PtxInstruction) -> set[str]:
    """Return the registers that an instruction writes."""
    names = set(registers_of(instruction.operands[0])) if writes(instruction) else set()
    return names | {CARRY} if instruction.has("cc") else names


def arguments_of(instruction: PtxInstruction) -> set[str]:
    """Return the registers that it reads."""
    rest = instruction.operands[1:] if writes(instruction) else instruction.operands
    names = {name for operand in rest for name in registers_of(operand)}
    if instruction.name in ("addc", "subc", "madc"):
        names.add(CARRY)
    if instruction.guard is not None:
        # Threads that it does not concern keep what they had.
        names |= {*registers_of(instruction.guard), *results_of(instruction)}
    if instruction.name == "wgmma" and writes(instruction):
        names |= results_of(instruction)
    return names


def basic_blocks(function: Function, meets: frozenset[str]) -> list[BasicBlock]:
    """Return the blocks of a function; instructions named in `meets` begin one and end one: threads wait there."""
    body = function.body
    starts = {0, *function.labels.values()}
    for i, instruction in enumerate(body):
        if instruction.name in JUMPS:
            starts.add(i + 1)
        if instruction.name in meets:
            starts |= {i, i + 1}
    ordered = sorted(start for start in starts if start < len(body))
    number = {start: i for i, start in enumerate(ordered)}
    blocks = [BasicBlock(a, b) for a, b in zip(ordered, [*ordered[1:], len(body)], strict=True)]
    for i, block in enumerate(blocks):
        block.targets = tuple(_targets(function, body[block.last - 1], i, number, len(blocks)))
    _find_live(blocks, body)
    return blocks


def _targets(function: Function, last: PtxInstruction, i: int, number: dict[int, int], count: int) -> Iterator[int]:
    """Return the jump's target first, then the next block."""
    if last.name == "bra":
        (label,) = last.operands
        assert isinstance(label, PtxSymbol)
        if label.name not in function.labels:
            raise PtxError(f"line {last.line}: no label {label.name!r}")
        yield number[function.labels[label.name]]
    elif last.name == "brx":
        table = last.operands[1]
        assert isinstance(table, PtxSymbol)
        yield from (number[function.labels[name]] for name in function.tables[table.name])
        return
    if (last.name not in JUMPS or last.guard is not None) and i + 1 < count:
        yield i + 1


def _find_live(blocks: list[BasicBlock], body: list[PtxInstruction]) -> None:
    own = []
    for block in blocks:
        read: set[str] = set()
        written: set[str] = set()
        for instruction in body[block.first : block.last]:
            read |= arguments_of(instruction) - written
            written |= results_of(instruction)
        own.append((read, written))
    live: list[set[str]] = [set(read) for read, _ in own]
    changed = True
    while changed:
        changed = False
        for i in range(len(blocks) - 1, -1, -1):
            out = set().union(*(live[t] for t in blocks[i].targets))
            names = own[i][0] | (out - own[i][1])
            if len(names) != len(live[i]):
                live[i], changed = names, True
    for block, needed in zip(blocks, live, strict=True):
        block.live = frozenset(needed)
        block.live_out = frozenset(set().union(*(live[t] for t in block.targets)))
