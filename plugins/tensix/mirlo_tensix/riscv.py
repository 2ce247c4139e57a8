"""Programs of the RISC-V cores: words that they push, loops, stores, waits, and requests to the network."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from mirlo.extend.target import rv32
from mirlo_tensix.instructions import DONE, Instructions, Loop, Mark, Riscv

NETWORK = 0xFFB20000
"""Registers of a request: target, return address, control, size, and go; counters of what was received."""
READS_UNANSWERED, WRITES_ACKNOWLEDGED = NETWORK + 0x240, NETWORK + 0x204
TAGS = 16
SEMAPHORES = 0xFFE80020
READ, WRITE, BROADCAST = 0, 2 | 1 << 4, 2 | 1 << 4 | 1 << 5 | 1 << 8
"""Kinds of requests; writes are acknowledged, a broadcast's by each core."""
ADDRESS, OPERAND, BOUND, COUNTERS = 5, 6, 7, 8
"""Registers that these instructions use; loops count in the last one and those after it."""
LESS = rv32.BranchCondition.LESS_UNSIGNED
FLAG = 0x40
"""Where in L1 the last thread's core says that it is done."""


def store(address: int, value: int) -> list[int]:
    """Return the instructions that store a word."""
    return [*rv32.set_register(OPERAND, value), *rv32.store_at(OPERAND, address, ADDRESS)]


def wait_for(address: int, least: int) -> list[int]:
    """Return the instructions that wait until a word is at least a number below 2,048."""
    upper, load = rv32.load_at(OPERAND, address, ADDRESS)
    return [upper, load, rv32.add_constant(BOUND, 0, least), load, rv32.branch_back(LESS, OPERAND, BOUND)]


def wait_for_reads(tag: int) -> list[int]:
    """Return the instructions that wait until no read of a tag is in flight: answers may come in any order."""
    return _wait_for_zero(READS_UNANSWERED + 4 * tag)


def _wait_for_zero(address: int) -> list[int]:
    return [*rv32.load_at(OPERAND, address, ADDRESS), rv32.branch_back(rv32.BranchCondition.UNEQUAL, OPERAND, 0)]


@dataclass
class Requests:
    """Requests to the network; registers that already hold a value are not stored again."""

    registers: dict[int, int] = field(default_factory=dict)

    def words(self, kind: int, target: tuple[int, int], source: tuple[int, int], size: int, tag: int = 0) -> list[int]:
        """Return the instructions of a request: addresses with places as `place` encodes them, bytes, and a tag."""
        names = (0, 4, 0xC, 0x10, 0x18, 0x1C, 0x20)
        values = dict(zip(names, (*target, *source, tag << 10, kind, size), strict=True))
        changed = [each for each in values.items() if self.registers.get(each[0]) != each[1]]
        self.registers |= values
        words = [word for offset, value in changed for word in store(NETWORK + offset, value)]
        return [*words, *store(NETWORK + 0x28, 1), *_wait_for_zero(NETWORK + 0x28)]


def place(core: Sequence[int], first: Sequence[int] = (0, 0)) -> int:
    """Return a place in the network, or the rectangle from the first place to it."""
    return core[0] << 4 | core[1] << 10 | first[0] << 16 | first[1] << 22


@dataclass
class Program:
    """The program of a thread's core, and where its commands begin."""

    code: bytes = b""
    marks: list[tuple[int, str]] = field(default_factory=list)
    words: int = 0
    """How many of its instructions are words or loops of words, which come first."""

    def command_at(self, word: int) -> str:
        """Return the command that a word belongs to."""
        found = bisect_right(self.marks, word, key=lambda mark: mark[0])
        return self.marks[found - 1][1] if found else "configuration"


def _assembled(words: Instructions, marks: list[tuple[int, str]], first: int = 0, depth: int = 0) -> list[int]:
    """Return the instructions of a thread's core: a word is an instruction if it is rotated by two bits."""
    code = list[int]()
    for word in words:
        if isinstance(word, Mark):
            marks.append((first + len(code), word.command))
        elif isinstance(word, Riscv):
            code += word.code
        elif isinstance(word, Loop):
            body = _assembled([*word.body], marks, first + len(code) + 1, depth + 1)
            code += rv32.repeat(word.count, body, COUNTERS + depth)
        else:
            code.append((word << 2 | word >> 30) & 0xFFFFFFFF)
    return code


def program_of(words: Instructions, is_last: bool) -> Program:
    """Return the program of a thread's core; the last one waits for the end and stores a flag."""
    marks = list[tuple[int, str]]()
    pushed = _assembled(words, marks)
    end = [*wait_for(SEMAPHORES + 4 * DONE, 1), *store(FLAG, 1)] if is_last else []
    every = [*pushed, *end, rv32.STAY]
    return Program(struct.pack(f"<{len(every)}I", *every), marks, len(pushed))
