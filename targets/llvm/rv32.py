"""Instructions of RV32I as words, for programs of control cores that a code generator writes itself.

`bare_code` compiles functions by LLVM. These functions are for programs that are lists of stores, waits and counted
loops, in which the generator decides where each word is. The caller names the registers, by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

STAY = 0x6F
"""A jump to itself, which ends the program of a core without an operating system."""


class BranchCondition(IntEnum):
    """Conditions of branches; the last two compare unsigned numbers."""

    EQUAL = 0
    UNEQUAL = 1
    LESS = 4
    AT_LEAST = 5
    LESS_UNSIGNED = 6
    AT_LEAST_UNSIGNED = 7


def _split(value: int) -> tuple[int, int]:
    """Return the upper 20 bits of a value for LUI, and the 12 bits that an instruction adds, sign-extended."""
    return (value + 0x800) >> 12 & 0xFFFFF, value & 0xFFF


def add_constant(to: int, register: int, value: int) -> int:
    """Return the addition of a constant from -2048 to 2047 to a register."""
    return (value & 0xFFF) << 20 | register << 15 | to << 7 | 0x13


def add(to: int, left: int, right: int) -> int:
    """Return the addition of two registers."""
    return right << 20 | left << 15 | to << 7 | 0x33


def subtract(to: int, left: int, right: int) -> int:
    """Return the difference of two registers."""
    return 1 << 30 | add(to, left, right)


def and_constant(to: int, register: int, value: int) -> int:
    """Return the bitwise and of a register and a constant from -2048 to 2047, sign-extended."""
    return add_constant(to, register, value) | 7 << 12


def shift_left(to: int, register: int, bits: int) -> int:
    """Return a register shifted to the left by 0 to 31 bits."""
    return add_constant(to, register, bits) | 1 << 12


def load_upper(to: int, upper: int) -> int:
    """Return the instruction that sets the upper 20 bits of a register, and clears the others."""
    return upper << 12 | to << 7 | 0x37


def set_register(to: int, value: int) -> list[int]:
    """Return the instructions that set a register to a value of 32 bits: one for 0 to 2047, otherwise two."""
    if not value >> 11:
        return [add_constant(to, 0, value)]
    upper, offset = _split(value)
    return [load_upper(to, upper), add_constant(to, to, offset)]


def load_word(to: int, base: int, offset: int) -> int:
    """Return the load of a word at an offset from a register."""
    return (offset & 0xFFF) << 20 | base << 15 | 2 << 12 | to << 7 | 0x03


def store_word(register: int, base: int, offset: int) -> int:
    """Return the store of a word at an offset from a register."""
    return (offset & 0xFFF) >> 5 << 25 | register << 20 | base << 15 | 2 << 12 | (offset & 31) << 7 | 0x23


def load_at(to: int, address: int, base: int) -> list[int]:
    """Return the instructions that load the word at an address, with `base` as scratch register."""
    upper, offset = _split(address)
    return [load_upper(base, upper), load_word(to, base, offset)]


def store_at(register: int, address: int, base: int) -> list[int]:
    """Return the instructions that store a word at an address, with `base` as scratch register."""
    upper, offset = _split(address)
    return [load_upper(base, upper), store_word(register, base, offset)]


def branch_back(condition: BranchCondition, left: int, right: int) -> int:
    """Return a branch to the preceding instruction, which waits while the condition holds."""
    return 0x7F << 25 | right << 20 | left << 15 | condition << 12 | 0x1D << 7 | 0x63


def jump_to(address: int, base: int) -> list[int]:
    """Return the instructions that jump to an address, with `base` as scratch register."""
    upper, offset = _split(address)
    return [load_upper(base, upper), offset << 20 | base << 15 | 0x67]


def repeat(count: int, body: Sequence[int], counter: int) -> list[int]:
    """Return a loop of at least one iteration, which counts a register down; loops within need other registers."""
    if not 0 < count < 1 << 31:
        raise ValueError(f"a loop has {count} iterations: expected 1 to {(1 << 31) - 1}")
    back = -4 * (len(body) + 2)
    jump = (back >> 20 & 1) << 31 | (back >> 1 & 0x3FF) << 21 | (back >> 11 & 1) << 20 | (back >> 12 & 0xFF) << 12
    leave = 8 << 7 | counter << 15 | 0x63  # if the counter is 0, skip the jump
    return [*set_register(counter, count), *body, add_constant(counter, counter, -1), leave, jump | STAY]
