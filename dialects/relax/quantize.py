"""Quantization.

Elements are stored as scaled integers or as 8-bit floats.
"""

from __future__ import annotations

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.attributes import Bool, ElementType, Int
from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.core.op import OpError, operand, optional, result
from mirlo.dialects.core.traits import Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import meanings, scalars, shardings
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import (
    INTEGER,
    normalize_axis,
    require_broadcast_to,
    require_equal_dims,
    require_equal_shapes,
    require_kind,
    require_vector,
)

WIDEST = 32


class Quantize(RelaxOp, name="quantize"):
    """saturate(round_half_to_even(x / scale) + zero_point).

    The scale is a scalar, or a vector along `axis`, or, with `block`, a tensor in which each element scales `block`
    elements along `axis`. A zero point has the shape of the scale and the element type of the result.
    """

    meaning = staticmethod(meanings.quantize)
    x = operand()
    scale = operand()
    zero_point = optional()
    axis = Int(1)
    block = Int(0)
    dtype = ElementType()

    @staticmethod
    def infer(
        x: TensorType, scale: TensorType, zero_point: TensorType | None, *, axis: int, block: int, dtype: DType
    ) -> TensorType:
        require_kind(x, ("float", "int"), "operand")
        _require_quantized(dtype, "dtype")
        _require_scale(x, scale, axis, block)
        _require_zero_point(zero_point, scale, dtype)
        return x.with_dtype(dtype)


class Dequantize(RelaxOp, name="dequantize"):
    """(x - zero_point) * scale; scale, axis and block as in `quantize`.

    A zero point has the shape of the scale, and the element type of x or of the scale.
    """

    meaning = staticmethod(meanings.dequantize)
    sharding = staticmethod(shardings.dequantize)
    x = operand()
    scale = operand()
    zero_point = optional()
    axis = Int(1)
    block = Int(0)
    dtype = ElementType("f32")

    @staticmethod
    def infer(
        x: TensorType, scale: TensorType, zero_point: TensorType | None, *, axis: int, block: int, dtype: DType
    ) -> TensorType:
        _require_quantized(x.dtype, "operand")
        if not dtype.is_float:
            raise OpError(f"dtype must be floating point, got {dtype}")
        _require_scale(x, scale, axis, block)
        is_real = zero_point is not None and zero_point.dtype is scale.dtype
        _require_zero_point(zero_point, scale, scale.dtype if is_real else x.dtype)
        return x.with_dtype(dtype)

    @classmethod
    def folds(cls, *operands: TensorType | None, **attributes: object) -> bool:
        """Keep the weights of products in few bits."""
        return not (attributes["block"] and operands[0] is not None and operands[0].rank == 2)


class Requantize(RelaxOp, name="requantize"):
    """Quantize integers times multipliers: exact, as of real numbers, where the processor has fused products.

    clip(round_half_to_even(x * (multiplier + multiplier_low) + shift - 1.5 * 2^23 + addend + addend_low) + zero_point,
    min, max), in f32. All broadcast to x. The shift is 1.5 * 2^23 and an integer, an addend a multiple of 2^-13, and
    the low terms are what these leave of real numbers; what is rounded is below 2^22, and x below 2^24.
    """

    TRAITS = (Trait.ELEMENTWISE,)
    FLOPS_PER_ELEMENT = 10
    IN_F32 = False
    meaning = staticmethod(meanings.requantize)
    scalar = staticmethod(scalars.requantize)
    x = operand()
    multiplier = operand()
    multiplier_low = operand()
    shift = operand()
    addend_low = operand()
    addend = optional()
    zero_point = Int(0)
    min = Int()
    max = Int()
    dtype = ElementType()

    @staticmethod
    def infer(
        x: TensorType,
        multiplier: TensorType,
        multiplier_low: TensorType,
        shift: TensorType,
        addend_low: TensorType,
        addend: TensorType | None,
        *,
        zero_point: int,
        min: int,
        max: int,
        dtype: DType,
    ) -> TensorType:
        if x.dtype.name != "i32":
            raise OpError(f"operand must be i32, got {x}")
        terms = {
            "multiplier": multiplier, "multiplier_low": multiplier_low, "shift": shift, "addend_low": addend_low,
            "addend": addend,
        }  # fmt: skip
        for name, term in terms.items():
            if term is not None and term.dtype.name != "f32":
                raise OpError(f"{name} must be f32, got {term}")
            if term is not None:
                require_broadcast_to(term.shape, x.shape, name)
        if not dtype.is_integer or dtype.bits not in (8, 16):
            raise OpError(f"dtype must be an integer of 8 or 16 bits, got {dtype}")
        limits = np.iinfo(dtype.to_numpy())
        if not limits.min <= min <= max <= limits.max:
            raise OpError(f"min and max must be an interval within {dtype}, got {min} and {max}")
        if not limits.min <= zero_point <= limits.max:
            raise OpError(f"zero_point must be within {dtype}, got {zero_point}")
        return x.with_dtype(dtype)


