"""Operations of TOSA, compiled and compared with what its reference model computed (`programs.py`)."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from programs import PROGRAMS, RESULTS, argument

import mirlo

EXPECTED = json.loads(RESULTS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compute_what_the_reference_model_does(name: str, tmp_path: Path) -> None:
    (tmp_path / "program.mlir").write_text(PROGRAMS[name])
    result = np.asarray(mirlo.compile(tmp_path / "program.mlir", cache=False)(argument(name)))
    expected = np.array(EXPECTED[name]).reshape(result.shape)
    if result.dtype.kind == "f":
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-3)
    else:
        np.testing.assert_array_equal(result, expected)


NAN = {"maximum": (np.maximum, np.fmax), "minimum": (np.minimum, np.fmin)}
"""What each computes where NaN wins, and where it is ignored."""


@pytest.mark.parametrize("mode", ["PROPAGATE", "IGNORE"])
@pytest.mark.parametrize("name", NAN)
def test_nan_wins_unless_it_is_ignored(name: str, mode: str, tmp_path: Path) -> None:
    kind = "tensor<2xf32>"
    text = f"%0 = tosa.{name} %a, %b {{nan_mode = {mode}}} : ({kind}, {kind}) -> {kind}"
    (tmp_path / "m.mlir").write_text(
        f"func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{ {text} return %0 : {kind} }}"
    )
    a, b = np.array([np.nan, 2], np.float32), np.array([1, -1], np.float32)
    expected = NAN[name][mode == "IGNORE"](a, b)
    np.testing.assert_array_equal(mirlo.compile(tmp_path / "m.mlir", cache=False)(a, b), expected)


@pytest.mark.parametrize("kind", ["f8E4M3FN", "f8E5M2"])
def test_the_largest_of_types_without_infinity(kind: str, tmp_path: Path) -> None:
    image, result = f"tensor<1x3x2x1x{kind}>", f"tensor<1x2x1x1x{kind}>"
    window = "kernel = array<i64: 2, 2>, pad = array<i64: 1, 0, 0, 0>, stride = array<i64: 2, 2>"
    (tmp_path / "m.mlir").write_text(
        f"func.func @main(%x: {image}) -> {result} {{ %0 = tosa.max_pool2d %x {{{window}}} : ({image}) -> {result} "
        f"return %0 : {result} }}"
    )
    dtype = {"f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2}[kind]
    x = np.array([-8, -3.5, -2, -1, -4, -6]).astype(dtype).reshape(1, 3, 2, 1)
    found = np.asarray(mirlo.compile(tmp_path / "m.mlir", cache=False)(x))
    assert found.reshape(-1).astype(float).tolist() == [-3.5, -1]


def test_casts_round_before_they_saturate(tmp_path: Path) -> None:
    (tmp_path / "m.mlir").write_text(
        "func.func @main(%x: tensor<6xf32>) -> tensor<6xi8> {"
        "%0 = tosa.cast %x : (tensor<6xf32>) -> tensor<6xi8> return %0 : tensor<6xi8> }"
    )
    x = np.array([127.4, 127.6, 2.5, -128.4, -128.6, 1e9], np.float32)
    found = np.asarray(mirlo.compile(tmp_path / "m.mlir", cache=False)(x))
    assert found.tolist() == [127, 127, 2, -128, -128, 127]


@pytest.mark.parametrize("value", [-7, 0, 1 << 20])
def test_indices_out_of_range_read_no_foreign_memory(value: int, tmp_path: Path) -> None:
    """TOSA leaves them undefined: an error, or some element of the operand."""
    (tmp_path / "m.mlir").write_text(
        "func.func @main(%x: tensor<2x3x1xi32>, %i: tensor<2x1xi32>) -> tensor<2x1x1xi32> {"
        "%0 = tosa.gather %x, %i : (tensor<2x3x1xi32>, tensor<2x1xi32>) -> tensor<2x1x1xi32> "
        "return %0 : tensor<2x1x1xi32> }"
    )
    x = np.arange(100, 106, dtype=np.int32).reshape(2, 3, 1)
    executable = mirlo.compile(tmp_path / "m.mlir", cache=False)
    try:
        result = executable(x, np.array([[value], [0]], np.int32))
    except mirlo.MirloError:
        return
    assert set(np.asarray(result).reshape(-1).tolist()) <= set(x.reshape(-1).tolist())
