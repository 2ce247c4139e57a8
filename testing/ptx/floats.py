"""Arithmetic on floating-point numbers: sections 9.7.3 to 9.7.5 of the PTX manual."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mirlo.testing.ptx.errors import PtxError
from mirlo.testing.ptx.fused import fma, fma_narrow
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.prepare import Builder, KernelPreparation, Step
from mirlo.testing.ptx.text import PtxInstruction
from mirlo.testing.ptx.types import TYPES, Array

Function = Callable[..., Array]
NARROW = ("f16", "bf16", "f16x2", "bf16x2")


def _extreme(sign_of_zero: np.ufunc, smaller: bool) -> Function:
    """Return the smaller or larger number: not NaN where there is a number, and zeros ordered by their signs."""

    def function(a: Array, b: Array) -> Array:
        bits = np.dtype(f"u{a.dtype.itemsize}")
        result = np.where((a < b) == smaller, a, b)
        zeros = sign_of_zero(a.view(bits), b.view(bits)).view(a.dtype)
        result = np.where(a == b, zeros, result)
        return np.where(np.isnan(a), b, np.where(np.isnan(b), a, result))

    return function


_min, _max = _extreme(np.bitwise_or, True), _extreme(np.bitwise_and, False)
BINARY: dict[str, Function] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "min": _min, "max": _max,
}  # fmt: skip
UNARY: dict[str, Function] = {"sqrt": np.sqrt, "rcp": lambda x: x.dtype.type(1) / x}
APPROXIMATE: dict[str, Function] = {
    "ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt, "rcp": lambda x: 1 / x,
}  # fmt: skip


def _narrowly(function: Function, kind: str) -> Function:
    """Return a low-precision operation, computed in f32: rounding twice does no harm there."""
    if kind not in NARROW:
        return function
    dtype = TYPES[kind]

    def narrow(*values: Array) -> Array:
        return function(*(value.astype(np.float32) for value in values)).astype(dtype)

    return narrow


def flushed(values: Array) -> Array:
    """Replace subnormal f32 numbers by zeros of the same sign."""
    return np.where(np.abs(values) < np.float32(2.0**-126), np.copysign(np.float32(0), values), values)


KNOWN = ("rn", "ftz", "sat", "relu", "NaN", "approx")
"""Modifiers of arithmetic, before its type."""


def _finished(i: PtxInstruction, function: Function) -> Function:
    """Wrap a function in what the instruction's modifiers require."""
    for modifier in i.modifiers[:-1]:
        if modifier not in KNOWN:
            raise PtxError(f".{modifier} of {i.name} is not known")
    if i.has("NaN"):
        inner = function
        function = lambda a, b: np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), inner(a, b))  # noqa: E731
    if i.has("ftz"):
        unflushed = function
        function = lambda *v: flushed(unflushed(*map(flushed, v)))  # noqa: E731
    if i.has("sat") or i.has("relu"):
        before, top = function, 1.0 if i.has("sat") else np.inf

        def function(*values: Array) -> Array:
            result = before(*values)
            zero, most = result.dtype.type(0), result.dtype.type(top)
            held = np.where(result > zero, np.where(result < most, result, most), zero)
            return np.where(np.isnan(result), result.dtype.type(np.nan) if top > 1 else zero, held)

    return function


MIXED = ("add", "sub", "fma")


