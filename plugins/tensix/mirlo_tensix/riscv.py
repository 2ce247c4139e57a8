"""Programs of the RISC-V cores: words that they push, loops, stores, waits, and requests to the network."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mirlo.extend.target import rv32
from mirlo_tensix.instructions import DONE, Instruction, Instructions, Loop, Mark, Riscv, Variable, set_byte

NETWORK = 0xFFB20000
"""Registers of a request: target, return address, control, size, and go; counters of what was received."""
READS_UNANSWERED, WRITES_ACKNOWLEDGED = NETWORK + 0x240, NETWORK + 0x204
TAGS = 16
SEMAPHORES = 0xFFE80020
READ, WRITE, BROADCAST = 0, 2 | 1 << 4, 2 | 1 << 4 | 1 << 5 | 1 << 8
"""Kinds of requests; writes are acknowledged, a broadcast's by each core."""
ADDRESS, OPERAND, BOUND, COUNTERS, STEPS = 5, 6, 7, 8, 16
"""Registers that these instructions use; eight nested loops count in those from 8 on, numbers advance in the others."""
PUSH = 0xFFE40000
"""Where a core stores the words of its thread."""
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


def _advances(words: Iterable[Instruction]) -> set[tuple[int, ...]]:
    """Return the steps of the numbers that advance in loops."""
    found = set[tuple[int, ...]]()
    for word in words:
        if isinstance(word, Loop):
            found |= _advances(word.body)
        elif isinstance(word, Variable) and any(word.steps):
            found.add(word.steps)
    return found


def _add(register: int, value: int) -> list[int]:
    """Return the instructions that add a constant to a register."""
    if -2048 <= value < 2048:
        return [rv32.add_constant(register, register, value)] if value else []
    return [*rv32.set_register(OPERAND, value & 0xFFFFFFFF), rv32.add(register, register, OPERAND)]


def _pushed(word: int) -> int:
    """Return the instruction that pushes a word, which is the word rotated by two bits."""
    return (word << 2 | word >> 30) & 0xFFFFFFFF


@dataclass
class _Assembler:
    """Assembles the instructions of a thread's core; a register has the sum of the steps of numbers that advance."""

    marks: list[tuple[int, str]]
    registers: dict[tuple[int, ...], int] = field(default_factory=dict)

    def code(self, words: Iterable[Instruction], first: int = 0, depth: int = 0) -> list[int]:
        code = list[int]()
        for word in words:
            if isinstance(word, Mark):
                name = f"{word.command}, or a later one of its loop" if depth else word.command
                self.marks.append((first + len(code), name))
            elif isinstance(word, Riscv):
                code += word.code
            elif isinstance(word, Loop):
                code += self._loop(word, first + len(code), depth)
            elif isinstance(word, Variable):
                code += self._variable(word)
            else:
                code.append(_pushed(word))
        return code

    def _loop(self, loop: Loop, first: int, depth: int) -> list[int]:
        start = list[int]()
        if not depth:
            self.registers = {steps: STEPS + i for i, steps in enumerate(sorted(_advances(loop.body)))}
            start = [rv32.add_constant(register, 0, 0) for register in self.registers.values()]
        before = len(start) + len(rv32.set_register(COUNTERS, loop.count))
        body, back = self.code(loop.body, first + before, depth + 1), list[int]()
        for steps in _advances(loop.body):
            body += _add(self.registers[steps], steps[depth])
            back += _add(self.registers[steps], -loop.count * steps[depth]) if depth else []
        return [*start, *rv32.repeat(loop.count, body, COUNTERS + depth), *back]

    def _variable(self, word: Variable) -> list[int]:
        register = self.registers[word.steps] if any(word.steps) else 0
        if word.kind == "configure":
            return self._configure(word, register)
        set_value = [*rv32.set_register(BOUND, word.value), *([rv32.add(BOUND, BOUND, register)] if register else [])]
        if word.kind == "store":
            return [*set_value, *rv32.store_at(BOUND, word.target, ADDRESS)]
        upper, load = rv32.load_at(OPERAND, word.target, ADDRESS)
        return [*set_value, upper, load, rv32.branch_back(LESS, OPERAND, BOUND)]

    def _configure(self, word: Variable, register: int) -> list[int]:
        """Return the instructions that push the two words that set the lower half of a word of configuration."""
        if not register:
            return [_pushed(set_byte(i, word.target, word.value >> 8 * i & 0xFF)) for i in range(2)]
        low, high = OPERAND, BOUND
        code = [*rv32.set_register(high, word.value), rv32.add(high, high, register)]
        code += [rv32.and_constant(low, high, 0xFF), rv32.subtract(high, high, low), rv32.shift_left(low, low, 8)]
        for i, value in enumerate((low, high)):  # which are where a word has its byte
            code += [*rv32.set_register(ADDRESS, set_byte(i, word.target, 0)), rv32.add(value, value, ADDRESS)]
            code += rv32.store_at(value, PUSH, ADDRESS)
        return code


def program_of(words: Instructions, is_last: bool) -> Program:
    """Return the program of a thread's core; the last one waits for the end and stores a flag."""
    marks = list[tuple[int, str]]()
    pushed = _Assembler(marks).code(words)
    end = [*wait_for(SEMAPHORES + 4 * DONE, 1), *store(FLAG, 1)] if is_last else []
    every = [*pushed, *end, rv32.STAY]
    return Program(struct.pack(f"<{len(every)}I", *every), marks, len(pushed))
