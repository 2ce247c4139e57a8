"""Instructions of RV32I, executed by an interpreter of the manual's encodings."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from mirlo.extend.target import rv32

BASE, VALUE, COUNTER, INNER = 5, 6, 8, 9


def signed(value: int, bits: int) -> int:
    """Return the number that some low bits are in two's complement."""
    return (value & (1 << bits) - 1) - ((value & 1 << bits - 1) << 1)


class Core:
    """Registers, words of memory, and the instructions that the functions return."""

    def __init__(self, program: Sequence[int], memory: dict[int, int] | None = None) -> None:
        self.x, self.pc, self.program = [0] * 32, 0, program
        self.memory, self.loads = memory or {}, 0

    def run(self) -> Core:
        """Execute until a jump to itself, or out of the program."""
        for _ in range(200_000):
            if not 0 <= self.pc < 4 * len(self.program):
                return self
            before = self.pc
            self.step(self.program[self.pc // 4])
            if self.pc == before:
                return self
        raise AssertionError("the program does not end")

    def step(self, word: int) -> None:
        """Execute one instruction."""
        to, f3, left, right = word >> 7 & 31, word >> 12 & 7, word >> 15 & 31, word >> 20 & 31
        a, b, following = self.x[left], self.x[right], self.pc + 4
        immediate = signed(word >> 20, 12)
        match word & 0x7F, f3:
            case 0x37, _:
                self.write(to, word & 0xFFFFF000)
            case 0x13, 0:
                self.write(to, a + immediate)
            case 0x13, 1:
                assert word >> 25 == 0
                self.write(to, a << right)
            case 0x13, 7:
                self.write(to, a & immediate)
            case 0x33, 0:
                assert word >> 25 in (0, 0x20)
                self.write(to, a - b if word >> 25 else a + b)
            case 0x03, 2:
                self.loads += 1
                self.write(to, self.memory.get((a + immediate) % 2**32, 0))
            case 0x23, 2:
                self.memory[(a + signed(word >> 25 << 5 | to, 12)) % 2**32] = b
            case 0x63, _:
                offset = signed((word >> 31) << 12 | (to & 1) << 11 | (word >> 25 & 63) << 5 | (to >> 1) << 1, 13)
                if self.holds(f3, a, b):
                    following = self.pc + offset
            case 0x67, 0:
                following = (a + immediate) % 2**32
            case 0x6F, _:
                fields = (
                    (word >> 31) << 20 | (word >> 12 & 255) << 12 | (word >> 20 & 1) << 11 | (word >> 21 & 1023) << 1
                )
                following = self.pc + signed(fields, 21)
            case other:
                raise AssertionError(f"an unknown instruction: {other}")
        self.pc = following

    def holds(self, condition: int, a: int, b: int) -> bool:
        """Return whether the condition of a branch holds."""
        less, less_unsigned = signed(a, 32) < signed(b, 32), a < b
        return {0: a == b, 1: a != b, 4: less, 5: not less, 6: less_unsigned, 7: not less_unsigned}[condition]

    def write(self, register: int, value: int) -> None:
        """Set a register; the first one is always 0."""
        self.x[register] = value % 2**32 if register else 0


VALUES = [0, 1, 2047, 2048, 4095, 4096, 0x7FF, 0x800, 0xFFF, 0x12345FFF, 0x7FFFFFFF, 0x80000000, 0xFFFFF800, 0xFFFFFFFF]
VALUES += [random.Random(0).randrange(2**32) for _ in range(50)]


@pytest.mark.parametrize("value", VALUES)
def test_registers_and_memory(value: int) -> None:
    address = value & ~3
    program = [*rv32.set_register(VALUE, value), *rv32.store_at(VALUE, address, BASE), *rv32.load_at(7, address, BASE)]
    core = Core([*program, rv32.add(10, VALUE, 7), rv32.add_constant(11, VALUE, -2048), rv32.STAY]).run()
    assert core.x[VALUE] == core.x[7] == value and core.memory == {address: value}
    bits = [rv32.and_constant(12, VALUE, 0xFF), rv32.subtract(13, VALUE, 12), rv32.shift_left(14, VALUE, 8)]
    parts = Core([*rv32.set_register(VALUE, value), *bits]).run().x
    assert parts[12:15] == [value & 0xFF, value & 0xFFFFFF00, value << 8 & 0xFFFFFFFF]
    assert core.x[10] == 2 * value % 2**32 and core.x[11] == (value - 2048) % 2**32
    jump = Core(rv32.jump_to(address, BASE))
    jump.step(jump.program[0]), jump.step(jump.program[1])
    assert jump.pc == address


@pytest.mark.parametrize("offset", [-2048, -4, 0, 4, 2044])
def test_offsets(offset: int) -> None:
    program = [*rv32.set_register(BASE, 8192), *rv32.set_register(VALUE, 3), rv32.store_word(VALUE, BASE, offset)]
    core = Core([*program, rv32.load_word(7, BASE, offset), rv32.STAY]).run()
    assert core.memory == {8192 + offset: 3} and core.x[7] == 3


@pytest.mark.parametrize("count", [1, 2, 7, 2047, 5000])
def test_loops(count: int) -> None:
    body = [rv32.add_constant(VALUE, VALUE, 3), *rv32.repeat(2, [rv32.add_constant(7, 7, 1)], INNER)]
    core = Core([*rv32.repeat(count, body, COUNTER), rv32.STAY]).run()
    assert (core.x[VALUE], core.x[7]) == (3 * count, 2 * count)
    assert Core([*rv32.repeat(count, [], COUNTER), rv32.STAY]).run().x[COUNTER] == 0


@pytest.mark.parametrize("count", [0, -1, 1 << 31])
def test_loops_out_of_range_are_errors(count: int) -> None:
    with pytest.raises(ValueError, match=f"has {count} iterations"):
        rv32.repeat(count, [], COUNTER)


@pytest.mark.parametrize("condition", rv32.BranchCondition)
def test_waits(condition: rv32.BranchCondition) -> None:
    """A branch goes back to the load before it while the condition holds."""

    class Device(Core):
        """Memory in which a word grows with each load."""

        def step(self, word: int) -> None:
            self.memory[64] = [5, 2**32 - 3, 9, 4][self.loads % 4]
            super().step(word)

    wait = [*rv32.load_at(7, 64, BASE), rv32.branch_back(condition, 7, VALUE)]
    core = Device([*rv32.set_register(VALUE, 9), *wait, rv32.STAY]).run()
    words = [5, 2**32 - 3, 9, 4]
    expected = next(i for i, word in enumerate(words) if not Core([]).holds(condition, word, 9))
    assert core.x[7] == words[expected] and core.loads == expected + 1
