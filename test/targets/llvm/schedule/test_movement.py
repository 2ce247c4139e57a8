"""Transposes turn tiles in registers and agree with scalar loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scheduled
from scheduled import Kernel, compare, tensor

from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.compute import maximum, select

MASKED = ("avx512", "avx2")
"""Machines that store part of a vector: only for these are tiles transposed."""


@pytest.mark.sample(2)
@pytest.mark.parametrize("rows", [2, 15, 16, 40])
@pytest.mark.parametrize("columns", [5, 16, 33])
@pytest.mark.parametrize("machine", MASKED)
def test_transpose(rows: int, columns: int, machine: str) -> None:
    kernel = compare(
        lambda p, x: p.compute((columns, rows), lambda i, j: x[j, i]), [tensor(rows, columns)], "elementwise",
        machine=machine,
    )  # fmt: skip
    # Two rows are one operation, which interleaves them.
    assert "vector.shuffle" in kernel.text or rows == 2 and "vector.interleave" in kernel.text
    assert "vector.gather" not in kernel.text


@pytest.mark.sample(8)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i8"])
@pytest.mark.parametrize("machine", ["avx512", "avx2"])
@pytest.mark.parametrize(
    "shape", [(64, 64), (95, 48), (33, 161), (256, 32), (130, 512), (80, 600), (1024, 50), (48, 70), (129, 7)]
)
def test_blocks_meet_every_tile_once(shape: tuple[int, int], machine: str, dtype: str) -> None:
    """Whole and half blocks, adjacent tiles, and tiles that are shifted to cache lines."""
    rows, columns = shape
    kind = tensor(rows, columns, dtype=dtype)
    kernel = Kernel(lambda p, x: p.compute((columns, rows), lambda i, j: x[j, i]), [kind], options={"machine": machine})
    assert kernel.rule == "elementwise"
    x = (np.arange(rows * columns) % 1999).astype(kind.dtype.to_numpy()).reshape(shape)
    (found,) = kernel(x)
    np.testing.assert_array_equal(found, x.T)


@pytest.mark.sample(12)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i8"])
@pytest.mark.parametrize("machine", ["avx512", "avx2", "neon"])
@pytest.mark.parametrize("shape", [(128, 12, 64), (197, 6, 40), (7, 300, 33), (61, 3, 784), (1, 9, 9000), (40, 41, 50)])
def test_runs_meet_every_element_once(shape: tuple[int, ...], machine: str, dtype: str) -> None:
    kind, (a, b, run) = tensor(2, *shape, dtype=dtype), shape
    kernel = Kernel(
        lambda p, x: p.compute((2, b, a, run), lambda n, i, j, k: x[n, j, i, k]), [kind], options={"machine": machine}
    )
    assert kernel.rule == "elementwise"
    x = (np.arange(2 * a * b * run) % 1999).astype(kind.dtype.to_numpy()).reshape(2, *shape)
    (found,) = kernel(x)
    np.testing.assert_array_equal(found, x.transpose(0, 2, 1, 3))


def test_runs_meet_others() -> None:
    def build(p, x, y, b):
        total = p.compute((9, 70, 40), lambda i, j, k: maximum(x[j, i, k] + y[i, j, k], b[k]))
        return total, p.compute((9, 70, 40), lambda i, j, k: total[i, j, k] - x[j, i, k])

    kernel = compare(build, [tensor(70, 9, 40), tensor(9, 70, 40), tensor(40)], "elementwise", machine="avx512")
    # Two outputs, three runs of three vectors each.
    assert kernel.text.count("vector.store") + kernel.text.count("vector.maskedstore") == 2 * 3 * 3


@pytest.mark.sample(0)
def test_runs_of_a_padded_and_joined_image() -> None:
    def build(p, x, y):
        padded = p.compute((40, 22, 33), lambda i, j, k: x.at(j - 1, i - 2, k, outside=0.0))
        joined = p.compute((40, 60, 33), lambda i, j, k: select(j < 22, x.at(j, i, k, outside=0.0), y[j - 22, i, k]))
        return padded, joined

    compare(build, [tensor(20, 36, 33), tensor(38, 40, 33)])


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(12))
def test_random_orders(seed: int) -> None:
    generator = np.random.default_rng(seed)
    order = tuple(int(i) for i in generator.permutation(int(generator.integers(2, 6))))
    sizes = np.array([1, 2, 3, 7, 16, 17, 31, 32, 48, 64, 70])
    shape = tuple(int(size) for size in generator.choice(sizes, len(order)))
    dtype = str(generator.choice(["f32", "f64", "f16", "bf16", "i8", "i64"]))
    kind = tensor(*shape, dtype=dtype)

    def build(p, x):
        axes = [order.index(i) for i in range(len(order))]
        return p.compute([shape[i] for i in order], lambda *at: x.at(*(at[axis] for axis in axes)))

    x = generator.integers(0, 100, shape).astype(kind.dtype.to_numpy())
    (found,) = Kernel(build, [kind])(x)
    np.testing.assert_array_equal(found, np.ascontiguousarray(x.transpose(order)))


@pytest.mark.sample(4)
@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[1::2])
@pytest.mark.parametrize("machine", [*MASKED, "neon"])
def test_every_order_of_four_dims(order: tuple[int, ...], machine: str) -> None:
    shape = (2, 5, 18, 19)

    def element(x, axes):
        return x.at(*(axes[order.index(i)] for i in range(4)))

    kernel = compare(
        lambda p, x: p.compute([shape[i] for i in order], lambda *axes: element(x, axes)),
        [tensor(*shape)],
        "elementwise",
        machine=machine,
    )
    assert ("vector.shuffle" in kernel.text) == (machine in MASKED and order[-1] != 3)


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", ["f64", "i64", "f16", "bf16", "i8", "bool", "i16"])
def test_dtypes(dtype: str) -> None:
    compare(lambda p, x: p.compute((37, 21), lambda i, j: x[j, i]), [tensor(21, 37, dtype=dtype)], "elementwise")


def test_layouts_of_images() -> None:
    compare(lambda p, x: p.compute((2, 35, 20), lambda n, s, c: x[n, c, s]), [tensor(2, 20, 35)], "elementwise")
    compare(lambda p, x: p.compute((1, 100, 3), lambda n, s, c: x[n, c, s]), [tensor(1, 3, 100)], "elementwise")
    compare(lambda p, x: p.compute((1, 3, 100), lambda n, c, s: x[n, s, c]), [tensor(1, 100, 3)], "elementwise")


@pytest.mark.sample(12)
@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "bf16"])
@pytest.mark.parametrize("pixels", [7, 64, 101, 1000, 2403])
@pytest.mark.parametrize("machine", MASKED)
def test_few_channels_are_interleaved(channels: int, dtype: str, pixels: int, machine: str) -> None:
    kernel = compare(
        lambda p, x: p.compute((2, pixels, channels), lambda n, s, c: x[n, c, s]),
        [tensor(2, channels, pixels, dtype=dtype)], "elementwise", machine=machine,
    )  # fmt: skip
    # No lane of a store is off but at the end.
    assert kernel.text.count("vector.maskedstore") <= 1
    assert "vector.gather" not in kernel.text


def test_interleaved_channels_meet_others() -> None:
    def build(p, x, y, b):
        total = p.compute((30, 37, 3), lambda i, j, c: maximum(x[c, i, j] + y[i, j, c], 0.0) * b[c])
        return total, p.compute((30, 37, 3), lambda i, j, c: total[i, j, c] - x[c, i, j])

    compare(build, [tensor(3, 30, 37), tensor(30, 37, 3), tensor(3)], "elementwise")


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i16"])
@pytest.mark.parametrize("offset", [0, 1, 5])
@pytest.mark.parametrize("machine", MASKED)
def test_arrays_that_begin_anywhere(offset: int, dtype: str, machine: str) -> None:
    """Tiles begin where the operand's memory has whole lines, and meet at both ends."""
    kind = tensor(24, 1024, dtype=dtype)
    kernel = Kernel(lambda p, x: p.compute((1024, 24), lambda i, j: x[j, i]), [kind], options={"machine": machine})
    assert "extract_aligned_pointer" in kernel.text
    base = np.arange(24 * 1024 + 64).astype(kind.dtype.to_numpy())
    aligned = -base.ctypes.data % 64 // base.itemsize
    x = base[aligned + offset :][: 24 * 1024].reshape(24, 1024)
    call, (result,) = kernel.pack([x])
    call()
    np.testing.assert_array_equal(result, x.T)


