"""Target `c`: results, also with dynamic sizes, and the emitted source."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from c_compiler import needs_c_compiler
from commands import ROOT, output_of
from commands import mirlo as mirlo_command
from onnx_models import F32, make_model, node
from optional_targets import needs_target
from sampled_matrix import sampled_matrix

import mirlo
from mirlo import R, Schedule, T
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.byoc.artifacts import artifacts_of
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.runtime.dlpack import DLTensor, tensor_of_array
from mirlo.runtime.external import load_externals
from mirlo.tools.conformance.check import check_target, names
from mirlo.tools.conformance.matrix import markdown

PAGE = ROOT / "docs" / "support-matrix-c.md"

OPERATORS = (
    "add", "divide", "mod", "maximum", "shift_right", "sign", "round", "gelu", "selu", "clip", "hard_swish", "cast",
    "where", "matmul", "conv", "conv_transpose", "max_pool", "avg_pool", "lp_pool", "reduce_mean", "reduce_max",
    "reduce_log_sum_exp", "argmax", "cumsum", "softmax", "log_softmax", "layer_norm", "group_norm", "lrn",
    "permute", "expand", "tile", "reverse", "strided_slice", "concat", "stack", "split", "pad", "depth_to_space",
    "gather", "gather_elements", "gather_nd", "one_hot", "quantize", "dequantize", "tri", "attention", "einsum",
    "rotary_embedding", "scatter_elements", "scatter_nd", "topk", "resize", "max_pool_with_indices",
)  # fmt: skip

needs_onednn = needs_target("onednn")


@needs_c_compiler
@pytest.mark.sample(0)
@pytest.mark.parametrize("part", range(12))
def test_operators_in_parts_compute_what_numpy_does(part: int) -> None:
    names()  # reads the table of cases
    matrix = check_target("c,llvm", [f"relax.{name}" for name in OPERATORS[part::12]], patterns=False)
    wrong = [(e.name, k, v) for e in matrix.entries for k, v in e.verdicts.items() if v.status != "ok"]
    assert not wrong and matrix.count("ok") > 15


@pytest.mark.sample(0)
@needs_c_compiler
def test_page_of_c_is_up_to_date() -> None:
    """The code has no warnings either. The page has kernels of several blocks, too; the sample does not."""
    matrix = replace(sampled_matrix("c{flags=-Werror}"), target="c")
    page, _, kernels = PAGE.read_text(encoding="utf-8").partition("## Kernels of several blocks")
    rows = [[line for line in text.splitlines() if line.startswith("|")] for text in (markdown(matrix), page)]
    assert kernels and rows[0] == rows[1], "run mirlo check-target c --markdown > docs/support-matrix-c.md"


PLUGIN = """
import numpy as np
from mirlo.extend.ops import DialectOp, Float, OpError, Trait, operand, register_dialect, result

class Wave(DialectOp, name="wave", dialect=register_dialect("ocean")):
    TRAITS = (Trait.ELEMENTWISE,)
    x, output = operand(), result()
    scale = Float(1.0)

    @staticmethod
    def infer(x, *, scale):
        if not x.dtype.is_float:
            raise OpError(f"operand must be floating point, got {x}")
        return x

    @staticmethod
    def meaning(x, *, scale):
        return np.sin(x * scale) + x
