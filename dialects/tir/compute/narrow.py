"""Low-precision elements without hardware support: 8-bit and 4-bit floats, integers of 2 and 4 bits.

In memory they are codes in `i8`, of which only the lower bits count. Floats are computed in f32; this module
converts between codes and f32 with integer arithmetic that any target has. Encoding rounds half to even. Beyond the
largest finite value the result is infinity, or NaN in formats without infinity, or the largest value in formats with
neither.

Storage and compute form differ for bool and index, too: elements are converted here when they are loaded and stored.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.core.value import compare
from mirlo.dialects.tir.compute.emit import BodyEmitter, create, emit_constant
from mirlo.dialects.tir.compute.expr import BOOL, INDEX, Expr, call, constant, maximum, minimum, select
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class SmallFloatFormat:
    """Layout of a small float: sign, biased exponent, mantissa."""

    mantissa: int
    bias: int
    bits: int
    largest: int
    """Code of the largest finite value."""
    nan: int | None
    beyond: int
    """Code of larger values."""
    infinity: int | None = None
    negative_zero: bool = True


FORMATS = {
    "f8e4m3fn": SmallFloatFormat(3, 7, 8, largest=0x7E, nan=0x7F, beyond=0x7F),
    "f8e4m3fnuz": SmallFloatFormat(3, 8, 8, largest=0x7F, nan=0x80, beyond=0x80, negative_zero=False),
    "f8e5m2": SmallFloatFormat(2, 15, 8, largest=0x7B, nan=0x7F, beyond=0x7C, infinity=0x7C),
    "f8e5m2fnuz": SmallFloatFormat(2, 16, 8, largest=0x7F, nan=0x80, beyond=0x80, negative_zero=False),
    "f4e2m1": SmallFloatFormat(1, 1, 4, largest=0x7, nan=None, beyond=0x7),
}
SCALE = "f8e8m0"
"""Only an exponent: powers of two."""


def is_coded(element: DType) -> bool:
    """Return whether elements of this type are f32 in registers and codes in memory."""
    return element.is_float and element.bits <= 8


def largest(element: DType) -> float:
    """Return the largest finite value of a coded type."""
    if element.name == SCALE:
        return 2.0**127
    form = FORMATS[element.name]
    exponent, mantissa = divmod(form.largest, 1 << form.mantissa)
    return (1 + mantissa / (1 << form.mantissa)) * 2.0 ** (exponent - form.bias)


def decode_float(code: Expr, element: DType) -> Expr:
    """Return the f32 value of a code, the lowest bits of an i32."""
    nan = constant(float("nan"), "f32")
    if element.name == SCALE:
        # The smallest value, 2^-127, is subnormal in f32.
        bits = select(code.equals(0), constant(1 << 22, "i32"), code << 23)
        return select(code.equals(0xFF), nan, bits.bitcast("f32"))
    form = FORMATS[element.name]
    sign_bit = 1 << (form.bits - 1)
    magnitude = code & (sign_bit - 1)
    # Move the fields to their positions in f32; the power of two corrects the bias and handles subnormals as well.
    value = (magnitude << (23 - form.mantissa)).bitcast("f32") * 2.0 ** (127 - form.bias)
    if form.infinity is not None:
        value = select(magnitude.equals(form.infinity), constant(float("inf"), "f32"), value)
        value = select(magnitude > form.infinity, nan, value)
    signed = select((code & sign_bit).differs(0), -value, value)
    if form.nan is None or form.infinity is not None:
        return signed
    return select((magnitude if form.nan < sign_bit else code).equals(form.nan), nan, signed)


def encode_float(value: Expr, element: DType) -> Expr:
    """Return the code, an i32, of an f32."""
    bits = value.bitcast("i32")
    magnitude = bits & 0x7FFFFFFF
    is_nan = magnitude > 0x7F800000
    if element.name == SCALE:
        rounded = (magnitude + 0x3FFFFF + ((magnitude >> 23) & 1)) >> 23
        return select(is_nan | (bits < 0), constant(0xFF, "i32"), rounded)
    form = FORMATS[element.name]
    # Clamping far beyond the largest value changes no result and keeps the arithmetic from overflowing.
    limit = 4.0 * largest(element)
    size = select(is_nan, constant(0.0, "f32"), minimum(magnitude.bitcast("f32"), limit))
    lowest = 1 - form.bias
    exponent = maximum((size.bitcast("i32") >> 23) - 127, lowest)
    # In units of the last place the value is an integer, and the code counts the values of all smaller exponents too.
    unit = ((form.mantissa + 127 - exponent) << 23).bitcast("f32")
    units = call("roundeven", size * unit).cast("i32")
    code = ((exponent - lowest) << form.mantissa) + units
    over = code > form.largest
    code = select(over, constant(form.beyond, "i32"), code)
    signed = code | select(bits < 0, constant(1 << (form.bits - 1), "i32"), constant(0, "i32"))
    if not form.negative_zero:
        signed = select(code.equals(0), code, signed)
    return signed if form.nan is None else select(is_nan, constant(form.nan, "i32"), signed)


def wrap_integer(value: Expr) -> Expr:
    """Wrap an integer of 2 or 4 bits, held in an i8, to its range."""
    spare = 8 - value.dtype.bits
    if value.dtype.is_unsigned:
        return value & ((1 << value.dtype.bits) - 1)
    return (value << spare) >> spare


CODE = DTYPES["i32"]


def from_storage(value: ir.Value, element: DType) -> ir.Value:
    """Convert a loaded element to the scalar that is computed with."""
    if element is BOOL:
        zero = emit_constant(0, value.type)
        return compare("ne", value, zero)
    if element is INDEX:
        return create("arith.index_cast", ir.IndexType.get(), value)
    if is_coded(element):
        code = create("arith.extui", ir.Type.parse(CODE.compute), value)
        return emit(decode_float(as_expr(code, CODE), element))
    if element.is_integer and element.bits < 8:
        return emit(wrap_integer(as_expr(value, element)))
    return value


def to_storage(value: ir.Value, element: DType) -> ir.Value:
    """Convert a scalar to its storage form."""
    storage = ir.Type.parse(element.storage)
    if element is BOOL:
        return create("arith.extui", storage, value)
    if element is INDEX:
        return create("arith.index_cast", storage, value)
    if is_coded(element):
        return create("arith.trunci", storage, emit(encode_float(as_expr(value, DTYPES["f32"]), element)))
    if element.is_integer and element.bits < 8:
        return emit(wrap_integer(as_expr(value, element)))
    return value


def as_expr(value: ir.Value, element: DType) -> Expr:
    """Wrap a value as an expression."""
    return Expr("value", (), element, value)


def emit(expr: Expr) -> ir.Value:
    """Emit an expression over values at the insertion point."""
    return BodyEmitter(_leaf).emit(expr)


def _leaf(expr: Expr, emitter: BodyEmitter) -> NoReturn:
    raise TypeError(f"'{expr.op}' has no meaning outside of a block: read a buffer instead")


def number_attribute(value: float, element: DType) -> ir.Attribute:
    """Return a number as an attribute of the storage type."""
    storage = ir.Type.parse(element.storage)
    if isinstance(storage, ir.FloatType):
        return ir.FloatAttr.get(storage, float(value))
    if is_coded(element):
        code = int(np.array(value, np.float32).astype(element.to_numpy()).view(np.uint8))
    else:
        code = int(value)
    wrapped_code = code & ((1 << storage.width) - 1)
    is_negative = wrapped_code >> (storage.width - 1)
    return ir.IntegerAttr.get(storage, wrapped_code - (1 << storage.width) if is_negative else wrapped_code)
