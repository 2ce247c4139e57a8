"""The pass `pack-weights`: the same numbers from weights in panels."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.graph.constants import derived_columns
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.runtime.params import ParameterStore
from mirlo.targets.llvm.pack_weights import Order
from mirlo.targets.llvm.pipeline import compile_pipeline
from mirlo.targets.llvm.winograd.matrices import transformed_integers, transformed_weight

MATMUL = """
func.func @main(%x: tensor<{m}x{k}xf32>) -> (tensor<{m}x{n}xf32>, tensor<{m}x{n}xf32>) {{
  %w = "relax.constant"() {{param = "w"}} : () -> tensor<{k}x{n}xf32>
  %v = "relax.constant"() {{param = "v"}} : () -> tensor<{n}x{k}xf32>
  %0 = "relax.matmul"(%x, %w) : (tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %1 = "relax.matmul"(%x, %v) {{transpose_rhs = true}} : (tensor<{m}x{k}xf32>, tensor<{n}x{k}xf32>) -> tensor<{m}x{n}xf32>
  return %0, %1 : tensor<{m}x{n}xf32>, tensor<{m}x{n}xf32>
}}
"""  # noqa: E501

CONV = """
func.func @main(%x: tensor<1x{c}x9x9xf32>) -> tensor<1x{o}x9x9xf32> {{
  %w = "relax.constant"() {{param = "w"}} : () -> tensor<{o}x{c}x3x3xf32>
  %0 = "relax.conv"(%x, %w) {{padding = array<i64: 1, 1, 1, 1>}}
    : (tensor<1x{c}x9x9xf32>, tensor<{o}x{c}x3x3xf32>) -> tensor<1x{o}x9x9xf32>
  return %0 : tensor<1x{o}x9x9xf32>
}}
"""
LAST = CONV.replace("1x{c}x9x9", "1x9x9x{c}").replace("1x{o}x9x9", "1x9x9x{o}").replace("{o}x{c}x3x3", "3x3x{c}x{o}")
LAST = LAST.replace("{{padding", '{{data_layout = "N*C", kernel_layout = "*IO", padding')


def compile_with(text: str, arrays: dict[str, np.ndarray], without: str = "") -> mirlo.Executable:
    store = ParameterStore()
    for name, array in arrays.items():
        store.add(name, array)
    pipeline = Pipeline(compile_pipeline())
    if without:
        pipeline.remove(without)
    with make_context(), ir.Location.unknown():
        return mirlo.compile(ir.Module.parse(text), params=store, pipeline=pipeline)


def packed_text(text: str, arrays: dict[str, np.ndarray], machine: str = "avx512") -> str:
    session = Session()
    for name, array in arrays.items():
        session.params.add(name, array)
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Pipeline(f"legalize,pack-weights{{machine={machine}}}").run(module, session)
        return str(module)


def rng(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("m", "n", "k"), [(64, 100, 200), (20, 64, 300), (1, 500, 300), (33, 31, 40), (96, 96, 96)])
def test_products(m: int, n: int, k: int) -> None:
    w, v, x = rng(k, n), rng(n, k), rng(m, k)
    got = compile_with(MATMUL.format(m=m, n=n, k=k), {"w": w, "v": v})(x)
    np.testing.assert_allclose(got[0], x @ w, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(got[1], x @ v.T, rtol=1e-4, atol=1e-3)


@pytest.mark.sample(0)
@pytest.mark.parametrize(("channels", "out"), [(16, 80), (24, 96), (8, 200)])
def test_convolutions(channels: int, out: int) -> None:
    w, x = rng(out, channels, 3, 3), rng(1, channels, 9, 9)
    text = CONV.format(c=channels, o=out)
    packed, plain = compile_with(text, {"w": w}), compile_with(text, {"w": w}, without="pack-weights")
    np.testing.assert_allclose(packed(x), plain(x), rtol=1e-5, atol=1e-4)


def test_panels_of_a_product() -> None:
    """Panels have as many columns as the tile, however the weights lay before."""
    text = packed_text(MATMUL.format(m=64, n=128, k=200), {"w": rng(200, 128), "v": rng(128, 200)})
    assert '"relax.constant"() {param = "w.panels"} : () -> tensor<4x200x32xf32>' in text
    assert '"relax.constant"() {param = "v.panels"} : () -> tensor<4x200x32xf32>' in text
    assert "affine_map<(d0, d1, d2) -> (d1 floordiv 32, d2, d1 mod 32)>" in text
    assert "(%arg0: tensor<64x200xf32>, %arg1: tensor<4x200x32xf32>) -> tensor<64x128xf32>" in text


def test_panels_of_a_convolution() -> None:
    text = packed_text(CONV.format(c=24, o=96), {"w": rng(96, 24, 3, 3)})
    # Channels are rows of pixels here, so the weights are the operand whose elements are spread over the lanes.
    assert '{param = "w"} : () -> tensor<96x24x3x3xf32>' in text
    text = packed_text(LAST.format(c=24, o=96), {"w": rng(3, 3, 24, 96)})
    assert '{param = "w.panels"} : () -> tensor<3x3x3x24x32xf32>' in text


@pytest.mark.parametrize(("channels", "panels"), [(192, "1x6x3x3x32"), (144, "")])
def test_panels_of_a_depthwise_convolution(channels: int, panels: str) -> None:
    """Where they are whole: vectors with rows of their own would need other code for the last panel."""
    w = rng(3, 3, 1, channels)
    text = f"""
    func.func @main(%x: tensor<1x28x28x{channels}xf32>) -> tensor<1x28x28x{channels}xf32> {{
      %w = "relax.constant"() {{param = "w"}} : () -> tensor<3x3x1x{channels}xf32>
      %0 = "relax.conv"(%x, %w) {{data_layout = "N*C", kernel_layout = "*IO", groups = {channels} : i64,
        padding = array<i64: 1, 1, 1, 1>}}
        : (tensor<1x28x28x{channels}xf32>, tensor<3x3x1x{channels}xf32>) -> tensor<1x28x28x{channels}xf32>
      return %0 : tensor<1x28x28x{channels}xf32>
    }}"""
    stored = packed_text(text, {"w": w})
    assert f"tensor<{panels}xf32>" in stored if panels else "w.panels" not in stored
    x = rng(1, 28, 28, channels)
    packed, plain = (compile_with(text, {"w": w}, without=name) for name in ("", "pack-weights"))
    np.testing.assert_allclose(packed(x), plain(x), rtol=1e-5, atol=1e-4)


def test_missing_arrays_are_left_alone() -> None:
    text = packed_text(MATMUL.format(m=64, n=100, k=200), {"w": rng(200, 100)})
    assert '{param = "v"} : () -> tensor<100x200xf32>' in text


def test_a_panel_that_fills_no_vector_is_filled_up() -> None:
    """Masked loads across cache lines cost more: the weights get columns of zeros."""
    text = packed_text(LAST.format(c=24, o=14), {"w": rng(3, 3, 24, 14)})
    assert '{param = "w.panels"} : () -> tensor<1x3x3x24x16xf32>' in text
    for out in (16, 32):
        text = packed_text(LAST.format(c=24, o=out), {"w": rng(3, 3, 24, out)})
        assert f'{{param = "w"}} : () -> tensor<3x3x24x{out}xf32>' in text


@pytest.mark.sample(0)
@pytest.mark.parametrize("out", [1, 3, 6, 9, 14, 17, 24, 33, 47])
def test_few_channels(out: int) -> None:
    w, x = rng(3, 3, 24, out), rng(1, 9, 9, 24)
    packed, plain = (compile_with(LAST.format(c=24, o=out), {"w": w}, without=n) for n in ("", "pack-weights"))
    np.testing.assert_allclose(packed(x), plain(x), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("window", [1, 3])
def test_groups_of_int8_are_stored(window: int) -> None:
    """Axes of extent 1, those of a 1x1 window, do not keep groups along K from being stored."""
    w = np.ones((window, window, 16, 64), np.int8)
    text = f"""
    func.func @main(%x: tensor<1x9x9x16xui8>) -> tensor<1x9x9x64xi32> {{
      %w = "relax.constant"() {{param = "w"}} : () -> tensor<{window}x{window}x16x64xi8>
      %0 = "relax.conv"(%x, %w) {{data_layout = "N*C", kernel_layout = "*IO", out_dtype = i32,
        padding = array<i64: {window // 2}, {window // 2}, {window // 2}, {window // 2}>}}
        : (tensor<1x9x9x16xui8>, tensor<{window}x{window}x16x64xi8>) -> tensor<1x9x9x64xi32>
      return %0 : tensor<1x9x9x64xi32>
    }}"""
    assert re.search(rf"tensor<\d+x{window}x{window}x4x\d+x4xi8>", packed_text(text, {"w": w}, "avx512vnni"))


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize("columns", [1, 15, 16, 33, 96])
@pytest.mark.parametrize(("change", "group"), [(transformed_weight, 1), (transformed_integers, 2)])
def test_computed_weights_are_packed_panel_by_panel(change, group: int, columns: int, m: int) -> None:
    """With equal bits as a whole, also where the source is not contiguous."""
    rng = np.random.default_rng(columns)
    weight = rng.standard_normal((columns, 70, 3, 3), dtype=np.float32) if group == 1 else None
    weight = rng.integers(-128, 128, (columns, 70, 3, 3), np.int8) if weight is None else weight
    moved, order = weight.transpose(2, 3, 1, 0), Order((0,), 2, (1,), 16, group)

    def transform(part: np.ndarray) -> np.ndarray:
        return change(part, m)

    whole = order.pack(transform(moved))
    in_turn = np.full_like(whole, 77)
    order.fill_in_turn(derived_columns(lambda: moved, transform), in_turn)
    assert in_turn.tobytes() == whole.tobytes()


def test_weights_of_winograd_are_never_in_memory_as_a_whole(monkeypatch) -> None:
    """Those that are transformed while they are packed; the results are those of the transformed weights."""
    from mirlo.targets.llvm.winograd import convert

    transformed: list[tuple[int, ...]] = []

    def record(weight: np.ndarray, m: int) -> np.ndarray:
        transformed.append(weight.shape)
        return transformed_weight(weight, m)

    monkeypatch.setattr(convert, "transformed_weight", record)
    channels = 160
    rng = np.random.default_rng(0)
    arrays = {"w": rng.standard_normal((channels, channels, 3, 3), dtype=np.float32) / channels}
    text = CONV.format(c=channels, o=channels).replace("9x9", "16x16")
    x = rng.standard_normal((1, channels, 16, 16), dtype=np.float32)
    got = compile_with(text, arrays)(x)
    assert transformed and all(shape[-1] < channels for shape in transformed)
    without = compile_with(text, arrays, without="winograd")(x)
    np.testing.assert_allclose(got, without, rtol=0, atol=1e-4)