class Rescale(RelaxOp, name="rescale"):
    """saturate(floor((x - input_zero) * multiplier / 2^shift + 1/2) + zero_point), computed in integers of 64 bits.

    Multipliers and shifts broadcast to x; shifts are 1 to 62. With `double_round`, products that are shifted by more
    than 31 are moved away from zero by 2^30 first. This is how integers are scaled in TOSA and TensorFlow Lite.
    """

    TRAITS = (Trait.ELEMENTWISE,)
    FLOPS_PER_ELEMENT = 4
    IN_F32 = False
    meaning = staticmethod(meanings.rescale)
    scalar = staticmethod(scalars.rescale)
    x = operand()
    multiplier = operand()
    shift = operand()
    input_zero = Int(0)
    zero_point = Int(0)
    double_round = Bool(False)
    dtype = ElementType()

    @staticmethod
    def infer(
        x: TensorType,
        multiplier: TensorType,
        shift: TensorType,
        *,
        input_zero: int,
        zero_point: int,
        double_round: bool,
        dtype: DType,
    ) -> TensorType:
        require_kind(x, INTEGER, "operand")
        if multiplier.dtype.name != "i32" or shift.dtype.name != "i32":
            raise OpError(f"multiplier and shift must be i32, got {multiplier} and {shift}")
        require_broadcast_to(multiplier.shape, x.shape, "multiplier")
        require_broadcast_to(shift.shape, x.shape, "shift")
        if not dtype.is_integer or dtype.bits > WIDEST:
            raise OpError(f"dtype must be an integer of at most {WIDEST} bits, got {dtype}")
        for name, value, of in (("input_zero", input_zero, x.dtype), ("zero_point", zero_point, dtype)):
            limits = np.iinfo(of.to_numpy())
            if not limits.min <= value <= limits.max:
                raise OpError(f"{name} must be within {of}, got {value}")
        return x.with_dtype(dtype)


class Unpack(RelaxOp, name="unpack"):
    """Elements of 2 or 4 bits that are packed in bytes, lowest bits first, along the last dim.

    Packed constants stay as they are in memory and in files, unless what reads them would unpack them in memory.
    """

    meaning = staticmethod(meanings.unpack)
    sharding = staticmethod(shardings.unpack)
    x = operand()
    dtype = ElementType()

    @staticmethod
    def infer(x: TensorType, *, dtype: DType) -> TensorType:
        if x.dtype.name != "u8" or x.rank < 1:
            raise OpError(f"operand must be u8 of rank 1 or more, got {x}")
        if dtype.bits not in (2, 4):
            raise OpError(f"dtype must be of 2 or 4 bits, got {dtype}")
        return x.with_dtype(dtype).with_shape([*x.shape[:-1], x.shape[-1] * (8 // dtype.bits)])

    @classmethod
    def folds(cls, *operands: TensorType | None, **attributes: object) -> bool:
        """Keep packed constants as they are."""
        return False


class QuantizeRows(RelaxOp, name="quantize_rows"):
    """Rows as int8 codes with one scale for each `block` elements, zeros appended to the last block.

    The results are the codes [digits, blocks, rows, block], the scales f32 [blocks, rows], and `offset` times the sums
    of the codes, i32 [digits, blocks, rows]. With one digit the scale is the largest magnitude of a block over 127.
    Two or three digits of base 256, the lowest first, represent elements with 16 or 24 bits.
    """

    meaning = staticmethod(meanings.quantize_rows)
    x = operand()
    block = Int(32)
    digits = Int(1)
    offset = Int(1)
    codes = result()
    scales = result()
    sums = result()

    @staticmethod
    def infer(x: TensorType, *, block: int, digits: int, offset: int) -> list[TensorType]:
        require_kind(x, ("float",), "operand")
        if x.rank != 2:
            raise OpError(f"operand must be a matrix, got {x}")
        if block < 1 or digits not in (1, 2, 3):
            raise OpError(f"block must be positive and digits 1 to 3, got {block} and {digits}")
        rows, blocks = x.shape[0], D.ceildiv(x.shape[1], block)
        return [
            TensorType((digits, blocks, rows, block), DTYPES["i8"]),
            TensorType((blocks, rows), DTYPES["f32"]),
            TensorType((digits, blocks, rows), DTYPES["i32"]),
        ]


def _require_quantized(dtype: DType, what: str) -> None:
    if not (dtype.is_integer and dtype.bits <= WIDEST) and not (dtype.is_float and dtype.bits <= 8):
        raise OpError(f"{what} must be an integer of at most {WIDEST} bits or a float of at most 8, got {dtype}")


def _require_scale(x: TensorType, scale: TensorType, axis: int, block: int) -> None:
    require_kind(scale, ("float",), "scale")
    if block < 0:
        raise OpError(f"block must not be negative, got {block}")
    if block == 0 and scale.rank == 0:
        return
    axis = normalize_axis(axis, x.rank)
    if block == 0:
        require_vector(scale, x.shape[axis], "scale", f"element of axis {axis}")
        return
    if scale.rank != x.rank:
        raise OpError(f"scale must have the rank of the operand {x} when block is {block}, got {scale}")
    for i, dim in enumerate(x.shape):
        expected = D.ceildiv(dim, block) if i == axis else dim
        require_equal_dims(scale.shape[i], expected, f"dim {i} of scale {scale} and the blocks of {block} of {x}")


def _require_zero_point(zero_point: TensorType | None, scale: TensorType, dtype: DType) -> None:
    if zero_point is None:
        return
    require_equal_shapes(zero_point.shape, scale.shape, "zero point and scale")
    if zero_point.dtype is not dtype:
        raise OpError(f"zero point must have the quantized element type, {dtype}, got {zero_point.dtype}")
