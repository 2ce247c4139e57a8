"""Custom operators of MediaPipe: programs with drawn sizes, compared with formulas in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers
from mirlo_tflite.flexbuffer import read_map

import mirlo
from mirlo.extend.frontend import UnsupportedOperation

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


def typed_map(values: Mapping[str, object]) -> bytes:
    """Return a map with vectors of one type, as TensorFlow Lite's exporters write them."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, value in values.items():
            builder.Key(name)
            if isinstance(value, list):
                with builder.TypedVector():
                    for each in value:
                        builder.Add(each)
            else:
                builder.Add(value)
    return bytes(builder.Finish())


def custom(name: str, operands: dict[str, np.ndarray], result: list[int], attributes: dict[str, object]) -> str:
    """Return a program of one custom operator, whose attributes are a map of a flexbuffer."""
    kinds = [f"tensor<{'x'.join(map(str, array.shape))}xf32>" for array in operands.values()]
    kind = f"tensor<{'x'.join(map(str, result))}xf32>"
    content = typed_map(attributes) if attributes else b""
    escaped = "".join(f"\\{byte:02X}" for byte in content)
    arguments = ", ".join(f"%{each}: {one}" for each, one in zip(operands, kinds, strict=True))
    return (
        f"func.func @main({arguments}) -> {kind} {{ %out = tosa.custom {', '.join(f'%{each}' for each in operands)} "
        f'{{operator_name = "{name}", domain_name = "TFL", implementation_attrs = "{escaped}"}} : '
        f"({', '.join(kinds)}) -> {kind} return %out : {kind} }}"
    )


def computed(
    folder: Path, name: str, operands: dict[str, np.ndarray], result: list[int], **attributes: object
) -> np.ndarray:
    """Return what a custom operator computes."""
    path = folder / "program.mlir"
    path.write_text(custom(name, operands, result, attributes))
    found: np.ndarray = mirlo.compile(path, cache=False)(*operands.values())
    return found


CROP = {
    "left_rotation_idx": 1, "right_rotation_idx": 4, "target_rotation_radians": 0.25, "output_width": 16,
    "output_height": 8, "scale_x": 1.5, "scale_y": 1.25, "subset_idxs": [0, 5, 2],
}  # fmt: skip


