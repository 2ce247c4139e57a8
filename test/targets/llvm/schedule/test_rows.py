"""Row operations computed in vectors agree with scalar loops."""

from __future__ import annotations

import numpy as np
import pytest
from scheduled import Kernel, compare, tensor

from mirlo.dialects.tir.compute import abs_, exp, maximum, roundeven, select, sqrt


def softmax(p, x):
    *rows, size = x.shape
    peak = p.reduce("max", rows, (size,), lambda *a: x.at(*a))
    raised = p.compute(x.shape, lambda *a: exp(x.at(*a) - peak.at(*a[:-1])))
    total = p.reduce("add", rows, (size,), lambda *a: raised.at(*a))
    return p.compute(x.shape, lambda *a: raised.at(*a) / total.at(*a[:-1]))


def layer_norm(p, x, scale, bias):
    *rows, size = x.shape
    total = p.reduce("add", rows, (size,), lambda *a: x.at(*a))
    mean = p.compute(rows, lambda *a: total.at(*a) / float(size))

    def squared(*a):
        centered = x.at(*a) - mean.at(*a[:-1])
        return centered * centered

    squares = p.reduce("add", rows, (size,), squared)
    deviation = p.compute(rows, lambda *a: 1.0 / sqrt(squares.at(*a) / float(size) + 1e-5))
    return p.compute(
        x.shape, lambda *a: (x.at(*a) - mean.at(*a[:-1])) * deviation.at(*a[:-1]) * scale[a[-1]] + bias[a[-1]]
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", [2, 5, 9, 16, 33, 63, 64, 70, 200])
def test_softmax_of_every_length(size: int) -> None:
    compare(softmax, [tensor(3, size)], "rows")


def test_softmax_needs_no_memory_of_its_own() -> None:
    kernel = compare(softmax, [tensor(2, 3, 5, 300)], "rows", machine="avx2")
    assert "alloca" not in kernel.text and "workspace" not in kernel.text
    assert "rows = array<i64: 30>" in kernel.text and "walks = 3" in kernel.text


def quantized(p, x):
    rows, size = x.shape
    largest = p.reduce("max", (rows,), (size,), lambda r, i: abs_(x[r, i]), init=0.0)
    codes = p.compute((rows, size), lambda r, i: roundeven(x[r, i] * (127.0 / largest[r])).cast("i8"))
    return codes, largest, p.reduce("add", (rows,), (size,), lambda r, i: codes[r, i].cast("i32"))


@pytest.mark.parametrize("machine", ["avx2", "avx512"])
def test_rows_are_stored_in_whole_parts_of_registers(machine: str) -> None:
    """Eight codes of 8 bits are less than what a store of AVX2 takes, so vectors have 16 lanes."""
    kernel = compare(quantized, [tensor(3, 64)], "rows", machine=machine)
    assert "vector<16xi8>" in kernel.text and "vector<8xi8>" not in kernel.text


@pytest.mark.parametrize("shape", [(4, 40), (2, 3, 100), (1, 1, 64), (1, 768)])
def test_layer_norm(shape: tuple[int, ...]) -> None:
    compare(layer_norm, [tensor(*shape), tensor(shape[-1]), tensor(shape[-1])], "rows", tolerance=1e-4)


def test_one_row_without_leading_axes() -> None:
    compare(softmax, [tensor(50)], "rows")


def test_masked_softmax_with_broadcast_mask() -> None:
    def build(p, x, mask):
        y = p.compute(x.shape, lambda b, h, i, j: x[b, h, i, j] * 0.125 + mask[b, 0, 0, j])
        return softmax(p, y)

    compare(build, [tensor(2, 3, 5, 40), tensor(2, 1, 1, 40)], "rows")


def test_producer_inlined_into_both_readers() -> None:
    def build(p, x, y):
        peak = p.reduce("max", (6,), (50,), lambda i, j: x[i, j] + y[j])
        raised = p.compute((6, 50), lambda i, j: exp(x[i, j] + y[j] - peak[i]))
        total = p.reduce("add", (6,), (50,), lambda i, j: raised[i, j])
        return p.compute((6, 50), lambda i, j: raised[i, j] / total[i]), total

    compare(build, [tensor(6, 50), tensor(50)], "rows")


REDUCTIONS = [
    ("add", "f32"),
    ("mul", "f32"),
    ("max", "f32"),
    ("min", "f32"),
    ("add", "i32"),
    ("max", "i32"),
    ("min", "u8"),
    ("max", "i64"),
    ("max", "u8"),
    ("or", "bool"),
    ("and", "bool"),
    ("add", "f64"),
    ("max", "f16"),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("kind", "dtype"), REDUCTIONS)
def test_reductions(kind: str, dtype: str) -> None:
    compare(
        lambda p, x: p.reduce(kind, (5,), (75,), lambda i, j: x[i, j]),
        [tensor(5, 75, dtype=dtype)],
        "rows",
        tolerance=1e-4,
    )


@pytest.mark.parametrize(("kind", "init"), [("add", 3.0), ("max", 2.5), ("mul", 0.5)])
def test_start_value_counts_once(kind: str, init: float) -> None:
    compare(
        lambda p, x: p.reduce(kind, (5,), (70,), lambda i, j: x[i, j] * 0.1 + 0.9, init=init), [tensor(5, 70)], "rows"
    )


@pytest.mark.parametrize("kind", ["max", "min"])
def test_nan_is_not_lost(kind: str) -> None:
    kernel = Kernel(lambda p, x: p.reduce(kind, (8,), (70,), lambda i, j: x[i, j]), [tensor(8, 70)])
    x = np.random.default_rng(0).standard_normal((8, 70), dtype=np.float32)
    for row, column in enumerate((0, 15, 16, 63, 64, 69)):
        x[row, column] = np.nan
    np.testing.assert_array_equal(kernel(x)[0], x.max(1) if kind == "max" else x.min(1))


def test_all_elements() -> None:
    compare(lambda p, x: p.reduce("add", (), (3, 5, 70), lambda i, j, k: x[i, j, k]), [tensor(3, 5, 70)], "rows")


def test_several_reduction_axes() -> None:
    compare(
        lambda p, x: p.reduce("add", (3, 4), (7, 7), lambda n, c, h, w: x[n, c, h, w]), [tensor(3, 4, 7, 7)], "rows"
    )
    compare(lambda p, x: p.reduce("max", (3,), (4, 9), lambda n, c, w: x[n, c, 2, w]), [tensor(3, 4, 5, 9)], "rows")


def test_batch_of_one_read_at_zero() -> None:
    def build(p, x, y):
        total = p.compute((1, 9, 48), lambda n, i, j: x[0, i, j] + y[i, j])
        peak = p.reduce("max", (1, 9), (48,), lambda n, i, j: total[0, i, j])
        return p.compute((1, 9, 48), lambda n, i, j: total[0, i, j] - peak[0, i])

    compare(build, [tensor(1, 9, 48), tensor(9, 48)], "rows")


def test_kept_dims() -> None:
    def build(p, x):
        total = p.reduce("add", (4, 3, 1), (40,), lambda i, j, k, r: x[i, j, r])
        mean = p.compute((4, 3, 1), lambda i, j, k: total[i, j, k] / 40.0)
        return p.compute((4, 3, 40), lambda i, j, k: x[i, j, k] - mean[i, j, 0]), mean

    compare(build, [tensor(4, 3, 40)], "rows")


def test_intermediate_of_another_shape_has_memory() -> None:
    def build(p, x):
        y = p.compute((6, 48), lambda i, j: exp(x[i, j]))
        total = p.reduce("add", (6,), (48,), lambda i, j: y[i, j])
        return p.compute((6, 24), lambda i, j: maximum(y[i, j * 2], y[i, j * 2 + 1]) / total[i])

    compare(build, [tensor(6, 48)], "rows")


def test_distances_between_rows() -> None:
    def build(p, x, y):
        def squared(i, j, k):
            difference = x[i, k] - y[j, k]
            return difference * difference

        return p.reduce("add", (5, 6), (64,), squared)

    compare(build, [tensor(5, 64), tensor(6, 64)], "rows", tolerance=1e-4)


def test_extreme_and_where_it_is() -> None:
    """The first of equal elements is found, so that lanes may not run ahead of each other."""

    def build(p, x):
        return tuple(
            p.reduce_many(
                (6,),
                (71,),
                lambda i, j: [x[i, j], j.cast("i64")],
                [float("-inf"), -1],
                lambda held, new: [maximum(held[0], new[0]), select(new[0] > held[0], new[1], held[1])],
            )
        )

    kernel = Kernel(build, [tensor(6, 71)])
    x = np.random.default_rng(0).integers(0, 4, (6, 71)).astype(np.float32)
    extreme, where = kernel(x)
    np.testing.assert_array_equal(extreme, x.max(1))
    np.testing.assert_array_equal(where, x.argmax(1))


def test_reduction_in_an_order_of_its_own_is_declined() -> None:
    def build(p, x):
        return p.reduce_many((5,), (40,), lambda i, j: [x[i, j]], [0.0], lambda held, new: [held[0] * 0.5 + new[0]])[0]

    kernel = compare(build, [tensor(5, 40)], "scalar_nest", machine="avx2")
    assert kernel.declined["rows"].startswith("a reduction combines by no single associative operation")


@pytest.mark.parametrize("machine", ["avx2", "neon", "sse"])
def test_machines(machine: str) -> None:
    compare(softmax, [tensor(3, 71)], "rows", machine=machine)


def test_the_innermost_loop_runs_along_memory() -> None:
    """Parts of rows lie apart: their two loops cannot be one, and change places."""
    compare(lambda p, x: p.reduce("add", (8,), (40, 6), lambda b, i, j: x[b, j, i]), [tensor(8, 6, 64)], "rows")


def test_integer_division_in_a_reduction() -> None:
    compare(
        lambda p, x, y: p.reduce("add", (5,), (75,), lambda i, j: x[i, j] // y[i, j]),
        [tensor(5, 75, dtype="i32")] * 2,
        "rows",
    )


def test_declined() -> None:
    avx2 = {"machine": "avx2"}
    short = Kernel(lambda p, x: p.reduce("add", (40,), (3,), lambda i, j: x[i, j]), [tensor(40, 3)], options=avx2)
    assert short.declined["rows"] == "rows are too short for vectors (elements=3)"
    across = Kernel(lambda p, x: p.reduce("add", (40,), (30,), lambda i, j: x[j, i]), [tensor(30, 40)], options=avx2)
    assert across.declined["rows"].startswith("the reduction does not run along memory")
    plain = Kernel(lambda p, x: p.compute((4,), lambda i: x[i]), [tensor(4)])
    assert plain.rule == "elementwise"
