"""Programs of the vector unit: values of 32 lanes, their instructions, and what these compute in numpy.

A body is a list of operations on values. `instructions` orders it, so that no operation reads a result of two cycles in
the next one, and keeps the values in eight registers. `evaluate` computes the same operations bit by bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mirlo_tensix import instructions as tensix
from mirlo_tensix.instructions import Word

Lanes = NDArray[np.uint32]
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

    def _append(self, kind: str, *operands: int, place: Place = (0, 0), number: int = 0) -> int:
        self.operations.append(Operation(kind, operands, place, number))
        return len(self.operations) - 1

    def constant(self, value: float) -> int:
        return self.bits(int(np.float32(value).view(np.uint32)))

    def bits(self, bits: int) -> int:
        if bits not in self.constants:
            self.constants[bits] = self._append("constant", number=bits)
        return self.constants[bits]

    def load(self, tile: int, part: int = 0) -> int:
        return self._append("load", place=(tile, part))

    def store(self, value: int, tile: int, part: int = 0) -> None:
        self._append("store", value, place=(tile, part))

    def mad(self, x: int, y: int, z: int) -> int:
        """Return x * y + z, rounded once."""
        return self._append("mad", x, y, z)

    def mul(self, x: int, y: int) -> int:
        return self.mad(x, y, self.constant(0))

    def add(self, x: int, y: int) -> int:
        return self.mad(x, self.constant(1), y)

    def sub(self, x: int, y: int) -> int:
        return self.mad(y, self.constant(-1), x)

    def largest(self, x: int, y: int) -> int:
        return self._append("largest", x, y)

    def smallest(self, x: int, y: int) -> int:
        return self._append("smallest", x, y)

    def add_bits(self, x: int, y: int) -> int:
        return self._append("add_bits", x, y)

    def subtract_bits(self, x: int, y: int) -> int:
        """Return the bits of x minus those of y, as integers."""
        return self._append("subtract_bits", x, y)

    def shift(self, x: int, left: int) -> int:
        return self._append("shift", x, number=left)

    def rotate(self, x: int) -> int:
        """Return the columns moved by one, in each row of eight."""
        return self._append("rotate", x)

    def horner(self, x: int, coefficients: Sequence[float]) -> int:
        """Return a polynomial, the coefficient of the highest power first."""
        value = self.constant(coefficients[0])
        for each in coefficients[1:]:
            value = self.mad(value, x, self.constant(each))
        return value


def fma(x: Lanes, y: Lanes, z: Lanes) -> Lanes:
    """Return x * y + z as the unit computes it: three more bits, rounded to nearest even, denormals are zero."""
    x, y, z = (each.astype(np.int64) for each in np.broadcast_arrays(x, y, z))
    x_e, y_e, z_e = (each >> 23 & 255 for each in (x, y, z))
    x_m, y_m, z_m = (np.where(each >> 23 & 255 == 0, 0, each & 0x7FFFFF | 0x800000) for each in (x, y, z))
    p_sign, z_sign = (x ^ y) >> 31, z >> 31
    product = x_m * y_m
    p_m, p_e = product << 3, x_e + y_e - 127
    p_m = p_m >> 23 | (p_m & 0x7FFFFF != 0)
    wide_z = z_m << 3
    top = np.maximum(p_e, z_e)
    p_m, wide_z = _sticky(p_m, top - p_e), _sticky(wide_z, top - z_e)
    sign = np.where(p_m >= wide_z, p_sign, z_sign)
    total = np.where(p_sign == z_sign, p_m + wide_z, np.abs(p_m - wide_z))
    by = np.frexp(total.astype(np.float64))[1].astype(np.int64) - 27
    exponent = top + by
    shifted = np.where(by <= 0, total << np.maximum(-by, 0), total >> np.maximum(by, 0) | total & 1)
    result = (exponent << 23) + (shifted >> 3 & 0x7FFFFF)
    result += (shifted & 7) + (result & 1) > 4
    result = np.where((total == 0) | (exponent < 0) | (result >> 23 == 0), 0, sign << 31 | result)
    result = np.where(exponent >= 255, sign << 31 | 0x7F800000, result)
    result = np.where((product == 0) | (p_e < 0), np.where(z_m != 0, z, 0), result)
    return np.where((x_e == 255) | (y_e == 255) | (z_e == 255) | (p_e >= 255), _special(x, y, z), result).astype(
        np.uint32
    )


def _sticky(value: NDArray[np.int64], by: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a value shifted to the right; its last bit says whether others were lost, unless all were."""
    by = np.minimum(by, 62)
    shifted = value >> by
    return np.where(shifted != 0, shifted | (shifted << by != value), 0)


