"""Arithmetic on integers and bits, as tables: sections 9.7.1, 9.7.2 and 9.7.8 of the PTX manual."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mirlo.testing.ptx.errors import PtxError
from mirlo.testing.ptx.flow import CARRY
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.prepare import Builder, KernelPreparation, Step
from mirlo.testing.ptx.text import Imm, PtxInstruction
from mirlo.testing.ptx.types import BITS, PACKED, TYPES, Array, is_signed

Function = Callable[..., Array]


def _divide(a: Array, b: Array) -> Array:
    """Toward zero; by zero all bits are ones, which the manual leaves open."""
    zero = b == 0
    divisor = np.where(zero, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        output = a // divisor
    else:
        output = a // divisor
        output = output + ((output < 0) & (output * divisor != a)).astype(a.dtype)
        # Floor and truncation differ where signs do, and the quotient between -1 and 0 is floored to -1.
    return np.where(zero, np.array(-1).astype(a.dtype), output)


def _remainder(a: Array, b: Array) -> Array:
    zero = b == 0
    divisor = np.where(zero, b.dtype.type(1), b)
    return np.where(zero, a, a - _divide(a, divisor) * divisor)


def _shift_left(a: Array, count: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    output = a << np.minimum(count, bits - 1).astype(a.dtype)
    return np.where(count >= bits, a.dtype.type(0), output)


def _shift_right(a: Array, count: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    output = a >> np.minimum(count, bits - 1).astype(a.dtype)
    return output if a.dtype.kind == "i" else np.where(count >= bits, a.dtype.type(0), output)


def _bit_count(a: Array) -> Array:
    bytes_ = np.ascontiguousarray(a).view(np.uint8).reshape(len(a), -1)
    return np.unpackbits(bytes_, axis=1).sum(1).astype(np.uint32)


def _highest(a: Array) -> Array:
    """Return the number of the highest bit that is set; -1 without one."""
    bytes_ = np.ascontiguousarray(a).view(np.uint8).reshape(len(a), -1)[:, ::-1]
    bits = np.unpackbits(bytes_, axis=1)
    count = bits.shape[1]
    return np.where(bits.any(1), count - 1 - bits.argmax(1), -1).astype(np.int32)


def _leading_zeros(a: Array) -> Array:
    return (8 * a.dtype.itemsize - 1 - _highest(a)).astype(np.uint32)


def _reversed(a: Array) -> Array:
    bytes_ = np.ascontiguousarray(a).view(np.uint8).reshape(len(a), -1)[:, ::-1]
    bits = np.unpackbits(bytes_, axis=1)[:, ::-1]
    return np.packbits(bits, axis=1)[:, ::-1].copy().view(a.dtype).reshape(-1)


def high_half(a: Array, b: Array) -> Array:
    """Return the upper half of the product."""
    size = a.dtype.itemsize
    if size < 8:
        wide = np.dtype(f"{a.dtype.kind}{2 * size}")
        return (a.astype(wide) * b.astype(wide) >> wide.type(8 * size)).astype(a.dtype)
    x, y = a.view(np.uint64), b.view(np.uint64)
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    cross = (x >> shift) * (y & low) + ((x & low) * (y & low) >> shift)
    other = (x & low) * (y >> shift) + (cross & low)
    output = (x >> shift) * (y >> shift) + (cross >> shift) + (other >> shift)
    if a.dtype.kind == "i":
        output = output - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return output.view(a.dtype)


UNARY: dict[str, Function] = {
    "abs": np.abs, "neg": np.negative, "not": np.invert, "brev": _reversed, "cnot": lambda a: (a == 0).astype(a.dtype),
}  # fmt: skip
BINARY: dict[str, Function] = {
    "add": np.add, "sub": np.subtract, "div": _divide, "rem": _remainder, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
COUNTS: dict[str, Function] = {
    "popc": _bit_count, "clz": _leading_zeros,
    "bfind": _highest,
}  # fmt: skip
"""Their result has 32 bits, whatever the type of what they look at."""


def wide_kind(kind: str) -> str:
    """Return the type of twice the size."""
    return f"{kind[0]}{2 * int(kind[1:])}"


def _unary(p: KernelPreparation, i: PtxInstruction) -> Step:
    function, a, write = UNARY[i.name], p.read(i.operands[1], i.kind), p.write(i.operands[0])
    return lambda group: write(group, function(a(group)))


def _binary(p: KernelPreparation, i: PtxInstruction) -> Step:
    if i.has("sat") and i.kind != "s32":
        raise PtxError(".sat is for .s32 only")
    if i.kind in PACKED and (p.version < (9, 0) or i.name not in ("add", "min", "max")):
        raise PtxError(f"'{i.opcode}' is not known, or needs sm_90")
    function, write = BINARY[i.name], p.write(i.operands[0])
    a, b = (p.read(operand, i.kind) for operand in i.operands[1:])
    if i.has("sat"):
        exact = BINARY[i.name]
        return lambda group: write(
            group, np.clip(exact(a(group).astype(np.int64), b(group).astype(np.int64)), -(2**31), 2**31 - 1)
            .astype(np.int32),
        )  # fmt: skip
    if i.has("relu"):
        if i.name not in ("min", "max") or i.kind != "s32" or p.version < (9, 0):
            raise PtxError(f"'{i.opcode}' is not known, or needs sm_90")
        return lambda group: write(group, np.maximum(function(a(group), b(group)), np.int32(0)))
    return lambda group: write(group, function(a(group), b(group)))


def _with_carry(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Add or subtract words of a longer integer, with the carry or borrow."""
    size = TYPES[i.kind].itemsize
    kind, subtracts, reads = f"u{8 * size}", i.name.startswith("sub"), i.name in ("addc", "subc", "madc")
    factors = [p.read(operand, i.kind) for operand in i.operands[1:]]
    product = _product(i.kind, i.modifiers[0]) if i.name.startswith("mad") else None
    write, carry, writes = p.write(i.operands[0]), p.number(CARRY), i.has("cc")
    dtype = TYPES[kind]

    def step(group: Group) -> None:
        values = [read(group) for read in factors]
        a = (values[0] if product is None else product(*values[:2])).view(dtype)
        b = values[-1].view(dtype)
        before = group.regs[carry].astype(dtype) if reads else dtype.type(0)
        partial = a - b if subtracts else a + b
        output = partial - before if subtracts else partial + before
        if writes:
            over = (a < b) | (partial < before) if subtracts else (partial < a) | (output < partial)
            group.regs[carry] = np.broadcast_to(over, output.shape)
        write(group, output)

    return step


