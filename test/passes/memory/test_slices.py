"""Slices of weights at positions that are known at run time: the numbers of numpy, and no copy of a weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import func, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.symbols import mark_entry
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import GraphBuilder
from mirlo.frontends.tensor import Tensor
from mirlo.runtime.params import ParameterStore
from mirlo.targets.llvm.pipeline import compile_pipeline

RANDOM = np.random.default_rng(0)
X = TensorType.of(("n", 40), "f32")
COUNT = TensorType.of((), "i64")
Fill = Callable[[GraphBuilder, Tensor, Tensor], Tensor]
"""Makes the result of rows and a position."""


def compiled(fill: Fill, target: str = "llvm", **options: Any) -> mirlo.Executable:
    store = ParameterStore()
    with make_context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("main", ([X.to_mlir(), COUNT.to_mlir()], []))
            mark_entry(function)
        builder = GraphBuilder("main", store)
        builder.taken.add("n")
        with builder.inside(function.add_entry_block()):
            result = builder.full(fill(builder, *map(builder.tensor, function.entry_block.arguments)))
            func.ReturnOp([result])
        kind = ir.FunctionType.get(function.type.inputs, [result.type])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)
        return mirlo.compile(module, params=store, target=target, cache=False, jobs=1, **options)


def floats(*shape: int, dtype: str = "f32") -> np.ndarray:
    made = RANDOM.standard_normal(shape).astype(np.float32)
    return made.astype(ml_dtypes.bfloat16) if dtype == "bf16" else made


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_with_a_chosen_matrix(target: str, count: int, dtype: str, transposed: bool) -> None:
    """A position may be negative or outside; matrices that are stacked need not be next to each other in memory."""
    matrices = [floats(24, 40, dtype=dtype) for _ in range(count)]
    if not transposed:
        matrices = [np.ascontiguousarray(each.T) for each in matrices]

    def fill(b: GraphBuilder, x: Tensor, at: Tensor) -> Tensor:
        matrix = b.stack_constants(matrices, dtype).gather(at).cast("f32")
        return x.matmul(matrix, transpose_rhs=transposed)

    model = compiled(fill, target)
    kinds = [kernel.kind for kernel in model.artifact.kernels]
    assert kinds == ["contraction"]  # nothing is copied, and conversions are part of the product
    for rows in (0, 1, 5):
        x = floats(rows, 40)
        for at in (0, count - 1, -1, -count, count + 3, -count - 9):
            nearest = min(max(at + count if at < 0 else at, 0), count - 1)
            wide = matrices[nearest].astype(np.float32)
            expected = x @ (wide.T if transposed else wide)
            np.testing.assert_allclose(model(x, np.array(at)), expected, rtol=1e-4, atol=1e-4)


def test_a_constant_that_is_also_read_whole() -> None:
    table = floats(3, 40)

    def fill(b: GraphBuilder, x: Tensor, at: Tensor) -> Tensor:
        constant = b.constant(table)
        return x + constant.gather(at) + constant.sum(0)

    x = floats(2, 40)
    np.testing.assert_allclose(compiled(fill)(x, np.array(1)), x + table[1] + table.sum(0), rtol=1e-5)


@pytest.mark.parametrize("size", [64, 1024])
def test_small_slices_are_converted_once(size: int) -> None:
    """As for weights of their own: what takes little more memory is converted when the model is compiled."""
    matrices = [floats(size, 40 * size // 64, dtype="bf16") for _ in range(2)]

    def fill(b: GraphBuilder, x: Tensor, at: Tensor) -> Tensor:
        wide = x.gather(b.constant(np.arange(40 * size // 64) % 40), 1)
        return wide.matmul(b.stack_constants(matrices, "bf16").gather(at).cast("f32"), transpose_rhs=True)

    (weight,) = [spec for spec in compiled(fill).artifact.params if spec.dtype != "i64"]
    assert weight.dtype == ("f32" if size == 64 else "bf16")


def loop_of_products(b: GraphBuilder, x: Tensor, at: Tensor) -> Tensor:
    """Return the sum of products with each of five matrices, of those rows that `at` says: the first ones."""
    weights = b.stack_constants([np.full((40, 40), each, np.float32) for each in range(5)], "f32")
    (size,) = b.bind(at.reshape((1,)), "rows", bounds=[x.shape[0]])

    def body(position: Tensor, carried: list[Tensor]) -> list[Tensor]:
        rows = x.slice(0, 0, size).matmul(weights.gather(position))
        return [carried[0] + rows.sum(0)]

    return b.repeat_times(5, [b.constant(np.zeros(40, np.float32))], body)[0]


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_products_without_rows_are_not_computed(target: str) -> None:
    """A product may convert weights before it looks at rows: where data say that there are none, it is left out."""
    model = compiled(loop_of_products, target)
    x = floats(4, 40)
    for rows in (0, 3, 4):
        expected = np.full(40, 10 * x[:rows].sum(), np.float32)
        np.testing.assert_allclose(model(x, np.array(rows)), expected, rtol=1e-4, atol=1e-4)
    profile = model.profile(x, np.array(3))
    assert [row.kind for row in profile].count("control") == 1  # the loop: a call that is left out has no row


@pytest.mark.parametrize("count", [0, 1, 4])
def test_unrolled_loops(count: int) -> None:
    """The iterations of a loop compute the same as the loop, with symbols and constants of their own."""
    weights = [floats(40, 40) for _ in range(max(count, 1))]

    def fill(b: GraphBuilder, x: Tensor, at: Tensor) -> Tensor:
        stack = b.stack_constants(weights, "f32")

        def body(position: Tensor, carried: list[Tensor]) -> list[Tensor]:
            (size,) = b.bind((at + position).reshape((1,)), "rows", bounds=[x.shape[0]])
            rows = x.slice(0, 0, size).matmul(stack.gather(position))
            return [carried[0] + rows.sum(0)]

        return b.repeat_times(count, [b.constant(np.zeros(40, np.float32))], body)[0]

    x = floats(9, 40)
    expected = np.sum([(x[: 2 + each] @ weights[each]).sum(0) for each in range(count)] or [np.zeros(40)], axis=0)
    passes = compile_pipeline().replace("builtin.module(", "builtin.module(unroll-loops,", 1)
    looped, unrolled = compiled(fill), compiled(fill, pipeline=passes)
    for model in (looped, unrolled):
        np.testing.assert_allclose(model(x, np.array(2)), expected, rtol=1e-3, atol=1e-3)
    kinds = [[kernel.kind for kernel in model.artifact.kernels] for model in (looped, unrolled)]
    assert ("control" in kinds[0], "control" in kinds[1]) == (count > 1, False)
    assert kinds[1].count("contraction") == count


@pytest.mark.parametrize("second", [0, 1, 4, 5])
def test_loops_share_the_names_of_sizes(second: int) -> None:
    """Sizes that bodies bind are seen in them only; each is tested where it is bound."""
    weights = [floats(40, 40) for _ in range(2)]

    def fill(b: GraphBuilder, x: Tensor, at: Tensor) -> Tensor:
        stack = b.stack_constants(weights, "f32")

        def loop(size: Tensor, before: Tensor) -> Tensor:
            def body(position: Tensor, carried: list[Tensor]) -> list[Tensor]:
                (rows,) = b.bind(size.reshape((1,)), "rows", "rows of a loop", bounds=[x.shape[0]])
                return [carried[0] + x.slice(0, 0, rows).matmul(stack.gather(position)).sum(0)]

            return b.repeat_times(2, [before], body)[0]

        first = loop(b.constant(np.array(2, np.int64)), b.constant(np.zeros(40, np.float32)))
        return loop(at, first)

    model, x = compiled(fill), floats(4, 40)
    if second > 4:
        with pytest.raises(mirlo.MirloError, match="rows of a loop"):
            model(x, np.array(second))
        return
    expected = np.sum([(x[:rows] @ each).sum(0) for rows in (2, second) for each in weights], axis=0)
    np.testing.assert_allclose(model(x, np.array(second)), expected, rtol=1e-3, atol=1e-3)
