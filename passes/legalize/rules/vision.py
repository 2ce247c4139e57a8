"""Default rules of patches and regions."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.infer import padding_pairs, per_dim
from mirlo.dialects.relax.matmul import Matmul
from mirlo.dialects.relax.shape import Permute, Reshape
from mirlo.dialects.tir.compute import (
    INDEX,
    Expr,
    ExprLike,
    LoopBuilder,
    TensorExpr,
    all_of,
    ceil,
    constant,
    floor,
    from_end,
    is_within,
    lift,
    maximum,
    minimum,
    select,
    within,
)
from mirlo.dialects.tir.compute.builder import PrimBuilder
from mirlo.dialects.tir.compute.loops import Buffer
from mirlo.passes.legalize.helpers import fixed, shape_of, sum_of, tensor_type, wide, wide_dtype
from mirlo.passes.rules import Decline, decline, legalize

if TYPE_CHECKING:
    from mirlo.passes.legalize.builder import LegalizeBuilder

LIMIT = float(1 << 30)
"""Coordinates are clamped to this magnitude, so that they have an index; NaN becomes it too."""


@legalize("relax.col2im")
def col2im(op: ir.OpView, b: LegalizeBuilder) -> Decline | ir.Value:
    """Gather at each pixel the elements of the windows that contain it."""
    if op.sizes is not None:
        return decline("the size of the windows is known at run time only")
    image = op.image
    count = len(image)
    strides = per_dim(op.strides, count, 1, 1, "strides")
    dilations = per_dim(op.dilations, count, 1, 1, "dilations")
    begins = [begin for begin, _ in padding_pairs(op.padding, count)]
    ends = [end for _, end in padding_pairs(op.padding, count)]
    windows = [
        (image[i] + begins[i] + ends[i] - ((op.window[i] - 1) * dilations[i] + 1)) // strides[i] + 1
        for i in range(count)
    ]

    def body(p: PrimBuilder, x: TensorExpr) -> TensorExpr:
        def term(n: Expr, c: Expr, *axes: Expr) -> Expr:
            pixel, at = axes[:count], axes[count:]
            row, column, inside = c, constant(0, INDEX), []
            for i in range(count):
                start = pixel[i] + begins[i] - at[i] * dilations[i]
                window = start // strides[i]
                inside += [is_within([window], [windows[i]]), (start % strides[i]).equals(0)]
                row = row * op.window[i] + at[i]
                column = column * windows[i] + within(window, windows[i])
            value = wide(x.at(n, row, column))
            return select(all_of(inside), value, constant(0, value.dtype))

        average = p.reduce("add", shape_of(op.output), op.window, term, name="col2im")
        if average.dtype is x.dtype:
            return average
        return p.compute(average.shape, lambda *axes: average.at(*axes).cast(x.dtype), name="cast")

    return b.call_prim(body, op.x)


@legalize("relax.col2im", priority=-10)
def col2im_of_sizes(op: ir.OpView, b: LegalizeBuilder) -> Decline | ir.Value:
    """Add each element of each window to its pixel, whose position is computed at run time."""
    if op.sizes is None:
        return decline("the size of the windows is known")
    image, (batch, rows, columns) = op.image, shape_of(op.x)
    count, channels = len(image), op.channels
    strides = per_dim(op.strides, count, 1, 1, "strides")
    dilations = per_dim(op.dilations, count, 1, 1, "dilations")
    pads = padding_pairs(op.padding, count)
    kind = wide_dtype(tensor_type(op.x).dtype)

    def body(loops: LoopBuilder, x: Buffer, sizes: Buffer, output: Buffer) -> None:
        sums = loops.scratch(output.shape, kind)
        for at in loops.nest(output.shape):
            sums[at] = 0
        window = [loops.let(maximum(sizes[i].cast(INDEX), 1)) for i in range(count)]
        windows = [
            loops.let(maximum((image[i] + sum(pads[i]) - ((window[i] - 1) * dilations[i] + 1)) // strides[i] + 1, 1))
            for i in range(count)
        ]
        for n, row, column in loops.nest((batch, rows, columns)):
            coordinates: list[Expr] = []
            rest, other = row, column
            for i in reversed(range(count)):
                start = loops.let(other % windows[i]) * strides[i] - pads[i][0]
                coordinates.insert(0, loops.let(start + loops.let(rest % window[i]) * dilations[i]))
                rest, other = loops.let(rest // window[i]), loops.let(other // windows[i])
            with loops.if_(is_within([rest, *coordinates], [channels, *image])):
                to = [n, rest, *coordinates]
                sums[to] = sums[to] + wide(x[n, row, column])
        for at in loops.nest(output.shape):
            output[at] = sums[at].cast(x.dtype)

    return b.call_loops(body, op.x, op.sizes)


@legalize("relax.deform_conv")
def deform_conv(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Multiply the interpolated elements of all windows, as a matrix, by the weight."""
    x, weight = shape_of(op.x), shape_of(op.weight)
    output = shape_of(op.output)
    (batch, out_channels, *out), channels, window = output, x[1], weight[2:]
    count, elements = len(window), D.product(window)
    strides = per_dim(op.strides, count, 1, 1, "strides")
    dilations = per_dim(op.dilations, count, 1, 1, "dilations")
    begins = [begin for begin, _ in padding_pairs(op.padding, count)]
    per_offset_group = channels // op.offset_groups

    def columns(p: PrimBuilder, image: TensorExpr, offset: TensorExpr, mask: TensorExpr | None) -> TensorExpr:
        def element(n: Expr, c: Expr, *axes: Expr) -> Expr:
            at, position = axes[:count], axes[count:]
            number = c // per_offset_group
            for i in range(count):
                number = number * window[i] + at[i]
            indices = []
            for i in range(count):
                moved = wide(offset.at(n, number * count + i, *position))
                fixed = (position[i] * strides[i] + at[i] * dilations[i] - begins[i]).cast("i64").cast(moved.dtype)
                indices.append(_bounded(fixed + moved))
            value = _interpolated(image, [n, c], indices, x[2:])
            if mask is not None:
                value = value * wide(mask.at(n, number, *position))
            return value.cast(image.dtype)

        return p.compute((batch, channels, *window, *out), element, name="deform_columns")

    result = b.call_prim(columns, op.x, op.offset, op.mask, name="deform_columns")
    depth = channels // op.groups * elements
    matrix = b.emit(Reshape, result, shape=(batch, op.groups, depth, D.product(out)))
    kernel = b.emit(Reshape, op.weight, shape=(op.groups, out_channels // op.groups, depth))
    product_ = b.emit(Reshape, b.emit(Matmul, kernel, matrix), shape=output)
    if op.bias is None:
        return product_

    def biased(p: PrimBuilder, sums: TensorExpr, bias: TensorExpr) -> TensorExpr:
        return p.compute(sums.shape, lambda *axes: sums.at(*axes) + bias.at(axes[1]), name="bias")

    return b.call_prim(biased, product_, op.bias, name="deform_bias")


def _bounded(place: Expr) -> Expr:
    return select(place < LIMIT, select(place > -LIMIT, place, constant(-LIMIT, place.dtype)), LIMIT)


def _interpolated(x: TensorExpr, leading: list[ExprLike], places: list[Expr], sizes: tuple[Dim, ...]) -> Expr:
    """Interpolate an element between pixels; pixels outside are 0."""
    taps = []
    for position in places:
        low = floor(position)
        share = position - low
        index = low.cast("i64").cast(INDEX)
        taps.append([(index, 1.0 - share), (index + 1, share)])
    terms = []
    for chosen in product(*taps):
        inside = is_within([i for i, _ in chosen], sizes)
        at = [within(i, size) for (i, _), size in zip(chosen, sizes, strict=True)]
        value = wide(x.at(*leading, *at))
        for _, share in chosen:
            value = value * share
        terms.append(select(inside, value, constant(0, value.dtype)))
    return sum_of(terms)


@legalize("relax.roi_align")
def roi_align(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    images, _, height, width = shape_of(op.x)
    regions, channels, bins_down, bins_across = shape_of(op.output)
    kind = wide_dtype(tensor_type(op.x).dtype)

    def body(loops: LoopBuilder, x: Buffer, rois: Buffer, batch: Buffer, output: Buffer) -> None:
        for r in loops.range(regions):
            image = loops.let(within(from_end(batch[r], images), images))
            down = _Bins(op, loops, wide(rois[r, 1]), wide(rois[r, 3]), bins_down, height)
            across = _Bins(op, loops, wide(rois[r, 0]), wide(rois[r, 2]), bins_across, width)
            for c, i, j in loops.nest((channels, bins_down, bins_across)):
                total = loops.variable(0.0 if op.mode == "mean" else float("-inf"), kind)
                for k in loops.range(down.samples):
                    y_inside, y_taps = down.sample(i, k)
                    for m in loops.range(across.samples):
                        x_inside, x_taps = across.sample(j, m)
                        parts = [
                            wide(x[image, c, row, column]) * (across_share * down_share)
                            for row, down_share in y_taps
                            for column, across_share in x_taps
                        ]
                        if op.mode == "mean":
                            value = parts[0] + parts[1] + parts[2] + parts[3]
                        else:
                            value = maximum(maximum(parts[0], parts[1]), maximum(parts[2], parts[3]))
                        value = loops.let(select(y_inside & x_inside, value, constant(0, kind)))
                        total.set(total.get() + value if op.mode == "mean" else maximum(total.get(), value))
                count = loops.let((down.samples * across.samples).cast("i64").cast(kind))
                if op.mode == "mean":
                    average = total.get() / maximum(count, 1.0)
                else:
                    average = select(count > 0.0, total.get(), constant(0, kind))
                output[r, c, i, j] = average.cast(output.dtype)

    return b.call_loops(body, op.x, op.rois, op.batch)


@legalize("relax.max_roi_pool")
def max_roi_pool(op: ir.OpView, b: LegalizeBuilder) -> ir.Value:
    """Compute with channels last: all channels of a pixel take part in one vector operation."""
    images, _, height, width = shape_of(op.x)
    regions, channels, bins_down, bins_across = shape_of(op.output)

    def body(loops: LoopBuilder, x: Buffer, rois: Buffer, batch: Buffer, output: Buffer) -> None:
        for r in loops.range(regions):
            image = loops.let(within(from_end(batch[r], images), images))
            down = _WholeBins(op, loops, wide(rois[r, 1]), wide(rois[r, 3]), bins_down, height)
            across = _WholeBins(op, loops, wide(rois[r, 0]), wide(rois[r, 2]), bins_across, width)
            for i in loops.range(bins_down):
                top, rows = down.pixels(i)
                for j in loops.range(bins_across):
                    left, columns = across.pixels(j)
                    has_pixels = (rows > 0) & (columns > 0)
                    first = select(has_pixels, constant(float("-inf"), x.dtype), constant(0, x.dtype))
                    for c in loops.range(channels):
                        output[r, i, j, c] = first
                    for k in loops.range(rows):
                        row = loops.let(within(top + k, height))
                        for m in loops.range(columns):
                            column = loops.let(within(left + m, width))
                            for c in loops.range(channels):
                                output[r, i, j, c] = maximum(output[r, i, j, c], x[image, row, column, c])

    bins = tensor_type(op.output).with_shape((regions, bins_down, bins_across, channels))
    image = b.emit(Permute, op.x, axes=(0, 2, 3, 1))
    return b.emit(Permute, b.call_loops(body, image, op.rois, op.batch, results=[bins]), axes=(0, 3, 1, 2))


class _WholeBins:
    """The bins of a region in one direction, of whole pixels."""

    def __init__(self, op: ir.OpView, loops: LoopBuilder, low: Expr, high: Expr, count: Dim, size: Dim):
        self.loops = loops
        self.edge = lift(size, INDEX).cast("i64").cast(low.dtype)
        self.low = loops.let(_rounded(low * op.scale))
        extent = maximum(_rounded(high * op.scale) - self.low + 1.0, 1.0)
        self.bin = loops.let(extent / float(fixed(count)))

    def pixels(self, bin_: Expr) -> tuple[Expr, Expr]:
        """Return the first pixel of a bin in the image, and how many follow each other."""
        number = bin_.cast("i64").cast(self.bin.dtype)
        begin = self._in_image(floor(number * self.bin) + self.low)
        end = self._in_image(ceil((number + 1.0) * self.bin) + self.low)
        return begin, self.loops.let(maximum(end - begin, constant(0, INDEX)))

    def _in_image(self, position: Expr) -> Expr:
        # A NaN is the end of the image: its bins have no pixels.
        inside = maximum(minimum(_bounded(position), self.edge), 0.0)
        return self.loops.let(inside.cast("i64").cast(INDEX))


def _rounded(position: Expr) -> Expr:
    """Return the nearest whole number, halves away from zero."""
    size = maximum(position, -position)
    whole = floor(size)
    rounded = whole + select(size - whole >= 0.5, constant(1, size.dtype), constant(0, size.dtype))
    return select(position < 0.0, -rounded, rounded)


class _Bins:
    """The bins of a region in one direction, and the sampling positions in each."""

    def __init__(self, op: ir.OpView, loops: LoopBuilder, low: Expr, high: Expr, count: Dim, size: Dim):
        self.loops = loops
        self.size = size
        self.edge = lift(size, INDEX).cast("i64").cast(low.dtype)
        kind = low.dtype
        offset = 0.5 if op.half_pixel else 0.0
        self.start = loops.let(low * op.scale - offset)
        extent = high * op.scale - offset - self.start
        extent = loops.let(extent if op.half_pixel else maximum(extent, 1.0))
        self.bin = loops.let(extent / float(fixed(count)))
        if op.samples:
            self.samples = constant(op.samples, INDEX)
        else:
            # Bounds the pixels of a region beyond any real image; NaN has none.
            number = _bounded(ceil(self.bin))
            number = select(number > 0.0, number, constant(0, kind))
            self.samples = loops.let(minimum(number, float(1 << 12)).cast("i64").cast(INDEX))
        self.step = loops.let(self.bin / maximum(self.samples.cast("i64").cast(kind), 1.0))

    def sample(self, bin_: Expr, number: Expr) -> tuple[Expr, list[tuple[Expr, Expr]]]:
        """Return whether a sample is in the image (or just outside), and its two neighbouring pixels with weights."""
        kind, last = self.bin.dtype, self.size - 1
        first = self.start + bin_.cast("i64").cast(kind) * self.bin
        position = self.loops.let(first + (number.cast("i64").cast(kind) + 0.5) * self.step)
        inside = self.loops.let((position >= -1.0) & (position <= self.edge))
        position = self.loops.let(maximum(minimum(_bounded(position), self.edge - 1.0), 0.0))
        low = self.loops.let(within(position.cast("i64"), self.size))
        high = self.loops.let(minimum(low + 1, last))
        share = self.loops.let(position - low.cast("i64").cast(kind))
        return inside, [(low, 1.0 - share), (high, share)]
