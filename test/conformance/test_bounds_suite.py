"""A sample of ONNX's suite: the accesses of all kernels are proven."""

from __future__ import annotations

import random

import bounds_suite
import pytest
from node_cases import leave_out_slow_cases

from mirlo.testing import oracle

SAMPLE = 40


@pytest.fixture(scope="module", autouse=True)
def quick_cases() -> None:
    leave_out_slow_cases()


@pytest.mark.sample(0)
@oracle.needs_onnx(1, 19)
def test_sample() -> None:
    names = sorted(random.Random(3).sample(bounds_suite.names_of_suite("onnx"), SAMPLE))
    kernels = [each for name in names for each in bounds_suite.accesses_of(name, "onnx", "llvm")]
    assert sum(each.accesses for each in kernels) > 0
    bad = [each for each in kernels if each.unproven]
    assert not bad, "\n".join(f"{each.model}: @{each.kernel}: {each.unproven[0]}" for each in bad)


@oracle.needs_onnx(1, 19)
def test_operators_with_positions_from_data() -> None:
    names = [f"test_{name}_cpu" for name in ("nonzero_example", "slice", "unique_sorted_with_axis_3d", "compress_0")]
    kernels = [each for name in names for each in bounds_suite.accesses_of(name, "onnx", "llvm")]
    assert sum(each.accesses for each in kernels) > 100
    assert not [f"{each.model}: @{each.kernel}: {each.unproven[0]}" for each in kernels if each.unproven]


BY_DATA = (
    "gather_0", "gathernd_example_int32_batch_dim1", "scatter_elements_with_axis", "scatternd_add", "top_k", "slice",
    "gridsample_bilinear", "onehot_with_axis", "nonmaxsuppression_two_batches", "reversesequence_time",
)  # fmt: skip
"""Operators whose kernels access elements at positions from data."""


@oracle.needs_onnx(1, 19)
@pytest.mark.parametrize("suite", ["onnx", "symbolic"])
def test_accesses_by_data_are_proven_or_tested(suite: str) -> None:
    """With numbers all are proven; with symbols a slice may be tested at run time."""
    for name in BY_DATA:
        kernels = bounds_suite.accesses_of(f"test_{name}_cpu", suite, "llvm")
        assert not [each.kernel for each in kernels if each.kernel.startswith("not compiled")], name
        assert not [each.unproven for each in kernels if each.from_data], name
        assert suite == "symbolic" or not any(each.tested for each in kernels), name