def _special(x: NDArray[np.int64], y: NDArray[np.int64], z: NDArray[np.int64]) -> Lanes:
    """Return x * y + z where an exponent is that of infinity; other bits of a NaN are not the unit's."""
    x_f, y_f, z_f = (each.astype(np.uint32).view(np.float32) for each in (x, y, z))
    with np.errstate(all="ignore"):
        return np.asarray(x_f * y_f + z_f, np.float32).view(np.uint32)


def _order(bits: Lanes) -> Lanes:
    """Return keys in the order of numbers, in which -0 is before 0."""
    return np.where(bits >> 31 == 1, ~bits, bits | np.uint32(0x80000000))


def evaluate(body: Body, tiles: dict[Place, Lanes]) -> None:
    """Compute a body on parts of tiles, of which the last dim are the eight lanes of a row; stores change `tiles`."""
    values: list[Lanes] = []
    for each in body.operations:
        args = [values[i] for i in each.operands]
        match each.kind:
            case "constant":
                result = np.uint32(each.number) + np.zeros(1, np.uint32)
            case "load":
                result = tiles[each.place]
            case "store":
                result = tiles[each.place] = np.where(args[0] & 0x7F800000 == 0, args[0] & 0x80000000, args[0])
            case "mad":
                result = fma(*args)
            case "largest":
                result = np.where(_order(args[0]) < _order(args[1]), args[1], args[0])
            case "smallest":
                result = np.where(_order(args[0]) < _order(args[1]), args[0], args[1])
            case "add_bits":
                result = args[0] + args[1]
            case "subtract_bits":
                result = args[0] - args[1]
            case "shift":
                result = args[0] << np.uint32(each.number) if each.number >= 0 else args[0] >> np.uint32(-each.number)
            case "rotate":
                result = np.roll(args[0], 1, -1)
            case other:
                raise ValueError(f"operation {other}")
        values.append(result)


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
    words = []
    for bits, register in registers.items():
        if register in CONFIGURED:
            words += [*tensix.vector_constant(0, bits), tensix.NOP_VECTOR, tensix.vector_configure(register)]
    return words


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
    body = Body([replace(each, place=(tile_of(each.place[0]), each.place[1])) for each in body.operations])
    others = [bits for bits in _often([body]) if bits not in registers]
    found = []
    for count in range(min(len(others), REGISTERS - 2) + 1):
        kept = {bits: REGISTERS - 1 - i for i, bits in enumerate(others[:count])}
        before = [word for bits, register in kept.items() for word in tensix.vector_constant(register, bits)]
        for ahead in range(REGISTERS - count, -1, -1):
            try:
                found.append(Words(before, _words(body, {**registers, **kept}, ahead, REGISTERS - count)))
            except _TooManyValuesError:
                continue
    if not found:
        raise ValueError(f"a body of {len(body.operations)} operations needs more than {REGISTERS} registers")
    return min(found, key=lambda words: len(words.repeated))


