"""Rewriting of 3x3 convolutions, and gradients of their weights, as transforms and matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.calls import CallTir
from mirlo.dialects.relax.infer import padding_pairs
from mirlo.passes.fuse.kinds import KIND, FusionKind
from mirlo.passes.graph.constants import (
    constant_reader,
    derived,
    derived_columns,
    emit_deferred_constant,
    is_available,
    is_constant,
)
from mirlo.passes.graph.rewrite import Rewriter, kind_of
from mirlo.passes.graph.row_loop import emit_loop, with_row
from mirlo.passes.rules import Decline, decline
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.group_images import group_at, grouped, images_at_once
from mirlo.targets.llvm.machine import Machine
from mirlo.targets.llvm.winograd import ConvolutionView, declined
from mirlo.targets.llvm.winograd.functions import Tiling, gradient_function, input_function, output_function
from mirlo.targets.llvm.winograd.matrices import (
    INPUT,
    exact_quotient,
    transformed_integers,
    transformed_weight,
    window_matrix,
)

if TYPE_CHECKING:
    pass

_GAIN = 0.85
"""Part of the direct time below which the machine model's gain is trusted."""


@dataclass(frozen=True)
class WinogradStrategy:
    """A strategy for a convolution: tiles of m by m results, or direct convolution, where m is 0."""

    m: int
    tiling: Tiling
    cycles: float
    """Cycles that the machine model expects."""


@dataclass(frozen=True)
class WinogradStrategies:
    """All strategies for a convolution, the fastest first, and the default one without measurements."""

    ordered: tuple[WinogradStrategy, ...]

    @property
    def direct(self) -> WinogradStrategy:
        return next(way for way in self.ordered if way.m == 0)

    @property
    def own(self) -> WinogradStrategy:
        """Return the fastest tiled strategy, or the direct one if the gain is too small to be trusted."""
        return self.tiled if self.tiled.cycles <= _GAIN * self.direct.cycles else self.direct

    @property
    def tiled(self) -> WinogradStrategy:
        """Return the fastest tiled strategy."""
        return next(way for way in self.ordered if way.m)


class TransformFunctions:
    """The transforms in a module, each once."""

    def __init__(self, module: ir.OpView):
        self.body = module.operation.regions[0].blocks[0]
        self.symbols = ir.SymbolTable(module.operation)
        self.known: dict[tuple[Callable[[Tiling, ir.Location], ir.OpView], Tiling], str] = {}

    def call(
        self,
        make: Callable[[Tiling, ir.Location], ir.OpView],
        tiling: Tiling,
        x: ir.Value,
        out: TensorType,
        kind: FusionKind,
        b: Rewriter,
    ) -> ir.Value:
        key = (make, tiling)
        if key not in self.known:
            function = make(tiling, b.op.location)
            function.operation.attributes[KIND] = ir.StringAttr.get(kind.label)
            self.body.append(function.operation)
            self.known[key] = ir.StringAttr(self.symbols.insert(function.operation)).value
        with b.at, b.op.location:
            result = CallTir.build([x], result_types=[out], callee=self.known[key])
        return result.operation.results[0]


def images_of_group(tiling: Tiling) -> Dim:
    """Return how many images are transformed at once: all where that takes little memory, or a part of the batch.

    Groups are as large as the transformed weight, which is read once for each, at least.
    """
    planes = 4 * tiling.alpha**2
    image = D.product([planes, *tiling.tiles[1:], tiling.channels + tiling.out_channels])
    return images_at_once(tiling.batch, image, planes * tiling.channels * tiling.out_channels)


def find_strategies(
    conv: ConvolutionView, machine: Machine, largest: int = max(INPUT), weight_array: np.ndarray | None = None
) -> WinogradStrategies | Decline:
    """Return the strategies for a convolution, or decline if there is only the direct one.

    The array of an int8 weight bounds its results; without it, they are bounded by the types and the channels.
    """
    other = declined(conv, largest)
    if other is not None:
        return other
    kinds = [conv.x, conv.weight, conv.out]
    x, weight, out = kinds
    channels, out_channels = weight.static_shape[2:]
    reason = _declined_types(kinds, machine)
    if reason is not None:
        return reason
    image = x.dtype.name
    tiles = _tiles(x, weight, weight_array, largest)
    if isinstance(tiles, Decline):
        return tiles
    if channels % machine.lanes(4 if image == "f32" else 2) != 0 or out_channels % machine.lanes(4) != 0:
        return decline("the channels fill no whole vectors", channels=channels, out_channels=out_channels)
    if 0 in out.shape:
        return decline("there are no results")
    if not conv.is_constant and image != "f32":
        return decline("the weight is computed at run time, and its sums are not known to be exact", image=image)
    pads = padding_pairs(conv.padding, 2)
    batch, height, width, _ = x.shape
    _, out_height, out_width, _ = out.shape
    strategies = []
    for m in tiles:
        before = (pads[0][0], pads[1][0])
        tiling = Tiling(m, batch, (height, width), before, (out_height, out_width), channels, out_channels, image)
        cycles = winograd_cycles(_compared(tiling, machine), machine)
        cycles += 0.0 if conv.is_constant else weight_cycles(tiling, machine)
        strategies.append(WinogradStrategy(m, tiling, cycles))
    tiling = strategies[0].tiling
    strategies.append(WinogradStrategy(0, tiling, direct_cycles(_compared(tiling, machine), machine)))
    return WinogradStrategies(tuple(sorted(strategies, key=lambda way: (way.cycles, way.m))))


