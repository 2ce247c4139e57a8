"""Models with all supported parts computed by the library, compared with the models compiled by Mirlo alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from mirlo_onednn.native.library import is_available
from mirlo_onednn.reports import reports
from plans import close, random

import mirlo
from mirlo.testing.commands import output_of, run_python
from mirlo.testing.models import F32, make_model, node

pytestmark = pytest.mark.skipif(not is_available(), reason="needs onednn-cpu-gomp")

IMAGE = (2, 8, 9, 9)


def positive(*shape: int) -> np.ndarray:
    return np.abs(random(*shape)) + 0.5


def after_conv(*nodes: Any, **constants: Any) -> Any:
    """Return a convolution of `x` to `a`, then nodes from `a` to `y`."""
    weight = random(8, 8, 3, 3) * 0.1
    start = node("Conv", "x w", "a", pads=[1, 1, 1, 1])
    return make_model([start, *nodes], {"x": (F32, IMAGE)}, ["y"], {"w": weight, **constants})


def after_matmul(*nodes: Any, rows: tuple[int, ...] = (2, 6), **constants: Any) -> Any:
    """Return a product of `x` [rows, 16] with a constant, `a` [rows, 24], then nodes from `a` to `y`."""
    start = node("MatMul", "x w", "a")
    return make_model([start, *nodes], {"x": (F32, (*rows, 16))}, ["y"], {"w": random(16, 24) * 0.2, **constants})


UNARY = (
    "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish", "Mish", "Softplus", "Tanh",
    "Abs", "Neg", "Exp",
)  # fmt: skip
MODELS: dict[str, Any] = {
    **{f"conv_{name.lower()}": lambda name=name: after_conv(node(name, "a", "y")) for name in UNARY},
    **{f"matmul_{name.lower()}": lambda name=name: after_matmul(node(name, "a", "y")) for name in UNARY},
    "conv_clip": lambda: after_conv(node("Clip", "a low high", "y"), low=np.float32(0), high=np.float32(6)),
    "gelu": lambda: after_matmul(
        node("Div", "a s", "b"), node("Erf", "b", "c"), node("Add", "c one", "d"), node("Mul", "a d", "e"),
        node("Mul", "e half", "y"), s=np.float32(2**0.5), one=np.float32(1), half=np.float32(0.5)),
    "sqrt_log": lambda: after_conv(node("Abs", "a", "b"), node("Add", "b one", "c"), node("Sqrt", "c", "d"),
                                   node("Log", "d", "e"), node("Reciprocal", "c", "f"), node("Add", "e f", "y"),
                                   one=np.float32(1)),
    "conv_grouped": lambda: make_model(
        [node("Conv", "x w b", "y", group=4, strides=[2, 1], dilations=[1, 2], pads=[1, 0, 2, 1])],
        {"x": (F32, IMAGE)}, ["y"], {"w": random(12, 2, 3, 3), "b": random(12)}),
    "conv_1d": lambda: make_model([node("Conv", "x w", "y")], {"x": (F32, (2, 4, 20))}, ["y"], {"w": random(6, 4, 3)}),
    "conv_3d": lambda: make_model(
        [node("Conv", "x w", "y", pads=[1] * 6)], {"x": (F32, (1, 4, 5, 6, 7))}, ["y"], {"w": random(6, 4, 3, 3, 3)}),
    "conv_of_two_inputs": lambda: make_model(
        [node("Conv", "x w", "y")], {"x": (F32, IMAGE), "w": (F32, (4, 8, 3, 3))}, ["y"]),
    "deconv": lambda: make_model(
        [node("ConvTranspose", "x w b", "a", strides=[2, 2], pads=[1, 0, 1, 1], output_padding=[1, 0]),
         node("Relu", "a", "y")],
        {"x": (F32, IMAGE)}, ["y"], {"w": random(8, 6, 3, 3), "b": random(6)}),
    "deconv_grouped": lambda: make_model(
        [node("ConvTranspose", "x w", "y", group=2)], {"x": (F32, IMAGE)}, ["y"], {"w": random(8, 3, 2, 2)}),
    "weight_that_is_folded": lambda: make_model(
        [node("Add", "u v", "w"), node("Conv", "x w", "y")], {"x": (F32, (1, 64, 9, 9))}, ["y"],
        {"u": random(64, 64, 3, 3), "v": random(64, 1, 1, 1)}),
    "residual": lambda: after_conv(
        node("Relu", "a", "b"), node("Conv", "b v", "c", pads=[1, 1, 1, 1]), node("Add", "c a", "d"),
        node("Relu", "d", "y"), v=random(8, 8, 3, 3) * 0.1),
    "residual_of_the_input": lambda: after_conv(node("Add", "x a", "y")),
    "batch_norm": lambda: after_conv(
        node("Relu", "a", "b"), node("BatchNormalization", "b s t m v", "y"),
        s=random(8), t=random(8, seed=1), m=random(8, seed=2), v=positive(8)),
    "group_norm": lambda: after_conv(node("InstanceNormalization", "a s t", "y"), s=random(8), t=random(8, seed=1)),
    "lrn": lambda: after_conv(node("LRN", "a", "y", size=3)),
    "layer_norm": lambda: after_matmul(node("LayerNormalization", "a s t", "y"), s=random(24), t=random(24, seed=1)),
    "layer_norm_of_two": lambda: after_matmul(node("LayerNormalization", "a s", "y", axis=1), s=random(6, 24)),
    "max_pool": lambda: after_conv(node("MaxPool", "a", "y", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])),
    "max_pool_ceil": lambda: after_conv(node("MaxPool", "a", "y", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)),
    "avg_pool": lambda: after_conv(node("AveragePool", "a", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1])),
    "avg_pool_pad": lambda: after_conv(
        node("AveragePool", "a", "y", kernel_shape=[3, 3], pads=[1, 1, 0, 1], count_include_pad=1)),
    "avg_pool_ceil": lambda: after_conv(
        node("AveragePool", "a", "y", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)),
    "global_pool": lambda: after_conv(node("GlobalAveragePool", "a", "b"), node("Flatten", "b", "y")),
    "global_max": lambda: after_conv(node("GlobalMaxPool", "a", "y")),
    "reduce": lambda: after_conv(
        node("ReduceSum", "a axes", "b", keepdims=0), node("ReduceMax", "a axes", "c", keepdims=0),
        node("Add", "b c", "y"), axes=np.int64([-1, 2])),
    "reduce_mean_rows": lambda: after_matmul(node("ReduceMean", "a axes", "y"), axes=np.int64([-1])),
    "softmax": lambda: after_matmul(node("Softmax", "a", "y", axis=1)),
    "log_softmax": lambda: after_matmul(node("LogSoftmax", "a", "y")),
    "binaries": lambda: after_matmul(
        node("Sub", "c a", "b"), node("Div", "b d", "e"), node("Max", "e z", "f"), node("Min", "f a", "g"),
        node("Sub", "three g", "h"), node("Mul", "h c", "y"),
        c=random(24), d=positive(6, 1), z=np.float32(-0.5), three=np.float32(3)),
    "divided": lambda: after_matmul(node("Exp", "a", "b"), node("Div", "c b", "y"), c=random(2, 6, 24)),
    "broadcast_by_an_operand": lambda: after_matmul(node("Add", "a c", "y"), rows=(6,), c=random(3, 6, 24)),
    "bias_of_rows": lambda: after_matmul(node("Add", "a c", "b"), node("Relu", "b", "y"), c=random(6, 1)),
    "gemm": lambda: make_model(
        [node("Gemm", "x w b", "y", transB=1)], {"x": (F32, (5, 16))}, ["y"], {"w": random(8, 16), "b": random(8)}),
    "batched": lambda: make_model(
        [node("Transpose", "b", "c", perm=[0, 1, 3, 2]), node("MatMul", "a c", "y")],
        {"a": (F32, (2, 3, 5, 8)), "b": (F32, (1, 3, 7, 8))}, ["y"]),
    "concat": lambda: after_conv(node("Relu", "a", "b"), node("Concat", "a b x", "y", axis=1)),
    "split": lambda: after_matmul(
        node("Split", "a", "b c d", axis=-1, num_outputs=3), node("Transpose", "c", "e", perm=[0, 2, 1]),
        node("MatMul", "b e", "f"), node("MatMul", "f d", "y")),
    "slice": lambda: after_conv(
        node("Slice", "a begin end axes steps", "b"), node("Relu", "b", "y"),
        begin=np.int64([1, -7]), end=np.int64([9, 9]), axes=np.int64([1, 2]), steps=np.int64([2, 3])),
    "patches": lambda: make_model(
        [node("Conv", "x w", "a", strides=[3, 3]), node("Reshape", "a flat", "b"),
         node("Transpose", "b", "c", perm=[0, 2, 1]), node("Concat", "class c", "d", axis=1),
         node("Add", "d place", "y")],
        {"x": (F32, (1, 3, 9, 9))}, ["y"],
        {"w": random(16, 3, 3, 3), "flat": np.int64([1, 16, -1]), "class": random(1, 1, 16),
         "place": random(1, 10, 16)}),
    "pick": lambda: after_matmul(
        node("Gather", "a last", "b", axis=1), node("Gather", "b first", "c", axis=-1), node("Relu", "c", "y"),
        last=np.int64(-1), first=np.int64([3])),
    "views": lambda: after_matmul(
        node("Unsqueeze", "a axes", "b"), node("Transpose", "b", "c", perm=[3, 0, 2, 1]), node("Reshape", "c to", "y"),
        axes=np.int64([1]), to=np.int64([4, 6, -1])),
    "several_outputs": lambda: make_model(
        [node("Conv", "x w", "y", pads=[1, 1, 1, 1]), node("Relu", "y", "z"),
         node("MaxPool", "z", "p", kernel_shape=[2, 2])],
        {"x": (F32, IMAGE)}, ["y", "z", "p"], {"w": random(8, 8, 3, 3)}),
}  # fmt: skip


KEPT = {"broadcast_by_an_operand"}
"""The operators that are left to the compiler."""
SLOW = {"lrn"}
"""Operators with a fast implementation for some channel counts only, on some processors."""


def test_slice_whose_last_step_ends_outside() -> None:
    """The library refuses strides with which rows of two batches would overlap."""
    model = after_matmul(
        node("Slice", "a begin end axes steps", "b"), node("Relu", "b", "y"),
        begin=np.int64([0]), end=np.int64([6]), axes=np.int64([1]), steps=np.int64([4]))  # fmt: skip
    x = random(2, 6, 16)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    close(mirlo.compile(model, "onednn,llvm")(x), wanted, 1e-4)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", MODELS)
def test_model(name: str) -> None:
    model = MODELS[name]()
    executable = mirlo.compile(model, "onednn,llvm")
    if name not in KEPT:
        assert [kernel.symbol for kernel in executable.artifact.kernels] == ["onednn.onednn_0"], "all is one region"
    if name not in SLOW:
        assert "ref" not in str(reports(executable)), "the library has no fast way for a step"
    inputs = executable.random_inputs()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for found, expected in zip(executable.run(inputs).values(), session.run(None, inputs), strict=True):
        close(found, expected, 1e-4)


ATTENTION = """
func.func @main(%q: tensor<2x3x6x8xf32>, %k: tensor<2x3x5x8xf32>, %v: tensor<2x3x5x4xf32>, %m: tensor<1x1x6x5xf32>)
    -> tensor<2x3x6x4xf32> {
  %0 = "relax.attention"(%q, %k, %v, %m) {causal = CAUSAL, operandSegmentSizes = array<i32: 1, 1, 1, 1>} : (
    tensor<2x3x6x8xf32>, tensor<2x3x5x8xf32>, tensor<2x3x5x4xf32>, tensor<1x1x6x5xf32>) -> tensor<2x3x6x4xf32>
  return %0 : tensor<2x3x6x4xf32>
}
"""


@pytest.mark.parametrize("causal", ["false", "true"])
def test_attention(causal: str, tmp_path: Path) -> None:
    path = tmp_path / "attention.mlir"
    path.write_text(ATTENTION.replace("CAUSAL", causal))
    executable = mirlo.compile(path, "onednn,llvm")
    assert [kernel.symbol for kernel in executable.artifact.kernels] == ["onednn.onednn_0"]
    q, k, v, m = executable.random_inputs().values()
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(np.float32(8)) + m
    if causal == "true":
        scores = np.where(np.tri(6, 5, dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    close(executable(q, k, v, m), shares / shares.sum(-1, keepdims=True) @ v)


def test_attention_of_capped_scores(tmp_path: Path) -> None:
    """The library has none: Mirlo's own code computes it."""
    path = tmp_path / "attention.mlir"
    path.write_text(ATTENTION.replace("causal = CAUSAL", "softcap = 0.5 : f64"))
    executable = mirlo.compile(path, "onednn,llvm")
    assert not any(kernel.symbol.startswith("onednn") for kernel in executable.artifact.kernels)
    q, k, v, m = executable.random_inputs().values()
    scores = np.tanh(q @ k.transpose(0, 1, 3, 2) / np.sqrt(np.float32(8)) / 0.5) * 0.5 + m
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    close(executable(q, k, v, m), shares / shares.sum(-1, keepdims=True) @ v)


