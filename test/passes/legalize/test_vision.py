"""Patches, regions, boxes, determinants, n-grams and random numbers, against ONNX Runtime and numpy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx_reference import onnx_node
from operator_cases import Case, Runner, f32, ints


def patch_cases() -> list[Case]:
    made = []
    for image, window, given in (
        ((5, 6), (2, 3), {}),
        ((5, 6), (2, 2), {"strides": (2, 2), "padding": (1, 0, 0, 0)}),
        ((6, 7), (2, 3), {"dilations": (2, 1), "padding": (1, 1, 1, 1)}),
        ((4, 5, 3), (1, 2, 2), {}),
    ):
        count = len(image)
        strides, dilations = given.get("strides", (1,) * count), given.get("dilations", (1,) * count)
        pads = given.get("padding", (0,) * (2 * count))
        windows = [
            (image[i] + pads[i] + pads[count + i] - (window[i] - 1) * dilations[i] - 1) // strides[i] + 1
            for i in range(count)
        ]
        x = f32(2, 3 * int(np.prod(window)), int(np.prod(windows)))
        attributes = {"strides": strides, "dilations": dilations, "pads": pads}
        exact = onnx_node("Col2Im", [x, np.int64(image), np.int64(window)], attributes, opset=18)
        made.append(Case("col2im", [x], {"image": image, "window": window, **given}, exact))
        sizes = np.int64(window)
        made.append(Case("col2im", [x, sizes], {"image": image, "channels": 3, **given}, exact, note="sizes"))
    return made


def region_cases() -> list[Case]:
    made = []
    x = f32(2, 3, 9, 7)
    corners = np.random.default_rng(1).uniform(-2, 10, (5, 2, 2)).astype(np.float32)
    rois = np.concatenate([corners.min(1), corners.max(1)], 1)
    batch = np.int64([0, 1, 1, 0, 1])
    for mode in ("mean", "max"):
        for half_pixel in (True, False):
            for samples in (0, 2):
                attributes = {"height": 3, "width": 2, "samples": samples, "scale": 0.75, "half_pixel": half_pixel}
                given = {
                    "output_height": 3,
                    "output_width": 2,
                    "sampling_ratio": samples,
                    "spatial_scale": 0.75,
                    "mode": "avg" if mode == "mean" else "max",
                    "coordinate_transformation_mode": "half_pixel" if half_pixel else "output_half_pixel",
                }
                exact = onnx_node("RoiAlign", [x, rois, batch], given, opset=16)
                made.append(Case("roi_align", [x, rois, batch], {"mode": mode, **attributes}, exact, atol=1e-4))
    return made


def factor_cases() -> list[Case]:
    """Return factorizations and solutions of batches and rectangles; the other triangle is not read."""
    made = []
    x = f32(2, 5, 5)
    positive = x @ x.swapaxes(1, 2) + 0.5 * np.eye(5, dtype=np.float32)
    exact = np.linalg.cholesky(np.float64(positive))
    made.append(Case("cholesky", [np.tril(positive) + np.triu(x, 1)], {}, exact, rtol=1e-3, atol=1e-3))
    indefinite = np.float32([[4, 0, 0], [2, 1, 0], [0, 0, 1]])
    expected = np.float32([[2, 0, 0], [1, np.nan, 0], [0, np.nan, np.nan]])
    made.append(Case("cholesky", [indefinite], {}, expected))
    full, right = f32(2, 4, 4) + 3 * np.eye(4, dtype=np.float32), f32(2, 4, 3)
    for lower, transposed, unit in itertools.product((False, True), repeat=3):
        part = np.tril(full) if lower else np.triu(full)
        if unit:
            part = part - part * np.eye(4) + np.eye(4)
        exact = np.linalg.solve(np.float64(part.swapaxes(1, 2) if transposed else part), right)
        words = {"lower": lower, "transposed": transposed, "unit_diagonal": unit}
        made.append(Case("triangular_solve", [full, right], words, exact, rtol=1e-3, atol=1e-3))
    for rows, columns in ((4, 4), (3, 5), (5, 3), (1, 2)):
        given = f32(2, rows, columns)
        made.append(Case("lu", [given], {}, exact_factors(np.float64(given)), rtol=1e-3, atol=1e-3))
    made.append(Case("lu", [np.zeros((3, 3), np.float32)], {}, (np.zeros((3, 3)), np.arange(3, dtype=np.int32))))
    return made


def exact_factors(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return LAPACK's factors with exchanged rows, and the rows with which they are exchanged."""
    pivots = np.zeros((len(x), min(x.shape[1:])), np.int32)
    made = x.copy()
    for matrix, row in zip(made, pivots, strict=True):
        for k in range(row.size):
            row[k] = k + np.argmax(np.abs(matrix[k:, k]))
            matrix[[k, row[k]]] = matrix[[row[k], k]]
            matrix[k + 1 :, k] /= matrix[k, k]
            matrix[k + 1 :, k + 1 :] -= np.outer(matrix[k + 1 :, k], matrix[k, k + 1 :])
    return made, pivots


