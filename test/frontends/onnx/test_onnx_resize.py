"""Resize by dynamic scales and regions: one compilation for several scales, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import mirlo

X = np.random.default_rng(0).random((1, 2, 5, 6), np.float32)
COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def model(given: dict[str, np.ndarray], constants: dict[str, np.ndarray], opset: int = 19, **attributes: Any) -> Any:
    names = [name if name in (*given, *constants) else "" for name in ("x", "roi", "scales", "sizes")]
    while not names[-1]:
        names.pop()
    node = helper.make_node("Resize", names, ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()
    ]
    initializers = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], initializers
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def same(given: dict[str, np.ndarray], others: list[dict[str, np.ndarray]], **attributes: Any) -> None:
    made = model({"x": X, **given}, {}, **attributes)
    f, reference = mirlo.compile(made), ReferenceEvaluator(made)
    for values in (given, *others):
        feeds = {"x": X, **values}
        np.testing.assert_allclose(f.run(feeds)["y"], reference.run(None, feeds)[0], rtol=1e-4, atol=1e-5)


def scales(*numbers: float) -> dict[str, np.ndarray]:
    return {"scales": np.array([1, 1, *numbers], np.float32)}


@pytest.mark.sample(0)
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales(mode: str, coordinates: str) -> None:
    given = {"mode": mode, "coordinate_transformation_mode": coordinates}
    same(scales(2, 1.5), [scales(0.6, 0.5), scales(1, 3)], **given)


@pytest.mark.sample(2)
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(nearest: str) -> None:
    same(scales(2, 1.5), [scales(0.8, 0.5)], mode="nearest", nearest_mode=nearest)


@pytest.mark.sample(0)
def test_antialiasing_and_edges() -> None:
    for mode in ("linear", "cubic"):
        same(scales(0.6, 0.7), [scales(0.4, 1)], mode=mode, antialias=1)
    same(scales(0.8, 2), [], mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)


@pytest.mark.sample(24)
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("excludes", [0, 1], ids=["all", "inside"])
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiasing(mode: str, coordinates: str, excludes: int, is_open: bool) -> None:
    """Known scales make tables, others are computed at run time: one definition serves both."""
    given = {
        "mode": mode, "coordinate_transformation_mode": coordinates, "antialias": 1, "exclude_outside": excludes,
    }  # fmt: skip
    # No coordinate is a whole number: the reference takes the wrong neighbours of some that are nearly whole.
    image = np.random.default_rng(2).random((1, 2, 8, 12), np.float32)
    for factors in (scales(0.35, 0.2), scales(1.4, 0.7)):
        made = model({"x": image, **factors}, {}, **given) if is_open else model({"x": image}, factors, **given)
        feeds = {"x": image, **(factors if is_open else {})}
        expected = ReferenceEvaluator(made).run(None, feeds)[0]
        np.testing.assert_allclose(mirlo.compile(made).run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_known_scales_that_make_no_whole_size(mode: str, coordinates: str) -> None:
    given = {"mode": mode, "coordinate_transformation_mode": coordinates}
    made = model({"x": X}, scales(1.7, 0.7), **given)
    expected = ReferenceEvaluator(made).run(None, {"x": X})[0]
    np.testing.assert_allclose(mirlo.compile(made)(X), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_policies(policy: str) -> None:
    given = {"sizes": np.int64([7, 10])}
    same(given, [{"sizes": np.int64([3, 9])}], axes=[2, 3], keep_aspect_ratio_policy=policy)


@pytest.mark.sample(0)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_policies_of_dynamic_images(policy: str, mode: str) -> None:
    """Known sizes for images of any size: how large the result is depends on the image."""
    sizes = {"sizes": np.array([16, 20], np.int64)}
    made = model({"x": X}, sizes, mode=mode, axes=[2, 3], keep_aspect_ratio_policy=policy)
    for axis, name in ((0, "batch"), (2, "h"), (3, "w")):
        made.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    f, reference = mirlo.compile(made), ReferenceEvaluator(made)
    assert f.outputs[0].shape[:2] == ("batch", 2)
    for shape in ((1, 2, 8, 9), (2, 2, 30, 50), (1, 2, 17, 5), (1, 2, 16, 20)):
        x = np.random.default_rng(1).random(shape, np.float32)
        np.testing.assert_allclose(f(x), reference.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_regions() -> None:
    x = X
    roi = np.float32([0, 0, 0.2, 0.1, 1, 1, 0.9, 1.2])
    given = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    by_constants = mirlo.compile(model({"x": x}, {"roi": roi, "sizes": np.int64([1, 2, 4, 5])}, **given))
    f = mirlo.compile(model({"x": x, "roi": roi}, {"sizes": np.int64([1, 2, 4, 5])}, **given))
    np.testing.assert_allclose(f(x, roi), by_constants(x), rtol=1e-4, atol=1e-5)


@pytest.mark.sample(3)
@pytest.mark.parametrize("scale", [1 / 300, 1 / 41, 2 / 3, 1.5, 0.7, 0.123456, 3.14159])
def test_sizes_are_products_of_f32(scale: float) -> None:
    """Of static dims, of symbols, and with scales of run time: 123 * f32(1 / 41) is 3 in f32, and less in f64."""
    factors = np.array([1, 1, 1, scale], np.float32)
    fixed = model({"x": X}, {"scales": factors}, mode="linear")
    made = model({"x": X, "scales": factors}, {}, mode="linear")
    for each in (fixed, made):
        each.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "n"
    session = onnxruntime.InferenceSession(fixed.SerializeToString())
    symbolic, dynamic = mirlo.compile(fixed), mirlo.compile(made)
    for size in (123, 300, 600, 601):
        x = np.random.default_rng(size).random((1, 2, 5, size), np.float32)
        (expected,) = session.run(None, {"x": x})
        results = [symbolic.run({"x": x})["y"], dynamic.run({"x": x, "scales": factors})["y"]]
        if size == 123:
            results.append(mirlo.compile(fixed, shapes={"x": [1, 2, 5, size]}).run({"x": x})["y"])
        for result in results:
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


SIZES = [(2, 82), (3, 123), (21, 59), (28, 182), (42, 182), (47, 94), (50, 31), (58, 110)]
SCALES = [0.1, 0.3, 1 / 3, 2 / 3, 0.7, 1.1, 1.2, 2.2]


@pytest.mark.sample(3)
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("coordinates", ["asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"])
def test_positions_are_rounded_as_in_f32(coordinates: str, rounding: str, is_open: bool) -> None:
    """Where a position is nearly a whole number, or nearly in the middle: 1 / f32(1/3) is 3 in f32, less in f64."""
    words = {"mode": "nearest", "nearest_mode": rounding, "coordinate_transformation_mode": coordinates}
    cases = [("sizes", np.int64([after]), before) for before, after in SIZES]
    if coordinates != "align_corners":  # ONNX Runtime takes the last element for the end, ONNX's reference does not
        cases += [("scales", np.float32([scale]), 60) for scale in SCALES]
    feeds = {f"x{i}": np.arange(before, dtype=np.float32) for i, (_, _, before) in enumerate(cases)}
    nodes = [
        helper.make_node("Resize", [f"x{i}", "", "" if name == "sizes" else f"n{i}", f"n{i}"][: 4 - (name != "sizes")],
                         [f"y{i}"], **words)
        for i, (name, _, _) in enumerate(cases)
    ]  # fmt: skip
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n" + name if is_open else len(x)])
        for name, x in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(len(cases))]
    numbers = [numpy_helper.from_array(number, f"n{i}") for i, (_, number, _) in enumerate(cases)]
    made = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, numbers), opset_imports=[helper.make_opsetid("", 19)],
        ir_version=9,
    )  # fmt: skip
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, feeds)
    results = mirlo.compile(made).run(feeds)
    for i, array in enumerate(expected):
        np.testing.assert_array_equal(results[f"y{i}"], array, str(cases[i]))
