"""Pass `reduce-range`: int8 weights of fewer values, where products of bytes would saturate otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.infer import channel_axis, kernel_axes, spatial_axes
from mirlo.passes.graph.constants import is_constant
from mirlo.passes.graph.rewrite import Rewriter, defining, kind_of
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.tuned import operations_named
from mirlo.passes.session import Approximation
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.options import find_machine
from mirlo.targets.llvm.schedule.contraction.groups import LARGEST_PAIR
from mirlo.targets.llvm.winograd import ConvolutionView
from mirlo.targets.llvm.winograd.convert import find_strategies

if TYPE_CHECKING:
    from mirlo.passes.session import Session

GROUP = 4
"""Elements of K that `vpmaddubsw` and `vpmaddwd` add up: K must be a multiple for weights to be stored in groups."""
BYTES = ("i8", "u8")
LARGEST_CODE = 127
CHUNK_ELEMENTS = 1 << 18
"""Weights that are rounded together: they stay in the caches as f32."""
SHRINK = 0.995
"""Factor by which codes shrink where a pair still saturates because both were rounded up."""


@register_pass
@dataclass(frozen=True)
class ReduceRange(Pass):
    """Round int8 weights of quantized products so that no sum of two adjacent products exceeds 16 bits.

    Processors with AVX2 and without VNNI then multiply them by `vpmaddubsw`, which saturates otherwise: three
    instructions for 32 products in place of four. The scale of each column grows as far as its own weights demand, at
    most to twice, that of 7 bits. Results are no longer those of the model: this is what `reduce_range` of quantizers
    does for all weights, for a model that was quantized without. Other machines keep the weights, and so do
    convolutions that Winograd's algorithm computes in 16 bits.
    """

    name = "reduce-range"
    contained = True
    trusted = True
    machine: str = option("", "machine whose instructions are used; default: the one that is scheduled for")
    explain: bool = option(False, "print the decision for each product")

    def run(self, op: ir.OpView, session: Session) -> None:
        machine = find_machine(self.machine or session.options.get("machine"))
        products = operations_named(op, ["relax.conv", "relax.matmul"])
        errors: list[float] = []  # relative, of the weights of each product
        for product in products:
            outcome = _reduce(product, Rewriter(product, session), machine)
            if self.explain:
                reason = f"keeps its weights: {outcome}" if isinstance(outcome, Decline) else "has rounded weights"
                session.remark(f"the product {reason}", product.location)
            if not isinstance(outcome, Decline):
                errors.append(outcome)
        if errors:
            worst, count = max(errors), f"{len(errors)} product{'s' * (len(errors) != 1)}"
            session.notes.append(
                Approximation("reduce-range", f"int8 weights of {count}, by at most {worst:.2%} (RMS of a product's)")
            )


def _reduce(product: ir.Operation, b: Rewriter, machine: Machine) -> float | Decline:
    """Round the weights of a product; return the relative RMS error of the weights."""
    if "i16" not in machine.dots or "u8xi8" in machine.dots:
        return decline("the machine has other instructions for int8", machine=machine.name)
    op = product.opview
    data, weight = (defining(value, "relax.dequantize") for value in list(product.operands)[:2])
    if data is None or weight is None or kind_of(data.x).dtype.name not in BYTES:
        return decline("it is not a product of quantized values")
    if kind_of(weight.x).dtype.name not in BYTES or weight.block or not is_constant(weight.x):
        return decline("the weights are not constant int8")
    scale = b.array(weight.scale)
    zero = np.zeros((), np.int64) if weight.zero_point is None else b.array(weight.zero_point)
    if scale is None or zero is None or kind_of(weight.scale).dtype.name != "f32":
        return decline("the scale or zero point of the weights is computed at run time, or is not f32")
    axes = _axes_of_weights(op, kind_of(weight.x))
    if isinstance(axes, Decline):
        return axes
    column, inner = axes
    if kind_of(weight.x).shape[inner] % GROUP:
        return decline("the weights are not stored in groups", extent=kind_of(weight.x).shape[inner])
    rank = kind_of(weight.x).rank
    if scale.size != 1 and weight.axis % rank != column:
        return decline("a scale differs along an axis that is summed up")
    data_scale = b.array(data.scale)
    if (data_scale.size if data_scale is not None else kind_of(data.scale).elements) != 1:
        return decline("a scale of the data differs along an axis")
    array = b.array(weight.x)
    if array is None or not array.size or not np.isfinite(scale).all():
        return decline("the weights are not at hand")
    if product.name == "relax.conv" and _is_tiled(op, data, weight, machine):
        return decline("Winograd's algorithm computes it in 16 bits")
    rounded = round_columns(array, _along(zero, column, rank), column, inner)
    if rounded is None:
        return decline("no sum of two products saturates")
    codes, factors, error = rounded
    scales = (scale.astype(np.float64).reshape(-1) / factors).astype(np.float32)
    kind = kind_of(weight.x).with_dtype("i8")
    name = b.name_of(weight.x)
    new = b.emit(
        OPS["dequantize"],
        b.constant(codes, kind, f"{name}.reduced"),
        b.constant(scales, TensorType.of(scales.shape, "f32"), f"{name}.scale"),
        axis=column,
        dtype=weight.dtype,
    )
    product.operands[1] = new
    return error


def _axes_of_weights(op: ir.OpView, kind: TensorType) -> tuple[int, int] | Decline:
    """Return the axis of columns, and the one along which adjacent weights are added up."""
    if not kind.is_static:
        return decline("the size of the weights is known at run time only")
    if op.operation.name == "relax.matmul":
        if kind.rank != 2:
            return decline("the weights are no matrix", rank=kind.rank)
        return (0, 1) if op.transpose_rhs else (1, 0)
    if op.groups != 1:
        return decline("it has groups", groups=op.groups)
    out_axis, in_axis, _ = kernel_axes(op.kernel_layout, kind.rank)
    return out_axis, in_axis


def _is_tiled(conv: ir.OpView, data: ir.OpView, weight: ir.OpView, machine: Machine) -> bool:
    """Return whether the convolution will be computed by Winograd's algorithm."""
    x, out = (_channels_last(conv, kind_of(value)) for value in (data.x, conv.output))
    kind = kind_of(weight.x)
    out_axis, in_axis, window = kernel_axes(conv.kernel_layout, kind.rank)
    weights = TensorType.of(tuple(kind.shape[axis] for axis in (*window, in_axis, out_axis)), "i8")
    view = ConvolutionView(
        x, weights, out.with_dtype("i32"), "N*C", "*IO", conv.strides, conv.dilations, conv.groups, conv.padding, True
    )
    strategies = find_strategies(view, machine)
    return not isinstance(strategies, Decline) and strategies.own.m != 0