def deform_case(groups: int, offset_groups: int, with_mask: bool) -> Case:
    x, weight = f32(2, 4, 6, 7), f32(6, 4 // groups, 3, 2, seed=1)
    offset, bias = f32(2, offset_groups * 12, 5, 3, seed=2), f32(6, seed=3)
    mask = f32(2, offset_groups * 6, 5, 3, seed=4) if with_mask else None
    attributes = {"strides": (1, 3), "padding": (1, 1, 0, 2), "groups": groups, "offset_groups": offset_groups}
    given = {"strides": (1, 3), "pads": (1, 1, 0, 2), "group": groups, "offset_group": offset_groups}
    operands = [x, weight, offset, bias, mask]
    exact = partial(onnx_node, "DeformConv", operands, given, opset=19, by_definition=True)
    return Case("deform_conv", operands, attributes, exact, atol=1e-4)


def box_case(center: bool, limit: int, threshold: float | None) -> Case:
    rng = np.random.default_rng(5)
    boxes, scores = rng.uniform(0, 4, (2, 20, 4)).astype(np.float32), rng.random((2, 3, 20), np.float32)
    scalars = [np.int64(limit), np.float32(0.3), None if threshold is None else np.float32(threshold)]
    given = [boxes, scores, *(None if s is None else np.reshape(s, 1) for s in scalars)]
    exact = onnx_node("NonMaxSuppression", given, {"center_point_box": int(center)}, opset=11)
    rows = np.zeros((2 * 3 * 8, 3), np.int64)
    rows[: len(exact)] = exact
    operands = [boxes, scores, *(None if s is None else np.asarray(s) for s in scalars)]
    return Case("non_max_suppression", operands, {"most": [8], "center": center}, (rows, np.int64(len(exact))))


def number_cases() -> list[Case]:
    square, batch = f32(5, 5), np.float64(f32(2, 3, 4, 4))
    words = ints(0, 3, 2, 9)
    grams = np.int64([[0, 1], [1, 1], [2, 0]])

    def counted(skips: int) -> np.ndarray:
        pairs = [[(row[i], row[i + d]) for d in range(1, skips + 2) for i in range(9 - d)] for row in words]
        return np.int64([[sum(pair == tuple(gram) for pair in row) for gram in grams] for row in pairs])

    singles = np.int64([[(row == i).sum() for i in (0, 1, 2)] for row in words])
    uniform, normal = np.random.RandomState(3).uniform(-2, 5, (7, 100)), np.random.RandomState(7).normal(1, 3, (7, 100))
    wide = {"shape": (7, 100), "dtype": "f64"}
    return [
        Case("det", [square], {}, np.linalg.det(square)),
        Case("det", [batch], {}, np.linalg.det(batch)),
        Case("det", [np.zeros((2, 3, 3), np.float32)], {}, np.zeros(2, np.float32)),
        Case("det", [np.float32([[0, 2], [3, 0]])], {}, np.float32(-6)),
        *factor_cases(),
        Case("inverse", [square], {}, np.linalg.inv(np.float64(square)), rtol=1e-3, atol=1e-3),
        Case("inverse", [batch], {}, np.linalg.inv(batch)),
        Case("count_ngrams", [words, grams], {}, counted(0)),
        Case("count_ngrams", [words, grams], {"skips": 3}, counted(3)),
        Case("count_ngrams", [words, np.int64([[0], [1], [2]])], {"skips": 3}, singles),
        Case("random_uniform", [np.int64(3)], {**wide, "low": -2.0, "high": 5.0}, uniform),
        Case("random_normal", [np.int64(7)], {**wide, "mean": 1.0, "scale": 3.0}, normal),
        Case("random_normal", [np.int64(0)], {"shape": (3,)}, np.float32(np.random.RandomState(0).normal(0, 1, 3))),
    ]


CASES = [
    *patch_cases(),
    *region_cases(),
    deform_case(1, 1, True),
    deform_case(2, 2, False),
    box_case(False, 5, None),
    box_case(True, 8, 0.4),
    *number_cases(),
]
RUNNER = Runner(CASES)


@pytest.mark.sample(5)
@RUNNER.parametrize
def test_case(operator: str, index: int, check: Callable[[int], None]) -> None:
    check(index)


def test_random_numbers_have_their_distributions() -> None:
    from operator_cases import run

    cases: list[Any] = [
        Case("random_uniform", [np.int64(11)], {"shape": (40000,), "low": -1.0, "high": 3.0}),
        Case("random_normal", [np.int64(12)], {"shape": (40000,), "mean": 2.0, "scale": 0.5}),
    ]
    (uniform,), (normal,) = run(cases)
    assert uniform.min() >= -1 and uniform.max() < 3
    # Kolmogorov and Smirnov's bound for a significance of one in ten thousand, and three moments of the normal ones.
    steps = np.arange(40000) / 40000
    assert np.abs((np.sort(uniform) + 1) / 4 - steps).max() < 2.23 / 200
    unit = (normal - 2) / 0.5
    assert abs(unit.mean()) < 0.02 and abs(unit.std() - 1) < 0.015 and abs((unit**4).mean() - 3) < 0.2
