"""Arithmetic of 64-bit floats, which shows whether exponentials stay in range, as residues cannot."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from mirlo.passes.exact.arithmetic import Arithmetic, format_of, wide_bits
from mirlo.passes.exact.ir_text import FunctionText
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.values import FloatValue, IntValue, llvm_type

Array = npt.NDArray[Any]
EXACT_BITS = 12
"""A float whose significand has no more bits is not rounded."""
ULP = 2.0**-23
"""By how much constants that are rounded to f32 are moved, to see what their rounding changes."""
_FUNCTIONS = (
    "sqrt", "floor", "ceil", "trunc", "round", "roundeven", "tanh", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
    "cosh", "log", "log2", "log10", "pow", "copysign", "atan2",
)  # fmt: skip
"""Functions that LLVM has for vectors."""
_OF_C = {
    "erf": 1, "erfc": 1, "cbrt": 1, "log1p": 1, "asinh": 1, "acosh": 1, "atanh": 1, "lgamma": 1, "tgamma": 1, "fmod": 2,
    "hypot": 2, "remainder": 2, "nextafter": 2,
}  # fmt: skip
"""Functions of C's library, with the number of their operands."""
_STAND_INS = {"erfinv": "atanh", "digamma": "asinh", "i0": "cosh", "i1": "sinh", "j0": "cos", "j1": "sin"}
"""Functions that stand for those that C's library lacks on some systems: continuous, and as large."""
_DECLINING = {"i0e": False, "i1e": True}
"""Functions for which 1 / (1 + |x|) stands, or x / (1 + x^2), which is odd as they are."""


