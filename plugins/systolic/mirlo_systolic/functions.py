"""Layers as prim functions, and the instructions of the unit that replace their loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mirlo
from mirlo import T
from mirlo.extend.schedules import command_intrin
from mirlo_systolic.commands import SIZE

DATA, WEIGHTS, PARAMETERS = "systolic.data", "systolic.weights", "systolic.parameters"
ACCUMULATORS, RESULTS = "systolic.accumulators", "systolic.results"
LOWEST = -(2**31)

ROWS, COLUMNS, COUNT = T.dims("ROWS", "COLUMNS", "COUNT")
zero, low, high = T.attrs("zero", "low", "high")


@T.inline
def shifted(total: Any, shift: Any) -> Any:
    """Divide by a power of two; halves are rounded to even."""
    quotient = total >> shift
    rest = total - (quotient << shift)
    half = T.select(shift == 0, 1, (T.i64(1) << shift) >> 1)
    is_odd = (quotient & 1) == 1
    return quotient + T.select((rest > half) or ((rest == half) and is_odd), T.i64(1), T.i64(0))


@T.inline
def limited(value: Any, least: Any, largest: Any) -> Any:
    return max(min(value, largest), least).cast("i8")


# The instructions. Parameters of a column are four words: both multipliers, the shift, the addend, nothing.


@mirlo.prim_func
def load(x: T.Buffer[(ROWS, COLUMNS, SIZE), T.i8], y: T.Out[(ROWS, COLUMNS, SIZE), T.i8]):
    for i, j, k in T.grid(ROWS, COLUMNS, SIZE):
        y[i, j, k] = x.at(i, j - 1, k, outside=0)


@mirlo.prim_func
def load_weights(x: T.Buffer[(COUNT, SIZE, SIZE), T.i8], y: T.Out[(COUNT, SIZE, SIZE), T.i8]):
    for t, k, m in T.grid(COUNT, SIZE, SIZE):
        y[t, k, m] = x[t, k, m]


@mirlo.prim_func
def load_parameters(x: T.Buffer[(SIZE, 4), T.i64], y: T.Out[(SIZE, 4), T.i64]):
    for m, word in T.grid(SIZE, 4):
        y[m, word] = x[m, word]


@mirlo.prim_func
def multiply(
    x: T.Buffer[(ROWS, COLUMNS, SIZE), T.i8],
    w: T.Buffer[(SIZE, SIZE), T.i8],
    sums: T.Out[(ROWS, COLUMNS, SIZE), T.i32],
):
    for i, j, m, k in T.grid(ROWS, COLUMNS, SIZE, SIZE):
        with T.block("multiply"):
            vi, vj, vm, vk = T.axes("SSSR", i, j, m, k)
            with T.init():
                sums[vi, vj, vm] = 0
            sums[vi, vj, vm] += x[vi, vj, vk].cast("i32") * w[vk, vm].cast("i32")


@mirlo.prim_func
def largest(
    x: T.Buffer[(COUNT, ROWS, COLUMNS, SIZE), T.i8],
    w: T.Buffer[(SIZE, SIZE), T.i8],
    sums: T.Out[(ROWS, COLUMNS, SIZE), T.i32],
):
    for i, j, m, t in T.grid(ROWS, COLUMNS, SIZE, COUNT):
        with T.block("largest"):
            vi, vj, vm, vt = T.axes("SSSR", i, j, m, t)
            with T.init():
                sums[vi, vj, vm] = LOWEST
            sums[vi, vj, vm] = max(sums[vi, vj, vm], x[vt, vi, vj, vm].cast("i32") * w[vm, vm].cast("i32"))


@mirlo.prim_func
def requantize(
    sums: T.Buffer[(ROWS, COLUMNS, SIZE), T.i32],
    p: T.Buffer[(SIZE, 4), T.i64],
    y: T.Out[(ROWS, COLUMNS, SIZE), T.i8],
):
    for i, j, m in T.grid(ROWS, COLUMNS, SIZE):
        total = sums[i, j, m].cast("i64") * p[m, 0].cast("i32").cast("i64") + p[m, 2]
        y[i, j, m] = limited(shifted(total, p[m, 1] & 63) + zero, low, high)


@mirlo.prim_func
def requantize_both(
    sums: T.Buffer[(ROWS, COLUMNS, SIZE), T.i32],
    others: T.Buffer[(ROWS, COLUMNS, SIZE), T.i32],
    p: T.Buffer[(SIZE, 4), T.i64],
    y: T.Out[(ROWS, COLUMNS, SIZE), T.i8],
):
    for i, j, m in T.grid(ROWS, COLUMNS, SIZE):
        first = sums[i, j, m].cast("i64") * p[m, 0].cast("i32").cast("i64")
        total = first + others[i, j, m].cast("i64") * (p[m, 0] >> 32) + p[m, 2]
        y[i, j, m] = limited(shifted(total, p[m, 1] & 63) + zero, low, high)


@mirlo.prim_func
def store(x: T.Buffer[(ROWS, COLUMNS, SIZE), T.i8], y: T.Out[(ROWS, COLUMNS, SIZE), T.i8]):
    for i, j, m in T.grid(ROWS, COLUMNS, SIZE):
        y[i, j, m] = x[i, j, m]


INSTRUCTIONS = (
    command_intrin("systolic.load", load, {"x": "", "y": DATA}),
    command_intrin("systolic.load_weights", load_weights, {"x": "", "y": WEIGHTS}),
    command_intrin("systolic.load_parameters", load_parameters, {"x": "", "y": PARAMETERS}),
    command_intrin("systolic.multiply", multiply, {"x": DATA, "w": WEIGHTS, "sums": ACCUMULATORS}),
    command_intrin("systolic.largest", largest, {"x": DATA, "w": WEIGHTS, "sums": ACCUMULATORS}),
    command_intrin("systolic.requantize", requantize, {"sums": ACCUMULATORS, "p": PARAMETERS, "y": RESULTS}),
    command_intrin(
        "systolic.requantize_both", requantize_both,
        {"sums": ACCUMULATORS, "others": ACCUMULATORS, "p": PARAMETERS, "y": RESULTS},
    ),
    command_intrin("systolic.store", store, {"x": RESULTS, "y": ""}),
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """The sizes of a layer."""

    image: tuple[int, int, int]
    """Rows, columns and channels of an operand."""
    size: tuple[int, int, int]
    """Rows, columns and channels of the result."""
    window: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    """Padding rows above and columns to the left of the image."""
    fill: int = 0
    """The value of padding."""
    is_deep: bool = True
    """Whether a column reads all channels; otherwise it reads its own."""
    is_shared: bool = False
    """Whether all columns have the same weights."""
    limits: tuple[int, int, int] = (0, -128, 127)
    """The zero point, the least and the largest value."""

    @property
    def reach(self) -> tuple[int, int]:
        """Return the rows and columns that a window covers, including dilation."""
        (height, width), (down, right) = self.window, self.dilations
        return (height - 1) * down + 1, (width - 1) * right + 1

    @property
    def blocks(self) -> tuple[int, int, int]:
        """Return the numbers of 16-channel blocks: of the operand, per column, and of the result."""
        channels, columns = -(-self.image[2] // SIZE), -(-self.size[2] // SIZE)
        return channels, channels if self.is_deep else 1, columns

    @property
    def taps(self) -> int:
        """Return the number of products of a block of columns."""
        return self.window[0] * self.window[1] * self.blocks[1]

    @property
    def padded(self) -> tuple[int, int]:
        """Return the rows and columns that windows read."""
        rows, columns = (
            (size - 1) * stride + reach
            for size, stride, reach in zip(self.size, self.strides, self.reach, strict=False)
        )
        return rows, columns


def window_products(s: Shape) -> Any:
    """Return the function of a convolution, a product of matrices, or an average."""
    (height, width, channels), (rows, columns, _), (kh, kw) = s.image, s.size, s.window
    (high_rows, wide), (down, right), (top, left), (dh, dw) = s.padded, s.strides, s.padding, s.dilations
    blocks, deep, results = s.blocks
    each, own, fill, taps = int(not s.is_deep), int(not s.is_shared), s.fill, s.taps
    matrices = 1 if s.is_shared else results
    zero_point, least, most = s.limits

    @mirlo.prim_func
    def products(
        x: T.Buffer[(height, width, channels), T.i8],
        w: T.Buffer[(matrices, taps if own else 1, SIZE, SIZE), T.i8],
        p: T.Buffer[(results, SIZE, 4), T.i64],
        y: T.Out[(rows, columns, results, SIZE), T.i8],
    ):
        window = T.alloc((blocks, high_rows, wide, SIZE), "i8")
        sums = T.alloc((results, rows, columns, SIZE), "i32")
        for b, i, j, k in T.grid(blocks, high_rows, wide, SIZE):
            with T.block("load"):
                vb, vi, vj, vk = T.axes("SSSS", b, i, j, k)
                window[vb, vi, vj, vk] = x.at(vi - top, vj - left, vb * SIZE + vk, outside=fill)
        for n, i, j, m, b, h, v, k in T.grid(results, rows, columns, SIZE, deep, kh, kw, SIZE):
            with T.block("products"):
                vn, vi, vj, vm, vb, vh, vv, vk = T.axes("SSSSRRRR", n, i, j, m, b, h, v, k)
                with T.init():
                    sums[vn, vi, vj, vm] = 0
                sums[vn, vi, vj, vm] += window[vb + vn * each, vi * down + vh * dh, vj * right + vv * dw, vk].cast(
                    "i32"
                ) * w[vn * own, ((vb * kh + vh) * kw + vv) * own, vk, vm].cast("i32")
        for i, j, n, m in T.grid(rows, columns, results, SIZE):
            with T.block("requantize"):
                vi, vj, vn, vm = T.axes("SSSS", i, j, n, m)
                total = sums[vn, vi, vj, vm].cast("i64") * p[vn, vm, 0].cast("i32").cast("i64") + p[vn, vm, 2]
                y[vi, vj, vn, vm] = limited(shifted(total, p[vn, vm, 1] & 63) + zero_point, least, most)

    return products


def window_maxima(s: Shape) -> Any:
    """Return the function of max pooling, by products with the identity."""
    (height, width, channels), (rows, columns, _), (kh, kw) = s.image, s.size, s.window
    (high_rows, wide), (down, right), (top, left) = s.padded, s.strides, s.padding
    blocks, _, results = s.blocks
    fill = s.fill
    zero_point, least, most = s.limits

    @mirlo.prim_func
    def maxima(
        x: T.Buffer[(height, width, channels), T.i8],
        w: T.Buffer[(1, SIZE, SIZE), T.i8],
        p: T.Buffer[(results, SIZE, 4), T.i64],
        y: T.Out[(rows, columns, results, SIZE), T.i8],
    ):
        window = T.alloc((blocks, high_rows, wide, SIZE), "i8")
        sums = T.alloc((results, rows, columns, SIZE), "i32")
        for b, i, j, k in T.grid(blocks, high_rows, wide, SIZE):
            with T.block("load"):
                vb, vi, vj, vk = T.axes("SSSS", b, i, j, k)
                window[vb, vi, vj, vk] = x.at(vi - top, vj - left, vb * SIZE + vk, outside=fill)
        for n, i, j, m, h, v in T.grid(results, rows, columns, SIZE, kh, kw):
            with T.block("products"):
                vn, vi, vj, vm, vh, vv = T.axes("SSSSRR", n, i, j, m, h, v)
                with T.init():
                    sums[vn, vi, vj, vm] = LOWEST
                sums[vn, vi, vj, vm] = max(
                    sums[vn, vi, vj, vm],
                    window[vn, vi * down + vh, vj * right + vv, vm].cast("i32") * w[0, vm, vm].cast("i32"),
                )
        for i, j, n, m in T.grid(rows, columns, results, SIZE):
            with T.block("requantize"):
                vi, vj, vn, vm = T.axes("SSSS", i, j, n, m)
                total = sums[vn, vi, vj, vm].cast("i64") * p[vn, vm, 0].cast("i32").cast("i64") + p[vn, vm, 2]
                y[vi, vj, vn, vm] = limited(shifted(total, p[vn, vm, 1] & 63) + zero_point, least, most)

    return maxima


def sum_of_two(s: Shape) -> Any:
    """Return the function of a sum of two operands of 16 channels, by products with the identity."""
    rows, columns, _ = s.size
    zero_point, least, most = s.limits

    @mirlo.prim_func
    def both(
        a: T.Buffer[(rows, columns, SIZE), T.i8],
        b: T.Buffer[(rows, columns, SIZE), T.i8],
        w: T.Buffer[(1, SIZE, SIZE), T.i8],
        p: T.Buffer[(1, SIZE, 4), T.i64],
        y: T.Out[(rows, columns, 1, SIZE), T.i8],
    ):
        window = T.alloc((rows, columns, SIZE), "i8")
        other_window = T.alloc((rows, columns, SIZE), "i8")
        sums = T.alloc((rows, columns, SIZE), "i32")
        others = T.alloc((rows, columns, SIZE), "i32")
        for i, j, k in T.grid(rows, columns, SIZE):
            with T.block("load"):
                vi, vj, vk = T.axes("SSS", i, j, k)
                window[vi, vj, vk] = a[vi, vj, vk]
        for i, j, k in T.grid(rows, columns, SIZE):
            with T.block("load_other"):
                vi, vj, vk = T.axes("SSS", i, j, k)
                other_window[vi, vj, vk] = b[vi, vj, vk]
        for i, j, m, k in T.grid(rows, columns, SIZE, SIZE):
            with T.block("products"):
                vi, vj, vm, vk = T.axes("SSSR", i, j, m, k)
                with T.init():
                    sums[vi, vj, vm] = 0
                sums[vi, vj, vm] += window[vi, vj, vk].cast("i32") * w[0, vk, vm].cast("i32")
        for i, j, m, k in T.grid(rows, columns, SIZE, SIZE):
            with T.block("other_products"):
                vi, vj, vm, vk = T.axes("SSSR", i, j, m, k)
                with T.init():
                    others[vi, vj, vm] = 0
                others[vi, vj, vm] += other_window[vi, vj, vk].cast("i32") * w[0, vk, vm].cast("i32")
        for i, j, n, m in T.grid(rows, columns, 1, SIZE):
            with T.block("requantize"):
                vi, vj, vn, vm = T.axes("SSSS", i, j, n, m)
                first = sums[vi, vj, vm].cast("i64") * p[vn, vm, 0].cast("i32").cast("i64")
                total = first + others[vi, vj, vm].cast("i64") * (p[vn, vm, 0] >> 32) + p[vn, vm, 2]
                y[vi, vj, vn, vm] = limited(shifted(total, p[vn, vm, 1] & 63) + zero_point, least, most)

    return both