@dataclass
class _Allocation:
    """Which register has which value, while operations become words."""

    body: Body
    fixed: Mapping[int, int]
    uses: Counter[int]
    registers: int
    """How many registers there are for values."""
    places: dict[int, int] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)
    """Registers of copies that the next operation overwrites."""
    words: list[Word] = field(default_factory=list)
    slow: int | None = None
    """The register that the last word writes, if its result takes two cycles."""

    def free(self) -> int:
        taken = {*self.places.values(), *self.copies.values()}
        for register in range(self.registers):
            if register not in taken:
                return register
        raise _TooManyValuesError

    def emit(self, word: Word, reads: Sequence[int] = (), slow: int | None = None) -> None:
        if self.slow is not None and self.slow in reads:
            self.words.append(tensix.NOP_VECTOR)
        self.words.append(word)
        self.slow = slow

    def read(self, value: int) -> int:
        """Return the register of an operand, which is loaded if it is a constant without one."""
        operation = self.body.operations[value]
        if operation.kind != "constant":
            return self.places[value]
        if operation.number in self.fixed:
            return self.fixed[operation.number]
        if value not in self.places:
            register = self.places[value] = self.free()
            for word in tensix.vector_constant(register, operation.number):
                self.emit(word)
        return self.places[value]

    def own(self, value: int, register: int) -> int:
        """Return a register with a value that may be overwritten: its own if nothing else reads it, or a copy."""
        if value in self.places and self.uses[value] == 1 and value not in self.copies:
            return register
        copy = self.copies[value] = self.free()
        self.emit(tensix.vector_move(copy, register), [register])
        return copy

    def used(self, operands: Sequence[int]) -> None:
        """Give back the registers of values that are not read again; constants are loaded again."""
        self.copies.clear()
        for each in operands:
            self.uses[each] -= 1
            if self.uses[each] == 0 or self.body.operations[each].kind == "constant":
                self.places.pop(each, None)


def _words(body: Body, fixed: Mapping[int, int], ahead: int, registers: int) -> list[Word]:
    """Return the words of a body; others come before one that waits while at most `ahead` values are in registers."""
    uses = Counter(i for each in body.operations for i in each.operands)
    state = _Allocation(body, fixed, uses, registers)
    pending = [i for i, each in enumerate(body.operations) if each.kind != "constant"]
    done = {i for i, each in enumerate(body.operations) if each.kind == "constant"}
    while pending:
        chosen = pending[0]
        if not _is_ready(body, chosen, state):
            for candidate in pending[1:]:
                if all(i in done for i in body.operations[candidate].operands) and _is_ready(body, candidate, state):
                    grows = body.operations[candidate].kind == "load"
                    if _keeps_order(body, candidate, pending) and len(state.places) + grows <= ahead:
                        chosen = candidate
                        break
        pending.remove(chosen)
        done.add(chosen)
        _emit(body.operations[chosen], chosen, state)
    return state.words


def _is_ready(body: Body, number: int, state: _Allocation) -> bool:
    return state.slow is None or all(state.places.get(i) != state.slow for i in body.operations[number].operands)


def _keeps_order(body: Body, number: int, pending: Sequence[int]) -> bool:
    """Return whether an operation may come before all that are pending: none of them has its place in Dst."""
    operation = body.operations[number]
    if operation.kind not in ("load", "store"):
        return True
    earlier = (body.operations[i] for i in pending if i < number)
    return not any(each.kind in ("load", "store") and each.place == operation.place for each in earlier)


def _emit(operation: Operation, number: int, state: _Allocation) -> None:
    kind, operands = operation.kind, operation.operands
    if kind == "load":
        register = state.places[number] = state.free()
        state.emit(tensix.vector_load(register, address(operation.place)))
        return
    reads = [state.read(i) for i in operands]
    if kind == "store":
        state.emit(tensix.vector_store(reads[0], address(operation.place)), reads)
        state.used(operands)
        return
    if kind not in IN_PLACE:
        state.used(operands)
        result = state.places[number] = state.free()
        word = tensix.vector_rotate(result, reads[0]) if kind == "rotate" else tensix.vector_mad(result, *reads)
        state.emit(word, reads, result if kind in SLOW else None)
        return
    at = IN_PLACE[kind]
    result = state.own(operands[at], reads[at])
    other = reads[1 - at] if len(reads) > 1 else result
    if kind in ("largest", "smallest") and other < REGISTERS:  # both are written; registers of constants stay
        other = state.own(operands[1 - at], other)
    match kind:
        case "largest":
            word = tensix.vector_sort(other, result)
        case "smallest":
            word = tensix.vector_sort(result, other)
        case "shift":
            word = tensix.vector_shift(result, operation.number)
        case _:
            word = tensix.vector_add_bits(result, other, kind == "subtract_bits")
    state.used(operands)
    state.places[number] = result
    state.emit(word, [result, other], result if kind in SLOW else None)


