"""Matrices of Fourier transforms whose length only a call knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mirlo

MODEL = """
func.func @main(%x: tensor<?xf32, #relax.dims<["n"]>>) -> tensor<4x1x4x2xf32> {
  %0 = "relax.dft_matrix"() {dtype = f32, length = ["n"], shape = [4, 1, 4, 2]} : () -> tensor<4x1x4x2xf32>
  return %0 : tensor<4x1x4x2xf32>
}
"""


def test_a_length_of_zero_is_refused_in_the_call(tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text(MODEL, encoding="utf-8")
    compiled = mirlo.compile(tmp_path / "model.mlir", cache=False)
    spectra = np.fft.fft(np.eye(4))
    expected = np.stack([spectra.real, spectra.imag], 2)[:, None]
    np.testing.assert_allclose(compiled(np.ones(4, np.float32)), expected, atol=1e-6)
    with pytest.raises(mirlo.MirloError, match="dft_matrix: length must be at least 1, got n, where n = 0"):
        compiled(np.ones(0, np.float32))
