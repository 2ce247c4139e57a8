"""Pooling and reductions over outer dims computed in vectors agree with scalar loops."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator as Reference
from onnx_models import F32, make_model, node
from scheduled import Kernel, compare, tensor

import mirlo
from mirlo.dialects.tir.compute import constant, exp, maximum, minimum, select, within
from mirlo.passes.schedule.primitives.trace import Trace
from mirlo.tools.explain.model import explain_model


def pool(kind, shape, kernel, stride, pad, channels_last=False, finish=None):
    """Input type and body of a pooling."""
    n, c, h, w = shape
    out_h, out_w = ((size + 2 * pad - kernel) // stride + 1 for size in (h, w))
    outside = (float("-inf") if kind == "max" else 0.0) if pad else None

    def source(x, b, ch, i, j, k, m):
        y, z = i * stride + k - pad, j * stride + m - pad
        return x.at(b, y, z, ch, outside=outside) if channels_last else x.at(b, ch, y, z, outside=outside)

    def build(p, x):
        if channels_last:
            out = (n, out_h, out_w, c)
            made = p.reduce(kind, out, (kernel, kernel), lambda b, i, j, ch, k, m: source(x, b, ch, i, j, k, m))
        else:
            out = (n, c, out_h, out_w)
            made = p.reduce(kind, out, (kernel, kernel), lambda b, ch, i, j, k, m: source(x, b, ch, i, j, k, m))
        return p.compute(out, lambda *axes: finish(made.at(*axes))) if finish else made

    return build, [tensor(n, h, w, c) if channels_last else tensor(*shape)]


AVX2 = {"machine": "avx2"}
POOLS = [(2, 2, 0), (3, 2, 1), (3, 1, 1), (3, 2, 0), (5, 3, 2), (1, 2, 0)]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("kernel", "stride", "pad"), POOLS)
@pytest.mark.parametrize("channels_last", [False, True])
def test_max_pool(kernel: int, stride: int, pad: int, channels_last: bool) -> None:
    shape = (1, 20, 13, 14) if channels_last else (2, 3, 21, 40)
    compare(*pool("max", shape, kernel, stride, pad, channels_last))
    rule = "window" if kernel > 1 else None  # windows with tails are vectorized where parts of a vector are stored
    compare(*pool("max", shape, kernel, stride, pad, channels_last), rule=rule, machine="avx2")


def test_windows_are_cut_where_padding_begins() -> None:
    kernel = compare(*pool("max", (1, 4, 40, 40), 3, 1, 1), rule="window", machine="avx2")
    assert kernel.text.count("scf.for") == 2, "images and channels, and rows: the first and the last one are no loops"
    assert "cmpi" not in kernel.text and "gather" not in kernel.text


def test_average_is_finished_in_registers() -> None:
    build, inputs = pool("add", (1, 33, 12, 12), 3, 1, 1, True, lambda total: maximum(total / 9.0, 0.0))
    kernel = compare(build, inputs, "window", machine="avx2")
    assert "alloca" not in kernel.text


def test_average_divides_by_what_is_inside() -> None:
    def build(p, x):
        total = p.reduce("add", (2, 20, 20), (3, 3), lambda c, i, j, k, m: x.at(c, i + k - 1, j + m - 1, outside=0.0))

        def mean(c, i, j):
            rows = minimum(i + 2, 20) - maximum(i - 1, 0)
            columns = minimum(j + 2, 20) - maximum(j - 1, 0)
            return total[c, i, j] / (rows * columns).cast("f32")

        return p.compute((2, 20, 20), mean)

    compare(build, [tensor(2, 20, 20)], "window")


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", [4, 7, 16, 17, 33, 64, 70, 150])
def test_over_the_first_dim(size: int) -> None:
    compare(
        lambda p, x: p.reduce("add", (size,), (30,), lambda i, r: x[r, i]), [tensor(30, size)], "window", tolerance=1e-4
    )


def test_over_middle_dims() -> None:
    def mean(p, x):
        return p.reduce("add", (2, 40), (7, 7), lambda n, c, h, w: x[n, h, w, c])

    compare(mean, [tensor(2, 7, 7, 40)], "window", tolerance=1e-4)
    compare(lambda p, x: p.reduce("max", (3, 40), (9,), lambda n, c, r: x[n, r, c]), [tensor(3, 9, 40)], "window")


def arg_max(p, x, shape, extent, read):
    return p.reduce_many(
        shape,
        (extent,),
        lambda *axes: [read(*axes), axes[-1].cast("i64")],
        [float("-inf"), 0],
        lambda held, new: [maximum(held[0], new[0]), select(new[0] > held[0], new[1], held[1])],
    )[1]


def test_several_values_reduced_together() -> None:
    compare(lambda p, x: arg_max(p, x, (45,), 9, lambda i, r: x[r, i]), [tensor(9, 45)], "window")


def test_weighted_windows() -> None:
    def build(p, x, w, b):
        total = p.reduce(
            "add",
            (12, 12, 24),
            (3, 3),
            lambda i, j, c, k, m: x.at(i + k - 1, j + m - 1, c, outside=0.0) * w[k, m, c] - 1.0,
        )
        return p.compute((12, 12, 24), lambda i, j, c: total[i, j, c] + b[c])

    compare(build, [tensor(12, 12, 24), tensor(3, 3, 24), tensor(24)], "window", tolerance=1e-4)


@pytest.mark.parametrize("dtype", ["f16", "i8", "u8", "i32", "i64", "f64", "bool"])
def test_dtypes(dtype: str) -> None:
    kind = "or" if dtype == "bool" else "max"
    compare(lambda p, x: p.reduce(kind, (50,), (6,), lambda i, r: x[r, i]), [tensor(6, 50, dtype=dtype)], "window")


@pytest.mark.parametrize("machine", ["avx2", "sse"])
def test_machines(machine: str) -> None:
    compare(*pool("max", (1, 2, 11, 19), 3, 2, 1), rule="window", machine=machine)


def softmax_over(axis):
    def build(p, x):
        rows = x.shape[:axis] + x.shape[axis + 1 :]

        def full(axes):
            return (*axes[:axis], axes[-1], *axes[axis:-1])

        def row(axes):
            return (*axes[:axis], *axes[axis + 1 :])

        peak = p.reduce("max", rows, (x.shape[axis],), lambda *a: x.at(*full(a)))
        raised = p.compute(x.shape, lambda *a: exp(x.at(*a) - peak.at(*row(a))))
        total = p.reduce("add", rows, (x.shape[axis],), lambda *a: raised.at(*full(a)))
        return p.compute(x.shape, lambda *a: raised.at(*a) / total.at(*row(a)))

    return build


def test_rows_of_all_parts_are_shared() -> None:
    def build(p, x):
        return p.reduce(
            "max", (20, 20, 40), (3, 3), lambda c, i, j, k, m: x.at(c + k - 1, i + m - 1, j, outside=float("-inf"))
        )

    kernel = compare(build, [tensor(20, 20, 40)], "window", machine="avx2")
    assert "scf.for" in kernel.text and kernel.text.count("scf.for") == kernel.text.count("tir.parallel}")


@pytest.mark.sample(2)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_over_outer_dims_runs_in_stages(axis: int) -> None:
    kernel = compare(softmax_over(axis), [tensor(2, 9, 5, 33)], "stages", machine="avx2")
    assert "scalar_nest" not in kernel.text


def test_group_norm_runs_in_stages() -> None:
    def build(p, x):
        total = p.reduce("add", (2, 4), (3, 5, 7), lambda n, g, c, h, w: x[n, g * 3 + c, h, w])
        return p.compute((2, 12, 5, 7), lambda n, c, h, w: x[n, c, h, w] - total[n, c // 3] / 105.0)

    kernel = compare(build, [tensor(2, 12, 5, 7)], "stages", tolerance=1e-4, machine="avx2")
    assert 'stages = "rows, elementwise"' in kernel.text


def test_picking_from_a_value_of_the_function_runs_in_stages() -> None:
    def build(p, x, ids):
        doubled = p.compute((40,), lambda i: x[i] * 2.0)
        return p.compute((30,), lambda i: doubled[within(ids[i], 40)])

    kernel = Kernel(build, [tensor(40), tensor(30, dtype="i64")])
    x = np.random.default_rng(0).standard_normal(40, dtype=np.float32)
    ids = np.arange(30)[::-1].copy()
    np.testing.assert_array_equal(kernel(x, ids)[0], (x * 2)[ids])
    assert kernel.rule == "stages"


def test_scalar_stage_between_vector_stages() -> None:
    def build(p, x):
        doubled = p.compute((5, 40), lambda i, j: x[i, j] * 2.0)
        where = arg_max(p, doubled, (5,), 40, lambda i, r: doubled[i, r])
        return p.compute(
            (5, 40), lambda i, j: select(where[i].cast("index").equals(j), doubled[i, j], constant(0.0, "f32"))
        )

    kernel = compare(build, [tensor(5, 40)], "stages", machine="avx2")
    assert 'stages = "elementwise, scalar_nest, elementwise"' in kernel.text


def test_declined() -> None:
    kernel = Kernel(lambda p, x: p.compute((4,), lambda i: x[i]), [tensor(4)])
    assert kernel.rule == "elementwise"
    kernel = Kernel(lambda p, x: arg_max(p, x, (5,), 40, lambda i, r: x[i, r]), [tensor(5, 40)], options=AVX2)
    assert kernel.rule == "scalar_nest"
    assert kernel.declined["window"].startswith("no operand runs along the output's memory")
    assert kernel.declined["stages"] == "there is one block only, and no plan takes it"


def schedule_of(model: ModelProto) -> Mapping[str, Trace]:
    return {kernel.name: kernel.schedule.trace for kernel in explain_model(model).kernels if kernel.schedule}


@pytest.mark.sample(0)
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_words_of_the_rule_can_be_edited_and_given_back(operator: str) -> None:
    pooled = node(operator, "x", "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    model = make_model([pooled, node("Relu", "p", "y")], {"x": (F32, [1, 3, 20, 37])}, ["y"])
    words = schedule_of(model)
    ((name, trace),) = words.items()
    assert {"reverse_compute_inline", "partition", "vectorize", "accumulate"} <= {said.primitive for said in trace}
    text = str(trace)
    assert text.startswith("def schedule(s):") and "apply_rule" not in text
    ours, theirs = (mirlo.compile(model, schedules=each, cache=False) for each in ({}, words))
    assert ours.artifact.code == theirs.artifact.code
    pasted: dict[str, Any] = {}
    exec(re.sub(r"s\.parallel\('\w+'\)", "pass", text), pasted)
    edited = mirlo.compile(model, schedules={name: pasted["schedule"]}, cache=False)
    x = np.random.default_rng(1).standard_normal((1, 3, 20, 37), np.float32)
    np.testing.assert_array_equal(ours(x), edited(x))
    narrow = mirlo.compile(model, schedules={name: lambda s: s.apply_rule("window", lanes=4, unroll=2)}, cache=False)
    np.testing.assert_array_equal(ours(x), narrow(x))


def test_dynamic_sizes_have_vectors_of_all_lengths() -> None:
    model = make_model(
        [node("ReduceMax", "x axes", "y", keepdims=0)], {"x": (F32, ["n", "m"])}, ["y"], {"axes": np.array([0])}
    )
    ((_, trace),) = schedule_of(model).items()
    assert "multiples=" in str(trace) and "[None, 2]" in str(trace) and "[None, 4]" in str(trace)
    executable = mirlo.compile(model, cache=False)
    for rows, columns in itertools.product((1, 5), (1, 2, 7, 8, 31, 200)):
        x = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
        np.testing.assert_array_equal(executable(x), x.max(axis=0))


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    ("channels", "lanes", "vectors"),
    [(1280, 8, 16), (672, 8, 14), (480, 8, 15), (136, 8, 16), (32, 8, 4), (144, 16, 9), (240, 16, 15)],
)
def test_a_plain_reduction_has_as_few_passes_as_registers_permit(channels: int, lanes: int, vectors: int) -> None:
    """One pass if accumulators are at most twice as many as registers."""
    mean = node("ReduceMean", "x", "y", axes=[1], keepdims=0)
    model = make_model([mean], {"x": (F32, [1, 49, channels])}, ["y"], opset=13)
    (kernel,) = explain_model(model, target="llvm{cpu=x86-64-v3}").kernels
    assert kernel.schedule is not None
    assert kernel.schedule.choices == {"lanes": lanes, "unroll": vectors}


def test_a_short_window_of_a_dynamic_size_is_a_loop() -> None:
    """Its size has a bound, `2 - k // 3`, but is no number that a loop is unrolled by."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 8, 5), np.float32)
    nodes = [
        node("Conv", "x w", "c", group=2, strides=[3]), node("Softmax", "c", "s", axis=1),
        node("ReduceMean", "s axes", "y", keepdims=0),
    ]  # fmt: skip
    model = make_model(nodes, {"w": (F32, [2, 4, "k"])}, ["y"], {"x": x, "axes": np.array([1, 2])}, opset=20)
    executable = mirlo.compile(model, cache=False)
    for size in (1, 2, 3, 5):
        w = rng.standard_normal((2, 4, size), np.float32)
        np.testing.assert_allclose(executable(w), Reference(model).run(None, {"w": w})[0], rtol=1e-5)
