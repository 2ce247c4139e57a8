"""`cvt`: sections 9.7.9.21 and 9.7.9.22 of the PTX manual: roundings, saturation, packed forms."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from mirlo.testing.ptx.errors import PtxError
from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.prepare import KernelPreparation, Step
from mirlo.testing.ptx.text import PtxInstruction
from mirlo.testing.ptx.types import FLOATS, TYPES, Array

_TO_INTEGER: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_KINDS = frozenset(TYPES) | {"e4m3x2", "e5m2x2"}
_NARROW = {"e4m3x2": "e4m3", "e5m2x2": "e5m2", "f16x2": "f16", "bf16x2": "bf16"}


def convert_builder(p: KernelPreparation, i: PtxInstruction) -> Step:
    """Return the step of a conversion."""
    target, source = conversion_kinds(i)
    flags = [m for m in i.modifiers if m not in _KINDS]
    for flag in flags:
        if flag not in ("rn", "rna", "rz", "satfinite", "sat", "relu", "ftz", *_TO_INTEGER):
            raise PtxError(f".{flag} of cvt is not known")
    if target in _NARROW or source in _NARROW:
        return _packed(p, i, target, source, flags)
    if target == "tf32":
        return _to_tf32(p, i, flags)
    function, write, read = conversion(target, source, flags), p.write(i.operands[0]), p.read(i.operands[1], source)
    return lambda group: write(group, function(read(group)))


def conversion_kinds(i: PtxInstruction) -> tuple[str, str]:
    """Return the types to which and from which an instruction converts."""
    kinds = [m for m in i.modifiers if m in _KINDS]
    if len(kinds) != 2:
        raise PtxError(f"{i.opcode} is not known")
    return kinds[0], kinds[1]


def conversion(target: str, source: str, flags: list[str]) -> Callable[[Array], Array]:
    """Return the conversion of numbers from one type to another."""
    dtype = TYPES[target]
    rounding = next((flag for flag in flags if flag in _TO_INTEGER), None)
    if source in FLOATS and target in FLOATS:
        return _float_to_float(target, source, flags, rounding)
    if source in FLOATS:
        if rounding is None:
            raise PtxError("conversions of floating-point numbers to integers must say how to round")
        return lambda x: _to_integer(_TO_INTEGER[rounding](_exact(x)), dtype)
    if target in FLOATS:
        if "rn" not in flags:
            raise PtxError("conversions of integers to floating-point numbers must say how to round")
        return lambda x: _round_integer(x, target)
    if "sat" in flags:
        info = np.iinfo(dtype)
        return lambda x: _clamped(x, info.min, info.max).astype(dtype)
    return lambda x: x.astype(dtype)


def _exact(x: Array) -> Array:
    return x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)


def _clamped(x: Array, low: int, high: int) -> Array:
    info = np.iinfo(x.dtype)
    return np.clip(x, max(low, int(info.min)), min(high, int(info.max)))


def _to_integer(x: Array, dtype: np.dtype) -> Array:
    """Convert to integers: numbers out of range become the nearest ones, NaN becomes 0."""
    info = np.iinfo(dtype)
    wide = x.astype(np.float64)
    below, above = wide <= float(info.min), wide >= float(info.max)
    inside = np.where(below | above | np.isnan(wide), 0.0, wide).astype(dtype)
    result = np.where(below, dtype.type(info.min), np.where(above, dtype.type(info.max), inside))
    # NaN of 64 bits is the highest bit alone on the hardware; the manual promises zero only up to f32 and 32 bits.
    return np.where(np.isnan(wide), dtype.type(0), result)


def _round_integer(x: Array, target: str) -> Array:
    """Round once, to the nearest."""
    dtype = TYPES[target]
    if target in ("f32", "f64"):
        return x.astype(dtype)
    if x.dtype.itemsize <= 4:
        # f64 has them all, and what comes of f64 is rounded once.
        return _narrowed(x.astype(np.float64), target)
    # To odd in f64: the bits that are lost count as one.
    wide = x.astype(np.float64)
    back = np.where(np.abs(wide) < 2.0**63, wide, 0).astype(x.dtype)
    inexact = back != x
    bits = wide.view(np.int64)
    up = wide > x.astype(np.longdouble)
    odd = np.where(inexact & (bits & 1 == 0), bits + np.where(up, -1, 1), bits)
    return _narrowed(odd.view(np.float64), target)


def _narrowed(x: Array, target: str) -> Array:
    if target == "bf16" and x.dtype == np.float64:
        return _through_odd(x).astype(ml_dtypes.bfloat16)
    return x.astype(TYPES[target])


def _through_odd(x: Array) -> Array:
    """f64 as f32, rounded to odd, so that another rounding gives what a single one would."""
    result = x.astype(np.float32)
    wrong = (result.astype(np.float64) != x) & np.isfinite(x) & np.isfinite(result)
    bits = result.view(np.int32)
    away = np.abs(result.astype(np.float64)) > np.abs(x)
    return np.where(wrong & (bits & 1 == 0), bits + np.where(away, -1, 1), bits).astype(np.int32).view(np.float32)


def _float_to_float(target: str, source: str, flags: list[str], rounding: str | None) -> Callable[[Array], Array]:
    dtype = TYPES[target]
    if rounding is not None:
        function = _TO_INTEGER[rounding]
        if source != target:
            raise PtxError("roundings to integers go from a type to itself")
        if source in ("f32", "f64"):
            return function
        return lambda x: function(x.astype(np.float32)).astype(dtype)
    if "rz" in flags or "rna" in flags:
        return _rounded_down(target, source, flags)
    relu, saturated = "relu" in flags, "sat" in flags

    def convert(x: Array) -> Array:
        result = _narrowed(x, target) if source == "f64" else x.astype(dtype)
        if relu:
            result = np.where(result > 0, result, np.where(np.isnan(result), result, dtype.type(0)))
        if saturated:
            result = np.where(result > 0, np.minimum(result, dtype.type(1)), dtype.type(0))
        return result

    return convert


def _rounded_down(target: str, source: str, flags: list[str]) -> Callable[[Array], Array]:
    if (target, source) == ("bf16", "f32") and "rz" in flags:
        high = np.uint32(0xFFFF0000)
        return lambda x: (x.view(np.uint32) & high).view(np.float32).astype(ml_dtypes.bfloat16)
    raise PtxError(f"cvt.{'.'.join(flags)}.{target}.{source} is not known")


def _to_tf32(p: KernelPreparation, i: PtxInstruction, flags: list[str]) -> Step:
    """10 bits of fraction in a register of 32."""
    read, write = p.read(i.operands[1], "f32"), p.write(i.operands[0])
    function = {"rna": round_tf32_away, "rn": round_tf32_even}[next(f for f in flags if f in ("rn", "rna"))]
    return lambda group: write(group, function(read(group)))


def round_tf32_away(x: Array) -> Array:
    """Round to the nearest number with 10 bits of fraction, ties away from zero."""
    bits = x.view(np.uint32)
    result = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), result, bits).view(np.float32)


def round_tf32_even(x: Array) -> Array:
    """Return the same, ties to even."""
    bits = x.view(np.uint32)
    result = (bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), result, bits).view(np.float32)


_LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}


def to_eight_bits(x: Array, kind: str) -> Array:
    """Convert with `satfinite`: too large numbers become the largest one, NaN stays."""
    most = _LARGEST[kind]
    held = np.where(np.isnan(x), x, np.clip(x, -most, most))
    return held.astype(TYPES[kind])


def _packed(p: KernelPreparation, i: PtxInstruction, target: str, source: str, flags: list[str]) -> Step:
    """Convert two numbers to one register: the first operand is the upper one."""
    write = p.write(i.operands[0])
    part = _NARROW.get(target, target)
    if source == "f32":
        high, low = (p.read(operand, "f32") for operand in i.operands[1:])
        if part in _LARGEST:
            if "satfinite" not in flags:
                raise PtxError("conversions to 8 bits need .satfinite")
            relu = "relu" in flags

            narrow: Callable[[Array], Array] = lambda x: to_eight_bits(  # noqa: E731
                np.where(x < 0, np.float32(0), x) if relu else x, part
            )

        else:
            narrow = conversion(part, "f32", flags)
        bits = np.dtype(f"u{TYPES[part].itemsize}")
        whole = np.dtype(f"u{2 * TYPES[part].itemsize}")

        def step(group: Group) -> None:
            upper, lower = (narrow(read(group)).view(bits).astype(whole) for read in (high, low))
            write(group, upper << whole.type(8 * bits.itemsize) | lower)

        return step
    if source in ("e4m3x2", "e5m2x2") and target == "f16x2":
        read = p.read(i.operands[1], "b16")

        def widen(group: Group) -> None:
            pairs = np.ascontiguousarray(read(group)).view(TYPES[_NARROW[source]])
            write(group, pairs.astype(np.float16).view(np.uint32))

        return widen
    if source == "f16x2" and part in _LARGEST:
        from_halves = p.read(i.operands[1], "b32")

        def shorten(group: Group) -> None:
            pairs = np.ascontiguousarray(from_halves(group)).view(np.float16).astype(np.float32)
            write(group, to_eight_bits(pairs, part).view(np.uint16))

        return shorten
    raise PtxError(f"{i.opcode} is not known")
