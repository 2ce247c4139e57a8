"""Kernels of sizes that data determine, which differ in the names of these sizes only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core import dims as D
from mirlo.dialects.relax import OPS
from mirlo.passes.bounds.calls import CALLERS, dims_in_callee

PARTS = 5
INPUT = 'tensor<?xf32, #relax.dims<["n"]>>'


def model_of(parts: int) -> str:
    """Return a model that sums functions of parts of a vector, whose begins and sizes are an input."""
    symbols = [f"{kind}{i}" for kind in "bp" for i in range(parts)]
    lines = [f'"relax.bind_dims"(%c) {{symbols = {_quoted(symbols)}, bounds = {_quoted(["n"] * len(symbols))}}} : '
             f"(tensor<{len(symbols)}xi64>) -> ()"]  # fmt: skip
    for i in range(parts):
        own = f'tensor<?xf32, #relax.dims<["p{i}"]>>'
        lines += [
            f'%s{i} = "relax.slice_dims"(%x) {{begin = ["b{i}"], shape = ["p{i}"], strides = array<i64: 1>}} : '
            f"({INPUT}) -> {own}",
            f'%t{i} = "relax.tanh"(%s{i}) : ({own}) -> {own}',
            f'%u{i} = "relax.reduce_sum"(%t{i}) {{axes = array<i64: 0>}} : ({own}) -> tensor<f32>',
        ]
    results = ", ".join(f"%u{i}" for i in range(parts))
    types = ", ".join(["tensor<f32>"] * parts)
    body = "\n  ".join(lines)
    return (
        f"func.func @main(%x: {INPUT}, %c: tensor<{len(symbols)}xi64>) -> ({types}) {{\n"
        f"  {body}\n  return {results} : {types}\n}}"
    )


def _quoted(names: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def compile_text(text: str, folder: Path, target: str) -> mirlo.Executable:
    """Compile a model of MLIR."""
    path = folder / "model.mlir"
    path.write_text(text)
    return mirlo.compile(path, target=target)


@pytest.fixture(scope="module", params=["llvm", "c"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> mirlo.Executable:
    return compile_text(model_of(PARTS), tmp_path_factory.mktemp("parts"), request.param)


@pytest.mark.parametrize("sizes", [(3, 1, 0, 2, 4), (0,) * 5, (10, 0, 0, 0, 0), (0, 0, 1, 0, 9), (2,) * 5])
def test_parts_of_all_sizes(compiled: mirlo.Executable, sizes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(10).astype(np.float32)
    begins = np.cumsum(sizes) - sizes
    results = compiled(x, np.concatenate([begins, sizes]))
    parts = [x[begin : begin + size].astype(np.float64) for begin, size in zip(begins, sizes, strict=True)]
    expected = [np.tanh(part).sum() for part in parts]
    np.testing.assert_allclose([np.asarray(each) for each in results], expected, rtol=1e-5, atol=1e-6)


def test_the_size_of_each_part_is_checked(compiled: mirlo.Executable) -> None:
    for part in range(PARTS):
        begins, sizes = np.zeros(PARTS, np.int64), np.full(PARTS, 2)
        begins[part] = 9
        with pytest.raises(mirlo.MirloError, match=f"p{part}|b{part}"):
            compiled(np.zeros(10, np.float32), np.concatenate([begins, sizes]))


@pytest.mark.parametrize("parts", [1, 2, 9])
def test_kernels_do_not_grow_with_the_parts(parts: int, tmp_path: Path) -> None:
    executable = compile_text(model_of(parts), tmp_path, "llvm{cpu=znver3}")
    assert len({kernel.symbol for kernel in executable.artifact.kernels}) == 1


def test_dims_in_callee_keep_symbols_apart() -> None:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(
            'func.func private @k(tensor<?xf32, #relax.dims<["a"]>>) -> tensor<?xf32, #relax.dims<["a"]>> '
            "attributes {tir.prim_func}\n"
            'func.func @main(%x: tensor<?xf32, #relax.dims<["b"]>>) -> tensor<?xf32, #relax.dims<["b"]>> {\n'
            '  %0 = "relax.call_tir"(%x) {callee = @k, symbols = ["a"], sizes = ["b"], '
            "operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, "
            "resultSegmentSizes = array<i32: 1, 0, 0, 0>} : "
            '(tensor<?xf32, #relax.dims<["b"]>>) -> tensor<?xf32, #relax.dims<["b"]>>\n'
            '  return %0 : tensor<?xf32, #relax.dims<["b"]>>\n}'
        )
        call = module.body.operations[1].regions[0].blocks[0].operations[0].operation
        a, b, n = map(D.symbol, "abn")
        assert dims_in_callee(call, [n - a - b]) == (n - D.symbol(f"a{CALLERS}") - a,)
        assert call.opview.in_caller(2 * a + n) == 2 * b + n
        assert OPS["call_tir"] is type(call.opview)
