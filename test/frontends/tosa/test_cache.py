"""Models that a tool converts are kept in the cache, as models of ONNX are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mirlo
from mirlo.driver import model_cache
from mirlo.frontends import files
from mirlo.frontends.tosa import tools

PROGRAM = b"""
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %y = tosa.tanh %x : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
"""


def test_the_second_time_nothing_is_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(b"\x1c\0\0\0TFL3 first")
    converted: list[str] = []

    def convert(path: Path) -> bytes:
        converted.append(str(files.installed_version("tosa-converter-for-tflite")))
        return PROGRAM

    releases = ["1.0"]
    monkeypatch.setattr(files, "installed_version", lambda name: releases[0] if name.startswith("tosa-conv") else None)
    monkeypatch.setattr(tools, "from_tflite", convert)
    monkeypatch.setattr(model_cache, "MIN_COMPILE_SECONDS", 0)
    monkeypatch.setattr("mirlo.driver.build.MIN_COMPILE_SECONDS", 0)
    monkeypatch.setattr(model_cache, "extended", lambda target: None)
    x = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
    for _ in range(2):
        np.testing.assert_allclose(mirlo.compile(model, cache=tmp_path / "cache")(x), np.tanh(x), rtol=1e-6)
    assert converted == ["1.0"]
    releases[0] = "2.0"
    mirlo.compile(model, cache=tmp_path / "cache")
    model.write_bytes(b"\x1c\0\0\0TFL3 second")
    mirlo.compile(model, cache=tmp_path / "cache")
    assert converted == ["1.0", "2.0", "2.0"]


def test_files_without_a_tool_are_not_kept() -> None:
    assert files.tool_versions("model.mlir") is None
    assert files.tool_versions("model.bin") is None
    assert str(files.tool_versions("MODEL.TOSA")).startswith("tosa-tools")