def test_turned_operand_meets_others() -> None:
    def build(p, x, y, b):
        total = p.compute((30, 37), lambda i, j: maximum(x[j, i] + y[i, j], 0.0) * b[j])
        return total, p.compute((30, 37), lambda i, j: total[i, j] - x[j, i])

    kernel = compare(build, [tensor(37, 30), tensor(30, 37), tensor(37)], "elementwise", machine="avx2")
    assert "vector.shuffle" in kernel.text


def test_padded_image_in_another_layout() -> None:
    compare(
        lambda p, x: p.compute((22, 23, 18), lambda i, j, c: x.at(c, i - 1, j - 1, outside=0.0)), [tensor(18, 20, 21)],
        "elementwise",
    )  # fmt: skip


@pytest.mark.parametrize("machine", ["avx2", "neon", "sse"])
def test_machines(machine: str) -> None:
    compare(lambda p, x: p.compute((19, 21), lambda i, j: x[j, i]), [tensor(21, 19)], "elementwise", machine=machine)


@pytest.mark.sample(2)
@pytest.mark.parametrize("offset", [0, 4])
@pytest.mark.parametrize("rows", [1600, 1616])
def test_what_caches_do_not_hold_goes_past_them(rows: int, offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are written whole where the output begins with one; callers' arrays may lie anywhere."""

    def shifted(kind: TensorType) -> np.ndarray:
        memory = np.full(rows * 4001 * 4 + 128, 0xA5, np.uint8)
        start = -memory.ctypes.data % 64 + offset
        return memory[start : start + rows * 4001 * 4].view(np.float32).reshape(kind.static_shape)

    monkeypatch.setattr(scheduled, "_aligned", shifted)
    kernel = Kernel(
        lambda p, x: p.compute((4001, rows), lambda i, j: x[j, i]), [tensor(rows, 4001)], options={"machine": "avx512"}
    )
    assert kernel.text.count("nontemporal") > 16
    x = np.arange(rows * 4001, dtype=np.float32).reshape(rows, 4001)
    (found,) = kernel(x)
    np.testing.assert_array_equal(found, x.T)


def test_lines_that_are_not_whole_stay_in_the_caches() -> None:
    kernel = Kernel(
        lambda p, x: p.compute((4001, 1601), lambda i, j: x[j, i]), [tensor(1601, 4001)], options={"machine": "avx512"}
    )
    assert "nontemporal" not in kernel.text


def test_narrower_lines_that_are_not_whole_stay_in_the_caches() -> None:
    kind = tensor(1616, 4001)
    kernel = Kernel(
        lambda p, x: p.compute((4001, 1616), lambda i, j: x[j, i].cast("f16")), [kind], options={"machine": "avx512"}
    )
    assert "nontemporal" not in kernel.text
