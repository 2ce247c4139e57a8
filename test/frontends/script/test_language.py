"""The language of prim functions: what each construct computes, against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mirlo
from mirlo import R, T
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.frontends.script.errors import ScriptError
from mirlo.passes.instrumentation import PassFailed

S, N = T.shapes("S"), T.dims("N")
DT = T.types("DT")


def _run(template, *arrays, out, **attributes):
    """Return the result of a prim function on arrays, through a module with nothing but its call."""
    types = [TensorType.of(a.shape, _name(a.dtype)) for a in arrays]
    with make_context(), ir.Location.unknown():
        function, _ = template.specialize(types, [out], template.name, attributes)
        module = ir.Module.create()
        module.body.append(function.operation)
        names = ", ".join(f"%a{i}: {t.to_mlir()}" for i, t in enumerate(types))
        kinds = ", ".join(str(t.to_mlir()) for t in types)
        segments = f"operandSegmentSizes = array<i32: {', '.join(_runs(kinds.split(', ')))}>"
        values = ", ".join(f"%a{i}" for i in range(len(types)))
        text = f"""func.func @main({names}) -> {out.to_mlir()} {{
          %r = "relax.call_tir"({values}) {{callee = @{template.name}, {segments},
            resultSegmentSizes = array<i32: 1, 0, 0, 0>}} : ({kinds}) -> {out.to_mlir()}
          return %r : {out.to_mlir()}
        }}"""
        parsed = ir.Module.parse(text)
        module.body.append(parsed.body.operations[0].operation.clone())
        executable = mirlo.compile(module)
    return executable(*arrays)


def _runs(kinds: list[str]) -> list[str]:
    runs: list[list[str]] = []
    for kind in kinds:
        if runs and runs[-1][0] == kind:
            runs[-1].append(kind)
        else:
            runs.append([kind])
    return [*(str(len(run)) for run in runs), *["0"] * (16 - len(runs))]


def _name(dtype) -> str:
    names = {"float32": "f32", "float16": "f16", "float64": "f64", "int64": "i64", "int32": "i32", "uint8": "u8"}
    return names.get(dtype.name, dtype.name)


X = np.linspace(-2, 3, 24, dtype=np.float32).reshape(4, 6)


@T.inline
def cube(x):
    square = x * x
    return square * x


@mirlo.prim_func
def polynomial(x: T.Buffer[S, DT], y: T.Out[S, DT]):
    for at in T.grid(*S):
        y[at] = cube(x[at]) - 2 * x[at] + math.sqrt(4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_shapes_types_and_inline(dtype) -> None:
    x = X.astype(dtype)
    y = _run(polynomial, x, out=TensorType.of(x.shape, _name(x.dtype)))
    np.testing.assert_allclose(y, x**3 - 2 * x + 2, rtol=2e-2 if dtype is np.float16 else 1e-5, atol=1e-2)


@mirlo.prim_func
def integers(x: T.Buffer[(N,), T.i64], y: T.Out[(N,), T.i64]):
    for i in range(N):
        small = x[i] // 3 + x[i] % 5 - (x[i] << 1) + (x[i] >> 2) + (x[i] & 6) + (x[i] | 1) + (x[i] ^ 3) + ~x[i]
        y[i] = T.max(small, -x[i], 4) + T.abs(x[i]) + T.popcount(x[i]) + i + (N - 1)


def test_integers() -> None:
    x = np.array([-7, -1, 0, 1, 5, 100], np.int64)
    small = x // 3 + x % 5 - (x << 1) + (x >> 2) + (x & 6) + (x | 1) + (x ^ 3) + ~x
    bits = np.array([bin(int(v) & (2**64 - 1)).count("1") for v in x])
    expected = np.maximum(np.maximum(small, -x), 4) + np.abs(x) + bits + np.arange(6) + 5
    np.testing.assert_array_equal(_run(integers, x, out=TensorType.of((6,), "i64")), expected)


@mirlo.prim_func
def conditions(x: T.Buffer[(4, 6), T.f32], y: T.Out[(4, 6), T.f32]):
    for i, j in T.grid(4, 6):
        inside = 0 < i < 3 and not (j == 2 or x[i, j] != x[i, j])
        y[i, j] = x[i, j] if inside else T.select(x[i, j] >= 0, 1.0, -x[i, j])


def test_conditions() -> None:
    i, j = np.indices(X.shape)
    expected = np.where((i > 0) & (i < 3) & (j != 2), X, np.where(X >= 0, 1, -X))
    np.testing.assert_array_equal(_run(conditions, X, out=TensorType.of((4, 6), "f32")), expected)
    assert conditions.why_loops(TensorType.of((4, 6), "f32")) is None


@mirlo.prim_func
def casts(x: T.Buffer[(4, 6), T.f32], y: T.Out[(4, 6), T.u8]):
    for i, j in T.grid(4, 6):
        y[i, j] = T.u8(T.max(x[i, j], 0.0).cast("i32") + (x[i, j] > 1).cast(T.i32) + T.i32(i))


def test_casts() -> None:
    i, _ = np.indices(X.shape)
    expected = (np.maximum(X, 0).astype(np.int32) + (X > 1) + i).astype(np.uint8)
    np.testing.assert_array_equal(_run(casts, X, out=TensorType.of((4, 6), "u8")), expected)


@mirlo.prim_func
def statements(x: T.Buffer[(4, 6), T.f32], y: T.Out[(4, 6), T.f32]):
    row = T.alloc((6,), T.f32, scope="local")
    far = T.alloc((4, 6), T.f32)
    T.copy(x, far)
    for i in T.parallel(4):
        total = T.f32(0.0)
        count = T.i32(0)
        for j in T.serial(1, 6):
            if far[i, j] > 0:
                total += far[i, j]
                count = count + 1
            elif j == 1:
                total -= 1.0
            else:
                total = total * 0.5
        j = T.i64(0)
        while j < 6:
            row[j] = total + j.cast("f32")
            j += 2
        for k in T.vectorized(0, 6):
            y[i, k] = row[k - k % 2] + T.f32(count)


def test_statements() -> None:
    expected = np.zeros_like(X)
    for i in range(4):
        total, count = np.float32(0), 0
        for j in range(1, 6):
            if X[i, j] > 0:
                total, count = total + X[i, j], count + 1
            else:
                total = total - 1 if j == 1 else total * np.float32(0.5)
        expected[i] = [total + (k - k % 2) + count for k in range(6)]
    np.testing.assert_allclose(_run(statements, X, out=TensorType.of((4, 6), "f32")), expected, rtol=1e-6)


@T.inline
def row_total(x, i):
    total = T.f32(0.0)
    for j in range(6):
        total = total + x[i, j]
    return total


@mirlo.prim_func
def helpers_with_loops(x: T.Buffer[(4, 6), T.f32], y: T.Out[(4,), T.f32]):
    for i in range(4):
        total = T.f32(1.0)
        total += row_total(x, i)
        y[i] = total


def test_helper_with_a_loop() -> None:
    np.testing.assert_allclose(_run(helpers_with_loops, X, out=TensorType.of((4,), "f32")), 1 + X.sum(1), rtol=1e-5)


@mirlo.prim_func
def block_in_loops(x: T.Buffer[(4, 6), T.f32], y: T.Out[(4,), T.f32]):
    for io in T.unrolled(2):
        for ii in T.serial(2):
            for k in T.serial(6):
                with T.block("sum"):
                    vi, vk = T.axes("SR", io * 2 + ii, k)
                    with T.init():
                        y[vi] = 1.0
                    y[vi] += x[vi, vk]


def test_block_with_computed_axes() -> None:
    np.testing.assert_allclose(_run(block_in_loops, X, out=TensorType.of((4,), "f32")), X.sum(1) + 1, rtol=1e-5)
    why = block_in_loops.why_loops(TensorType.of((4, 6), "f32"))
    assert why == "there is a loop of kind T.unrolled that requires an order or a part"


@mirlo.prim_func
def c_call(x: T.Buffer[(4, 6), T.f32], y: T.Out[(4, 6), T.f32]):
    for i, j in T.grid(4, 6):
        y[i, j] = T.call_extern("fabsf", x[i, j], dtype="f32", pure=True)


def test_call_extern() -> None:
    np.testing.assert_array_equal(_run(c_call, X, out=TensorType.of((4, 6), "f32")), np.abs(X))


@mirlo.prim_func
def gather(x: T.Buffer[(4, 6), T.f32], i: T.Buffer[(N,), T.i64], y: T.Out[(N, 6), T.f32]):
    for a, b in T.grid(N, 6):
        y[a, b] = x[T.min(T.max(i[a], 0), 3), b]


@mirlo.prim_func
def windows(x: T.Buffer[(4, 6), T.f32], y: T.Out[(4, 6), T.f32]):
    for i, j, k in T.grid(4, 6, 3):
        with T.block():
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                y[vi, vj] = 0.0
            y[vi, vj] = y[vi, vj] + x.at(vi, vj + vk - 1, outside=10.0)


@pytest.mark.parametrize("buffers", [False, True])
def test_gathers_and_windows(buffers) -> None:
    from dataclasses import replace

    index = np.array([3, 0, -5, 9, 1], np.int64)
    made = _run(replace(gather, buffers=buffers), X, index, out=TensorType.of((5, 6), "f32"))
    np.testing.assert_array_equal(made, X[np.clip(index, 0, 3)])
    padded = np.pad(X, ((0, 0), (1, 1)), constant_values=10)
    expected = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    made = _run(replace(windows, buffers=buffers), X, out=TensorType.of((4, 6), "f32"))
    np.testing.assert_allclose(made, expected, rtol=1e-6)


def test_every_intrinsic_has_a_word() -> None:
    for name in INTRINSICS:
        assert str(getattr(T, name)) == f"T.{name}"


@mirlo.prim_func
def on_a_gpu(x: T.Buffer[(4, 6), T.f32], y: T.Out[(4, 6), T.f32]):
    tile = T.alloc((6,), T.f32, scope="shared")
    for i in T.thread_binding(4, "blockIdx.x"):
        for j in T.thread_binding(6, "threadIdx.x"):
            tile[j] = x[i, j]
            y[i, j] = tile[5 - j]


def test_hardware_axes_need_hardware() -> None:
    with pytest.raises(PassFailed, match="is bound to 'threadIdx.x', which this target does not have"):
        _run(on_a_gpu, X, out=TensorType.of((4, 6), "f32"))


@mirlo.prim_func
def shared(x: T.Buffer[(4, 6), T.f32], y: T.Out[(4, 6), T.f32]):
    tile = T.alloc((6,), T.f32, scope="shared")
    for i in T.serial(4):
        tile[0] = x[i, 0]
        y[i, 0] = tile[0]


def test_shared_memory_needs_hardware() -> None:
    with pytest.raises(PassFailed, match="is in memory .*, which the code around it does not have"):
        _run(shared, X, out=TensorType.of((4, 6), "f32"))


@mirlo.prim_func(kind="opaque")
def kept_apart(x: T.Buffer[S, T.f32], y: T.Out[S, T.f32]):
    for i in T.grid(*S):
        y[i] = x[i] + 1


@mirlo.script
def between(x: R.Tensor[(4, 6), R.f32]):
    return R.tanh(R.call_tir(kept_apart, R.abs(x)))


def test_declared_kind() -> None:
    executable = mirlo.compile(between)
    assert len(executable.artifact.kernels) == 3
    np.testing.assert_allclose(executable(X), np.tanh(np.abs(X) + 1), rtol=1e-5)


def test_is_never_executed() -> None:
    with pytest.raises(ScriptError, match="prim function 'gather' is not called from Python: use it with R.call_tir"):
        gather(X)
    with pytest.raises(ScriptError, match="'cube' is an inline function of scripts"):
        cube(1.0)
    with pytest.raises(ScriptError, match=r"T\.grid has a meaning only inside a script"):
        T.grid(4)
    with pytest.raises(AttributeError, match=r"there is no T\.gird; did you mean T\.grid\?"):
        _ = T.gird


@mirlo.prim_func
def shared_out(x: T.Buffer[(512, 1000), T.f32], y: T.Out[(512,), T.f32]):
    row = T.alloc((1000,), T.f32, scope="local")
    for i in T.parallel(512):
        total = T.f32(0.0)
        for j in range(1000):
            row[j] = x[i, j] * 2
        for j in range(1000):
            total += row[999 - j]
        y[i] = total


@mirlo.script
def in_parallel(x: R.Tensor[(512, 1000), R.f32]):
    return R.call_tir(shared_out, x)


def test_parallel_loops_have_their_own_memory() -> None:
    """Variables and buffers that only the loop uses are each thread's own."""
    executable = mirlo.compile(in_parallel, threads=2)
    x = np.random.default_rng(0).standard_normal((512, 1000), dtype=np.float32)
    for _ in range(5):
        np.testing.assert_allclose(executable(x), 2 * x.sum(1), rtol=1e-3, atol=1e-3)


