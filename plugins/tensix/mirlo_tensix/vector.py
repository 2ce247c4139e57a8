"""Programs of the vector unit: values of 32 lanes, and their instructions.

A body is a list of operations on values. `instructions` orders it, so that no operation reads a result of two cycles in
the next one, and keeps the values in eight registers.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mirlo_tensix.instructions import DST_ROWS, Word, op, vector_constant

Place = tuple[int, int]
"""A tile of Dst, and which part of four rows of it: even columns, odd ones, and those of the face to the right."""
REGISTERS = 8
FIXED = {0x00000000: 9, 0x3F800000: 10}
"""Registers that hold 0 and 1."""
CONFIGURED = (11, 12, 13, 14)
"""Registers that a program sets once."""
SLOW = ("mad", "largest", "smallest", "rotate")
"""Operations whose results are ready after two cycles."""
IN_PLACE = {"largest": 0, "smallest": 0, "add_bits": 1, "subtract_bits": 1, "shift": 0}
"""Operations whose result takes the place of an operand, and of which."""


@dataclass(frozen=True)
class Operation:
    """An operation: its kind, the values that it reads, and what else it needs."""

    kind: str
    operands: tuple[int, ...] = ()
    place: Place = (0, 0)
    number: int = 0
    """The bits of a constant, or how far a shift goes to the left."""


@dataclass
class Body:
    """Operations in order; a value is the number of the operation that computes it."""

    operations: list[Operation] = field(default_factory=list)
    constants: dict[int, int] = field(default_factory=dict)

    def apply(self, kind: str, *operands: int, place: Place = (0, 0), number: int = 0) -> int:
        """Append an operation: "largest", "smallest", "add_bits", "subtract_bits", "shift" or "rotate", or as below."""
        self.operations.append(Operation(kind, operands, place, number))
        return len(self.operations) - 1

    def constant(self, value: float) -> int:
        return self.bits(int(np.float32(value).view(np.uint32)))

    def bits(self, bits: int) -> int:
        if bits not in self.constants:
            self.constants[bits] = self.apply("constant", number=bits)
        return self.constants[bits]

    def load(self, tile: int, part: int = 0) -> int:
        return self.apply("load", place=(tile, part))

    def store(self, value: int, tile: int, part: int = 0) -> None:
        self.apply("store", value, place=(tile, part))

    def mad(self, x: int, y: int, z: int) -> int:
        """Return x * y + z, rounded once."""
        return self.apply("mad", x, y, z)

    def mul(self, x: int, y: int) -> int:
        return self.mad(x, y, self.constant(0))

    def add(self, x: int, y: int) -> int:
        return self.mad(x, self.constant(1), y)

    def sub(self, x: int, y: int) -> int:
        return self.mad(y, self.constant(-1), x)

    def largest(self, x: int, y: int) -> int:
        return self.apply("largest", x, y)

    def smallest(self, x: int, y: int) -> int:
        return self.apply("smallest", x, y)

    def horner(self, x: int, coefficients: Sequence[float]) -> int:
        """Return a polynomial, the coefficient of the highest power first."""
        value = self.constant(coefficients[0])
        for each in coefficients[1:]:
            value = self.mad(value, x, self.constant(each))
        return value


def configured(bodies: Sequence[Body]) -> dict[int, int]:
    """Return registers by the bits of constants: those that bodies read most are set once."""
    often = [bits for bits in _often(bodies) if bits not in FIXED]
    return FIXED | dict(zip(often, CONFIGURED, strict=False))


def _often(bodies: Sequence[Body]) -> list[int]:
    """Return the bits of constants, those first that are read most; comparisons overwrite what they read."""
    counts = Counter[int]()
    for body in bodies:
        for each in body.operations:
            for i in each.operands:
                if body.operations[i].kind == "constant":
                    counts[body.operations[i].number] += 3 if each.kind in ("largest", "smallest") else 1
    return [bits for bits, _ in counts.most_common()]


def set_constants(registers: Mapping[int, int]) -> list[Word]:
    """Return the words that set the registers of constants."""
    own = {bits: register for bits, register in registers.items() if register in CONFIGURED}
    return [
        word for bits, to in own.items() for word in (*vector_constant(0, bits), op("SFPNOP"), op("SFPCONFIG", to=to))
    ]


class _TooManyValuesError(Exception):
    """More values are needed at once than there are registers."""


@dataclass(frozen=True)
class Words:
    """A body as words: those that set registers of constants once, and those of each repetition."""

    before: list[Word]
    repeated: list[Word]


def instructions(body: Body, registers: Mapping[int, int], tile_of: Callable[[int], int] = int) -> Words:
    """Return the words of a body in the order that takes the fewest; `tile_of` returns where in Dst its tiles are.

    Some registers hold constants all the time, the more of them, the fewer are left for values.
    """
    others = [bits for bits in _often([body]) if bits not in registers]
    found = []
    for count in range(min(len(others), REGISTERS - 2) + 1):
        kept = {bits: REGISTERS - 1 - i for i, bits in enumerate(others[:count])}
        before = [word for bits, register in kept.items() for word in vector_constant(register, bits)]
        for ahead in range(REGISTERS - count, -1, -1):
            try:
                state = _Allocation(body, {**registers, **kept}, REGISTERS - count, tile_of)
                found.append(Words(before, state.ordered(ahead)))
            except _TooManyValuesError:
                continue
    if not found:
        raise ValueError(f"a body of {len(body.operations)} operations needs more than {REGISTERS} registers")
    return min(found, key=lambda words: len(words.repeated))


@dataclass
class _Allocation:
    """Allocation of registers while operations are translated to words."""

    body: Body
    fixed: Mapping[int, int]
    registers: int
    """How many registers there are for values."""
    tile_of: Callable[[int], int]
    places: dict[int, int] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)
    """Registers of copies that the next operation overwrites."""
    words: list[Word] = field(default_factory=list)
    slow: int | None = None
    """The register that the last word writes, if its result takes two cycles."""

    def __post_init__(self) -> None:
        self.uses = Counter(i for each in self.body.operations for i in each.operands)

    def ordered(self, ahead: int) -> list[Word]:
        """Return the words; operations come before one that waits while at most `ahead` values are in registers."""
        operations = self.body.operations
        pending = [i for i, each in enumerate(operations) if each.kind != "constant"]
        while pending:
            chosen = pending[0]
            if not self._is_ready(chosen):
                for candidate in pending[1:]:
                    inputs, grows = operations[candidate].operands, operations[candidate].kind == "load"
                    if (
                        not any(i in pending for i in inputs)
                        and self._is_ready(candidate)
                        and self._keeps_order(candidate, pending)
                        and len(self.places) + grows <= ahead
                    ):
                        chosen = candidate
                        break
            pending.remove(chosen)
            self._add(chosen)
        return self.words

    def _is_ready(self, number: int) -> bool:
        inputs = self.body.operations[number].operands
        return self.slow is None or all(self.places.get(i) != self.slow for i in inputs)

    def _keeps_order(self, number: int, pending: Sequence[int]) -> bool:
        """Return whether an operation may come before all that are pending: none of them has its place in Dst."""
        moved = self.body.operations[number]
        earlier = (self.body.operations[i] for i in pending if i < number)
        memory = ("load", "store")
        return moved.kind not in memory or not any(e.kind in memory and e.place == moved.place for e in earlier)

    def _free(self) -> int:
        taken = {*self.places.values(), *self.copies.values()}
        for register in range(self.registers):
            if register not in taken:
                return register
        raise _TooManyValuesError

    def _emit(self, word: Word, reads: Sequence[int] = (), slow: int | None = None) -> None:
        if self.slow is not None and self.slow in reads:
            self.words.append(op("SFPNOP"))
        self.words.append(word)
        self.slow = slow

    def _read(self, value: int) -> int:
        """Return the register of an operand, which is loaded if it is a constant without one."""
        operation = self.body.operations[value]
        if operation.kind == "constant" and operation.number in self.fixed:
            return self.fixed[operation.number]
        if value not in self.places:
            register = self.places[value] = self._free()
            for word in vector_constant(register, operation.number):
                self._emit(word)
        return self.places[value]

    def _own(self, value: int, register: int) -> int:
        """Return a register whose value may be overwritten: that of the value if nothing else reads it, or a copy."""
        if value in self.places and self.uses[value] == 1 and value not in self.copies:
            return register
        copy = self.copies[value] = self._free()
        self._emit(op("SFPMOV", to=copy, x=register), [register])
        return copy

    def _used(self, operands: Sequence[int]) -> None:
        """Release the registers of values that are not read again; constants are reloaded."""
        self.copies.clear()
        for each in operands:
            self.uses[each] -= 1
            if self.uses[each] == 0 or self.body.operations[each].kind == "constant":
                self.places.pop(each, None)

    def _add(self, number: int) -> None:
        operation = self.body.operations[number]
        kind, operands = operation.kind, operation.operands
        at = address((self.tile_of(operation.place[0]), operation.place[1]))
        if kind == "load":
            register = self.places[number] = self._free()
            self._emit(op("SFPLOAD", format=3, to=register, at=at))
            return
        reads = [self._read(i) for i in operands]
        if kind == "store":
            self._emit(op("SFPSTORE", format=3, to=reads[0], at=at), reads)
            self._used(operands)
            return
        if kind not in IN_PLACE:
            self._used(operands)
            result = self.places[number] = self._free()
            x, *rest = reads
            word = (
                op("SFPMAD", to=result, x=x, y=rest[0], z=rest[1]) if rest else op("SFPSHFT2", mode=3, to=result, x=x)
            )
            self._emit(word, reads, result)
            return
        own = IN_PLACE[kind]
        result = self._own(operands[own], reads[own])
        other = reads[1 - own] if len(reads) > 1 else result
        if kind in SLOW and other < REGISTERS:  # both are written; registers of constants stay
            other = self._own(operands[1 - own], other)
        match kind:
            case "largest":
                word = op("SFPSWAP", mode=1, to=other, x=result)
            case "smallest":
                word = op("SFPSWAP", mode=1, to=result, x=other)
            case "shift":
                word = op("SFPSHFT", mode=1, to=result, left=operation.number & 0xFFF)
            case _:
                word = op("SFPIADD", mode=4 | 2 * (kind == "subtract_bits"), to=result, x=other)
        self._used(operands)
        self.places[number] = result
        self._emit(word, [result, other], result if kind in SLOW else None)


def address(place: Place) -> int:
    """Return the address in Dst of a part of a tile: 16 rows, even or odd columns."""
    tile, part = place
    return DST_ROWS * tile + 16 * (part // 2) + 2 * (part % 2)


EXP2 = (0.00958285, 0.05590643, 0.24024099, 0.69312419, 1.0)
"""Coefficients of 2^x between -0.5 and 0.5, to 3e-6."""


def exp(v: Body, x: int, low: float = -87.0, high: float = 88.0) -> int:
    """Return the power of e of x between two bounds, to 3e-6: 2^n times a polynomial of the rest."""
    x = v.smallest(v.largest(x, v.constant(low)), v.constant(high))
    log2e, magic = v.constant(1.4426950408889634), v.constant(12582912.0)  # 1.5 * 2^23: its last bits are n
    n = v.mad(x, log2e, magic)
    rest = v.mad(x, log2e, v.sub(magic, n))
    return v.apply("add_bits", v.apply("shift", n, number=23), v.horner(rest, EXP2))


def reciprocal(v: Body, x: int) -> int:
    """Return 1 / x to 1e-5: an estimate by the exponent, and two steps of Newton's method."""
    negative, two = v.mul(x, v.constant(-1)), v.constant(2)
    y = v.apply("subtract_bits", v.bits(0x7EF127EA), x)
    for _ in range(2):
        y = v.mul(y, v.mad(negative, y, two))
    return y


