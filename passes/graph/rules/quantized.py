"""Products of quantized values as int8 products with i32 accumulators.

Zero points move out of the sums: `sum (x - z) * w = sum x * w - z * sum w`; the last sum is constant if the weights
are. What follows (scales, biases, activations, quantization) is computed on the accumulators in registers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.infer import channel_axis, kernel_axes, padding_pairs, spatial_axes
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of, only_use
from mirlo.passes.rules import Decline, decline, recognize
from mirlo.runtime.records import dataclass

I32, F32 = DTYPES["i32"], DTYPES["f32"]
BYTES = ("i8", "u8")
CODES = (*BYTES, "i4", "u4")


@dataclass(frozen=True)
class QuantizedValue:
    """int8 elements and their meaning: `(value - zero) * scale`."""

    value: ir.Value
    zero: np.ndarray | ir.Value | None = None
    """None for 0; an array that broadcasts to the value, or a computed scalar."""
    scale: np.ndarray | ir.Value | None = None
    """A computed one is a scalar."""
    axis: int = 0
    """The axis of a vector of scales."""


@recognize("relax.matmul")
def quantized_matmul(op: ir.OpView, b: Rewriter) -> Decline | ir.Value:
    """Multiply operands that were dequantized, or whose zero points were subtracted, as int8."""
    result = _operands(op, b)
    if isinstance(result, Decline):
        return result
    left, right = result
    if min(kind_of(op.lhs).rank, kind_of(op.rhs).rank) < 2:
        return decline("an operand is a vector")
    # The number of rows may be dynamic, the reduced extent may not.
    depth = kind_of(op.lhs).shape[-2 if op.transpose_lhs else -1]
    if not kind_of(op.rhs).is_static or not isinstance(depth, int):
        return decline("an operand's size is known at run time only")
    rank = kind_of(op.rhs).rank
    columns = rank - (2 if op.transpose_rhs else 1)
    if _differs_along_sum(left, right, columns, rank):
        return decline("a scale differs along an axis that is summed up")
    total = _matmul_i32(op, left, right, b)
    if isinstance(total, Decline) or left.scale is None or right.scale is None:
        return total
    return _scaled(total, left.scale, right.scale, b)


@recognize("relax.conv")
def quantized_conv(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Convolve data and weights that were dequantized, or whose zero points were subtracted, as int8."""
    result = _operands(op, b)
    if isinstance(result, Decline):
        return result
    data, weight = result
    if not kind_of(op.weight).is_static:
        return decline("the size of the weights is known at run time only")
    out_axis, *_ = kernel_axes(op.kernel_layout, kind_of(op.weight).rank)
    if _differs_along_sum(data, weight, out_axis, kind_of(op.weight).rank):
        return decline("a scale differs along an axis that is summed up")
    if isinstance(weight.scale, ir.Value):
        return decline("the scale of the weights is computed at run time")
    total = _conv_i32(op, data, weight, b)
    if isinstance(total, Decline) or data.scale is None or weight.scale is None:
        return total
    scaled = _scaled(total, data.scale, weight.scale, b, op)
    if op.bias is None:
        return scaled
    return b.emit(
        OPS["add"], scaled, b.emit(OPS["reshape"], op.bias, shape=_channel_shape(op, kind_of(op.bias).shape[0]))
    )


