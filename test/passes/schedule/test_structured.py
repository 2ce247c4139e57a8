"""The benchmark of MLIR's structured path, which decision 1 refers to, still compiles and agrees with Mirlo."""

from __future__ import annotations

from mirlo.benchmarks.structured import KERNELS, measure


def test_a_kernel_by_the_structured_path() -> None:
    kernel = next(kernel for kernel in KERNELS if kernel.name == "transpose")
    row = measure(kernel, builds=1, rounds=1)  # compares the results
    assert row.passes > 0 and row.ours_compile > 0
