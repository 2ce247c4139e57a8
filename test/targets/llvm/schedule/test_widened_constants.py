"""Products with large constants of narrow types, which they convert where they read them; against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx_models import F32, I64, make_model, node

import mirlo
from mirlo.testing import assert_verified, runs_as_onnxruntime
from mirlo.tools.explain.model import explain_model

DTYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "i8": np.int8, "u8": np.uint8}
ELEMENTS = {"bf16": onnx.TensorProto.BFLOAT16, "f16": onnx.TensorProto.FLOAT16}
MATRIX = (700, 1100)
"""Elements that would take a MiB more as f32: less is converted when the model is compiled."""

PRODUCTS: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...], tuple[Any, ...], list[tuple[int, ...]]]] = {
    "rows": ([node("MatMul", "x w", "y")], MATRIX, ("n", 700), [(1, 700), (3, 700), (37, 700)]),
    "fixed": ([node("MatMul", "x w", "a"), node("Relu", "a", "y")], MATRIX, (24, 700), [(24, 700)]),
    "transposed": ([node("Gemm", "x w b", "y", transB=1)], MATRIX, ("n", 1100), [(1, 1100), (20, 1100)]),
    "gated": (
        [node("MatMul", "x w", "a"), node("ReduceMean", "x last", "r"), node("Mul", "a r", "y")],
        MATRIX, ("n", "m", 700), [(1, 1, 700), (2, 1, 700)],
    ),
    "shared": (
        [node("Gemm", "x w", "a", transB=1), node("Mul", "a small", "c"), node("MatMul", "c w", "y")],
        MATRIX, ("n", 1100), [(1, 1100), (3, 1100)],
    ),
    "batches": ([node("MatMul", "x w", "y")], (6, 300, 500), ("n", 6, 5, 300), [(2, 6, 5, 300)]),
    "pixels": ([node("Conv", "x w", "y")], (1100, 700, 1, 1), (1, 700, 5, 6), [(1, 700, 5, 6)]),
    "window": ([node("Conv", "x w", "y", pads=[1, 1, 1, 1])], (500, 260, 3, 3), (1, 260, 7, 9), [(1, 260, 7, 9)]),
    "up": ([node("ConvTranspose", "x w", "y", strides=[2, 2])], (260, 500, 3, 3), (1, 260, 4, 5), [(1, 260, 4, 5)]),
}  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products(dtype: str, product: str) -> None:
    nodes, shape, declared, sizes = PRODUCTS[product]
    random = np.random.default_rng(1)
    weights = (4 * random.standard_normal(shape)).astype(np.float32)
    weights = (abs(weights) if dtype == "u8" else weights).astype(DTYPES[dtype])
    tensors = {"v": weights, "b": random.standard_normal(shape[0]).astype(np.float32)}
    tensors |= {"last": np.array([-1]), "small": np.array(0.01, np.float32)}
    model = make_model([node("Cast", "v", "w", to=F32), *nodes], {"x": (F32, declared)}, ["y"], tensors)
    for size in sizes:
        x = random.standard_normal(size).astype(np.float32)
        exe = runs_as_onnxruntime(model, {"x": x}, rtol=1e-4, atol=1e-3)
    kinds = [kernel.kind for kernel in exe.artifact.kernels]
    stored = [spec.dtype.replace("ui", "u") for spec in exe.artifact.params if len(spec.shape) > 1]
    if product in ("pixels", "window", "up"):  # convolutions read weights for many pixels: they are stored as f32
        assert "elementwise" not in kinds and stored == ["f32"]
    else:  # integers are converted once, floats where products read them
        kind = "f32" if dtype in ("i8", "u8") else dtype
        assert stored == [kind] * len(stored) and (product == "gated" or set(kinds) == {"contraction"})


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_table_whose_rows_are_gathered(dtype: str) -> None:
    """A tied table of words: only the rows of the words are converted, and the product reads it in its own type."""
    random = np.random.default_rng(1)
    tensors = {"v": random.standard_normal(MATRIX).astype(DTYPES[dtype])}
    nodes = [node("Cast", "v", "w", to=F32), node("Gather", "w words", "rows"), node("Gemm", "rows w", "y", transB=1)]
    model = make_model(nodes, {"words": (I64, ("n",))}, ["y"], tensors)
    exe = runs_as_onnxruntime(model, {"words": np.array([3, 699, 0, -1])}, rtol=1e-4, atol=1e-3)
    assert [kernel.kind for kernel in exe.artifact.kernels] == ["injective", "contraction"]
    assert {spec.dtype for spec in exe.artifact.params} == {dtype}


@pytest.mark.parametrize(
    ("dtype", "options", "rows", "is_copied"),
    [
        ("bf16", "cpu=icelake-server", 1, False), ("bf16", "cpu=icelake-server", 8, False),
        ("bf16", "cpu=icelake-server", 64, False), ("bf16", "cpu=icelake-server", 400, True),
        ("bf16", "cpu=icelake-server", "n", False), ("bf16", "cpu=icelake-server", 0, False),
        ("bf16", "cpu=znver3", 24, False), ("bf16", "cpu=znver3", 400, True), ("bf16", "cpu=znver3", "n", False),
        ("bf16", "cpu=x86-64-v2", 24, False), ("f16", "cpu=znver3", 24, False), ("f16", "cpu=znver3", "n", False),
        ("f16", "cpu=x86-64-v2", 24, True),
    ],
)  # fmt: skip
def test_few_tiles_widen_what_they_load(dtype: str, options: str, rows: int | str, is_copied: bool) -> None:
    """A copy of a panel takes longer than the products of a few rows; without instructions for f16 it pays at once."""
    weights = np.random.default_rng(1).standard_normal(MATRIX).astype(DTYPES[dtype])
    nodes = [node("Cast", "v", "w", to=F32), node("MatMul", "x w", "y")]
    model = make_model(nodes, {"x": (F32, (rows, MATRIX[0]))}, ["y"], {"v": weights})
    (kernel,) = explain_model(model, f"llvm{{{options}}}", tune=False).kernels
    assert kernel.schedule is not None and ("cache_read" in str(kernel.schedule.trace)) == is_copied


@pytest.mark.parametrize("options", ["cpu=skylake-avx512", "cpu=znver3"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_widened_columns_are_exact(dtype: str, options: str) -> None:
    weights = np.random.default_rng(1).standard_normal((40, 72)).astype(DTYPES[dtype])
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "y")]
    for rows in (8, "n"):
        model = make_model(
            [node("Cast", "v", "w", to=F32), *nodes], {"x": (F32, (rows, 40)), "v": (ELEMENTS[dtype], weights.shape)},
            ["y"], {},
        )  # fmt: skip
        assert_verified(model, f"llvm{{{options}}}")


@pytest.mark.parametrize("threads", [1, 2])
def test_one_row_has_a_variant_of_primitives(threads: int) -> None:
    """One row reads columns where they are, several sizes say that there is one; the trace makes the same again."""
    weights = np.random.default_rng(1).standard_normal(MATRIX).astype(np.float16)
    nodes = [node("Cast", "v", "w", to=F32), node("MatMul", "x w", "a"), node("Relu", "a", "y")]
    model = make_model(nodes, {"x": (F32, ("b", "n", MATRIX[0]))}, ["y"], {"v": weights})
    target = "llvm{cpu=x86-64-v2}"
    (kernel,) = explain_model(model, target, tune=False).kernels
    assert kernel.schedule is not None and not kernel.schedule.is_applied
    trace = kernel.schedule.trace
    assert "b_n_1 = s.specialize(['b', 'n'], 1)" in str(trace) and "b_n_1.register_tile" in str(trace)
    assert "cache_read" in str(trace) and "b_n_1.cache_read" not in str(trace)
    own, given = (
        mirlo.compile(model, target, threads=threads, tune=False, cache=False, schedules=schedules)
        for schedules in (None, {kernel.name: trace})
    )
    for size in ((0, 1), (1, 1), (1, 3), (2, 1), (3, 0), (4, 9)):
        x = np.random.default_rng(2).standard_normal((*size, MATRIX[0])).astype(np.float32)
        np.testing.assert_allclose(own(x), np.maximum(x @ weights.astype(np.float32), 0), rtol=1e-4, atol=1e-3)
        np.testing.assert_array_equal(own(x), given(x))