@recognize("relax.multiply", producers=["relax.subtract", "relax.cast"])
def scaled_codes(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Dequantize constant matrices of integers that are cast to floats and scaled, perhaps less a zero point."""
    for codes, scale in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        centred = defining(codes, "relax.subtract")
        cast = defining(codes if centred is None else centred.lhs, "relax.cast")
        if cast is None or codes.type != op.output.type or not _is_matrix_of_codes(cast.x):
            continue
        factors = _constant_array(scale, b)
        zeros = None if centred is None else _constant_array(centred.rhs, b)
        if factors is None or (centred is not None and zeros is None):
            return decline("the scale or the zero point is computed at run time")
        # Zero points of a column, and one scale for all of them, are one of each for a column.
        shape = np.broadcast_shapes(factors.shape, () if zeros is None else zeros.shape)
        axes = [axis + 2 - len(shape) for axis, dim in enumerate(shape) if dim != 1]
        if len(axes) > 1:
            return decline("each element has a scale or zero point of its own", scale=str(kind_of(scale)))
        count = kind_of(cast.x).shape[axes[0]] if axes else ()
        scale = _parameter(np.broadcast_to(factors, shape).reshape(count), scale, b)
        zero = None
        if centred is not None and zeros is not None:
            zero = _parameter(np.broadcast_to(zeros, shape).reshape(count), centred.rhs, b)
        axis = axes[0] if axes else 1
        return b.emit(OPS["dequantize"], cast.x, scale, zero, axis=axis, dtype=kind_of(codes).dtype)
    return decline("no factor is a constant matrix of integers")


def _is_matrix_of_codes(value: ir.Value) -> bool:
    """Return whether a value is a constant matrix of integers of at most 8 bits, perhaps packed."""
    unpack = defining(value, "relax.unpack")
    kind = kind_of(value)
    return is_constant(value if unpack is None else unpack.x) and kind.rank == 2 and kind.dtype.name in CODES


def _parameter(array: np.ndarray, value: ir.Value, b: Rewriter) -> ir.Value:
    """Return a scale or zero point of this type as a constant."""
    return b.constant(np.ascontiguousarray(array), kind_of(value).with_shape(array.shape), b.name_of(value))


def _operands(op: ir.OpView, b: Rewriter) -> tuple[QuantizedValue, QuantizedValue] | Decline:
    """Return the operands of the product as int8."""
    kind = kind_of(op.output).dtype
    if op.out_dtype is not None or kind.name not in ("f32", "i32"):
        return decline("it is a product of other numbers", dtype=kind.name)
    operands = []
    for value in list(op.operation.operands)[:2]:
        quantized = _dequantized(value, b) if kind is F32 else _centred(value, b)
        if isinstance(quantized, Decline):
            return quantized
        operands.append(quantized)
    return operands[0], _without_zero(operands[1], b)


def _dequantized(value: ir.Value, b: Rewriter) -> QuantizedValue | Decline:
    op = defining(value, "relax.dequantize")
    if op is None:
        return decline("an operand is not dequantized")
    if kind_of(op.x).dtype.name not in BYTES or op.block:
        return decline("an operand is not int8 with a scale per tensor or channel", operand=str(kind_of(op.x)))
    scale, zero = _constant_array(op.scale, b), None
    rank = kind_of(op.x).rank
    axis = op.axis % rank if scale is not None and scale.ndim else 0
    if op.zero_point is not None:
        known = _constant_array(op.zero_point, b)
        if known is not None:
            zero = _spread(known.astype(np.int64), rank, axis) if known.any() else None
        elif kind_of(op.zero_point).rank:
            return decline("a zero point that is computed differs along an axis")
        else:
            zero = op.zero_point
    if scale is not None:
        return QuantizedValue(op.x, zero, scale.astype(np.float32), axis)
    if kind_of(op.scale).rank or kind_of(op.scale).dtype is not F32:
        return decline("a scale that is computed differs along an axis, or is not f32")
    return QuantizedValue(op.x, zero, op.scale)


def _centred(value: ir.Value, b: Rewriter) -> QuantizedValue | Decline:
    """Return the int8 value and the zero point of which an i32 value is the difference."""
    op, zero = defining(value, "relax.subtract"), None
    wide = value
    if op is not None:
        wide, zero = op.lhs, op.rhs
        known = _constant_array(zero, b)
        if known is not None:
            zero = known.astype(np.int64) if known.any() else None
        elif kind_of(zero).rank:
            return decline("a zero point that is computed differs along an axis")
    cast = defining(wide, "relax.cast")
    if cast is not None and kind_of(cast.x).dtype.name in BYTES:
        return QuantizedValue(cast.x, zero)
    array = b.array(wide) if zero is None else None
    if array is None or not array.size or array.min() < -128 or array.max() > 127:
        return decline("an operand is not int8")
    return QuantizedValue(b.constant(array.astype(np.int8), kind_of(wide).with_dtype("i8"), b.name_of(wide)))


def _differs_along_sum(left: QuantizedValue, right: QuantizedValue, columns: int, rank: int) -> bool:
    """Return whether scales vary along K: more than one on the left, or on the right other than one per column."""
    varies = [isinstance(each.scale, np.ndarray) and each.scale.size != 1 for each in (left, right)]
    return varies[0] or (varies[1] and right.axis % rank != columns)


def _without_zero(weight: QuantizedValue, b: Rewriter) -> QuantizedValue:
    """Return constant weights as i8, with the zero point subtracted if the result fits."""
    array = _constant_array(weight.value, b)
    if array is None or (weight.zero is not None and not isinstance(weight.zero, np.ndarray)):
        return weight
    kind = kind_of(weight.value)
    if weight.zero is None and kind.dtype.name == "i8":
        return weight
    centred = _less(array, weight.zero)
    if not centred.size:
        return weight
    zero = None
    if centred.min() < -128 or centred.max() > 127:
        if kind.dtype.name == "i8" or weight.zero is None:
            return weight
        centred, zero = _less(array, np.int64(128)), weight.zero - 128
    name = b.name_of(weight.value)
    return replace(weight, value=b.constant(centred.astype(np.int8), kind.with_dtype("i8"), name), zero=zero)


def _less(codes: np.ndarray, zero: np.ndarray | np.integer | None) -> np.ndarray:
    """Return integers less a zero point: as i16 where both are bytes, a quarter of the memory of i64."""
    is_small = codes.dtype.itemsize == 1 and (zero is None or np.max(np.abs(zero), initial=0) <= 255)
    wide = codes.astype(np.int16 if is_small else np.int64)
    return wide if zero is None else wide - zero.astype(wide.dtype)


def _matmul_i32(op: ir.OpView, left: QuantizedValue, right: QuantizedValue, b: Rewriter) -> Decline | ir.Value:
    """Return the sums of products in i32."""
    attributes = {"transpose_lhs": op.transpose_lhs, "transpose_rhs": op.transpose_rhs}
    left_zero, right_zero = _scalar_zero_point(left.zero), _scalar_zero_point(right.zero)
    if isinstance(left_zero, Decline):
        return left_zero
    if isinstance(right_zero, Decline):
        return right_zero
    total = b.emit(OPS["matmul"], left.value, right.value, out_dtype=I32, **attributes)
    if left_zero is not None:
        sums = _sum_i32(right.value, -1 if op.transpose_rhs else -2, -2, b)
        total = b.emit(OPS["subtract"], total, b.emit(OPS["multiply"], sums, _zero_point_value(left_zero, b)))
    if right_zero is not None:
        sums = _sum_i32(left.value, -2 if op.transpose_lhs else -1, -1, b)
        if left_zero is not None:
            depth = kind_of(left.value).shape[-2 if op.transpose_lhs else -1]
            whole = b.emit(OPS["multiply"], _zero_point_value(np.int64(depth), b), _zero_point_value(left_zero, b))
            sums = b.emit(OPS["subtract"], sums, whole)
        total = b.emit(OPS["subtract"], total, b.emit(OPS["multiply"], sums, _zero_point_value(right_zero, b)))
    return total


def _conv_i32(op: ir.OpView, data: QuantizedValue, weight: QuantizedValue, b: Rewriter) -> ir.Value | Decline:
    """Return the sums of products in i32, plus the bias if it is i32 too."""
    zero, weight_zero = _scalar_zero_point(data.zero), _scalar_zero_point(weight.zero)
    if isinstance(zero, Decline):
        return zero
    if isinstance(weight_zero, Decline):
        return weight_zero
    array = _constant_array(weight.value, b)
    if weight_zero is not None and (op.groups != 1 or not isinstance(weight_zero, np.integer)):
        return decline(
            "weights less their zero points are not bytes, and there are groups, or the weights are not constant"
        )
    attributes = {**op.attribute_values(), "out_dtype": I32}
    bias = op.bias if op.bias is not None and kind_of(op.bias).dtype is I32 else None
    if zero is None and weight_zero is None:
        return b.emit(OPS["conv"], data.value, weight.value, bias, **attributes)
    if array is None:
        return decline("there are zero points, and the weights are not constant")
    out_axis, _, _ = kernel_axes(op.kernel_layout, array.ndim)
    others = tuple(i for i in range(array.ndim) if i != out_axis)
    sums = _less(array, weight_zero).sum(axis=others, dtype=np.int64)
    x = _bordered(op, data.value, np.int64(0) if zero is None else zero, b)
    if isinstance(x, Decline):
        return x
    attributes["padding"] = ()
    if isinstance(zero, np.integer):
        shift = (sums * -zero).astype(np.int32)
        output = b.constant(shift, TensorType.of(shift.shape, "i32"), "bias")
        bias = output if bias is None else b.emit(OPS["add"], bias, output)
    total = b.emit(OPS["conv"], x, weight.value, bias, **attributes)
    if isinstance(zero, ir.Value):
        shape = _channel_shape(op, len(sums))
        channels = b.constant(sums.astype(np.int32), TensorType.of(shape, "i32"), "sums")
        total = b.emit(OPS["subtract"], total, b.emit(OPS["multiply"], channels, _zero_point_value(zero, b)))
    if weight_zero is None:
        return total
    # The sum of each window of the data is a product with ones: one channel serves all.
    kernel = tuple(1 if i == out_axis else size for i, size in enumerate(array.shape))
    ones = b.constant(np.ones(kernel, np.int8), TensorType.of(kernel, "i8"), "ones")
    windows = b.emit(OPS["conv"], x, ones, **attributes)
    return b.emit(OPS["subtract"], total, b.emit(OPS["multiply"], windows, _zero_point_value(weight_zero, b)))


def _bordered(op: ir.OpView, x: ir.Value, zero: np.integer | ir.Value, b: Rewriter) -> ir.Value | Decline:
    """Pad images with the zero point: then every window contains all weights, and their sum is constant."""
    kind = kind_of(x)
    axes, pads = spatial_axes(op.data_layout, kind.rank), [0] * (2 * kind.rank)
    for axis, (begin, end) in zip(axes, padding_pairs(op.padding, len(axes)), strict=True):
        pads[axis], pads[kind.rank + axis] = begin, end
    if not any(pads):
        return x
    if isinstance(zero, np.integer):
        return b.emit(OPS["pad"], x, pads=pads, mode="constant", value=float(zero))
    cast = defining(zero, "relax.cast")
    byte = zero if cast is None else cast.x
    if kind_of(byte).dtype is not kind.dtype:
        return decline("a zero point that is computed is of another type than the data", zero=str(kind_of(byte)))
    quantize = defining(x, "relax.quantize")
    if quantize is not None and quantize.zero_point == byte and not quantize.block and only_use(x):
        # Zero becomes the zero point: the image is padded before, by a number.
        image = b.emit(OPS["pad"], quantize.x, pads=pads, mode="constant", value=0.0)
        return b.emit(OPS["quantize"], image, quantize.scale, byte, **quantize.attribute_values())
    padded = b.emit(OPS["pad"], x, pads=pads, mode="constant", value=0.0)
    sizes = tuple(size if axis in axes else 1 for axis, size in enumerate(kind.shape))
    image = b.emit(OPS["full"], shape=sizes, value=1.0, dtype=DTYPES["bool"])
    inside = b.emit(OPS["pad"], image, pads=pads, mode="constant", value=0.0)
    return b.emit(OPS["where"], inside, padded, byte)


def _sum_i32(value: ir.Value, axis: int, kept: int, b: Rewriter) -> ir.Value:
    """Return sums along an axis in i32, keeping a dim of 1 at position `kept`."""
    kind = kind_of(value)
    shape = list(kind.shape)
    del shape[axis % kind.rank]
    shape.insert(kept % kind.rank, 1)
    array = _constant_array(value, b)
    if array is not None:
        sums = array.astype(np.int64).sum(axis=axis).astype(np.int32).reshape(shape)
        return b.constant(sums, TensorType.of(tuple(shape), "i32"), f"{b.name_of(value)}.sums")
    wide = b.emit(OPS["cast"], value, dtype=I32)
    summed = b.emit(OPS["reduce_sum"], wide, axes=[axis % kind.rank], keepdims=False)
    return b.emit(OPS["reshape"], summed, shape=tuple(shape))


def _scalar_zero_point(zero: np.ndarray | ir.Value | None) -> np.integer | ir.Value | Decline | None:
    """Return a zero point of a whole tensor: None, a number, or a value."""
    if not isinstance(zero, np.ndarray):
        return zero
    first = zero.reshape(-1)[0]
    return first if (zero == first).all() else decline("a zero point differs along an axis")


def _zero_point_value(zero: np.integer | ir.Value, b: Rewriter) -> ir.Value:
    if isinstance(zero, np.integer):
        return b.constant(np.full((), zero, np.int32), TensorType.of((), "i32"))
    return zero if kind_of(zero).dtype is I32 else b.emit(OPS["cast"], zero, dtype=I32)


def _scaled(
    total: ir.Value,
    left: np.ndarray | ir.Value,
    right: np.ndarray | ir.Value,
    b: Rewriter,
    conv: ir.OpView | None = None,
) -> ir.Value:
    """Return accumulators times the product of two scales: the second is one, or one per column or channel.

    The product is an operator, to be folded: a quantization that follows computes it exactly.
    """
    shape: tuple[Dim, ...] = ()
    if isinstance(right, np.ndarray) and right.size != 1:
        shape = (right.size,) if conv is None else _channel_shape(conv, right.size)
    scales = [
        b.constant(scale.astype(np.float32).reshape(sizes), TensorType.of(sizes, "f32"), "scale")
        if isinstance(scale, np.ndarray)
        else scale
        for scale, sizes in ((left, ()), (right, shape))
    ]
    scale = b.emit(OPS["multiply"], *scales)
    return b.emit(OPS["multiply"], b.emit(OPS["cast"], total, dtype=F32), scale)


def _channel_shape(op: ir.OpView, channels: Dim) -> tuple[Dim, ...]:
    rank = kind_of(op.x).rank
    return tuple(channels if i == channel_axis(op.data_layout, rank) else 1 for i in range(rank))


def _spread(zero: np.ndarray, rank: int, axis: int) -> np.ndarray:
    """Reshape a vector along an axis so that it broadcasts to a tensor of this rank."""
    return zero if zero.ndim == 0 else zero.reshape([-1 if i == axis else 1 for i in range(rank)])


def _constant_array(value: ir.Value, b: Rewriter) -> np.ndarray | None:
    """Return the array of a constant, also through operators that move, select or cast its elements."""
    if is_constant(value):
        return b.array(value)
    if not isinstance(value, ir.OpResult) or not (kind := kind_of(value)).is_static:
        return None
    op = value.owner.opview
    meaning = getattr(type(op), "meaning", None)
    if meaning is None or not op.PURE or len(op.operation.operands) != 1 or len(op.operation.results) != 1:
        return None
    operand = op.operation.operands[0]
    if not kind_of(operand).is_static or kind.elements > kind_of(operand).elements:
        return None
    inner = _constant_array(operand, b)
    return None if inner is None else np.asarray(meaning(inner, **op.attribute_values()), kind.dtype.to_numpy())