def test_saved_and_loaded(tmp_path: Path) -> None:
    executable = mirlo.compile(MODELS["residual"](), "onednn,llvm", threads=2)
    inputs = executable.random_inputs()
    expected = executable.run(inputs)
    executable.save(tmp_path / "model.mirlo")
    del executable
    found = mirlo.load(tmp_path / "model.mirlo").run(inputs)
    np.testing.assert_array_equal(found["y"], expected["y"])


@pytest.mark.parametrize("mode", ["bf16", "any"])
def test_rounding_of_operands(mode: str) -> None:
    model = MODELS["residual"]()
    executable = mirlo.compile(model, f"onednn{{fpmath={mode}}},llvm")
    assert executable.artifact.externals[0].metadata["fpmath"] == mode
    inputs = executable.random_inputs()
    close(executable.run(inputs)["y"], mirlo.compile(model, "onednn,llvm").run(inputs)["y"], 0.05)


def test_unknown_rounding_is_told() -> None:
    with pytest.raises(mirlo.MirloError, match="fpmath is one of strict, bf16, f16, any, tf32, found 'int4'"):
        mirlo.compile(MODELS["residual"](), "onednn{fpmath=int4},llvm")


def test_loading_needs_nothing_of_the_compiler(tmp_path: Path) -> None:
    mirlo.compile(MODELS["pick"](), "onednn,llvm").save(tmp_path / "model.mirlo")
    code = (
        "import sys, mirlo; exe = mirlo.load('model.mirlo'); exe.run(exe.random_inputs())\n"
        "print([name for name in sys.modules if name.startswith(('torch_mlir', 'mirlo.dialects', 'mirlo.passes'))])"
    )
    assert output_of(run_python("-c", code, cwd=tmp_path)).strip() == "[]"