def _count(p: KernelPreparation, i: PtxInstruction) -> Step:
    function, a, write = COUNTS[i.name], p.read(i.operands[1], i.kind), p.write(i.operands[0])
    if i.name == "bfind" and (is_signed(i.kind) or i.has("shiftamt")):
        raise PtxError("bfind of signed numbers and .shiftamt are not known")
    return lambda group: write(group, function(a(group)))


def _shift(p: KernelPreparation, i: PtxInstruction) -> Step:
    function = _shift_left if i.name == "shl" else _shift_right
    a, count, write = p.read(i.operands[1], i.kind), p.read(i.operands[2], "u32"), p.write(i.operands[0])
    return lambda group: write(group, function(a(group), count(group)))


def _product(kind: str, mode: str) -> Function:
    if mode == "lo":
        return np.multiply
    if mode == "hi":
        return high_half
    wide = TYPES[wide_kind(kind)]
    return lambda a, b: a.astype(wide) * b.astype(wide)


def _mul(p: KernelPreparation, i: PtxInstruction) -> Step:
    mode = i.modifiers[0]
    function, write = _product(i.kind, mode), p.write(i.operands[0])
    a, b = (p.read(operand, i.kind) for operand in i.operands[1:])
    return lambda group: write(group, function(a(group), b(group)))


def _mad(p: KernelPreparation, i: PtxInstruction) -> Step:
    mode = i.modifiers[0]
    function, write = _product(i.kind, mode), p.write(i.operands[0])
    a, b = (p.read(operand, i.kind) for operand in i.operands[1:3])
    c = p.read(i.operands[3], wide_kind(i.kind) if mode == "wide" else i.kind)
    return lambda group: write(group, function(a(group), b(group)) + c(group))


def _ones(count: Array, dtype: np.dtype) -> Array:
    """Return masks of this many low bits."""
    bits = 8 * dtype.itemsize
    some = (dtype.type(1) << np.minimum(count, bits - 1).astype(dtype)) - dtype.type(1)
    return np.where(count >= bits, ~dtype.type(0), some)


