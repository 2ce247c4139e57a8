"""Attention on keys and values of narrower types: converted where they are read, in one kernel; against numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from attention_cases import reference

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context

DTYPES: dict[str, Any] = {"i8": np.int8, "ui8": np.uint8, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
SIZES = ((1, 1, 40), (1, 37, 50), (1, 300, 300), (2, 9, 20), (17, 65, 80), (64, 64, 90), (150, 333, 400))
"""Queries, keys, and rows of the arrays that hold them."""


def graph(dtype: str, heads: int, shared: int, size: int) -> str:
    """Return attention of the first keys of arrays with more rows."""
    stored, wide = f'tensor<?x{shared}x?x{size}x{dtype}, #relax.dims<["b", {shared}, "c", {size}]>>', "f32"
    keys = f'#relax.dims<["b", {shared}, "t", {size}]>>'
    part, read = (f"tensor<?x{shared}x?x{size}x{kind}, {keys}" for kind in (dtype, wide))
    query = f'tensor<?x{heads}x?x{size}xf32, #relax.dims<["b", {heads}, "s", {size}]>>'
    mask = 'tensor<?x1x?x?xf32, #relax.dims<["b", 1, "s", "t"]>>'
    slices = "".join(
        f"""%{x}0 = "relax.slice_dims"(%{x}) {{begin = [0, 0, 0, 0], shape = ["b", {shared}, "t", {size}],
        strides = array<i64: 1, 1, 1, 1>}} : ({stored}) -> {part}
        %{x}1 = "relax.cast"(%{x}0) {{dtype = f32}} : ({part}) -> {read}
        """
        for x in "kv"
    )
    return f"""func.func @main(%q: {query}, %k: {stored}, %v: {stored}, %m: {mask}) -> {query} {{
      {slices}
      %y = "relax.attention"(%q, %k1, %v1, %m) : ({query}, {read}, {read}, {mask}) -> {query}
      return %y : {query}
    }}"""


@pytest.mark.sample(4)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "shared", "size"), ((4, 2, 16), (3, 3, 24), (8, 1, 64)))
def test_against_numpy(dtype: str, heads: int, shared: int, size: int, threads: int) -> None:
    random = np.random.default_rng(0)
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(graph(dtype, heads, shared, size)), threads=threads, cache=False)
    assert len(executable.artifact.kernels) == 1
    for queries, keys, rows in SIZES:
        for batch in (1, 2):
            q, mask = (
                random.standard_normal(shape).astype(np.float32)
                for shape in ((batch, heads, queries, size), (batch, 1, queries, keys))
            )
            low, high = (0, 256) if dtype == "ui8" else (-128, 128)
            values = [random.integers(low, high, (batch, shared, rows, size)) / 8 for _ in "kv"]
            k, v = ((x * 8 if dtype in ("i8", "ui8") else x).astype(DTYPES[dtype]) for x in values)
            q /= 40 if dtype in ("i8", "ui8") else 5
            found = executable(q, k, v, mask)
            wide = [x[:, :, :keys].astype(np.float32) for x in (k, v)]
            expected = reference(q, *wide, mask, None, None)
            scale = np.abs(wide[1]).max()
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6 * scale, err_msg=f"{queries} {keys}")


def scaled_graph(heads: int, shared: int, size: int, attributes: str) -> str:
    """Return attention of the first rows of caches of 8 bits, with a scale for each row."""

    def tensor(dims: str, kind: str = "f32") -> str:
        names = dims.split()
        sizes = "x".join(dim if dim.isdigit() else "?" for dim in names)
        listed = ", ".join(dim if dim.isdigit() else f'"{dim}"' for dim in names)
        return f"tensor<{sizes}x{kind}, #relax.dims<[{listed}]>>"

    def read(name: str, width: int, kind: str) -> str:
        source, part = (tensor(f"b {shared} {rows} {width}", kind) for rows in "ct")
        return f"""%{name}0 = "relax.slice_dims"(%{name}) {{begin = [0, 0, 0, 0], shape = ["b", {shared}, "t", {width}],
        strides = array<i64: 1, 1, 1, 1>}} : ({source}) -> {part}
        """

    query, mask = tensor(f"b {heads} s {size}"), tensor("b 1 s t")
    cache, scales = tensor(f"b {shared} c {size}", "i8"), tensor(f"b {shared} c 1")
    part, wide, row = (tensor(f"b {shared} t {n}", k) for n, k in ((size, "i8"), (size, "f32"), (1, "f32")))
    casts = "".join(f'%{x}1 = "relax.cast"(%{x}0) {{dtype = f32}} : ({part}) -> {wide}\n' for x in "kv")
    slices = read("k", size, "i8") + read("v", size, "i8") + read("ks", 1, "f32") + read("vs", 1, "f32")
    caches = f"%k: {cache}, %v: {cache}, %ks: {scales}, %vs: {scales}"
    return f"""func.func @main(%q: {query}, {caches}, %m: {mask}, %x: tensor<{heads}xf32>) -> {query} {{
      {slices}{casts}%y = "relax.attention_with_scales"(%q, %k1, %v1, %m, %ks0, %vs0, %x)
        {{{attributes}operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1>}}
        : ({query}, {wide}, {wide}, {mask}, {row}, {row}, tensor<{heads}xf32>) -> {query}
      return %y : {query}
    }}"""


@pytest.mark.sample(0)
@pytest.mark.parametrize("attributes", ("", "causal = true, at_end = true, "))
@pytest.mark.parametrize(("heads", "shared", "size"), ((4, 2, 16), (3, 3, 24)))
def test_scales_of_rows(heads: int, shared: int, size: int, attributes: str) -> None:
    """One kernel reads the integers and the scales of their rows, and sums each weight once."""
    random = np.random.default_rng(1)
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(scaled_graph(heads, shared, size, attributes)), cache=False)
    assert len(executable.artifact.kernels) == 1
    for queries, keys, rows in SIZES:
        q, mask = (
            random.standard_normal(shape).astype(np.float32)
            for shape in ((2, heads, queries, size), (2, 1, queries, keys))
        )
        k, v = (random.integers(-127, 128, (2, shared, rows, size), np.int8) for _ in "kv")
        ks, vs = (random.uniform(0.002, 0.02, (2, shared, rows, 1)).astype(np.float32) for _ in "kv")
        sinks = random.standard_normal(heads).astype(np.float32)
        wide = [(x * scale)[:, :, :keys] for x, scale in ((k, ks), (v, vs))]
        hidden = mask
        if attributes:
            hidden = np.where(np.tri(queries, keys, keys - queries, dtype=bool), mask, np.float32(-np.inf))
        expected = reference(q, *wide, hidden, None, None, sinks=sinks)
        found = executable(q, k, v, ks, vs, mask, sinks)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6, err_msg=f"{queries} {keys}")