"""
WAVE = """
func.func @main(%x: tensor<4x9xf32> {relax.name = "x"}) -> (tensor<4x9xf32> {relax.name = "y"}) {
  %0 = "ocean.wave"(%x) {scale = 0.5 : f64} : (tensor<4x9xf32>) -> tensor<4x9xf32>
  %1 = "relax.relu"(%0) : (tensor<4x9xf32>) -> tensor<4x9xf32>
  return %1 : tensor<4x9xf32>
}
"""


@pytest.mark.sample(0)
@needs_c_compiler
def test_operators_of_plug_ins(tmp_path: Path) -> None:
    (tmp_path / "ocean.py").write_text(PLUGIN)
    (tmp_path / "model.mlir").write_text(WAVE)
    command = ["compile", "model.mlir", "--plugin", "ocean.py", "--target", "c", "--emit", "source", "-o", "made"]
    output_of(mirlo_command(*command, cwd=tmp_path))
    source = (tmp_path / "made" / "model.c").read_text()
    assert "sinf(" in source and source.count("/* kernel ") == 1
    out = output_of(
        mirlo_command("check-target", "c,llvm", "--plugin", "ocean.py", "--operator", "ocean.wave", cwd=tmp_path)
    )
    assert re.search(r"ocean\.wave( +ok){4}", out)


ATTENTION = """
func.func @main(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x6x8xf32>, %v: tensor<2x2x6x3xf32>, %m: tensor<2x1x5x6xMASK>) -> tensor<2x4x5x3xf32> {
  %0 = "relax.attention"(%q, %k, %v, %m) {scale = 0.3 : f64} : (tensor<2x4x5x8xf32>, tensor<2x2x6x8xf32>, tensor<2x2x6x3xf32>, tensor<2x1x5x6xMASK>) -> tensor<2x4x5x3xf32>
  return %0 : tensor<2x4x5x3xf32>
}
"""  # noqa: E501


@pytest.mark.sample(2)
@needs_c_compiler
@pytest.mark.parametrize("mask", ["f32", "i1"])
@pytest.mark.parametrize("target", ["c", "onnx"])
def test_attention_with_masks_and_shared_heads(target: str, mask: str, tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(ATTENTION.replace("MASK", mask))
    random = np.random.default_rng(0)
    q, k, v, m = (
        random.standard_normal(s, np.float32) for s in ((2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 3), (2, 1, 5, 6))
    )
    given = m if mask == "f32" else m > -0.5
    scores = q @ k.repeat(2, 1).swapaxes(2, 3) * np.float32(0.3)
    scores = np.exp(scores + m if mask == "f32" else np.where(given, scores, -np.inf))
    executable = mirlo.compile(tmp_path / "m.mlir", [target, "llvm"])
    assert [kernel.kind for kernel in executable.artifact.kernels] == ["packed"]
    expected = scores / scores.sum(-1, keepdims=True) @ v.repeat(2, 1)
    np.testing.assert_allclose(executable(q, k, v, given), expected, rtol=1e-4, atol=1e-5)


def _network(seed: int = 0) -> Any:
    random = np.random.default_rng(seed)
    constants = {
        "w1": random.standard_normal((8, 3, 3, 3), np.float32) / 5,
        "b1": random.standard_normal(8, np.float32),
        "w2": random.standard_normal((8, 1, 3, 3), np.float32) / 3,
        "fc": random.standard_normal((8, 10), np.float32),
    }
    nodes = [
        node("Conv", "x w1 b1", "c1", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2", "c2", pads=[1, 1, 1, 1], group=8),
        node("Sigmoid", "c2", "s2"),
        node("Mul", "c2 s2", "m2"),
        node("Add", "m2 r1", "a2"),
        node("GlobalAveragePool", "a2", "g"),
        node("Flatten", "g", "f"),
        node("MatMul", "f fc", "y"),
    ]
    return make_model(nodes, {"x": (F32, [2, 3, 16, 16])}, ["y"], constants)


@pytest.mark.sample(0)
@needs_c_compiler
def test_a_model_is_one_region_and_agrees_with_onnx_runtime(tmp_path: Path) -> None:
    model = _network()
    executable = mirlo.compile(model, ["c", "llvm"])
    assert [k.symbol for k in executable.artifact.kernels] == ["c.c_0"]
    x = np.random.default_rng(1).standard_normal((2, 3, 16, 16), np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    np.testing.assert_allclose(executable(x), expected, rtol=1e-4, atol=1e-5)
    executable.save(tmp_path / "m.mirlo")
    np.testing.assert_array_equal(mirlo.load(tmp_path / "m.mirlo")(x), executable(x))
    told = output_of(mirlo_command("info", tmp_path / "m.mirlo"))
    assert re.search(r"^parts for c: 1 function, .* KiB, 3 of the parameters; loader: c$", told, re.MULTILINE)
    assert re.search(r"^c +c → default +C source", output_of(mirlo_command("targets")), re.MULTILINE)


@needs_c_compiler
def test_every_stage_can_be_continued(tmp_path: Path) -> None:
    executable = mirlo.compile(_network(), ["c", "llvm"], save_ir=tmp_path, threads=2)
    x = np.random.default_rng(1).standard_normal((2, 3, 16, 16), np.float32)
    for name in ("partition", "outline-external", "codegen-external", "legalize", "outline-parallel"):
        (stage,) = tmp_path.glob(f"*-{name}.mlir")
        np.testing.assert_array_equal(mirlo.compile(stage, trust_file=True, threads=2)(x), executable(x), err_msg=name)


OPEN = """
func.func @main(%x: tensor<?x?x4xf32, #relax.dims<["n", "2*t + 1", 4]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>> {
  %b = "relax.constant"() {value = dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>} : () -> tensor<4xf32>
  %0 = "relax.add"(%x, %b) : (tensor<?x?x4xf32, #relax.dims<["n", "2*t + 1", 4]>>, tensor<4xf32>) -> tensor<?x?x4xf32, #relax.dims<["n", "2*t + 1", 4]>>
  %1 = "relax.softmax"(%0) {axis = 1 : i64} : (tensor<?x?x4xf32, #relax.dims<["n", "2*t + 1", 4]>>) -> tensor<?x?x4xf32, #relax.dims<["n", "2*t + 1", 4]>>
  %2 = "relax.reduce_max"(%1) {axes = array<i64: 1>} : (tensor<?x?x4xf32, #relax.dims<["n", "2*t + 1", 4]>>) -> tensor<?x4xf32, #relax.dims<["n", 4]>>
  return %2 : tensor<?x4xf32, #relax.dims<["n", 4]>>
}
"""  # noqa: E501


@needs_c_compiler
def test_sizes_come_with_the_tensors() -> None:
    with make_context(), ir.Location.unknown():
        module, session = ir.Module.parse(OPEN), Session()
        Pipeline(Targets.parse("c,llvm").steps()).run(module, session)
        artifacts = artifacts_of(module)
    loaded = load_externals(artifacts, session.params, 1)
    for n, t in ((2, 3), (5, 1)):
        x = np.random.default_rng(n).standard_normal((n, 2 * t + 1, 4), np.float32)
        y = np.empty((n, 4), np.float32)
        tensors = [tensor_of_array(array) for array in (x, y)]
        pointers = (ctypes.POINTER(DLTensor) * 2)(*map(ctypes.pointer, tensors))
        assert loaded.functions["c.c_0"](pointers, 2) == 0
        shifted = np.exp(x + np.float32([1, 2, 3, 4]))
        np.testing.assert_allclose(y, (shifted / shifted.sum(1, keepdims=True)).max(1), rtol=1e-5)
    loaded.release()


@needs_c_compiler
@pytest.mark.parametrize("target", ["c", "onnx"])
def test_models_with_open_sizes(target: str) -> None:
    random = np.random.default_rng(0)
    constants = {"w": random.standard_normal((16, 24), np.float32), "b": random.standard_normal(24, np.float32)}
    nodes = [
        node("MatMul", "x w", "m"),
        node("Add", "m b", "a"),
        node("Softmax", "a", "s", axis=1),
        node("Transpose", "s", "y", perm=[0, 2, 1]),
    ]
    model = make_model(nodes, {"x": (F32, ["batch", "length", 16])}, ["y"], constants)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    executable = mirlo.compile(model, [target, "llvm"])
    assert [k.symbol for k in executable.artifact.kernels] == [f"{target}.{target}_0"]
    for batch, length in ((1, 5), (3, 2)):
        x = random.standard_normal((batch, length, 16), np.float32)
        np.testing.assert_allclose(executable(x), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


@needs_c_compiler
@pytest.mark.parametrize("targets", ["c,llvm", "onnx,c,llvm", pytest.param("onednn,c,llvm", marks=needs_onednn)])
def test_sizes_that_the_inputs_of_a_part_do_not_tell_stay_outside(targets: str) -> None:
    # The trip count of the recurrence is a size; the rows of the product are f32[batch * length, 8].
    random = np.random.default_rng(0)
    weight, flat, axis = random.standard_normal((1, 8, 8), np.float32) / 4, np.array([-1, 8]), np.array(0)
    nodes = [
        node("Transpose", "x", "t", perm=[1, 0, 2]),
        node("RNN", "t w w", "r", hidden_size=8),
        node("Reshape", "r flat", "f"),
        node("MatMul", "f v", "m"),
        node("CumSum", "m axis", "c"),
        node("Shape", "r", "s"),
        node("Reshape", "c s", "y"),
    ]
    constants = {"w": weight, "v": weight[0], "flat": flat, "axis": axis}
    model = make_model(nodes, {"x": (F32, ["batch", "length", 8])}, ["y"], constants)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    executable = mirlo.compile(model, targets)
    x = random.standard_normal((2, 5, 8), np.float32)
    np.testing.assert_allclose(executable(x), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


@needs_c_compiler
def test_programs_of_several_parts_are_saved_with_what_was_generated(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((16, 24), np.float32)
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("SequenceConstruct", "r m", "s")]
    program = mirlo.compile(make_model(nodes, {"x": (F32, [3, 16])}, ["s"], {"w": weight}), "c,llvm")
    assert [e.target for part in program.compiled.parts for e in part.externals] == ["c"]
    program.save(tmp_path / "m.mirlo")
    x = np.random.default_rng(1).standard_normal((3, 16), np.float32)
    first, second = mirlo.load(tmp_path / "m.mirlo")(x)
    np.testing.assert_allclose(first, np.maximum(x @ weight, 0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(second, x @ weight, rtol=1e-5, atol=1e-5)


def test_no_compiler_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(mirlo.MirloError, match=r"no C compiler: looked for no-such-cc\. Install one, .*--emit source"):
        mirlo.compile(_network(), ["c{compiler=no-such-cc}", "llvm"])


@needs_c_compiler
def test_a_compiler_that_fails_is_told_with_what_it_wrote() -> None:
    with pytest.raises(mirlo.MirloError, match="(?s)code generator of target 'c' .*failed with code .*no-such-flag"):
        mirlo.compile(_network(), ["c{flags=-no-such-flag}", "llvm"])


def test_all_must_be_placed_where_nothing_compiles_the_rest(tmp_path: Path) -> None:
    nodes = [node("RoiAlign", "x boxes images", "e", output_height=2, output_width=2), node("Relu", "e", "y")]
    constants = {"boxes": np.array([[0, 0, 3, 3]], np.float32), "images": np.zeros(1, np.int64)}
    model = make_model(nodes, {"x": (F32, [1, 1, 4, 4])}, ["y"], constants)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    done = mirlo_command(
        "compile", tmp_path / "m.onnx", "--targets", "onnx", "--emit", "source", "-o", tmp_path / "out"
    )
    assert done.returncode == 1 and "target 'onnx' does not take 1 of the model's operators:" in done.stderr
    assert not (tmp_path / "out").exists()


def vectorized(s: Schedule) -> None:
    columns, lanes = s.split("product_j", (None, 8))
    s.reorder("product_i", columns, "product_k", lanes)
    s.vectorize(lanes)
    s.accumulate("product", "product_k")
    s.vectorize(s.split("clip_j", (None, 16))[1])


@mirlo.prim_func
def clipped(a: T.Buffer[(5, 12), T.f32], b: T.Buffer[(12, 20), T.f32], c: T.Out[(5, 20), T.f32]):
    product = T.alloc((5, 20), T.f32)
    for i, j, k in T.grid(5, 20, 12):
        with T.block("product"):
            vi, vj, vk = T.axes("SSR", i, j, k)
            with T.init():
                product[vi, vj] = 0.0
            product[vi, vj] += a[vi, vk] * b[vk, vj]
    for i, j in T.grid(5, 20):
        with T.block("clip"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = T.max(product[vi, vj], 0.0)


@mirlo.script
def clipped_model(a: R.Tensor[(5, 12), R.f32], b: R.Tensor[(12, 20), R.f32]):
    return R.call_tir(clipped, a, b)


@needs_c_compiler
def test_loops_that_words_vectorize_are_loops_of_c() -> None:
    """C has no vectors: its compiler makes them."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 12), (12, 20)))
    f = mirlo.compile(clipped_model, "c", schedules={"clipped": vectorized}, cache=False)
    np.testing.assert_allclose(f(a, b), np.maximum(a @ b, 0), rtol=1e-5, atol=1e-6)


def test_fused_loops_have_text() -> None:
    """Elements are addressed by their indices: the language has no views of arrays as one dim."""

    @mirlo.prim_func
    def double(x: T.Buffer[(4, 6, 5), T.f32], y: T.Out[(4, 6, 5), T.f32]):
        for i, j, k in T.grid(4, 6, 5):
            with T.block("double"):
                vi, vj, vk = T.axes("SSS", i, j, k)
                y[vi, vj, vk] = x[vi, vj, vk] * 2.0

    @mirlo.script
    def model(x: R.Tensor[(4, 6, 5), R.f32]):
        return R.call_tir(double, x)

    def fused(s: Schedule) -> None:
        s.fuse(*s.loops("double"))

    x = np.arange(120, dtype=np.float32).reshape(4, 6, 5)
    executable = mirlo.compile(model, target="c", schedules={"double": fused}, cache=False)
    np.testing.assert_array_equal(executable(x), 2 * x)
