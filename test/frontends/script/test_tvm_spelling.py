"""Buffers in TVM's spelling, as users paste them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo import R, T


@mirlo.script
def model(x: R.Tensor[(4, 8), R.f32]):
    return R.relu(x)


@pytest.mark.parametrize("loops", [False, True])
def test_buffers(loops: bool) -> None:
    @mirlo.prim_func(buffers=loops)
    def doubled(x: T.Buffer((4, 8), "float32"), y: T.Out((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            y[i, j] = x[i, j] * 2.0

    def rule(op: Any, b: Any) -> Any:
        return b.call_prim_func(doubled, op.x)

    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    np.testing.assert_array_equal(mirlo.compile(model, legalize={"relax.relu": rule}, cache=False)(x), x * 2)


def test_outputs_are_what_is_stored_to() -> None:
    """TVM's functions have no mark for outputs."""

    @mirlo.prim_func
    def product(a: T.Buffer((4, 8), "float32"), b: T.Buffer((8, 4), "float32"), c: T.Buffer((4, 4), "float32")):
        for i, j, k in T.grid(4, 4, 8):
            with T.block("c"):
                vi, vj, vk = T.axes("SSR", i, j, k)
                with T.init():
                    c[vi, vj] = 0.0
                c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]

    assert [p.name for p in product.outputs] == ["c"]

    @mirlo.script
    def graph(a: R.Tensor[(4, 8), R.f32], b: R.Tensor[(8, 4), R.f32]):
        return R.call_tir(product, a, b)

    a, b = (np.random.default_rng(0).standard_normal(shape, np.float32) for shape in ((4, 8), (8, 4)))
    np.testing.assert_allclose(mirlo.compile(graph, cache=False)(a, b), a @ b, rtol=1e-4, atol=1e-5)


def test_numbers_of_arguments_are_checked() -> None:
    with pytest.raises(mirlo.MirloError, match="a buffer has a shape and an element type"):

        @mirlo.prim_func
        def wrong(x: T.Buffer((4, 8)), y: T.Out[(4, 8), "f32"]):
            for i, j in T.grid(4, 8):
                y[i, j] = x[i, j]


def test_an_attribute_that_is_missing() -> None:
    eps = T.attrs("eps")

    @mirlo.prim_func
    def peak(x: T.Buffer[(4, 8), "f32"], y: T.Out[(4, 8), "f32"]):
        for i, j in T.grid(4, 8):
            y[i, j] = x[i, j] + eps

    with pytest.raises(mirlo.MirloError, match=r"'peak' needs its attribute 'eps': .*attributes=\{'eps': \.\.\.\}"):
        mirlo.compile(model, legalize={"relax.relu": lambda op, b: b.call_prim_func(peak, op.x)}, cache=False)


PASTED = """
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tir as T

@I.ir_module
class Module:
    @T.prim_func
    def mm(A: T.Buffer((4, 8), "float32"), B: T.Buffer((8, 4), "float32"), C: T.Buffer((4, 4), "float32"),
           D: T.Buffer((4, 4), "float32")):
        T.func_attr({"tir.noalias": True})
        for i, j, k in T.grid(4, 4, 8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(A[vi, vk], B[vk, vj])
                T.writes(C[vi, vj])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(4, 4):
            with T.block("D"):
                vi = T.axis.spatial(4, i)
                vj = T.axis.spatial(4, j)
                D[vi, vj] = T.copysign(T.hypot(C[vi, vj], T.float32(1.0)), T.rint(C[vi, vj]))

    @R.function
    def half(x: R.Tensor((4, 4), dtype="float32")) -> R.Tensor((4, 4), dtype="float32"):
        with R.dataflow():
            lv: R.Tensor((4, 4), dtype="float32") = R.multiply(x, R.const(0.5, "float32"))
            gv = R.rint(lv)
            R.output(gv)
        return gv

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 4), "float32")):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.mm, (x, w), out_sinfo=[R.Tensor((4, 4), "float32"), R.Tensor((4, 4), "float32")])
            lv1: R.Tensor((4, 4), dtype="float32") = cls.half(lv[0])
            gv = R.add(lv1, lv[1])
            R.output(gv)
        return gv
"""


