"""Instructions on floats, executed on residues modulo a prime.

Sums and products are exact, comparisons follow the order of a round, and conversions between floats change nothing.
Instructions without a meaning on residues, such as exponentials, are errors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mirlo.passes.exact.primes import P
from mirlo.testing.ptx.convert import conversion_kinds
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.prepare import Builder, KernelPreparation, Read, Step
from mirlo.testing.ptx.residues import HALF, HALVES, UNKNOWN, WORDS, MeaninglessError
from mirlo.testing.ptx.text import Imm, Operand, PtxInstruction
from mirlo.testing.ptx.types import FLOATS, TYPES, Array

_PAIRS = "f32x2"
_PRIME = np.uint64(P)


def read_residue(p: KernelPreparation, operand: Operand, kind: str) -> Read:
    """Return the residues of an operand, as 64-bit integers."""
    is_integer = isinstance(operand, Imm) and not operand.float_width and operand.bits
    if is_integer and kind not in HALVES:
        raise MeaninglessError("a float that is written as an integer")
    read = _read_half(p, operand) if kind in HALVES else p.read(operand, kind if kind == _PAIRS else "b32")

    def residues(group: Group) -> Array:
        numbers = read(group).view(np.uint32)
        if kind in HALVES and (numbers >> np.uint32(HALF) == UNKNOWN >> HALF).any():
            raise MeaninglessError("a constant of 16 bits, which its definition does not have")
        return numbers.astype(np.uint64) % _PRIME

    return residues


def _read_half(p: KernelPreparation, operand: Operand) -> Read:
    """Return what a register for 16 bits has: a residue, or an integer."""
    assert p.residues is not None
    if isinstance(operand, Imm) and not operand.float_width:
        constant = p.residues.half_constant(operand)
        return lambda group: constant
    return p.read(operand, "b32")


def _inverse(x: Array) -> Array:
    """Return 1 / x; of zero, zero."""
    result, power = np.ones_like(x), x
    exponent = P - 2
    while exponent:
        if exponent & 1:
            result = result * power % _PRIME
        power = power * power % _PRIME
        exponent >>= 1
    return result


def _negated(x: Array) -> Array:
    return (_PRIME - x) % _PRIME


def residue_builder(p: KernelPreparation, i: PtxInstruction) -> Builder | None:
    """Return the function that prepares a step of an instruction on residues; None for those without floats."""
    if i.name == "cvt":
        target, source = conversion_kinds(i)
        return _convert if any(kind in FLOATS or kind == "tf32" for kind in (target, source)) else None
    if i.name in ("mov", "selp") and i.kind in ("b16", *HALVES):
        return _move
    if i.kind not in FLOATS:
        return None
    if i.kind not in (*HALVES, "f32", _PAIRS):
        raise MeaninglessError(f"'{i.opcode}'")
    return _compare if i.name == "setp" else None if i.name in ("mov", "selp") else _compute


def _move(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Move whole residues between registers of 16-bit floats, or select one."""
    reads = [_read_half(p, operand) for operand in i.operands[1:3]]
    write = p.write(i.operands[0])
    if i.name == "mov":
        return lambda group: write(group, reads[0](group))
    chosen = p.read(i.operands[3], "pred")
    return lambda group: write(group, np.where(chosen(group), *(read(group) for read in reads)))


def _compute(p: KernelPreparation, i: PtxInstruction) -> Step:
    residues = p.residues
    assert residues is not None
    known = ("rn", "ftz", "relu", "NaN", "approx", "full", "f32")
    if any(modifier not in known for modifier in i.modifiers[:-1]):
        raise MeaninglessError(f"'{i.opcode}'")

    def least(a: Array, b: Array) -> Array:
        return np.where(residues.key(a) <= residues.key(b), a, b)

    def most(a: Array, b: Array) -> Array:
        return np.where(residues.key(a) >= residues.key(b), a, b)

    functions: dict[str, Callable[..., Array]] = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a + _negated(b), "mul": lambda a, b: a * b,
        "fma": lambda a, b, c: a * b + c, "mad": lambda a, b, c: a * b + c, "neg": _negated,
        "abs": lambda a: most(a, _negated(a)), "rcp": _inverse, "div": lambda a, b: a * _inverse(b),
        "min": least, "max": most,
    }  # fmt: skip
    function = functions.get(i.name)
    if function is None:
        raise MeaninglessError(f"'{i.opcode}'")
    reads = [read_residue(p, operand, i.kind) for operand in i.operands[1:]]
    write, is_cut = p.write(i.operands[0]), i.has("relu")
    if i.name in ("min", "max") and len(reads) == 3:
        two = function
        function = lambda a, b, c: two(two(a, b), c)  # noqa: E731

    def step(group: Group) -> None:
        result = function(*(read(group) for read in reads)) % _PRIME
        if is_cut:
            result = most(result, np.zeros_like(result))
        write(group, result.astype(np.uint32))

    return step


def _compare(p: KernelPreparation, i: PtxInstruction) -> Step:
    residues = p.residues
    assert residues is not None
    if len(i.modifiers) > 2 or i.kind == _PAIRS:
        raise MeaninglessError(f"'{i.opcode}'")
    name = i.modifiers[0].removesuffix("u") if i.modifiers[0] != "num" else "num"
    a, b = (read_residue(p, operand, i.kind) for operand in i.operands[1:3])
    write = p.write(i.operands[0])
    orders = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}

    def step(group: Group) -> None:
        x, y = np.broadcast_arrays(a(group), b(group))
        if name in orders:
            write(group, orders[name](residues.key(x), residues.key(y)))
        elif name in ("num", "nan"):
            write(group, np.full(x.shape, name == "num"))
        else:
            write(group, (x == y) if name == "eq" else (x != y))

    return step


def _convert(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Convert: from a float to another one nothing changes, and an integer has its residue."""
    target, source = conversion_kinds(i)
    residues, write = p.residues, p.write(i.operands[0])
    assert residues is not None
    if any(i.has(flag) for flag in ("sat", "rni", "rzi", "rmi", "rpi")):
        raise MeaninglessError(f"'{i.opcode}'")
    is_cut = i.has("relu")

    def cut(numbers: Array) -> Array:
        if is_cut:
            numbers = np.where(residues.key(numbers) >= residues.key(np.zeros_like(numbers)), numbers, 0)
        return numbers.astype(np.uint32)

    if target in ("f16x2", "bf16x2") and source == "f32":
        high, low = (read_residue(p, operand, source) for operand in i.operands[1:3])

        def pack(group: Group) -> None:
            upper, lower = (cut(read(group)) & np.uint32(0xFFFF) for read in (high, low))
            write(group, upper << np.uint32(HALF) | lower)

        return pack
    floats = (*HALVES, *WORDS)
    if source in floats and target in floats:
        read = read_residue(p, i.operands[1], source)
        return lambda group: write(group, cut(read(group)))
    if target in floats and source not in FLOATS and source in TYPES:
        integers = p.read(i.operands[1], source)
        return lambda group: write(group, (integers(group).astype(np.int64) % P).astype(np.uint32))
    raise MeaninglessError(f"'{i.opcode}'")
