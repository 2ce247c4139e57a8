"""Elementwise prim functions computed in vectors agree with scalar loops."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from onnx import TensorProto
from onnx_models import F32, make_model, node
from scheduled import Kernel, compare, tensor

from mirlo.dialects.tir.compute import call, constant, exp, maximum, minimum, select, within
from mirlo.tools.explain.model import explain_model


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", [1, 2, 3, 8, 15, 17, 31, 64, 70, 130, 200])
def test_every_length(size: int) -> None:
    kernel = compare(
        lambda p, x: p.compute((size,), lambda i: x[i] * 2.0 + 1.0), [tensor(size)], "elementwise", machine="avx2"
    )
    assert ("vector" in kernel.text) == (size > 1)


def test_scalar() -> None:
    compare(lambda p, x, y: p.compute((), lambda: x.at() + y.at()), [tensor(), tensor()], "elementwise")


BROADCASTS = [
    ((5, 37), (37,)),
    ((5, 37), (5, 1)),
    ((5, 37), (1, 1)),
    ((3, 1, 20), (1, 7, 20)),
    ((2, 3, 4, 5), (3, 1, 5)),
    ((2, 3, 4, 5), (2, 1, 4, 1)),
    ((4, 1), (1, 9)),
    ((2, 3, 4, 5, 6), (2, 1, 4, 1, 6)),
    ((1, 1, 33), (8, 1, 33)),
    ((6, 3), (3,)),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("left", "right"), BROADCASTS)
def test_broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    shape = np.broadcast_shapes(left, right)

    def at(t, axes):
        own = axes[len(axes) - t.rank :]
        return t.at(*(0 if dim == 1 else axis for dim, axis in zip(t.shape, own, strict=True)))

    compare(
        lambda p, x, y: p.compute(shape, lambda *axes: at(x, axes) - at(y, axes)),
        [tensor(*left), tensor(*right)],
        "elementwise",
    )


def test_contiguous_loops_become_one() -> None:
    kernel = compare(
        lambda p, x: p.compute((4, 5, 16), lambda i, j, k: exp(x[i, j, k])), [tensor(4, 5, 16)], "elementwise",
        machine="avx2",
    )  # fmt: skip
    assert kernel.text.count("scf.for") == 1


def test_blocks_over_one_domain_share_registers() -> None:
    def build(p, x, y):
        a = p.compute((9, 33), lambda i, j: x[i, j] + y[j])
        b = p.compute((9, 33), lambda i, j: a[i, j] * a[i, j])
        c = p.compute((9, 33), lambda i, j: b[i, j] - a[i, j])
        return b, c

    kernel = compare(build, [tensor(9, 33), tensor(33)], "elementwise", machine="avx2")
    assert "tir.workspace" not in kernel.text and "alloca" not in kernel.text


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8"])
def test_dtypes(dtype: str) -> None:
    compare(
        lambda p, x, y: p.compute((3, 41), lambda i, j: maximum(x[i, j], y[i, j]) + x[i, j]),
        [tensor(3, 41, dtype=dtype)] * 2,
        "elementwise",
        tolerance=1e-2 if "16" in dtype else 1e-6,
    )


def test_bool_operand_and_result() -> None:
    def build(p, c, x, y):
        chosen = p.compute((3, 45), lambda i, j: select(c[i, j], x[i, j], y[j]))
        return chosen, p.compute((3, 45), lambda i, j: (chosen[i, j] > 0.0) & c[i, j])

    compare(build, [tensor(3, 45, dtype="bool"), tensor(3, 45), tensor(45)], "elementwise")


def test_conversions() -> None:
    compare(lambda p, x: p.compute((77,), lambda i: x[i].cast("f32") * 0.5), [tensor(77, dtype="u8")], "elementwise")
    compare(lambda p, x: p.compute((77,), lambda i: (x[i] * 10.0).cast("i8")), [tensor(77)], "elementwise")
    compare(lambda p, x: p.compute((77,), lambda i: x[i].cast("i64")), [tensor(77, dtype="i32")], "elementwise")


def test_integer_division_computes_no_lane_that_is_off() -> None:
    kernel = compare(
        lambda p, x, y: p.compute((53,), lambda i: x[i] // y[i]), [tensor(53, dtype="i32")] * 2, "elementwise",
        machine="avx2",
    )  # fmt: skip
    assert "mask" not in kernel.text


def test_index_as_value() -> None:
    compare(lambda p: p.compute((5, 37), lambda i, j: (i * 37 + j).cast("f32")), [], "elementwise")
    compare(lambda p: p.compute((50,), lambda i: i.cast("i64")), [], "elementwise")


def test_triangle_mask() -> None:
    compare(
        lambda p, x: p.compute((20, 20), lambda i, j: select(j <= i, x[i, j], constant(0.0, "f32"))),
        [tensor(20, 20)],
        "elementwise",
    )


def test_padding() -> None:
    kernel = compare(
        lambda p, x: p.compute((24, 45), lambda i, j: x.at(i - 2, j - 3, outside=1.5)), [tensor(20, 40)], "elementwise",
        machine="avx2",
    )  # fmt: skip
    assert "cmpi" not in kernel.text


@pytest.mark.parametrize("pads", list(product((0, 1), repeat=3)))
def test_padding_is_cut_once_for_each_edge(pads: tuple[int, int, int]) -> None:
    sizes = (5, 6, 7)
    kernel = compare(
        lambda p, x: p.compute(
            (*(size + 2 * pad for size, pad in zip(sizes, pads, strict=True)), 32),
            lambda *at: x.at(*(axis - pad for axis, pad in zip(at, pads, strict=False)), at[-1], outside=1.5),
        ),
        [tensor(*sizes, 32)], "elementwise", machine="avx2",
    )  # fmt: skip
    # Where one index is outside, those of the other dims are not looked at.
    assert f"pieces = {1 + 2 * sum(pads)} " in kernel.text


@pytest.mark.parametrize("kind", ["reflect", "edge"])
def test_padding_with_elements(kind: str) -> None:
    def inside(i, size):
        if kind == "edge":
            return minimum(maximum(i, 0), size - 1)
        mirrored = maximum(i, -i)
        return (size - 1) - maximum((size - 1) - mirrored, mirrored - (size - 1))

    kernel = compare(
        lambda p, x: p.compute((3, 26, 134), lambda c, i, j: x[c, inside(i - 3, 20), inside(j - 2, 130)]),
        [tensor(3, 20, 130)],
        "elementwise",
        machine="avx2",
    )
    assert "pieces = 3" in kernel.text and "arith.maxsi" in kernel.text  # the latter in vectors at the edges only


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concatenation_is_cut_at_the_joints(axis: int) -> None:
    shapes = [[4, 5, 18] for _ in range(3)]
    for shape, size in zip(shapes, (3, 20, 1), strict=True):
        shape[axis] = size
    total = [4, 5, 18]
    total[axis] = 24

    def build(p, x, y, z):
        def element(*axes):
            moved = [list(axes) for _ in range(3)]
            moved[1][axis] = axes[axis] - 3
            moved[2][axis] = axes[axis] - 23
            parts = [t.at(*m, outside=0.0) for t, m in zip((x, y, z), moved, strict=True)]
            return select(axes[axis] < 3, parts[0], select(axes[axis] < 23, parts[1], parts[2]))

        return p.compute(total, element)

    kernel = compare(build, [tensor(*s) for s in shapes], "elementwise", machine="avx2")
    # Along the vectors the joints fall within one.
    assert ("select" in kernel.text) == (axis == 2)


def test_slices_with_steps() -> None:
    for step in (2, 3, 4, 5, -1, -2):
        start = 0 if step > 0 else 99
        count = 100 // abs(step)
        compare(
            lambda p, x, c=count, a=start, s=step: p.compute((3, c), lambda i, j: x[i, j * s + a]),
            [tensor(3, 100)],
            "elementwise",
        )


def test_reshape_inside() -> None:
    compare(
        lambda p, x: p.compute((2, 6, 64), lambda b, s, j: x[b, j // 16, s, j % 16]),
        [tensor(2, 4, 6, 16)],
        "elementwise",
    )
    compare(lambda p, x: p.compute((35,), lambda i: x[i // 7, i % 7] + 1.0), [tensor(5, 7)], "elementwise")
    compare(
        lambda p, x: p.compute((5, 7), lambda i, j: x[(i * 7 + j) // 5, (i * 7 + j) % 5]), [tensor(7, 5)], "elementwise"
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("width", [1, 3, 4, 9])
@pytest.mark.parametrize("height", [1, 3, 5])
@pytest.mark.parametrize("block", [2, 3, 5])
def test_blocks_of_space_move_to_depth_and_back(block: int, height: int, width: int) -> None:
    # Tiles of fewer rows and columns than a register tile has: only guards limit what is divided.
    deep, wide = tensor(2, 2 * block * block, height, width), tensor(2, 2, block * height, block * width)
    compare(
        lambda p, x, b=block: p.compute(
            (2, 2, b * height, b * width),
            lambda n, c, i, j: x[n, c * (b * b) + (i % b) * b + j % b, i // b, j // b],
        ),
        [deep],
        "elementwise",
    )
    compare(
        lambda p, x, b=block: p.compute(
            (2, 2 * b * b, height, width),
            lambda n, d, i, j: x[n, d // b // b, i * b + d // b % b, j * b + d % b],
        ),
        [wide],
        "elementwise",
    )


def test_heads_are_split_and_joined_row_by_row() -> None:
    kernel = compare(
        lambda p, x: p.compute((2, 4, 9, 32), lambda b, h, s, d: x[b, s, h, d]), [tensor(2, 9, 4, 32)], "elementwise",
        machine="avx2",
    )  # fmt: skip
    assert "gather" not in kernel.text


def test_embedding_copies_rows() -> None:
    def build(p, table, ids):
        def element(i, j):
            at = ids[i].cast("index")
            return table[within(select(at < 0, at + 50, at), 50), j]

        return p.compute((7, 40), element)

    kernel = Kernel(build, [tensor(50, 40), tensor(7, dtype="i64")], options={"machine": "avx2"})
    assert kernel.rule == "elementwise" and "gather" not in kernel.text
    generator = np.random.default_rng(0)
    table = generator.standard_normal((50, 40), dtype=np.float32)
    ids = np.array([0, 49, -1, -50, 7, 7, 3])
    np.testing.assert_array_equal(kernel(table, ids)[0], table[ids])


def test_gather_along_memory() -> None:
    def build(p, x, ids):
        return p.compute((5, 21), lambda i, j: x[i, within(ids[i, j], 30)])

    kernel = Kernel(build, [tensor(5, 30), tensor(5, 21, dtype="i64")], options={"machine": "avx2"})
    assert kernel.rule == "elementwise" and "vector.gather" in kernel.text
    generator = np.random.default_rng(0)
    x = generator.standard_normal((5, 30), dtype=np.float32)
    ids = generator.integers(0, 30, (5, 21))
    np.testing.assert_array_equal(kernel(x, ids)[0], np.take_along_axis(x, ids, 1))


@pytest.mark.parametrize(("dtype", "lanes"), [(TensorProto.FLOAT, 8), (TensorProto.INT8, 16)])
def test_lanes_of_a_gather_are_those_of_its_elements(dtype: int, lanes: int) -> None:
    """Loaded indices do not count; elements of int8, loaded one by one, fill 16 bytes."""
    nodes = [node("GatherElements", "x at", "y", axis=1), node("Cast", "y", "z", to=F32)]
    inputs = {"x": (dtype, [4, 30]), "at": (TensorProto.INT64, [4, 64])}
    (kernel,) = explain_model(make_model(nodes, inputs, ["z"], opset=17), target="llvm{cpu=x86-64-v3}").kernels
    assert kernel.schedule is not None and kernel.schedule.choices["lanes"] == lanes


def test_machines() -> None:
    for machine in ("avx512", "avx2", "neon", "sse"):
        compare(
            lambda p, x, y: p.compute((5, 37), lambda i, j: x[i, j] * y[j]),
            [tensor(5, 37), tensor(37)],
            "elementwise",
            machine=machine,
        )


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_random(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rank = int(generator.integers(0, 6))
    shape = [int(generator.integers(1, 70 if rank < 3 else 8)) for _ in range(rank)]
    kinds = [[bool(generator.integers(0, 3)) for _ in range(rank)] for _ in range(3)]
    shapes = [[dim if keep else 1 for dim, keep in zip(shape, kind, strict=True)] for kind in kinds]

    def at(t, axes):
        return t.at(*(0 if dim == 1 else axis for dim, axis in zip(t.shape, axes, strict=True)))

    def build(p, *ts):
        first = p.compute(shape, lambda *axes: at(ts[0], axes) * at(ts[1], axes))
        return first, p.compute(shape, lambda *axes: call("tanh", first.at(*axes)) + at(ts[2], axes))

    compare(build, [tensor(*s) for s in shapes], "elementwise", seed=seed)


def test_reduction_is_declined() -> None:
    avx2 = {"machine": "avx2"}
    kernel = Kernel(lambda p, x: p.reduce("add", (4,), (40,), lambda i, j: x[i, j]), [tensor(4, 40)], options=avx2)
    assert kernel.declined["elementwise"] == "a block reduces (block=reduce_add)"
