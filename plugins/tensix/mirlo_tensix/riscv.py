"""Programs of the RISC-V cores: words that they push, loops, stores, waits, and requests to the network."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

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
FLAG = 0x40
"""Where in L1 the last thread's core says that it is done."""
STAY = 0x6F
"""A jump to itself."""


def _upper(address: int, register: int = ADDRESS) -> tuple[int, int]:
    """Return LUI of an address and the offset that remains."""
    upper = (address + 0x800) >> 12 & 0xFFFFF
    return upper << 12 | register << 7 | 0x37, address & 0xFFF


def _add(to: int, register: int, value: int) -> int:
    return (value & 0xFFF) << 20 | register << 15 | to << 7 | 0x13


def _set(register: int, value: int) -> list[int]:
    lui, offset = _upper(value, register)
    return [lui, _add(register, register, offset)]


def _store(register: int, base: int, offset: int) -> int:
    return offset >> 5 << 25 | register << 20 | base << 15 | 2 << 12 | (offset & 31) << 7 | 0x23


def store(address: int, value: int) -> list[int]:
    """Return the instructions that store a word."""
    lui, offset = _upper(address)
    return [
        *(_set(OPERAND, value) if value >> 11 else [_add(OPERAND, 0, value)]),
        lui,
        _store(OPERAND, ADDRESS, offset),
    ]


def wait_for(address: int, least: int) -> list[int]:
    """Return the instructions that wait until a word is at least a number below 2,048."""
    return [*_load(address), _add(BOUND, 0, least), _load(address)[1], _back(OPERAND, BOUND, 6)]


def wait_for_reads(tag: int) -> list[int]:
    """Return the instructions that wait until no read of a tag is in flight: answers may come in any order."""
    return [*_load(READS_UNANSWERED + 4 * tag), _back(OPERAND, 0, 1)]


def _load(address: int) -> list[int]:
    lui, offset = _upper(address)
    return [lui, offset << 20 | ADDRESS << 15 | 2 << 12 | OPERAND << 7 | 0x03]


def _back(left: int, right: int, condition: int) -> int:
    """Return a branch to the preceding instruction."""
    return 0x7F << 25 | right << 20 | left << 15 | condition << 12 | 0x1D << 7 | 0x63


def jump_to(address: int) -> list[int]:
    """Return the instructions of a jump to an address."""
    lui, offset = _upper(address)
    return [lui, offset << 20 | ADDRESS << 15 | 0x67]


def repeat(count: int, body: Sequence[int], depth: int = 0) -> list[int]:
    """Return a loop, which counts down."""
    register, back = COUNTERS + depth, -4 * (len(body) + 2)
    bits = back >> 20 & 1, back >> 1 & 0x3FF, back >> 11 & 1, back >> 12 & 0xFF
    jump = bits[0] << 31 | bits[1] << 21 | bits[2] << 20 | bits[3] << 12 | STAY
    return [_add(register, 0, count), *body, _add(register, register, -1), 0x0463 | register << 15, jump]


def clear(address: int, size: int, steps: Sequence[tuple[int, int]]) -> list[int]:
    """Return the instructions that set a block of whole 32 bytes to zero, repeated at steps this many times."""
    once = size if size <= 256 else 64 if size % 64 == 0 else 32
    code, done = [_store(0, ADDRESS, at) for at in range(0, once, 4)], 0
    if once < size:
        code, done = repeat(size // once, [*code, _add(ADDRESS, ADDRESS, once)]), size
    for depth, (step, times) in enumerate(steps, 1):
        by = step - done
        add = OPERAND << 20 | ADDRESS << 15 | ADDRESS << 7 | 0x33
        move = [_add(ADDRESS, ADDRESS, by)] if abs(by) < 2048 else [*_set(OPERAND, by & 0xFFFFFFFF), add]
        code = repeat(times, [*code, *move], depth) if times > 1 else code
        done = step * times if times > 1 else done
    return [*_set(ADDRESS, address), *code]


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
        return [*words, *store(NETWORK + 0x28, 1), *_load(NETWORK + 0x28), _back(OPERAND, 0, 1)]


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
            code += repeat(word.count, body, depth)
        else:
            code.append((word << 2 | word >> 30) & 0xFFFFFFFF)
    return code


def program_of(words: Instructions, last: Sequence[int] | None = None) -> Program:
    """Return the program of a thread's core; the last one waits for the end, does what is left, and stores a flag."""
    marks = list[tuple[int, str]]()
    pushed = _assembled(words, marks)
    end = [] if last is None else [*wait_for(SEMAPHORES + 4 * DONE, 1), *last, *store(FLAG, 1)]
    every = [*pushed, *end, STAY]
    return Program(struct.pack(f"<{len(every)}I", *every), marks, len(pushed))