def rsqrt(v: Body, x: int) -> int:
    """Return 1 / sqrt(x) to 5e-6."""
    half = v.mul(x, v.constant(-0.5))
    y = v.apply("subtract_bits", v.bits(0x5F3759DF), v.apply("shift", x, number=-1))
    for _ in range(2):
        y = v.mul(y, v.mad(v.mul(half, y), y, v.constant(1.5)))
    return y


def sigmoid(v: Body, x: int) -> int:
    return reciprocal(v, v.add(exp(v, v.mul(x, v.constant(-1)), -80.0, 80.0), v.constant(1)))


def tanh(v: Body, x: int) -> int:
    return v.mad(sigmoid(v, v.add(x, x)), v.constant(2), v.constant(-1))


def gelu(v: Body, x: int, factors: Sequence[float] = (-0.000703034, 0.0740112945, 1.59501577)) -> int:
    """Return x times the normal distribution to 3e-5: the sigmoid of an odd polynomial."""
    square = v.smallest(v.mul(x, x), v.constant(36))
    return v.mul(x, sigmoid(v, v.mul(x, v.horner(square, factors))))


def clip(low: float, high: float, v: Body, x: int) -> int:
    return v.smallest(v.largest(x, v.constant(low)), v.constant(high))


UNARY: dict[str, Callable[[Body, int], int]] = {
    "exp": exp, "sigmoid": sigmoid, "tanh": tanh, "gelu": gelu, "reciprocal": reciprocal,
    "gelu_tanh": lambda v, x: gelu(v, x, (0.0713548163, 1.5957691216)),
    "relu": lambda v, x: v.largest(x, v.constant(0)),
}  # fmt: skip
"""Functions of one number."""


def unary(name: str) -> Callable[[Body, int], int] | None:
    """Return a function of one number by its name, such as "exp", or "clip 0 6" with its bounds."""
    kind, *bounds = name.split()
    return functools.partial(clip, *map(float, bounds)) if kind == "clip" else UNARY.get(name)


BINARY: dict[str, Callable[[Body, int, int], int]] = {
    "add": Body.add, "sub": Body.sub, "mul": Body.mul, "max": Body.largest, "min": Body.smallest,
    "div": lambda v, x, y: v.mul(x, reciprocal(v, y)),
}  # fmt: skip
"""Functions of two numbers."""
