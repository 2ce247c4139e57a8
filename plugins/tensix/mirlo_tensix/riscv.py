"""Instructions of the RISC-V cores: stores, waits, and requests to the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

NETWORK = 0xFFB20000
"""Registers of a request: target, return address, control, size, and go; counters of what was received."""
READS_UNANSWERED, WRITES_ACKNOWLEDGED = NETWORK + 0x240, NETWORK + 0x204
TAGS = 16
SEMAPHORES = 0xFFE80020
READ, WRITE, BROADCAST = 0, 2 | 1 << 4, 2 | 1 << 4 | 1 << 5 | 1 << 8
"""Kinds of requests; writes are acknowledged, a broadcast's by each core."""
ADDRESS, OPERAND, BOUND = 5, 6, 7
"""Registers that these instructions use."""
STAY = 0x6F
"""A jump to itself."""


def _upper(address: int) -> tuple[int, int]:
    """Return LUI of an address and the offset that remains."""
    upper = (address + 0x800) >> 12 & 0xFFFFF
    return upper << 12 | ADDRESS << 7 | 0x37, address & 0xFFF


def store(address: int, value: int) -> list[int]:
    """Return the instructions that store a word."""
    lui, offset = _upper(address)
    high = (value + 0x800) >> 12 & 0xFFFFF
    load = [high << 12 | OPERAND << 7 | 0x37] if high else []
    load.append((value & 0xFFF) << 20 | (OPERAND if high else 0) << 15 | OPERAND << 7 | 0x13)
    return [*load, lui, offset >> 5 << 25 | OPERAND << 20 | ADDRESS << 15 | 2 << 12 | (offset & 31) << 7 | 0x23]


def wait_for(address: int, least: int) -> list[int]:
    """Return the instructions that wait until a word is at least a number below 2,048."""
    return [*_load(address), least << 20 | BOUND << 7 | 0x13, _load(address)[1], _back(OPERAND, BOUND, 6)]


def wait_for_reads(tag: int) -> list[int]:
    """Return the instructions that wait until no read of a tag is in flight: answers may come in any order."""
    return [*_load(READS_UNANSWERED + 4 * tag), _back(OPERAND, 0, 1)]


def _load(address: int) -> list[int]:
    lui, offset = _upper(address)
    return [lui, offset << 20 | ADDRESS << 15 | 2 << 12 | OPERAND << 7 | 0x03]


def _back(left: int, right: int, condition: int) -> int:
    """Return the branch to the instruction before it."""
    return 0x7F << 25 | right << 20 | left << 15 | condition << 12 | 0x1D << 7 | 0x63


def jump(distance: int) -> int:
    bits = distance >> 20 & 1, distance >> 1 & 0x3FF, distance >> 11 & 1, distance >> 12 & 0xFF
    return bits[0] << 31 | bits[1] << 21 | bits[2] << 20 | bits[3] << 12 | STAY


def jump_to(address: int) -> list[int]:
    """Return the instructions that continue at an address."""
    lui, offset = _upper(address)
    return [lui, offset << 20 | ADDRESS << 15 | 0x67]


@dataclass
class Requests:
    """Requests to the network: registers that have a value already are not stored again."""

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
