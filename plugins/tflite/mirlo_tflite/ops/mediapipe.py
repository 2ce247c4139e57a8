"""Custom operators of MediaPipe's models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mirlo.extend.frontend import CHANNELS_LAST, Tensor, UnsupportedOperation, concat, stack, where
from mirlo_tflite.flexbuffer import Value, read_map
from mirlo_tflite.operation import TosaOperation
from mirlo_tflite.registry import converter

SAME, VALID = 1, 2
"""TensorFlow Lite's numbers of paddings."""


@converter("TFL.Convolution2DTransposeBias")
def transpose_with_bias(op: TosaOperation) -> Tensor:
    """Convert a transposed convolution with a bias; its attributes are those of `TfLiteTransposeConvParams`."""
    attributes = op.bytes("implementation_attrs")
    if len(op.operands) != 3 or len(attributes) < 12:
        raise UnsupportedOperation(
            f"has {len(op.operands)} operands and {len(attributes)} bytes of attributes, and takes 3 and 12 or more"
        )
    x, weight, bias = op.operands
    padding, width, height = np.frombuffer(attributes, "<i4", 3).tolist()
    if padding not in (SAME, VALID) or width < 1 or height < 1:
        raise UnsupportedOperation(f"has the padding {padding} and the strides {height} and {width}")
    # The sizes of windows less those of strides: what is cut off the result, or is missing at its end.
    windows = [size for size in weight.shape[1:3] if isinstance(size, int)]
    excess = [size - stride if padding == SAME else 0 for size, stride in zip(windows, (height, width), strict=True)]
    begin = [max(0, each) // 2 for each in excess]
    end = [max(0, each) - first for each, first in zip(excess, begin, strict=True)]
    result = op.emit(
        "conv_transpose", x, weight.permute((3, 0, 1, 2)), None, strides=[height, width], padding=[*begin, *end],
        data_layout=CHANNELS_LAST,
    )  # fmt: skip
    missing = [max(0, -each) for each in excess]
    if any(missing):
        result = op.emit("pad", result, pads=[0, 0, 0, 0, 0, *missing, 0])
    return result + bias


@converter("TFL.Landmarks2TransformMatrix")
def transform_of_landmarks(op: TosaOperation) -> Tensor:
    """Convert `Landmarks2TransformMatrix` version 2: the transform from a crop around landmarks to the image."""
    (landmarks,) = _operands(op, 1)
    if landmarks.rank != 3 or landmarks.shape[0] != 1 or landmarks.shape[2] != 3 or not landmarks.dtype.is_float:
        raise UnsupportedOperation(f"takes landmarks of type {landmarks.type}, expected 1xNx3xf32")
    attributes = read_map(op.bytes("implementation_attrs"))
    if "bbox_size_multiplier" in attributes:
        raise UnsupportedOperation("is of version 1: export the model with a MediaPipe of 2022 or later, for version 2")
    numbers = _numbers(
        attributes, "left_rotation_idx", "right_rotation_idx", "target_rotation_radians", "output_width",
        "output_height", "scale_x", "scale_y",
    )  # fmt: skip
    left, right, target, width, height, scale_x, scale_y = numbers
    subset = np.asarray(attributes.get("subset_idxs", ()), np.int64)
    indices = np.array([left, right, *subset], np.int64)
    count = landmarks.shape[1]
    if not subset.size or indices.min() < 0 or isinstance(count, int) and indices.max() >= count:
        raise UnsupportedOperation(f"reads the landmarks {indices.tolist()} of {count}")
    if min(width, height, scale_x, scale_y) <= 0:
        raise UnsupportedOperation(f"has a crop of {width} by {height}, scaled by {scale_x} and {scale_y}")
    ends = landmarks.gather(op.constant(indices[:2]), axis=1)
    step = ends[0, 1] - ends[0, 0]
    angle = step[1].atan2(step[0]) - target
    cosine, sine = angle.cos(), angle.sin()
    points = landmarks.gather(op.constant(indices[2:]), axis=1)
    x, y = points[0, :, 0], points[0, :, 1]
    across, along = x * cosine + y * sine, y * cosine - x * sine
    centers = [(each.max() + each.min()) / 2 for each in (across, along)]
    steps = [
        (each.max() - each.min()) * (scale / size)
        for each, scale, size in ((across, scale_x, width), (along, scale_y, height))
    ]
    # Of the middle of the crop, in its own directions.
    begins = [center - step * (size / 2) for center, step, size in zip(centers, steps, (width, height), strict=True)]
    zero = cosine.like(0.0)
    rows = [
        stack([cosine * steps[0], -(sine * steps[1]), zero, cosine * begins[0] - sine * begins[1]], axis=0),
        stack([sine * steps[0], cosine * steps[1], zero, sine * begins[0] + cosine * begins[1]], axis=0),
    ]
    fixed = cosine.like(np.eye(4)[2:])
    return concat([stack(rows, axis=0), fixed], axis=0).expand_dims(0)


@converter("TFL.TransformTensorBilinear")
def transform_image(op: TosaOperation) -> Tensor:
    """Convert `TransformTensorBilinear`: an image at transformed positions, 0 outside of it."""
    image, matrix = _operands(op, 2)
    rows, columns = _numbers(read_map(op.bytes("implementation_attrs")), "output_height", "output_width")
    sizes = image.shape[1:3]
    if image.rank != 4 or image.shape[0] != 1 or not all(isinstance(each, int) for each in sizes):
        raise UnsupportedOperation(f"takes an image of type {image.type}, expected 1xHxWxC with a known size")
    _check_matrix(matrix)
    height, width = map(int, sizes)
    x, y = (image.like(np.arange(count) + 0.5) for count in (int(columns), int(rows)))
    places = []
    for axis, size in ((1, height), (0, width)):
        row = matrix[0, axis]
        place = x * row[0] + (y * row[1]).expand_dims(1) + (row[3] - 0.5)
        places.append((place, (place >= 0.0) & (place <= size - 1.0), size))
    inside = places[0][1] & places[1][1]
    near, shares, following = [], [], []
    for place, _, size in places:
        known = where(inside, place, 0.0)
        floor = known.floor()
        near.append(floor.cast("i64"))
        following.append((floor + 1.0).clip(0.0, size - 1.0).cast("i64"))
        shares.append((known - floor).expand_dims(2))
    flat = image.reshape((height * width, image.shape[3]))

    def corner(row: Tensor, column: Tensor) -> Tensor:
        return flat.gather(row * width + column)

    first, second = (
        corner(row, near[1]) * (1.0 - shares[1]) + corner(row, following[1]) * shares[1]
        for row in (near[0], following[0])
    )
    mixed = first * (1.0 - shares[0]) + second * shares[0]
    return where(inside.expand_dims(2), mixed, 0.0).expand_dims(0)


@converter("TFL.TransformLandmarks")
def transform_landmarks(op: TosaOperation) -> Tensor:
    """Convert `TransformLandmarks` version 2: multiply x and y by the first two rows of a matrix."""
    points, matrix = _operands(op, 2)
    if points.rank != 3 or points.shape[0] != 1 or points.shape[2] not in (2, 3):
        raise UnsupportedOperation(f"takes landmarks of type {points.type}, expected 1xNx2 or 1xNx3 (version 2)")
    _check_matrix(matrix)
    x, y = points[..., 0:1], points[..., 1:2]
    moved = [x * matrix[0, axis, 0] + y * matrix[0, axis, 1] + matrix[0, axis, 3] for axis in (0, 1)]
    return concat([*moved, points[..., 2:]] if points.shape[2] == 3 else moved, axis=2)


def _operands(op: TosaOperation, count: int) -> tuple[Tensor, ...]:
    if len(op.operands) != count:
        raise UnsupportedOperation(f"has {len(op.operands)} operands, and takes {count}")
    return op.operands


def _numbers(attributes: Mapping[str, Value], *names: str) -> list[float]:
    """Return numeric attributes."""
    result = [attributes.get(name) for name in names]
    numbers = [each for each in result if isinstance(each, (int, float))]
    if len(numbers) != len(names):
        absent = ", ".join(name for name, each in zip(names, result, strict=True) if not isinstance(each, (int, float)))
        raise UnsupportedOperation(f"has no numbers as attributes {absent}")
    return numbers


def _check_matrix(matrix: Tensor) -> None:
    if matrix.shape != (1, 4, 4):
        raise UnsupportedOperation(f"takes a matrix of type {matrix.type}, expected 1x4x4")