def rotation(angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def crop_matrix(points: np.ndarray) -> np.ndarray:
    """Return the matrix from positions in the crop of `CROP` to positions in the image."""
    step = points[CROP["right_rotation_idx"], :2] - points[CROP["left_rotation_idx"], :2]
    angle = CROP["target_rotation_radians"] - np.arctan2(step[1], step[0])
    rotated = points[CROP["subset_idxs"], :2] @ rotation(angle).T
    low, high = rotated.min(0), rotated.max(0)
    size = np.array([CROP["output_width"], CROP["output_height"]])
    scale = np.array([CROP["scale_x"], CROP["scale_y"]]) * (high - low) / size
    result = np.eye(4)
    result[:2, :2] = rotation(-angle) * scale
    result[:2, 3] = rotation(-angle) @ ((low + high) / 2) - result[:2, :2] @ (size / 2)
    return result


@pytest.mark.parametrize("seed", range(6))
def test_the_matrix_of_a_crop(seed: int, tmp_path: Path) -> None:
    points = (50 * np.random.default_rng(seed).normal(size=(1, 6, 3))).astype(np.float32)
    found = computed(tmp_path, "Landmarks2TransformMatrix", {"x": points}, [1, 4, 4], **CROP)
    np.testing.assert_allclose(found[0], crop_matrix(points[0]), rtol=1e-4, atol=1e-3)


def test_landmarks_at_one_place_have_a_crop_of_no_size(tmp_path: Path) -> None:
    points = np.ones((1, 6, 3), np.float32)
    found = computed(tmp_path, "Landmarks2TransformMatrix", {"x": points}, [1, 4, 4], **CROP)
    np.testing.assert_allclose(found[0], crop_matrix(points[0]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_an_image_at_transformed_positions(seed: int, tmp_path: Path) -> None:
    numbers = np.random.default_rng(seed)
    image = numbers.random((1, 5, 7, 3)).astype(np.float32)
    matrix = np.eye(4, dtype=np.float32)[None]
    if seed:
        matrix[0, :2] += numbers.normal(scale=0.5, size=(2, 4)) * (seed % 3)
    found = computed(
        tmp_path, "TransformTensorBilinear", {"x": image, "m": matrix}, [1, 4, 6, 3], output_height=4, output_width=6
    )
    rows, columns = np.mgrid[:4, :6] + 0.5
    x, y = ((m[0] * columns + m[1] * rows + m[3] - np.float32(0.5)) for m in matrix[0, :2])
    inside = (x >= 0) & (x <= 6) & (y >= 0) & (y <= 4)
    x, y = np.where(inside, x, 0), np.where(inside, y, 0)
    low, left = np.floor(y).astype(int), np.floor(x).astype(int)
    high, right = np.minimum(low + 1, 4), np.minimum(left + 1, 6)
    across, along = (x - left)[..., None], (y - low)[..., None]
    first = image[0, low, left] * (1 - across) + image[0, low, right] * across
    second = image[0, high, left] * (1 - across) + image[0, high, right] * across
    expected = np.where(inside[..., None], first * (1 - along) + second * along, 0)
    np.testing.assert_allclose(found[0], expected, atol=1e-5)
    if not seed:
        np.testing.assert_array_equal(found[0], image[0, :4, :6])


@pytest.mark.parametrize("dims", [2, 3])
def test_landmarks_times_a_matrix(dims: int, tmp_path: Path) -> None:
    numbers = np.random.default_rng(dims)
    points, matrix = (numbers.normal(size=shape).astype(np.float32) for shape in ((1, 9, dims), (1, 4, 4)))
    found = computed(tmp_path, "TransformLandmarks", {"x": points, "m": matrix}, [1, 9, dims])
    expected = points.copy()
    expected[0, :, :2] = points[0, :, :2] @ matrix[0, :2, :2].T + matrix[0, :2, 3]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


POINTS = {"x": np.ones((1, 6, 3), np.float32)}
REFUSED = {
    "version": ({"bbox_size_multiplier": 1.5}, POINTS, "is of version 1"),
    "attributes": ({"output_width": "wide"}, POINTS, "a value has the type 5|no numbers as attributes output_width"),
    "absent": ({}, POINTS, "no map of a flexbuffer"),
    "no subset": (
        {name: value for name, value in CROP.items() if name != "subset_idxs"},
        POINTS,
        "reads the landmarks",
    ),
    "landmark": ({**CROP, "left_rotation_idx": 6}, POINTS, r"reads the landmarks \[6, 4, 0, 5, 2\] of 6"),
    "crop": ({**CROP, "output_width": 0}, POINTS, "has a crop of 0 by 8"),
    "shape": (CROP, {"x": np.ones((2, 6, 3), np.float32)}, "takes landmarks of type"),
    "operands": (CROP, {**POINTS, "y": POINTS["x"]}, "has 2 operands, and takes 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_landmarks_that_are_refused(name: str, tmp_path: Path) -> None:
    attributes, operands, expected = REFUSED[name]
    with pytest.raises(mirlo.MirloError, match=f"custom.*({expected})"):
        computed(tmp_path, "Landmarks2TransformMatrix", operands, [1, 4, 4], **attributes)


VALUES = {"a": -3, "b": 1 << 40, "c": 0.5, "many": list(range(300)), "one": [7], "floats": [0.25, 1.5], "d": True}


def test_maps_of_flexbuffers() -> None:
    found = read_map(typed_map(VALUES))
    assert {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()} == VALUES
    assert read_map(typed_map({})) == {}


@pytest.mark.parametrize("seed", range(100))
def test_damaged_maps_are_refused(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    content = bytearray(typed_map(CROP))
    for _ in range(int(numbers.integers(1, 6))):
        content[numbers.integers(len(content))] = numbers.integers(256)
    try:
        read_map(bytes(content[int(numbers.integers(2)) * 7 :]))
    except UnsupportedOperation as error:
        assert "attributes that are no map" in str(error)
