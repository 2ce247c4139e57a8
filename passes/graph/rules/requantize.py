"""Quantization of sums of quantized values, rounded as the real numbers are.

The quantized value is written as `x * a + y * b + c` with integers x and y and real numbers. These are divided by the
scale in f64 and stored as sums of two f32, so that `relax.requantize` rounds once. A chain of f32 operators rounds each
time, and each rounding near a half moves a result by one quantization step, which the layers below amplify.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.infer import channel_axis, kernel_axes
from mirlo.dialects.relax.meanings import ROUNDING_SHIFT
from mirlo.passes.graph.rewrite import Rewriter, beside, defining, kind_of, only_use
from mirlo.passes.rules import Decline, combine, decline
from mirlo.runtime.records import dataclass

I32, F32 = DTYPES["i32"], DTYPES["f32"]
BYTES = ("i8", "u8")
STEP = 2.0**-13
"""Its multiples below 2^11 are exact in f32, and so are sums with results of int8."""
LARGEST_FACTOR = 2.0
"""Products of 9-bit integers with less are below 2^10: sums with results of int8 are multiples of STEP below 2^11."""
LARGEST_ACCUMULATOR = 2**31
LARGEST_ROUNDED = 2.0**21
"""Sums with `ROUNDING_SHIFT` have integers in their low bits; this leaves a bit for what is not counted."""
SMALLEST_MULTIPLIER, LARGEST_MULTIPLIER = 2.0**-60, 2.0**20
"""Multipliers whose low halves are normal in f32, and whose products are finite."""
MAX_DEPTH = 12


@dataclass(frozen=True)
class IntegerTerm:
    """An integer tensor and its real coefficient, which broadcasts to it."""

    value: ir.Value
    coefficient: np.ndarray


@dataclass(frozen=True)
class LinearSum:
    """Integer terms and a real constant, with bounds to which their sum is clamped."""

    terms: tuple[IntegerTerm, ...]
    constant: np.ndarray
    low: float = -np.inf
    high: float = np.inf


@combine("relax.quantize")
def requantized(op: ir.OpView, b: Rewriter) -> ir.Value | Decline:
    """Quantize sums of products of integers without rounding them first."""
    if not op.dtype.is_integer or op.dtype.bits > 8 or kind_of(op.x).dtype is not F32 or op.block:
        return decline("it is not the quantization of f32 to int8", x=str(kind_of(op.x)), dtype=str(op.dtype))
    scale, zero = b.array(op.scale), np.int64(0) if op.zero_point is None else b.array(op.zero_point)
    if scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return decline("the scale or zero point is computed at run time, or differs along an axis")
    step = float(scale.reshape(-1)[0])
    if not np.isfinite(step) or step <= 0:
        return decline("the scale is not positive", scale=step)
    clipped = _clipped(op.x, b)
    if isinstance(clipped, Decline):
        return clipped
    terms = [replace(term, coefficient=term.coefficient / step) for term in clipped.terms]
    if len(terms) not in (1, 2):
        return decline("it is not a sum of one or two tensors of integers", terms=len(terms))
    terms.sort(key=lambda term: (kind_of(term.value).dtype.bits, kind_of(term.value).shape == kind_of(op.x).shape))
    if kind_of(terms[-1].value).shape != kind_of(op.x).shape:
        return decline("the accumulators are broadcast to the result", x=str(kind_of(terms[-1].value)))
    for term in terms:
        sizes = np.abs(term.coefficient)
        if not sizes.size or not SMALLEST_MULTIPLIER <= sizes.min() <= sizes.max() <= LARGEST_MULTIPLIER:
            return decline("a multiplier is too small or too large for a sum of two f32")
        if kind_of(term.value).dtype.bits == 8 and sizes.max() > LARGEST_FACTOR:
            return decline("a multiplier is too large for exact products with int8", multiplier=float(sizes.max()))
    if len(terms) == 2 and kind_of(terms[0].value).dtype is I32:
        return decline("it is the sum of two tensors of i32")
    limits, zero_point = np.iinfo(op.dtype.to_numpy()), int(zero.reshape(-1)[0])
    low, high = (
        int(np.clip(np.rint(bound / step) + zero_point, limits.min, limits.max))
        for bound in (clipped.low, clipped.high)
    )
    attributes = {"zero_point": zero_point, "min": low, "max": high, "dtype": op.dtype}
    return _emit(terms, clipped.constant / step, attributes, b)


def _emit(
    terms: list[IntegerTerm], constant: np.ndarray, attributes: dict[str, object], b: Rewriter
) -> ir.Value | Decline:
    """Emit the quantization of a sum that was divided by the scale; the last term is of the largest type."""
    *others, main = terms
    is_byte = kind_of(main.value).dtype.bits == 8
    x, added = _split(main.value, b)
    bound = _largest_magnitude(x, b)
    if bound is None:
        return decline("nothing is known of the magnitude of an accumulator", x=str(kind_of(x)))
    constant = constant + added * main.coefficient
    largest = bound * np.abs(main.coefficient).max() + np.abs(constant).max(initial=0) + 2.0**10 * len(others)
    if bound >= LARGEST_ACCUMULATOR or not largest < LARGEST_ROUNDED:
        return decline("a result may be too large to be rounded in f32", largest=float(largest))
    whole = np.rint(constant)
    high = _in_steps(main.coefficient) if is_byte else main.coefficient.astype(np.float32)
    low, addend = _real(constant - whole, b, "addend"), None
    if others:
        y, exact = b.emit(OPS["cast"], others[0].value, dtype=F32), _in_steps(others[0].coefficient)
        addend = b.emit(OPS["multiply"], y, _real(exact, b, "multiplier"))
        rest = b.emit(OPS["multiply"], y, _real(others[0].coefficient - exact, b, "multiplier"))
        low = b.emit(OPS["add"], rest, low)
    if is_byte:
        x = b.emit(OPS["cast"], x, dtype=I32)
    multipliers = (_real(high, b, "multiplier"), _real(main.coefficient - high, b, "multiplier"))
    shift = _real(whole + ROUNDING_SHIFT, b, "shift")
    return b.emit(OPS["requantize"], x, *multipliers, shift, low, addend, **attributes)


def _in_steps(values: np.ndarray) -> np.ndarray:
    """Return the multiples of `STEP` next to some multipliers: products of int8 with them are exact in f32."""
    return np.asarray(np.rint(values / STEP) * STEP)


def _real(values: np.ndarray, b: Rewriter, name: str) -> ir.Value:
    return b.constant(values.astype(np.float32), TensorType.of(values.shape, "f32"), name)


def _split(x: ir.Value, b: Rewriter) -> tuple[ir.Value, np.ndarray]:
    """Return accumulators without the constants that are added to them, and those constants."""
    conv, difference, total = defining(x, "relax.conv"), defining(x, "relax.subtract"), defining(x, "relax.add")
    nothing = np.zeros((), np.int64)
    if conv is not None and conv.bias is not None:
        bias = b.array(conv.bias)
        if bias is None:
            return x, nothing
        rank = kind_of(x).rank
        shape = [-1 if axis == channel_axis(conv.data_layout, rank) else 1 for axis in range(rank)]
        return b.emit(OPS["conv"], conv.x, conv.weight, **conv.attribute_values()), bias.astype(np.int64).reshape(shape)
    op = difference if difference is not None else total
    array = None if op is None else b.array(op.rhs)
    if op is None or array is None or kind_of(op.lhs) != kind_of(x):
        return x, nothing
    inner, added = _split(op.lhs, b)
    return inner, added + (array.astype(np.int64) if op is total else -array.astype(np.int64))


def _largest_magnitude(value: ir.Value, b: Rewriter, depth: int = MAX_DEPTH) -> float | None:
    """Return a bound of the magnitudes of integers, or None."""
    kind, array = kind_of(value), b.array(value)
    if array is not None:
        return float(np.abs(array.astype(np.float64)).max(initial=0))
    if kind.dtype.name in BYTES:
        return 255.0
    if not isinstance(value, ir.OpResult) or not depth:
        return None
    op, name = value.owner.opview, value.owner.name

    def operands() -> list[float] | None:
        magnitudes = [_largest_magnitude(operand, b, depth - 1) for operand in value.owner.operands]
        known = [bound for bound in magnitudes if bound is not None]
        return known if len(known) == len(magnitudes) else None

    match name:
        case "relax.cast" | "relax.reshape":
            return None if (known := operands()) is None else known[0]
        case "relax.add" | "relax.subtract":
            return None if (known := operands()) is None else sum(known)
        case "relax.multiply":
            return None if (known := operands()) is None else math.prod(known)
        case "relax.reduce_sum":
            kind = kind_of(op.x)
            axes = op.axes if op.axes is not None else range(kind.rank)
            if not kind.is_static or (known := operands()) is None:
                return None
            return known[0] * math.prod(kind.static_shape[axis] for axis in axes)
        case "relax.conv" | "relax.matmul":
            known = operands()
            sums = None if known is None else _largest_sum(op, known[1], b)
            return None if known is None or sums is None else known[0] * sums + sum(known[2:])
    return None


def _largest_sum(op: ir.OpView, largest: float, b: Rewriter) -> float | None:
    """Return a bound of the sums of magnitudes of weights, over the products in one result."""
    weight = op.operation.operands[1]
    rank = kind_of(weight).rank
    if op.operation.name == "relax.conv":
        out_axis, *_ = kernel_axes(op.kernel_layout, rank)
        axes = tuple(axis for axis in range(rank) if axis != out_axis)
    else:
        axes = (rank - (1 if op.transpose_rhs or rank == 1 else 2),)
    array = b.array(weight)
    if array is not None:
        return float(np.abs(array.astype(np.float32)).sum(axes).max(initial=0))
    sizes = [kind_of(weight).shape[axis] for axis in axes]
    static = [size for size in sizes if isinstance(size, int)]
    return largest * math.prod(static) if len(static) == len(sizes) else None


def _clipped(value: ir.Value, b: Rewriter) -> LinearSum | Decline:
    """Match a sum of products, and the bounds to which it is clamped."""
    low, high = -np.inf, np.inf
    while isinstance(value, ir.OpResult) and only_use(value) and beside(value, b):
        inner_bounds = _bounds(value.owner.opview, b)
        if inner_bounds is None:
            break
        value, inner_low, inner_high = inner_bounds
        low, high = float(np.clip(inner_low, low, high)), float(np.clip(inner_high, low, high))
    result = _linear(value, b, MAX_DEPTH)
    return result if isinstance(result, Decline) else replace(result, low=low, high=high)


def _bounds(op: ir.OpView, b: Rewriter) -> tuple[ir.Value, float, float] | None:
    name = op.operation.name
    if name == "relax.relu":
        return op.x, 0.0, np.inf
    if name == "relax.clip":
        low, high = -np.inf if op.min is None else op.min, np.inf if op.max is None else op.max
        return (op.x, low, high) if low <= high else None
    if name in ("relax.maximum", "relax.minimum"):
        bound = b.splat(op.rhs)
        if bound is not None and np.isfinite(bound) and kind_of(op.lhs) == kind_of(op.output):
            return (op.lhs, bound, np.inf) if name == "relax.maximum" else (op.lhs, -np.inf, bound)
    return None


def _linear(value: ir.Value, b: Rewriter, depth: int) -> LinearSum | Decline:
    """Match a sum of products of integers and constants, all as real numbers."""
    array = b.array(value)
    if array is not None:
        return LinearSum((), array.astype(np.float64))
    dequantize = defining(value, "relax.dequantize")
    if dequantize is not None:
        return _dequantized(dequantize, b)
    if not isinstance(value, ir.OpResult) or not depth or kind_of(value).dtype is not F32:
        return decline("it is not computed from integers by products and sums", x=str(kind_of(value)))
    op = value.owner.opview
    match value.owner.name:
        case "relax.reshape":
            inner = _linear(op.x, b, depth - 1)
            if isinstance(inner, LinearSum) and not inner.terms and kind_of(value).is_static:
                return LinearSum((), inner.constant.reshape(kind_of(value).static_shape))
        case "relax.cast":
            if kind_of(op.x).dtype is I32 and only_use(op.x) and _is_local(value, b):
                return LinearSum((IntegerTerm(op.x, np.float64(1)),), np.float64(0))
        case "relax.add" | "relax.subtract" | "relax.multiply":
            return _combined(op, b, depth)
    return decline("it is not computed from integers by products and sums", producer=value.owner.name)


def _combined(op: ir.OpView, b: Rewriter, depth: int) -> LinearSum | Decline:
    left, right = (_linear(operand, b, depth - 1) for operand in (op.lhs, op.rhs))
    if isinstance(left, Decline) or isinstance(right, Decline):
        return left if isinstance(left, Decline) else right
    if (left.terms or right.terms) and not _is_local(op.output, b):
        return decline("a sum is used elsewhere too")
    if op.operation.name == "relax.add":
        return _sum(left, right)
    if op.operation.name == "relax.subtract":
        return _sum(left, _times(right, np.float64(-1)))
    if left.terms and right.terms:
        return decline("both operands of a product are computed")
    return _times(left, right.constant) if left.terms or not right.terms else _times(right, left.constant)


def _is_local(value: ir.Value, b: Rewriter) -> bool:
    return only_use(value) and beside(value, b)


def _sum(left: LinearSum, right: LinearSum) -> LinearSum:
    return LinearSum((*left.terms, *right.terms), left.constant + right.constant)


def _times(value: LinearSum, factor: np.ndarray) -> LinearSum:
    terms = tuple(replace(term, coefficient=term.coefficient * factor) for term in value.terms)
    return LinearSum(terms, value.constant * factor)


def _dequantized(op: ir.OpView, b: Rewriter) -> LinearSum | Decline:
    scale, zero = b.array(op.scale), np.zeros((), np.int64) if op.zero_point is None else b.array(op.zero_point)
    if scale is None or zero is None or op.block or kind_of(op.output).dtype is not F32:
        return decline("a scale or zero point is computed at run time, or there is one for each block")
    real, array = scale.astype(np.float64), b.array(op.x)
    if array is not None and array.dtype.kind in "iu":
        shape = [-1 if i == op.axis % array.ndim else 1 for i in range(array.ndim)] if scale.ndim else ()
        shifted = array.astype(np.int64) - zero.astype(np.int64).reshape(shape)
        return LinearSum((), shifted * real.reshape(shape))
    if kind_of(op.x).dtype.name not in BYTES or scale.size != 1 or zero.dtype.kind not in "iu":
        return decline("an operand is not int8 with one scale", operand=str(kind_of(op.x)))
    step = real.reshape(())
    return LinearSum((IntegerTerm(op.x, step),), -zero.reshape(-1)[0].astype(np.float64) * step)
