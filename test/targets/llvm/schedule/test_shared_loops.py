"""Products on two threads: panels, rows and rests shared in all ways give what one thread computes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.pipeline import Pipeline
from mirlo.runtime.params import ParameterStore
from mirlo.targets.llvm.pipeline import compile_pipeline

PIPELINE = str(Pipeline(compile_pipeline()).append("outline-parallel{threads=2 work=1}"))


def both_ways(text: str, weights: dict[str, np.ndarray]) -> None:
    store = ParameterStore()
    for name, array in weights.items():
        store.add(name, array)
    with make_context(), ir.Location.unknown():
        one, two = (
            mirlo.compile(ir.Module.parse(text), params=store, threads=threads, cache=False, **options)
            for threads, options in ((1, {}), (2, {"pipeline": PIPELINE}))
        )
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(spec.static_shape, dtype=np.float32) for spec in one.inputs]
    expected = one(*arrays)
    for _ in range(5):
        np.testing.assert_array_equal(two(*arrays), expected)


@pytest.mark.sample(2)
@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 70, 1000), (1, 64, 256), (49, 40, 160), (50, 33, 144), (7, 40, 500), (130, 20, 40), (30, 9, 17)],
)
def test_matmul(m: int, k: int, n: int, is_constant: bool) -> None:
    x, w, y = (f"tensor<{a}x{b}xf32>" for a, b in ((m, k), (k, n), (m, n)))
    weight = np.random.default_rng(1).standard_normal((k, n), dtype=np.float32)
    argument = "" if is_constant else f", %w: {w}"
    constant = f'%w = "relax.constant"() {{param = "w"}} : () -> {w}' if is_constant else ""
    text = f"""func.func @main(%x: {x}{argument}) -> {y} {{
      {constant}
      %0 = "relax.matmul"(%x, %w) : ({x}, {w}) -> {y}
      %1 = "relax.relu"(%0) : ({y}) -> {y}
      return %1 : {y}
    }}"""
    both_ways(text, {"w": weight} if is_constant else {})


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("channels", "size", "outputs", "window", "groups"),
    [
        (16, 7, 160, 1, 1),
        (24, 14, 144, 1, 1),
        (8, 9, 40, 3, 1),
        (96, 7, 96, 3, 96),
        (40, 13, 40, 3, 40),
        (12, 10, 36, 3, 2),
    ],
)
def test_convolutions(channels: int, size: int, outputs: int, window: int, groups: int) -> None:
    def tensor(*shape: Any) -> str:
        return f"tensor<{'x'.join(map(str, shape))}xf32>"

    x, w = tensor(1, channels, size, size), tensor(outputs, channels // groups, window, window)
    y, pad = tensor(1, outputs, size, size), window // 2
    text = f"""func.func @main(%x: {x}) -> {y} {{
      %w = "relax.constant"() {{param = "w"}} : () -> {w}
      %0 = "relax.conv"(%x, %w) {{padding = array<i64: {pad}, {pad}, {pad}, {pad}>, groups = {groups} : i64}}
        : ({x}, {w}) -> {y}
      return %0 : {y}
    }}"""
    shape = [int(n) for n in re.findall(r"\d+(?=x)", w)]
    both_ways(text, {"w": np.random.default_rng(1).standard_normal(shape, dtype=np.float32)})


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("sizes", ["n 16 40 24", "n 16 h w", "1 16 h 24"])
def test_convolutions_of_dynamic_sizes(sizes: str, window: int, dtype: str) -> None:
    """The batch, or another dim, is dynamic: threads divide the loops inside of it, too."""
    channels, pad = 16, window // 2
    shape = ["?" if size.isalpha() else size for size in sizes.split()]
    dims = ", ".join(size if size.isdigit() else f'"{size}"' for size in sizes.split())
    x = f"tensor<{'x'.join(shape)}x{dtype}, #relax.dims<[{dims}]>>"
    w = f"tensor<{channels}x{channels}x{window}x{window}x{dtype}>"
    text = f"""func.func @main(%x: {x}, %w: {w}) -> {x} {{
      %0 = "relax.conv"(%x, %w) {{padding = array<i64: {pad}, {pad}, {pad}, {pad}>}} : ({x}, {w}) -> {x}
      %1 = "relax.relu"(%0) : ({x}) -> {x}
      return %1 : {x}
    }}"""
    with make_context(), ir.Location.unknown():
        one, two = (
            mirlo.compile(ir.Module.parse(text), threads=threads, cache=False, **options)
            for threads, options in ((1, {}), (2, {"pipeline": PIPELINE}))
        )
    rng = np.random.default_rng(0)
    kernel = rng.standard_normal((channels, channels, window, window)).astype(np.dtype(dtype.replace("f", "float")))
    for batch, height, width in ((1, 40, 24), (3, 7, 24), (2, 1, 5)):
        given = {"n": batch, "h": height, "w": width}
        image = [given.get(size) or int(size) for size in sizes.split()]
        array = rng.standard_normal(image).astype(kernel.dtype)
        expected = one(array, kernel)
        for _ in range(3):
            np.testing.assert_array_equal(two(array, kernel), expected)