def test_a_module_of_tvm(tmp_path: Path) -> None:
    """Helpers, dataflow blocks, several outputs of `call_tir`, axes one by one."""
    (tmp_path / "model.py").write_text(PASTED)
    exe = mirlo.compile(tmp_path / "model.py", cache=False)
    x, w = (np.random.default_rng(0).standard_normal(shape, np.float32) for shape in ((4, 8), (8, 4)))
    c = x @ w
    expected = np.rint(c * np.float32(0.5)) + np.copysign(np.hypot(c, 1), np.rint(c))
    np.testing.assert_allclose(exe(x, w), expected, rtol=1e-5)


def test_a_declared_type_is_checked(tmp_path: Path) -> None:
    wrong = PASTED.replace('lv: R.Tensor((4, 4), dtype="float32")', 'lv: R.Tensor((4, 5), dtype="float32")')
    (tmp_path / "model.py").write_text(wrong)
    with pytest.raises(mirlo.MirloError, match=r"model.py:29:17: .*declared f32\[4, 5\], but the value is f32\[4, 4\]"):
        mirlo.compile(tmp_path / "model.py", cache=False)


TUPLES = """
@I.ir_module
class Module:
    @T.prim_func
    def hypot(x: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = T.hypot(x[vi, vj], T.rint(x[vi, vj]))

    @R.function
    def both(x: R.Tensor((4, 8), "float32")) -> R.Tuple(R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.call_tir(Module.hypot, x, out_sinfo=R.Tensor((4, 8), "float32"))
            gv = R.tuple(a, R.negative(x))
            R.output(gv)
        return gv

    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        cls = Module
        with R.dataflow():
            lv: R.Tuple(R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")) = cls.both(x)
            gv = R.multiply(R.TupleGetItem(lv, 0), lv[1])
            R.output(gv)
        return gv
"""


def test_tuples(tmp_path: Path) -> None:
    """A helper returns a tuple, whose type is declared; the operand of `call_tir` is not in a tuple."""
    (tmp_path / "model.py").write_text(TUPLES)
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    found = mirlo.compile(tmp_path / "model.py", cache=False)(x)
    np.testing.assert_allclose(found, np.hypot(x, np.rint(x)) * -x, rtol=1e-6)


@pytest.mark.parametrize(
    "declared, message",
    [
        ('R.Tuple(R.Tensor((4, 8), "float32"))', "declared a tuple of 1, but the value is a tuple of 2"),
        (
            'R.Tuple(R.Tensor((4, 8), "float32"), R.Tensor((4, 9), "float32"))',
            r"declared f32\[4, 9\], but the value is f32\[4, 8\]",
        ),
    ],
)
def test_a_declared_tuple_is_checked(declared: str, message: str, tmp_path: Path) -> None:
    right = 'lv: R.Tuple(R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32"))'
    assert right in TUPLES
    (tmp_path / "model.py").write_text(TUPLES.replace(right, f"lv: {declared}"))
    with pytest.raises(mirlo.MirloError, match=f"model.py:23:.*{message}"):
        mirlo.compile(tmp_path / "model.py", cache=False)


def stored(statement: str) -> str:
    """Return a function of TVM's scripts that computes each element of B from A."""
    return f"""
@T.prim_func
def f(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for i, j in T.grid(8, 8):
        {statement}
"""