def _mixed(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Add values of lower precision in f32; their conversion to f32 is exact."""
    narrow = [p.read(operand, i.kind) for operand in i.operands[1:-1]]
    total, write = p.read(i.operands[-1], "f32"), p.write(i.operands[0])
    for modifier in i.modifiers[:-2]:
        if modifier != "rn":
            raise PtxError(f".{modifier} of {i.opcode} is not known")

    def step(group: Group) -> None:
        values = [read(group).astype(np.float32) for read in narrow]
        c = total(group)
        write(group, fma(values[0], values[1], c) if i.name == "fma" else BINARY[i.name](*values, c))

    return step


def _binary(p: KernelPreparation, i: PtxInstruction) -> Step:
    function = _finished(i, _narrowly(BINARY[i.name], i.kind))
    a, b, *third = (p.read(operand, i.kind) for operand in i.operands[1:])
    write = p.write(i.operands[0])
    if third:
        if p.version < (10, 0) or i.name not in ("min", "max") or i.kind != "f32":
            raise PtxError(f"'{i.opcode}' of three operands is not known, or needs sm_100")
        return lambda group: write(group, function(function(a(group), b(group)), third[0](group)))
    return lambda group: write(group, function(a(group), b(group)))


def _fma(p: KernelPreparation, i: PtxInstruction) -> Step:
    function = _finished(i, fma_narrow if i.kind in NARROW else fma)
    a, b, c = (p.read(operand, i.kind) for operand in i.operands[1:])
    write = p.write(i.operands[0])
    return lambda group: write(group, function(a(group), b(group), c(group)))


def _unary(p: KernelPreparation, i: PtxInstruction) -> Step:
    if i.has("approx"):
        return _approximate(p, i)
    function, a, write = _finished(i, UNARY[i.name]), p.read(i.operands[1], i.kind), p.write(i.operands[0])
    return lambda group: write(group, function(a(group)))


OFF_BY_ONE = ("rcp", "rsqrt", "sqrt")
"""Approximations that are not the nearest number here, since those of the hardware may be one beside it."""


def beside(numbers: Array) -> Array:
    """Return the neighbors of f32 numbers, above or below, by their bits."""
    up = numbers.view(np.uint32) * np.uint32(2654435761) >> np.uint32(31) != 0
    result = np.nextafter(numbers, np.where(up, np.float32(np.inf), np.float32(-np.inf)))
    return np.where(np.isfinite(numbers) & np.isfinite(result) & (numbers != 0), result, numbers)


def _approximate(p: KernelPreparation, i: PtxInstruction) -> Step:
    exact, dtype = APPROXIMATE[i.name], TYPES[i.kind]
    function: Callable[[Array], Array] = lambda x: exact(x.astype(np.float64)).astype(dtype)  # noqa: E731
    if i.name in OFF_BY_ONE and i.kind == "f32":
        nearest = function
        function = lambda x: beside(nearest(x))  # noqa: E731
    function = _finished(i, function)
    a, write = p.read(i.operands[1], i.kind), p.write(i.operands[0])
    return lambda group: write(group, function(a(group)))


def _sign(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Change only the bit of the sign, of NaN as well."""
    size = TYPES[i.kind].itemsize
    bits = np.dtype(f"u{size}")
    mask = bits.type(1 << (8 * size - 1))
    a, write = p.read(i.operands[1], i.kind), p.write(i.operands[0])
    absolute = i.name == "abs"

    def function(x: Array) -> Array:
        seen = x.view(bits)
        return (seen & ~mask if absolute else seen ^ mask).view(x.dtype)

    done = _finished(i, function)
    return lambda group: write(group, done(a(group)))


def _copysign(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Return the sign of the first on the second."""
    kind = f"b{8 * TYPES[i.kind].itemsize}"
    mask = TYPES[kind].type(1 << (8 * TYPES[i.kind].itemsize - 1))
    a, b = (p.read(operand, kind) for operand in i.operands[1:])
    write = p.write(i.operands[0])
    return lambda group: write(group, (a(group) & mask) | (b(group) & ~mask))


def _testp(p: KernelPreparation, i: PtxInstruction) -> Step:
    tests: dict[str, Function] = {"finite": np.isfinite, "infinite": np.isinf, "notanumber": np.isnan,
                                  "number": lambda x: ~np.isnan(x)}  # fmt: skip
    tiny = np.finfo(TYPES[i.kind]).tiny
    tests["subnormal"] = lambda x: (x != 0) & (np.abs(x) < tiny)
    tests["normal"] = lambda x: np.isfinite(x) & (np.abs(x) >= tiny)
    function, a, write = tests[i.modifiers[0]], p.read(i.operands[1], i.kind), p.write(i.operands[0])
    return lambda group: write(group, function(a(group)))


def float_builder(i: PtxInstruction, version: tuple[int, int]) -> Builder | None:
    """Return the function that prepares a step of an instruction on floating-point numbers; None for others."""
    name = i.name
    mixed = len(i.modifiers) > 1 and i.modifiers[-2] == "f32"
    if mixed or i.kind == "f32x2":
        known = name in MIXED if mixed else name in ("add", "sub", "mul", "fma")
        if version < (10, 0) or not known:
            raise PtxError(f"'{i.opcode}' is not known, or needs sm_100")
        if mixed:
            return _mixed
    special = {"fma": _fma, "mad": _fma, "neg": _sign, "abs": _sign, "copysign": _copysign, "testp": _testp}
    if name in special:
        return special[name]
    if name in APPROXIMATE or name in UNARY:
        return _unary
    return _binary if name in BINARY else None
