"""A sample of ONNX's suite: the accesses of all kernels are proven, but for known ones."""

from __future__ import annotations

import random

import bounds_suite
import oracle

SAMPLE = 6
KNOWN = {
    "nonzero": "how often a condition holds is not known, nor that it is as often as was counted before",
    "slice_bounds": "the axes are data",
    "slice_at": "the positions are data, which another kernel has limited",
    "pad_slice_at": "the positions are data, which another kernel has limited",
    "resize_at": "the positions are data, which another part of the kernel has limited",
    "argsort": "a permutation in memory",
    "argsort_rows": "a permutation in memory",
    "non_max_suppression": "a permutation in memory",
    "gather_elements": "an axis may be empty, or the indices are not clamped",
}
"""Operators whose accesses are not proven, and why."""


@oracle.needs_onnx(1, 19)
def test_sample() -> None:
    names = sorted(random.Random(3).sample(bounds_suite.names_of_suite("onnx"), SAMPLE))
    kernels = [each for name in names for each in bounds_suite.accesses_of(name, "onnx", "llvm")]
    assert sum(each.accesses for each in kernels) > 0
    bad = [each for each in kernels if each.unproven and not any(name in each.kernel for name in KNOWN)]
    assert not bad, "\n".join(f"{each.model}: @{each.kernel}: {each.unproven[0]}" for each in bad)