def address(place: Place) -> int:
    """Return where a part of a tile is in Dst: rows of 16, even columns or odd ones."""
    tile, part = place
    return tensix.DST_ROWS * tile + 16 * (part // 2) + 2 * (part % 2)


EXP2 = (0.00958285, 0.05590643, 0.24024099, 0.69312419, 1.0)
"""Coefficients of 2^x between -0.5 and 0.5, to 3e-6."""


def exp(v: Body, x: int, low: float = -87.0, high: float = 88.0) -> int:
    """Return the power of e of x between two bounds, to 3e-6: 2^n times a polynomial of the rest."""
    x = v.smallest(v.largest(x, v.constant(low)), v.constant(high))
    log2e, magic = v.constant(1.4426950408889634), v.constant(12582912.0)  # 1.5 * 2^23: its last bits are n
    n = v.mad(x, log2e, magic)
    rest = v.mad(x, log2e, v.sub(magic, n))
    return v.add_bits(v.shift(n, 23), v.horner(rest, EXP2))


def reciprocal(v: Body, x: int) -> int:
    """Return 1 / x to 1e-5: an estimate by the exponent, and two steps of Newton's method."""
    negative, two = v.mul(x, v.constant(-1)), v.constant(2)
    y = v.subtract_bits(v.bits(0x7EF127EA), x)
    for _ in range(2):
        y = v.mul(y, v.mad(negative, y, two))
    return y


def rsqrt(v: Body, x: int) -> int:
    """Return 1 / sqrt(x) to 5e-6."""
    half = v.mul(x, v.constant(-0.5))
    y = v.subtract_bits(v.bits(0x5F3759DF), v.shift(x, -1))
    for _ in range(2):
        y = v.mul(y, v.mad(v.mul(half, y), y, v.constant(1.5)))
    return y


def sigmoid(v: Body, x: int) -> int:
    return reciprocal(v, v.add(exp(v, v.mul(x, v.constant(-1)), -80.0, 80.0), v.constant(1)))


def tanh(v: Body, x: int) -> int:
    return v.mad(sigmoid(v, v.add(x, x)), v.constant(2), v.constant(-1))


def gelu(v: Body, x: int) -> int:
    """Return x times the normal distribution to 3e-5: the sigmoid of an odd polynomial."""
    square = v.smallest(v.mul(x, x), v.constant(36))
    factor = v.horner(square, (-0.000703034, 0.0740112945, 1.59501577))
    return v.mul(x, sigmoid(v, v.mul(x, factor)))


def gelu_tanh(v: Body, x: int) -> int:
    """Return gelu by its tanh approximation."""
    square = v.smallest(v.mul(x, x), v.constant(36))
    return v.mul(x, sigmoid(v, v.mul(x, v.horner(square, (0.0713548163, 1.5957691216)))))


def relu(v: Body, x: int) -> int:
    return v.largest(x, v.constant(0))


UNARY = {
    "exp": exp, "sigmoid": sigmoid, "tanh": tanh, "gelu": gelu, "gelu_tanh": gelu_tanh, "relu": relu,
    "reciprocal": reciprocal,
}  # fmt: skip
"""Functions of one number."""
BINARY = {
    "add": Body.add, "sub": Body.sub, "mul": Body.mul, "max": Body.largest, "min": Body.smallest,
    "div": lambda v, x, y: v.mul(x, reciprocal(v, y)),
}  # fmt: skip
"""Functions of two numbers."""
