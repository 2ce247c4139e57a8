"""Custom operators of MediaPipe: programs with drawn sizes, compared with formulas in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mirlo

SAME, VALID = 1, 2


def program(x: list[int], weight: list[int], y: list[int], attributes: bytes) -> str:
    """Return a program of one transposed convolution."""
    kinds = [f"tensor<{'x'.join(map(str, shape))}xf32>" for shape in (x, weight, weight[:1], y)]
    escaped = "".join(f"\\{byte:02X}" for byte in attributes)
    named = 'operator_name = "Convolution2DTransposeBias", domain_name = "TFL"'
    arguments = ", ".join(f"%{i}: {kind}" for i, kind in enumerate(kinds[:3]))
    return (
        f"func.func @main({arguments}) -> {kinds[3]} {{ "
        f'%y = tosa.custom %0, %1, %2 {{{named}, implementation_attrs = "{escaped}"}} : '
        f"({', '.join(kinds[:3])}) -> {kinds[3]} return %y : {kinds[3]} }}"
    )


def transposed(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, strides: list[int], size: list[int]) -> np.ndarray:
    """Return a transposed convolution of this size: what each element adds, less what is outside."""
    (batch, rows, columns, _), (channels, height, width, _) = x.shape, weight.shape
    counts = zip((rows, columns), strides, (height, width), strict=True)
    covered = [(count - 1) * stride + window for count, stride, window in counts]
    whole = list(map(max, covered, size))
    full = np.zeros((batch, *whole, channels))
    for i, j in np.ndindex(rows, columns):
        at = (slice(i * strides[0], i * strides[0] + height), slice(j * strides[1], j * strides[1] + width))
        full[:, at[0], at[1]] += np.einsum("bc,ohwc->bhwo", x[:, i, j], weight)
    before = [max(0, one - other) // 2 for one, other in zip(covered, size, strict=True)]
    return full[:, before[0] : before[0] + size[0], before[1] : before[1] + size[1]] + bias


@pytest.mark.parametrize("seed", range(12))
def test_transposed_convolutions(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    padding = (SAME, VALID)[seed % 2]
    x = [1, *random.integers(1, 6, 2).tolist(), int(random.integers(1, 4))]
    windows, strides = random.integers(1, 5, 2).tolist(), random.integers(1, 4, 2).tolist()
    weight = [int(random.integers(1, 4)), *windows, x[3]]
    size = [n * s if padding == SAME else (n - 1) * s + k for n, s, k in zip(x[1:3], strides, windows, strict=True)]
    attributes = np.array([padding, strides[1], strides[0]], "<i4").tobytes()
    path = tmp_path / "program.mlir"
    path.write_text(program(x, weight, [1, *size, weight[0]], attributes))
    arrays = [random.normal(size=shape).astype(np.float32) for shape in (x, weight, weight[:1])]
    expected = transposed(*arrays, strides, size)
    np.testing.assert_allclose(mirlo.compile(path, cache=False)(*arrays), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attributes", [b"", bytes(12), np.array([1, 0, 2], "<i4").tobytes()])
def test_attributes_that_are_malformed(attributes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(program([1, 2, 2, 1], [1, 2, 2, 1], [1, 4, 4, 1], attributes))
    with pytest.raises(mirlo.MirloError, match=r"custom.*has (\d operands|the padding)"):
        mirlo.compile(path, cache=False)