CHOSEN = """
@mirlo.script
def graph(x: R.Tensor[(4, 8), R.f32]):
    if {condition}:
        y = R.relu(x)
    else:
        y = R.exp(x)
    return y
"""


@pytest.mark.parametrize(
    ("condition", "operator"),
    [
        ("4 > 3", "relu"),
        ("4 < 3", "exp"),
        ("1 < 4 < 5", "relu"),
        ("1 < 4 < 3", "exp"),
        ("4 == 4", "relu"),
        ("0", "exp"),
    ],
)
def test_a_graph_has_what_a_known_condition_chooses(condition: str, operator: str) -> None:
    text = str(mirlo.parse_script(CHOSEN.format(condition=condition)))
    assert [name for name in ("relu", "exp") if f"relax.{name}" in text] == [operator]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("x > 0", "'if' needs a condition known when the graph is made, found a tensor, bool.*: use R.where"),
        ("0 < x < 3", "tensors are compared two at a time, with <, <=, >, >=, == or !="),
    ],
)
def test_a_graph_does_not_branch_on_tensors(condition: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        mirlo.parse_script(CHOSEN.format(condition=condition))


def _branches(relu: bool, scale: float, place: str):
    """Return a function with an `if` on constants in a block, a nest, an initial value, or around a nest."""
    if place == "block":

        @mirlo.prim_func
        def f(x: T.Buffer[(4, 6), T.f32], y: T.Out[(4, 6), T.f32]):
            for i, j in T.grid(4, 6):
                with T.block("y"):
                    vi, vj = T.axes("SS", i, j)
                    value = x[vi, vj] * scale
                    if relu and scale > 1:
                        value = T.max(value, 0.0)
                    elif relu:
                        value = T.abs(value)
                    y[vi, vj] = value

    elif place == "nest":

        @mirlo.prim_func
        def f(x: T.Buffer[(4, 6), T.f32], y: T.Out[(4, 6), T.f32]):
            for i in range(4):
                if relu:
                    for j in range(6):
                        if scale > 1:
                            y[i, j] = T.max(x[i, j] * scale, 0.0)
                        else:
                            y[i, j] = T.abs(x[i, j] * scale)
                else:
                    for j in range(6):
                        y[i, j] = x[i, j] * scale

    else:

        @mirlo.prim_func
        def f(x: T.Buffer[(4, 6), T.f32], y: T.Out[(4, 6), T.f32]):
            if relu and scale > 1:
                for i, j in T.grid(4, 6):
                    y[i, j] = T.max(x[i, j] * scale, 0.0)
            elif relu:
                for i, j in T.grid(4, 6):
                    y[i, j] = T.abs(x[i, j] * scale)
            else:
                for i, j in T.grid(4, 6):
                    y[i, j] = x[i, j] * scale

    return f


@pytest.mark.parametrize("place", ["block", "nest", "around"])
@pytest.mark.parametrize(("relu", "scale"), [(True, 2.0), (True, 0.5), (False, 2.0)])
def test_a_known_condition_keeps_blocks(relu, scale, place) -> None:
    f = _branches(relu, scale, place)
    assert f.why_loops(TensorType.of((4, 6), "f32")) is None
    expected = X * np.float32(scale)
    if relu:
        expected = np.maximum(expected, 0) if scale > 1 else np.abs(expected)
    np.testing.assert_array_equal(_run(f, X, out=TensorType.of((4, 6), "f32")), expected)


def test_a_computed_condition_makes_loops() -> None:
    @mirlo.prim_func
    def f(x: T.Buffer[(4,), T.f32], y: T.Out[(4,), T.f32]):
        for i in range(4):
            with T.block("y"):
                vi = T.axes("S", i)
                if x[vi] > 0.0:
                    y[vi] = x[vi]
                else:
                    y[vi] = 0.0

    assert f.why_loops(TensorType.of((4,), "f32")) == "there is if in a block whose condition is computed"