HANDLES = """
@T.prim_func
def f(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, (8, 8), "float32")
    B = T.match_buffer(b, [8, 8], dtype="float32")
    C = T.alloc_buffer((8, 8))
    for i, j in T.grid(8, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.exp(A[vi, vj])
    for i, j in T.grid(8, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] + 1.0
"""
PREDICATED = """
@T.prim_func
def f(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
    for io, ii in T.grid(3, 3):
        for j in T.unroll(8, annotations={"pragma": 1}):
            with T.block("B"):
                T.where(io * 3 + ii < 8)
                vi = T.axis.spatial(8, io * 3 + ii)
                vj = T.axis.spatial(8, j)
                B[vi, vj] = A[vi, vj]
"""
A = np.random.default_rng(3).standard_normal((8, 8), np.float32) * 4
ROWS, COLUMNS = np.indices((8, 8))
SELECTED = np.where((COLUMNS < 4) & (ROWS > 2), A, 0)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (HANDLES, np.exp(A) + 1),
        (PREDICATED, A),
        (
            stored("B[i, j] = T.Select(j < 4 and i > 2, A[i, j], T.float32(0))"),
            np.where((COLUMNS < 4) & (ROWS > 2), A, 0),
        ),
        (stored("B[i, j] = T.Cast('float32', T.Cast('int32', A[i, j])) + T.cast(j, 'float32')"), np.trunc(A) + COLUMNS),
        (stored("B[i, j] = T.min(T.fabs(A[i, j]), T.max_value('float32'))"), np.abs(A)),
        (stored("B[i, j] = T.max(A[i, j], T.min_value('float32'))"), A),
        (stored("B[i, j] = T.Cast('float32', T.min_value('int8')) + A[i, j]"), A - 128),
        (stored("B[i, j] = A[T.floordiv(i, 2), T.floormod(j, 4)]"), A[ROWS // 2, COLUMNS % 4]),
        (stored("x: T.float32 = A[i, j] * T.float32(2)\n        B[i, j] = x * x"), A * A * 4),
        (stored("with T.LetStmt(A[i, j] + T.float32(1)) as x:\n            B[i, j] = x * x"), (A + 1) ** 2),
        (stored("with T.let(x, A[i, j]):\n            B[i, j] = x * x"), A * A),
        (stored("B[i, j] = T.call_extern('float32', 'fabsf', A[i, j]) * T.float32(2)"), np.abs(A) * 2),
    ],
)
def test_statements_of_prim_functions(text: str, wanted: np.ndarray) -> None:
    members = text.replace("\n", "\n    ")
    module = mirlo.parse_script(
        f"@I.ir_module\nclass M:{members}\n    @R.function\n    def main(x: R.Tensor((8, 8), 'float32')):\n"
        "        return R.call_tir(M.f, (x,), out_sinfo=R.Tensor((8, 8), 'float32'))\n"
    )
    np.testing.assert_allclose(mirlo.compile(module)(A), wanted, rtol=1e-5, atol=1e-5)


def test_graphs_with_tuples_and_operators_of_nn() -> None:
    module = mirlo.parse_script("""
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def halves(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 4), "float32"), C: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("s"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
                C[vi, vj] = A[vi, vj + 4]

    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tuple(R.Tensor((4, 4), "float32"), R.Tensor((4,), "float32")):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.halves, (x,), out_sinfo=[R.Tensor((4, 4), "float32"), R.Tensor((4, 4), "float32")])
            a: R.Tensor((4, 4), dtype="float32") = lv[0]
            b = R.nn.relu(R.permute_dims(lv[1], axes=[1, 0]))
            c = R.sum(R.astype(b, "float32"), axis=[1], keepdims=False)
            gv = (a, c)
            R.output(gv)
        return gv
""")
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    a, c = mirlo.compile(module)(x)
    np.testing.assert_array_equal(a, x[:, :4])
    np.testing.assert_allclose(c, np.maximum(x[:, 4:].T, 0).sum(1), rtol=1e-5)


def test_convolutions() -> None:
    words = "strides=[1, 1], padding=[1, 1], dilation=[1, 1], groups=1, data_layout='NCHW', kernel_layout='OIHW'"
    module = mirlo.parse_script(f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
        lv = R.nn.conv2d(x, w, {words}, out_layout="NCHW", out_dtype="void")
        return R.nn.max_pool2d(lv, pool_size=[3, 3], strides=[1, 1], padding=[1, 1])
""")
    assert mirlo.compile(module).outputs[0].shape == (1, 4, 8, 8)
