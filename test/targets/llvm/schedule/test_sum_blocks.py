"""Sums and products of floats in registers are computed in blocks: their errors are at most twice those of numpy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx_models import F32, make_model, node
from scheduled import Kernel, tensor

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.frontends.onnx.importer import import_model
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.testing import assert_verified

SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((32, 32, 32, 48), (0, 1, 2)),  # statistics of batch norm, channels last
    ((16, 14, 14, 64), (0, 1, 2)),
    ((65, 7, 9, 16), (0, 1, 2)),
    ((4100, 37), (0,)),
    ((70000, 16), (0,)),
    ((24, 33000), (1,)),  # rows, whose lanes are partial sums, too
    ((8, 24, 40, 41), (0, 2, 3)),  # statistics of batch norm, channels first
)
"""The shape of an operand, and the axes that are summed."""


def _model(shape: Sequence[int | str], axes: Sequence[int], operator: str = "ReduceSum") -> Any:
    constants = {"axes": np.array(axes)}
    return make_model([node(operator, "x axes", "y", keepdims=0)], {"x": (F32, list(shape))}, ["y"], constants)


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", ["llvm", "llvm{cpu=x86-64-v2}"])
@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_errors_of_sums(shape: tuple[int, ...], axes: tuple[int, ...], is_dynamic: bool, target: str) -> None:
    """The error of a sum is at most twice that of numpy, which adds contiguous blocks of 128 in pairs."""
    x = (np.random.default_rng(sum(shape)).standard_normal(shape) + 0.1).astype(np.float32)
    sizes: Sequence[int | str] = [f"size{axis}" for axis in range(len(shape))] if is_dynamic else shape
    total = mirlo.compile(_model(sizes, axes), target=target)(x)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    rows = np.ascontiguousarray(x.transpose(*kept, *axes)).reshape(*(shape[axis] for axis in kept), -1)
    exact = rows.sum(-1, dtype=np.float64)
    errors = [np.linalg.norm(each.astype(np.float64) - exact) for each in (total, rows.sum(-1))]
    assert errors[0] <= 2 * errors[1], f"{errors[0] / errors[1]:.1f} times numpy's"


def _depth(kind: str, size: int, dtype: str = "f32") -> int:
    """Return how many loops of the reduction of the first dim are around one another."""

    def build(p: Any, x: Any) -> Any:
        return p.reduce(kind, (32,), (size,), lambda c, i: x.at(i, c))

    text = Kernel(build, [tensor(size, 32, dtype=dtype)], options={"machine": "avx512vnni"}).text
    return _nested(text)


@pytest.mark.parametrize(("size", "depth"), [(64, 1), (65, 2), (256, 2), (257, 3), (8193, 4), (1 << 20, 5)])
def test_blocks_of_sums(size: int, depth: int) -> None:
    """A loop has blocks of 32 elements where it has more than 64, blocks of these, and eight of the largest."""
    assert _depth("add", size) == depth


@pytest.mark.parametrize(("kind", "dtype"), [("max", "f32"), ("add", "i32")])
def test_no_blocks_without_rounding(kind: str, dtype: str) -> None:
    assert _depth(kind, 1 << 20, dtype) == 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["llvm", "llvm{cpu=x86-64-v2}"])
@pytest.mark.parametrize("depth", [700, 1024, 4096, 33000])
def test_errors_of_products(depth: int, target: str) -> None:
    """Blocks of K begin from zero: the error is at most twice that of numpy's BLAS, which has such blocks."""
    rng = np.random.default_rng(depth)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((48, depth), (depth, 40)))
    model = make_model([node("MatMul", "a b", "y")], {"a": (F32, a.shape), "b": (F32, b.shape)}, ["y"])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    errors = [np.linalg.norm(each - exact) for each in (mirlo.compile(model, target=target)(a, b), a @ b)]
    assert errors[0] <= 2 * errors[1], f"{errors[0] / errors[1]:.1f} times numpy's"


@pytest.mark.parametrize(("size", "depth", "loops"), [(512, 1, 1), (513, 1, 2), (1100, 2, 3)])
def test_blocks_of_products(size: int, depth: int, loops: int) -> None:
    """The last block of a whole tile follows a loop over blocks around that over products, or the first one of two."""
    text = _loops_of_product(size)
    assert (_nested(text, "scf.for"), text.count("scf.for")) == (depth, loops)


def test_blocks_of_many_products() -> None:
    """The most products have tiles of 9 and 5 rows: a loop over these is around the loop over blocks."""
    assert _nested(_loops_of_product(1 << 20), "scf.for") == 3


def _loops_of_product(size: int) -> str:

    def build(p: Any, a: Any, b: Any) -> Any:
        return p.reduce("add", (14, 32), (size,), lambda i, j, k: a.at(i, k) * b.at(k, j))

    return Kernel(build, [tensor(14, size), tensor(size, 32)], options={"machine": "avx512vnni"}).text


def _nested(text: str, loop: str = r"scf\.for .* iter_args") -> int:
    """Return the most loops around one another, by default of those that carry accumulators."""
    most, open_at = 0, list[int]()
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        while open_at and line.strip() and indent <= open_at[-1]:
            del open_at[-1]
        if re.search(loop, line):
            open_at.append(indent)
            most = max(most, len(open_at))
    return most


@pytest.mark.parametrize("depth", [900, 960])
def test_known_blocks_of_products_have_no_branches(depth: int) -> None:
    """Accumulators that registers do not hold beside those of a block are in memory, from before the first block on."""
    model = make_model([node("MatMul", "a b", "y")], {"a": (F32, [12, depth]), "b": (F32, [depth, 32])}, ["y"])
    assert_verified(model, "llvm{cpu=icelake-server}", cache=False)
    module, store = import_model(model)
    with module.context, ir.Location.unknown():
        passes = "legalize{target=llvm},annotate-kinds,fuse-ops,fuse-tir,schedule{target=llvm machine=avx512vnni}"
        Pipeline(f"builtin.module({passes})").run(module, Session(store))
    text = str(module)
    assert "scf.if" not in text and text.count("scf.for") == 2