def _compared(tiling: Tiling, machine: Machine) -> Tiling:
    """Return the sizes for which times are compared: those of one image where the batch may not decide."""
    return replace(tiling.likely, batch=1) if machine.invariant else tiling.likely


def _declined_types(kinds: list[TensorType], machine: Machine) -> Decline | None:
    """Decline element types that the algorithm does not compute exactly, or not faster."""
    x, weight, out = kinds
    names = tuple(kind.dtype.name for kind in kinds)
    if names == ("f32", "f32", "f32"):
        return None
    if x.dtype.name not in LARGEST_INT8 or weight.dtype.name not in LARGEST_INT8 or out.dtype.name != "i32":
        return decline("the numbers are neither f32 nor int8 with sums of i32", types=names)
    if "i16" not in machine.dots or "u8xi8" in machine.dots:
        return decline("direct products of int8 take no more instructions", machine=machine.name)
    return None


def _tiles(x: TensorType, weight: TensorType, array: np.ndarray | None, largest: int) -> list[int] | Decline:
    """Return the tiles that may be used, with exact results if they are integers."""
    tiles = [m for m in INPUT if m <= largest]
    if x.dtype.name == "f32":
        return tiles
    most = _largest_result(x, weight, array)
    exact = [m for m in tiles if most << exact_quotient(m)[1] < 1 << 31]
    return exact or decline("results may be too large for exact quotients of 32 bits", largest=most)


def _largest_result(x: TensorType, weight: TensorType, array: np.ndarray | None) -> int:
    """Return a bound of the magnitude of the results of a convolution of int8."""
    data = LARGEST_INT8[x.dtype.name]
    if array is None:
        return data * LARGEST_INT8[weight.dtype.name] * int(np.prod(weight.static_shape[:3]))
    windows = array.view(weight.dtype.to_numpy()).astype(np.int64).reshape(-1, array.shape[-1])
    if x.dtype.name == "i8":
        return data * int(np.abs(windows).sum(0).max())
    return data * int(max(np.maximum(windows, 0).sum(0).max(), np.maximum(-windows, 0).sum(0).max()))


LARGEST_INT8 = {"i8": 128, "u8": 255}
"""The largest magnitude of each type."""


def choose(
    conv: ir.OpView, b: Rewriter, machine: Machine, largest: int, measured: int | None = None
) -> Tiling | Decline:
    """Choose the tiles for a convolution, or decline if direct convolution is better."""
    is_integer = is_constant(conv.weight) and kind_of(conv.weight).dtype.name in LARGEST_INT8
    has_array = is_constant(conv.weight) and is_available(conv.weight, b.session)
    array = constant_reader(conv.weight, b.session)() if is_integer and has_array else None
    result = find_strategies(ConvolutionView.of(conv), machine, largest, array)
    if isinstance(result, Decline):
        return result
    if is_constant(conv.weight) and not has_array:
        return decline("the array of the weight is not at hand")
    way = next((way for way in result.ordered if way.m == measured), result.own)
    if measured == 0:
        return decline("direct convolution was measured to be faster")
    return way.tiling if way.m else _direct(result)


def choose_of_gradient(op: ir.OpView, machine: Machine, largest: int) -> Tiling | Decline:
    """Choose the tiles for the gradient of a weight, which takes the products and transforms of the convolution."""
    result = find_strategies(ConvolutionView.of_gradient(op), machine, largest)
    if isinstance(result, Decline):
        return result
    return result.own.tiling if result.own.m else _direct(result)


def _direct(strategies: WinogradStrategies) -> Decline:
    figures = {"winograd": round(strategies.tiled.cycles), "direct": round(strategies.direct.cycles)}
    return decline("direct convolution is expected to be as fast", **figures)