class DoubleArithmetic(Arithmetic):
    """64-bit floats."""

    element = "double"
    key: tuple[object, ...] = ("double",)

    def numbers(self, array: Array) -> Array:
        """Return an array of constants of a graph."""
        return array.astype(np.float64)

    def constant(self, f: FunctionText, value: float, lanes: int | None) -> FloatValue:
        (bits,) = struct.unpack("Q", struct.pack("d", value))
        text = f"0x{bits:016X}"
        return FloatValue((text if lanes is None else f"splat (double {text})",), lanes)

    def _binary(self, f: FunctionText, op: str, a: FloatValue, b: FloatValue) -> FloatValue:
        return FloatValue((f.op(f"{op} {llvm_type('double', a.lanes)} {a.planes[0]}, {b.planes[0]}"),), a.lanes)

    def add(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue:
        return self._binary(f, "fadd", a, b)

    def sub(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue:
        return self._binary(f, "fsub", a, b)

    def mul(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue:
        return self._binary(f, "fmul", a, b)

    def div(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue:
        return self._binary(f, "fdiv", a, b)

    def neg(self, f: FunctionText, a: FloatValue) -> FloatValue:
        return FloatValue((f.op(f"fneg {llvm_type('double', a.lanes)} {a.planes[0]}"),), a.lanes)

    def fma(self, f: FunctionText, a: FloatValue, b: FloatValue, c: FloatValue) -> FloatValue:
        return self._intrinsic(f, "fma", [a, b, c])

    def exp2(self, f: FunctionText, a: FloatValue) -> FloatValue:
        return self._intrinsic(f, "exp2", [a])

    def maximum(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue:
        return self._intrinsic(f, "maximum", [a, b])

    def minimum(self, f: FunctionText, a: FloatValue, b: FloatValue) -> FloatValue:
        return self._intrinsic(f, "minimum", [a, b])

    def absolute(self, f: FunctionText, a: FloatValue) -> FloatValue:
        return self._intrinsic(f, "fabs", [a])

    def compare(self, f: FunctionText, predicate: str, a: FloatValue, b: FloatValue) -> IntValue:
        kind = llvm_type("double", a.lanes)
        return IntValue(f.op(f"fcmp {predicate} {kind} {a.planes[0]}, {b.planes[0]}"), 1, a.lanes)

    def classify(self, f: FunctionText, name: str, a: FloatValue) -> IntValue:
        if name == "isnan":
            return self.compare(f, "uno", a, a)
        infinity = self.constant(f, float("inf"), a.lanes)
        return self.compare(f, "oeq" if name == "isinf" else "one", self.absolute(f, a), infinity)

    def function(self, f: FunctionText, name: str, operands: Sequence[FloatValue]) -> FloatValue:
        if name in _DECLINING:
            return self._declining(f, operands[0], is_odd=_DECLINING[name])
        name = _STAND_INS.get(name, name)
        if name in _FUNCTIONS:
            return self._intrinsic(f, name, operands)
        if name not in _OF_C:
            raise OutsideError(f"the function '{name}' of 64-bit floats")
        lanes = operands[0].lanes
        if lanes is None:
            return FloatValue((f.call("double", name, *(("double", x.planes[0]) for x in operands)),))
        result = "poison"
        for i in range(lanes):
            parts = [("double", f.op(f"extractelement <{lanes} x double> {x.planes[0]}, i64 {i}")) for x in operands]
            result = f.op(
                f"insertelement <{lanes} x double> {result}, double {f.call('double', name, *parts)}, i64 {i}"
            )
        return FloatValue((result,), lanes)

    def truncated(self, f: FunctionText, a: FloatValue, kind: str) -> FloatValue:
        return a

    def to_int(self, f: FunctionText, a: FloatValue, bits: int, name: str) -> IntValue:
        kind, result = llvm_type("double", a.lanes), llvm_type(f"i{bits}", a.lanes)
        suffix = f"i{bits}.f64" if a.lanes is None else f"v{a.lanes}i{bits}.v{a.lanes}f64"
        return IntValue(f.call(result, f"llvm.{name}.sat.{suffix}", (kind, a.planes[0])), bits, a.lanes)

    def from_int(self, f: FunctionText, a: IntValue, is_signed: bool) -> FloatValue:
        kind, how = llvm_type(f"i{a.bits}", a.lanes), "sitofp" if is_signed else "uitofp"
        return FloatValue((f.op(f"{how} {kind} {a.name} to {llvm_type('double', a.lanes)}"),), a.lanes)

    def to_bits(self, f: FunctionText, a: FloatValue, kind: str) -> IntValue:
        """Return the bits of the nearest float of a type; numbers below its normal ones are zero."""
        form, lanes = format_of(kind), a.lanes
        wide = llvm_type("i64", lanes)
        bits = f.op(f"bitcast {llvm_type('double', lanes)} {a.planes[0]} to {wide}")
        if form.bits == 64:
            return IntValue(bits, 64, lanes)

        def number(value: int) -> str:
            return f.constant(value, 64, lanes)

        shift, most = 52 - form.fraction, ((1 << form.exponent) - 1) << form.fraction
        magnitude = f.op(f"and {wide} {bits}, {number((1 << 63) - 1)}")
        odd = f.op(f"and {wide} {f.op(f'lshr {wide} {magnitude}, {number(shift)}')}, {number(1)}")
        half = f.op(f"add {wide} {magnitude}, {number((1 << (shift - 1)) - 1)}")
        rounded = f.op(f"lshr {wide} {f.op(f'add {wide} {half}, {odd}')}, {number(shift)}")
        result = f.op(f"sub {wide} {rounded}, {number((1023 - form.bias) << form.fraction)}")
        result = f.extreme("smin", result, number(most), 64, lanes)
        is_small = f.op(f"icmp slt {wide} {result}, {number(1 << form.fraction)}")
        result = f.op(f"select {llvm_type('i1', lanes)} {is_small}, {wide} {number(0)}, {wide} {result}")
        is_nan = self.classify(f, "isnan", a).name
        nan = number(most | 1 << (form.fraction - 1))
        result = f.op(f"select {llvm_type('i1', lanes)} {is_nan}, {wide} {nan}, {wide} {result}")
        sign = f.op(f"lshr {wide} {bits}, {number(63)}")
        sign = f.op(f"shl {wide} {sign}, {number(form.bits - 1)}")
        result = f.op(f"or {wide} {result}, {sign}")
        return IntValue(f.op(f"trunc {wide} {result} to {llvm_type(form.int_kind, lanes)}"), form.bits, lanes)

    def from_bits(self, f: FunctionText, a: IntValue, kind: str) -> FloatValue:
        """Return the number that the bits of a float stand for."""
        form, lanes, bits = format_of(kind), a.lanes, wide_bits(f, a)
        wide, double = llvm_type("i64", lanes), llvm_type("double", lanes)
        if form.bits == 64:
            return FloatValue((f.op(f"bitcast {wide} {bits} to {double}"),), lanes)

        def number(value: int) -> str:
            return f.constant(value, 64, lanes)

        magnitude = f.op(f"and {wide} {bits}, {number(form.sign_bit - 1)}")
        moved = f.op(f"shl {wide} {magnitude}, {number(52 - form.fraction)}")
        normal = f.op(f"add {wide} {moved}, {number((1023 - form.bias) << 52)}")
        special = f.op(f"or {wide} {moved}, {number(0x7FF << 52)}")
        at_most = ((1 << form.exponent) - 1) << form.fraction
        is_special = f.op(f"icmp uge {wide} {magnitude}, {number(at_most)}")
        which = llvm_type("i1", lanes)
        result = f.op(f"select {which} {is_special}, {wide} {special}, {wide} {normal}")
        value = FloatValue((f.op(f"bitcast {wide} {result} to {double}"),), lanes)
        scale = self.constant(f, 2.0 ** (1 - form.bias - form.fraction), lanes)
        small = self.mul(f, self.from_int(f, IntValue(magnitude, 64, lanes), is_signed=True), scale)
        is_small = IntValue(f.op(f"icmp ult {wide} {magnitude}, {number(1 << form.fraction)}"), 1, lanes)
        value = self.select(f, is_small, small, value)
        is_negative = IntValue(f.op(f"icmp uge {wide} {bits}, {number(form.sign_bit)}"), 1, lanes)
        return self.select(f, is_negative, self.neg(f, value), value)

    def _declining(self, f: FunctionText, x: FloatValue, is_odd: bool) -> FloatValue:
        one = self.constant(f, 1.0, x.lanes)
        if is_odd:
            return self.div(f, x, self.fma(f, x, x, one))
        return self.div(f, one, self.add(f, one, self.absolute(f, x)))

    def _intrinsic(self, f: FunctionText, name: str, operands: Sequence[FloatValue]) -> FloatValue:
        lanes = operands[0].lanes
        kind, suffix = llvm_type("double", lanes), "f64" if lanes is None else f"v{lanes}f64"
        return FloatValue((f.call(kind, f"llvm.{name}.{suffix}", *((kind, x.planes[0]) for x in operands)),), lanes)


def is_rounded(value: float) -> bool:
    """Return whether a finite constant may be the rounded value of another number."""
    return bool(np.isfinite(value)) and abs(Fraction(value).numerator).bit_length() > EXACT_BITS


def rounded_elements(numbers: Array) -> Array:
    """Return which elements of an array may be rounded values of other numbers."""
    with np.errstate(invalid="ignore"):
        significands = np.ldexp(np.frexp(numbers)[0], EXACT_BITS)
        return np.asarray(np.isfinite(numbers) & (significands != np.rint(significands)))


class MovedDoubleArithmetic(DoubleArithmetic):
    """64-bit floats in which constants that are rounded to f32 are replaced by neighbours, chosen by a seed."""

    def __init__(self, seed: int):
        self.seed = seed
        self.key = ("double", seed)

    def numbers(self, array: Array) -> Array:
        wide = array.astype(np.float64)
        signs = np.random.default_rng(self.seed).choice([-ULP, ULP], wide.shape)
        return np.where(rounded_elements(wide), wide * (1 + signs), wide)

    def constant(self, f: FunctionText, value: float, lanes: int | None) -> FloatValue:
        if is_rounded(value):
            bits = int(np.float64(value).view(np.uint64)) * 0x9E3779B97F4A7C15 >> 40
            value *= 1 + (ULP if bits + self.seed & 1 else -ULP)
        return super().constant(f, value, lanes)
