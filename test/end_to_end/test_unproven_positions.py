"""Models with many dynamic dims, whose data-dependent accesses are not proven but checked at run time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import mirlo
from mirlo.passes.bounds.verify_bounds import BoundsRecord
from mirlo.tools.explain.model import explain_model

PROGRAMS = {
    "values of Unique": """
(float[n, c, h, w] x, float[o, c, q, r] k) => (float[u] y, int64[u] first, int64[m] inverse, int64[u] counts) {
   image = Conv(x, k)
   rows = Flatten <axis = 2> (image)
   y, first, inverse, counts = Unique(rows)
}""",
    "shape of Unique": """
(float[n, c, h, w] x, float[o, c, q, r] k) => (int64[1] y) {
   image = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, k)
   values = Unique(image)
   y = Shape(values)
}""",
    "rows of Unique": """
(float[n, c, h, w] x, float[o, c, q, r] k) => (float[a, b, d, e] y) {
   image = Conv <strides = [2, 1], pads = [1, 0, 0, 1]> (x, k)
   y = Unique <axis = 3> (image)
}""",
    "Resize and Slice": """
(float[n, c, h, w] x, float[o, c, q, r] k, float[4] scales, int64[2] starts, int64[2] ends, int64[2] axes)
=> (float[a, b, d, e] y) {
   image = Conv(x, k)
   larger = Resize <mode = "linear"> (image, , scales)
   y = Slice(larger, starts, ends, axes)
}""",
    "ConvTranspose and CenterCropPad": """
(float[n, c, h, w] x, float[c, o, q, r] k, int64[2] shape) => (float[a, b, d, e] y) {
   image = ConvTranspose <strides = [2, 1]> (x, k)
   y = CenterCropPad <axes = [2, 3]> (image, shape)
}""",
}
SIZES = {"n": 2, "c": 3, "h": 7, "w": 9, "o": 4, "q": 3, "r": 2}
POSITIONS = {
    "scales": np.array([1, 1, 2, 1.5], np.float32), "starts": np.array([1, -4]), "ends": np.array([6, 100]),
    "axes": np.array([2, 3]), "shape": np.array([12, 7]),
}  # fmt: skip


def _model(name: str) -> onnx.ModelProto:
    return onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 18]> g ' + PROGRAMS[name])


def _feeds(model: onnx.ModelProto) -> Iterator[tuple[str, np.ndarray]]:
    """Yield arrays of integers, whose products and sums are exact."""
    numbers = np.random.default_rng(0)
    for value in model.graph.input:
        sizes = [SIZES.get(dim.dim_param, dim.dim_value) for dim in value.type.tensor_type.shape.dim]
        yield value.name, POSITIONS.get(value.name, numbers.integers(-2, 3, sizes).astype(np.float32))


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_computed_as_by_onnx_runtime(name: str, target: str) -> None:
    model = _model(name)
    feeds = dict(_feeds(model))
    results = mirlo.compile(model, target=target, opt_level=1)(**feeds)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    for result, right in zip(results if isinstance(results, tuple) else [results], expected, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-5)


def _is_tested(bounds: BoundsRecord | None) -> bool:
    return bounds is not None and len(bounds.guarded) > 0


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_access_by_data_is_refused(name: str) -> None:
    kernels = explain_model(_model(name), "llvm{cpu=x86-64-v4}", tune=False).kernels
    by_data = [access for each in kernels if each.bounds is not None for access in each.bounds.unproven]
    assert not any(access.from_data for access in by_data)
    assert any(_is_tested(kernel.bounds) for kernel in kernels)