def rewritten(conv: ir.OpView, tiling: Tiling, b: Rewriter, functions: TransformFunctions) -> ir.Value:
    """Rewrite the convolution as transforms and one matrix product for each element of a tile.

    A weight that is computed at run time is that of training, where statistics and gradients follow, which read the
    results of all images: a large batch is divided. With a constant one, what is computed on results is fused.
    """
    if is_constant(conv.weight):
        return _convolved(conv, conv.x, _transformed_constant(conv, tiling, b), tiling, b, functions)
    weight, images = _transformed(conv, tiling, b), images_of_group(tiling)
    if images == tiling.batch:
        return _convolved(conv, conv.x, weight, tiling, b, functions)
    out = kind_of(conv.output)
    part = replace(tiling, batch=images)

    def step(index: ir.Value, results: Sequence[ir.Value]) -> list[ir.Value]:
        result = _convolved(conv, group_at(x, index), weight, part, _at_current(b), functions)
        row = OPS["reshape"].make(result, shape=(1, images, *out.shape[1:]))
        return [with_row(results[0], index, row)]

    with b.at, conv.operation.location:
        x = grouped(conv.x, images)
        whole = OPS["full"].make(shape=(out.shape[0] // images, images, *out.shape[1:]), value=0.0, dtype=out.dtype)
        (result,) = emit_loop(out.shape[0] // images, [whole], step)
    return b.emit(OPS["reshape"], result, shape=out.shape)


def _convolved(
    conv: ir.OpView, x: ir.Value, weight: ir.Value, tiling: Tiling, b: Rewriter, functions: TransformFunctions
) -> ir.Value:
    """Emit the transforms of images and the products with the transformed weight between them."""
    planes, tiles, m = tiling.alpha**2, tiling.count, tiling.m
    tiles_type = TensorType.of(tiling.transformed(tiling.channels), tiling.transformed_dtype)
    result = functions.call(input_function, tiling.of_input, x, tiles_type, FusionKind.OPAQUE, b)
    result = b.emit(OPS["reshape"], result, shape=(planes, tiles, tiling.channels))
    out_dtype = DTYPES["i32"] if tiling.is_integer else None
    result = b.emit(OPS["matmul"], result, weight, out_dtype=out_dtype)
    result = b.emit(OPS["reshape"], result, shape=tiling.transformed(tiling.out_channels))
    out = TensorType.of((tiling.batch, *tiling.out, tiling.out_channels), tiling.product_dtype)
    result = functions.call(output_function, tiling.of_output, result, out, FusionKind.CONTRACTION, b)
    if tiling.is_integer:
        factor, bits = exact_quotient(m)
        if factor != 1:
            result = b.emit(OPS["multiply"], result, _integer(factor, b, "factor"))
        result = b.emit(OPS["shift_right"], result, _integer(bits, b, "bits"))
    return result if conv.bias is None else b.emit(OPS["add"], result, conv.bias)


def rewritten_gradient(op: ir.OpView, tiling: Tiling, b: Rewriter, functions: TransformFunctions) -> ir.Value:
    """Rewrite the gradient of a weight: the algorithm backwards, its transforms transposed, from results to windows.

    Where a convolution is A^T [(G g G^T) * (B^T d B)] A, the gradient of g is G^T [sum of (B^T d B) * (A r A^T)] G.
    """
    planes, m = tiling.alpha**2, tiling.m
    images = images_of_group(tiling)
    if images == tiling.batch:
        products = _multiplied(op.x, op.gradient, tiling, b, functions)
    else:
        part = replace(tiling, batch=images)

        def step(index: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
            x, gradient = (group_at(each, index) for each in groups)
            return [OPS["add"].make(sums[0], _multiplied(x, gradient, part, _at_current(b), functions))]

        with b.at, op.operation.location:
            groups = [grouped(each, images) for each in (op.x, op.gradient)]
            zeros = OPS["full"].make(
                shape=(planes, tiling.channels, tiling.out_channels), value=0.0, dtype=DTYPES["f32"]
            )
            (products,) = emit_loop(tiling.batch // images, [zeros], step)
    flat = b.emit(OPS["reshape"], products, shape=(planes, tiling.channels * tiling.out_channels))
    windows = b.emit(OPS["matmul"], _window_matrix(m, b, is_transposed=True), flat)
    return b.emit(OPS["reshape"], windows, shape=kind_of(op.output).shape)


def _multiplied(
    x: ir.Value, gradient: ir.Value, tiling: Tiling, b: Rewriter, functions: TransformFunctions
) -> ir.Value:
    """Emit the sums over tiles of the products of transformed images and gradients of results."""
    planes, tiles = tiling.alpha**2, tiling.count
    of_data, of_results = tiling.transformed(tiling.channels), tiling.transformed(tiling.out_channels)
    data = functions.call(input_function, tiling.of_input, x, TensorType.of(of_data, "f32"), FusionKind.OPAQUE, b)
    data = b.emit(OPS["reshape"], data, shape=(planes, tiles, tiling.channels))
    results = TensorType.of(of_results, "f32")
    gradient = functions.call(gradient_function, tiling.of_output, gradient, results, FusionKind.OPAQUE, b)
    gradient = b.emit(OPS["reshape"], gradient, shape=(planes, tiles, tiling.out_channels))
    return b.emit(OPS["matmul"], data, gradient, transpose_lhs=True)


def _at_current(b: Rewriter) -> Rewriter:
    """Return a rewriter that inserts at the insertion point, in a loop."""
    return Rewriter(b.op, b.session, at=ir.InsertionPoint.current)


def _transformed_constant(conv: ir.OpView, tiling: Tiling, b: Rewriter) -> ir.Value:
    """Return the transformed windows of a constant weight, as a constant that is computed when it is needed."""
    read, m = constant_reader(conv.weight, b.session), tiling.m
    kind = TensorType.of((tiling.alpha**2, tiling.channels, tiling.out_channels), tiling.transformed_dtype)
    name = f"{b.name_of(conv.weight)}.winograd"
    change = transformed_integers if tiling.is_integer else transformed_weight

    def transform(weight: np.ndarray) -> np.ndarray:
        return change(weight, m)

    columns = derived_columns(read, transform)
    with ir.InsertionPoint(b.op), b.op.location:
        return emit_deferred_constant(derived(read, transform), kind, b.session, name, columns=columns)


def _transformed(conv: ir.OpView, tiling: Tiling, b: Rewriter) -> ir.Value:
    """Return the transformed windows of a weight that is computed at run time: a product in each call."""
    flat = b.emit(OPS["reshape"], conv.weight, shape=(9, tiling.channels * tiling.out_channels))
    product = b.emit(OPS["matmul"], _window_matrix(tiling.m, b), flat)
    return b.emit(OPS["reshape"], product, shape=(tiling.alpha**2, tiling.channels, tiling.out_channels))


def _window_matrix(m: int, b: Rewriter, is_transposed: bool = False) -> ir.Value:
    both = window_matrix(m).astype(np.float32)
    both = np.ascontiguousarray(both.T) if is_transposed else both
    return b.constant(both, TensorType.of(both.shape, "f32"), "windows")


def _integer(number: int, b: Rewriter, name: str) -> ir.Value:
    return b.constant(np.asarray(number, np.uint32).astype(np.int32), TensorType.of((), "i32"), name)


_REACHED = 0.9
"""Part of the machine's peak that matrix products reach."""
_BYTES_PER_CYCLE = 4.5
"""Bandwidth of weights from memory."""
_ELEMENT_CYCLES = 2.5
"""Cycles for a vector of a transformed tile: the computation, and a store to or load from a cache."""


_INTEGER_PRODUCTS = 3.0
"""Products of 16-bit integers per cycle and lane of 32 bits, by `vpmaddwd`: with the addition to the accumulator that
each needs, it is issued on three ports."""


def direct_cycles(tiling: Tiling, machine: Machine) -> float:
    """Estimate the cycles of direct convolution in register tiles."""
    products = tiling.channels * tiling.out_channels * 9
    pixels = D.estimate_dim(tiling.batch * tiling.out[0] * tiling.out[1])
    weight_bytes = 1 if tiling.is_integer else 4
    return _products(products * pixels, weight_bytes * products, tiling, machine)


def winograd_cycles(tiling: Tiling, machine: Machine) -> float:
    """Estimate the cycles of both transforms and the products between them."""
    planes = tiling.alpha**2
    weights = planes * tiling.channels * tiling.out_channels
    count = D.estimate_dim(tiling.count)
    vectors = tiling.channels / machine.lanes(tiling.transformed_bytes) + tiling.out_channels / machine.lanes(4)
    transforms = _ELEMENT_CYCLES * planes * count * vectors
    return _products(weights * count, tiling.transformed_bytes * weights, tiling, machine) + transforms


def weight_cycles(tiling: Tiling, machine: Machine) -> float:
    """Estimate the cycles of the transform of a weight, or of its gradient: a product of matrices, in each call."""
    windows = tiling.alpha**2 * tiling.channels * tiling.out_channels
    product = 9 * windows / (machine.lanes(4) * machine.fma_per_cycle * _REACHED)
    return max(product + _ELEMENT_CYCLES * windows / machine.lanes(4), 4 * windows / _BYTES_PER_CYCLE)


def _products(count: float, weight_bytes: int, tiling: Tiling, machine: Machine) -> float:
    rate = _INTEGER_PRODUCTS if tiling.is_integer else machine.fma_per_cycle
    return max(count / (machine.lanes(4) * rate * _REACHED), weight_bytes / _BYTES_PER_CYCLE)