def _bfe(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Extract bits from a position on; of signed numbers, the last bit within the number is repeated."""
    a, write = p.read(i.operands[1], i.kind), p.write(i.operands[0])
    first, count = (p.read(operand, "u32") for operand in i.operands[2:])
    bits, signed = 8 * TYPES[i.kind].itemsize, is_signed(i.kind)
    unsigned = BITS[bits // 8]

    def step(group: Group) -> None:
        value = a(group).view(unsigned)
        start, length = ((read(group) & np.uint32(255)).astype(np.int64) for read in (first, count))
        output = _shift_right(value, start.astype(np.uint32)) & _ones(length, unsigned)
        if signed:
            last = np.minimum(start + length - 1, bits - 1)
            sign = _shift_right(value, np.maximum(last, 0).astype(np.uint32)) & unsigned.type(1)
            kept = np.clip(bits - start, 0, length)
            output = np.where((sign != 0) & (length > 0), output | ~_ones(kept, unsigned), output)
        write(group, output)

    return step


def _bfi(p: KernelPreparation, i: PtxInstruction) -> Step:
    a, b = (p.read(operand, i.kind) for operand in i.operands[1:3])
    first, count = (p.read(operand, "u32") for operand in i.operands[3:])
    write, dtype = p.write(i.operands[0]), TYPES[i.kind]

    def step(group: Group) -> None:
        start, length = first(group) & np.uint32(255), count(group) & np.uint32(255)
        mask = _shift_left(_ones(length, dtype), start)
        write(group, (b(group) & ~mask) | (_shift_left(a(group), start) & mask))

    return step


def _prmt(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Four of eight bytes; the highest bit of a choice fills the byte with the sign."""
    if i.modifiers != ("b32",):
        raise PtxError("modes of prmt are not known")
    first, second, choices = i.operands[1:]
    if isinstance(choices, Imm) and not choices.bits & 0x4444:
        second = first  # no byte of the second one is chosen, and it may not have been written
    a, b, selector = (p.read(operand, "b32") for operand in (first, second, choices))
    write = p.write(i.operands[0])

    def step(group: Group) -> None:
        low, high, chosen = np.broadcast_arrays(a(group), b(group), selector(group))
        whole = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        output = np.zeros(len(low), np.uint32)
        for n in range(4):
            choice = chosen >> np.uint32(4 * n)
            shift = np.uint64(8) * (choice & np.uint32(7)).astype(np.uint64)
            byte = (whole >> shift & np.uint64(255)).astype(np.uint32)
            filled = np.where(byte & np.uint32(128) != 0, np.uint32(255), np.uint32(0))
            output |= np.where(choice & np.uint32(8) != 0, filled, byte) << np.uint32(8 * n)
        write(group, output)

    return step


def _lop3(p: KernelPreparation, i: PtxInstruction) -> Step:
    if i.modifiers != ("b32",):
        raise PtxError("lop3 with a predicate is not known")
    a, b, c = (p.read(operand, "b32") for operand in i.operands[1:4])
    table, write = p.read(i.operands[4], "u32"), p.write(i.operands[0])

    def step(group: Group) -> None:
        x, y, z, rows = a(group), b(group), c(group), int(table(group)[0])
        output = np.zeros(1, np.uint32)
        for row in range(8):
            if rows >> row & 1:
                output = output | ((x if row & 4 else ~x) & (y if row & 2 else ~y) & (z if row & 1 else ~z))
        write(group, output)

    return step


def _shf(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Return a shift of two words side by side; of the result the upper (left) or the lower (right) word."""
    left, wraps = i.modifiers[0] == "l", i.modifiers[1] == "wrap"
    a, b, count = (p.read(operand, "b32") for operand in i.operands[1:])
    write = p.write(i.operands[0])

    def step(group: Group) -> None:
        n = count(group) & np.uint32(31) if wraps else np.minimum(count(group), np.uint32(32))
        both = a(group).astype(np.uint64) | b(group).astype(np.uint64) << np.uint64(32)
        shift = n.astype(np.uint64)
        output = both << shift >> np.uint64(32) if left else both >> shift
        write(group, output.astype(np.uint32))

    return step


def _dp4a(p: KernelPreparation, i: PtxInstruction) -> Step:
    a, b, c = (p.read(operand, "b32") for operand in i.operands[1:])
    kinds = [np.int8 if kind == "s32" else np.uint8 for kind in i.modifiers]
    write = p.write(i.operands[0])

    def step(group: Group) -> None:
        x, y = (np.ascontiguousarray(group.spread(r(group))).view(kind).reshape(-1, 4).astype(np.int32)
                for r, kind in zip((a, b), kinds, strict=True))  # fmt: skip
        write(group, (x * y).sum(1, dtype=np.int32) + c(group).view(np.int32))

    return step


KNOWN = ("lo", "hi", "wide", "sat", "cc", "l", "r", "wrap", "clamp", "u32", "s32", "shiftamt", "relu")
"""Modifiers of arithmetic on integers, before its type."""


def integer_builder(i: PtxInstruction) -> Builder | None:
    """Return the function that prepares a step of an instruction on integers; None for others."""
    name = i.name
    for modifier in i.modifiers[:-1]:
        if modifier not in KNOWN:
            raise PtxError(f".{modifier} of {name} is not known")
    if name in ("addc", "subc", "madc") or i.has("cc"):
        return _with_carry
    special = {"mul": _mul, "mad": _mad, "shl": _shift, "shr": _shift, "bfe": _bfe, "bfi": _bfi, "prmt": _prmt,
               "lop3": _lop3, "shf": _shf, "dp4a": _dp4a}  # fmt: skip
    if name in special:
        return special[name]
    if name in COUNTS:
        return _count
    if name in UNARY:
        return _unary
    return _binary if name in BINARY else None