def _channels_last(conv: ir.OpView, kind: TensorType) -> TensorType:
    axes = (0, *spatial_axes(conv.data_layout, kind.rank), channel_axis(conv.data_layout, kind.rank))
    return TensorType(tuple(kind.shape[axis] for axis in axes), kind.dtype)


def _along(zero: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """Reshape zero points, one or one per column, so that they broadcast to weights."""
    return zero.reshape(()) if zero.size == 1 else zero.reshape([-1 if i == axis else 1 for i in range(rank)])


def round_columns(
    array: np.ndarray, zero: np.ndarray, column: int, inner: int
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Return i8 codes of which no adjacent pair along an axis saturates, and the factor of each column.

    None if no pair of the weights does. The third result is the RMS error relative to the weights.
    """
    moved = np.moveaxis(array, (column, inner), (0, -1))
    offsets = np.moveaxis(np.broadcast_to(zero, array.shape), (column, inner), (0, -1))
    codes, factors = np.empty(moved.shape, np.int8), np.ones(len(moved))
    errors = squares = 0.0
    step = max(1, CHUNK_ELEMENTS * len(moved) // array.size)
    for start in range(0, len(moved), step):
        chunk = slice(start, start + step)
        weights = (moved[chunk].astype(np.int32) - offsets[chunk].astype(np.int32)).astype(np.float32)
        rows = weights.reshape(len(weights), -1)
        factor = _factors(rows)
        rounded = np.rint(rows * factor[:, None])
        codes[chunk], factors[chunk] = rounded.reshape(weights.shape), factor
        errors += float(np.square(rounded / factor[:, None] - rows).sum(dtype=np.float64))
        squares += float(np.square(rows).sum(dtype=np.float64))
    if (factors == 1).all():
        return None
    restored = np.ascontiguousarray(np.moveaxis(codes, (0, -1), (column, inner)))
    return restored, factors, float(np.sqrt(errors / squares))


def _factors(weights: np.ndarray) -> np.ndarray:
    """Return the largest factors, at most 1, with which rows of rounded weights have no pair that is too large."""
    pairs, largest = _largest_pairs(weights), np.abs(weights).max(-1)
    bounds = np.minimum(LARGEST_PAIR / np.maximum(pairs, 1), LARGEST_CODE / np.maximum(largest, 1))
    fits = (pairs <= LARGEST_PAIR) & (weights.max(-1) <= LARGEST_CODE) & (weights.min(-1) >= -LARGEST_CODE - 1)
    factors: np.ndarray = np.where(fits, 1, bounds).astype(np.float32)
    np.minimum(factors, np.float32(1), out=factors)
    left = np.arange(len(weights))
    while left.size:
        left = left[_largest_pairs(np.rint(weights[left] * factors[left, None])) > LARGEST_PAIR]
        factors[left] *= np.float32(SHRINK)
    return factors


def _largest_pairs(weights: np.ndarray) -> np.ndarray:
    """Return the largest magnitude of a sum of two adjacent elements of each row."""
    result: np.ndarray = np.abs(weights[:, 0::2] + weights[:, 1::2]).max(-1)
    return result
