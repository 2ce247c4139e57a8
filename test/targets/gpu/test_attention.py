"""Attention in one kernel, or two where keys are divided: against numpy, with all kinds of masks and heads."""

from __future__ import annotations

import numpy as np
import pytest
from attention_cases import CASES, OPEN_CASES, OPEN_SIZES, TURNED_CASES, Case
from devices import ON_DEVICES

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context

# What rounding the operands' type costs the result.
SLACK = {"f32": 2e-6, "f64": 1e-12, "f16": 1e-3, "bf16": 1e-2}


def check(case: Case, target: str, dtype: str) -> set[str]:
    """Compile and run it; the functions that its kernels are of."""
    arrays = case.arrays(dtype)
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(case.text(dtype)), target=target)
    found = executable(*arrays).astype(np.float64)
    np.testing.assert_allclose(found, case.expected(arrays), rtol=SLACK[dtype], atol=SLACK[dtype])
    return {name.split("::")[-1] for name in executable.artifact.metadata["kernels"]}


@pytest.mark.sample(8)
@ON_DEVICES
@pytest.mark.parametrize("keys", [0, 1, 7, 8, 9, 17, 21, 25, 33, 41, 129, 257])
@pytest.mark.parametrize("rows", [1, 3, 5, 9])
def test_few_rows_of_any_number_of_keys(rows: int, keys: int, target: str) -> None:
    """The keys of a thread are as many as the tile needs: 3 are no power of two."""
    check(Case((1, 2, rows, 8), (1, 2, keys, 8), 6), target, "f32")


@pytest.mark.sample(0)
@ON_DEVICES
@pytest.mark.parametrize("name", CASES)
def test_against_numpy(target: str, name: str) -> None:
    (kernel,) = check(CASES[name], target, "f32")
    assert kernel == ("fused_permute_attention_permute_0_kernel" if CASES[name].transposed else "attention_kernel")


@pytest.mark.sample(0)
@ON_DEVICES
@pytest.mark.parametrize("name", TURNED_CASES)
def test_tokens_before_heads(target: str, name: str) -> None:
    (kernel,) = check(TURNED_CASES[name], target, "f32")
    assert "permute" in kernel and "attention" in kernel


@pytest.mark.sample(3)
@ON_DEVICES
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_element_types(target: str, dtype: str) -> None:
    check(CASES["grouped"], target, dtype)
    check(CASES["decode, grouped"], target, dtype)


@pytest.mark.sample(0)
@ON_DEVICES
def test_values_that_several_blocks_divide(target: str) -> None:
    check(Case((1, 1, 20, 8), (1, 1, 40, 8), 300), target, "f32")
    check(Case((1, 1, 64, 8), (1, 1, 33, 8), 256), target, "f64")


@ON_DEVICES
def test_keys_that_nobody_sees_are_not_read(target: str) -> None:
    """The contents of tiles beyond a causal bound do not matter, not even NaN."""
    case = Case((1, 1, 20, 16), (1, 1, 120, 16), 16, causal=True)
    arrays = case.arrays()
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(case.text()), target=target)
    expected = executable(*arrays)
    for array in arrays[1:]:
        array[:, :, 64:] = np.nan
    np.testing.assert_array_equal(executable(*arrays), expected)


@pytest.mark.sample(0)
@ON_DEVICES
@pytest.mark.parametrize("name", OPEN_CASES)
def test_lengths_of_run_time(target: str, name: str) -> None:
    """One compilation for all sizes, including lengths below a tile, and 0."""
    case = OPEN_CASES[name]
    with make_context(), ir.Location.unknown():
        executable = mirlo.compile(ir.Module.parse(case.text()), target=target)
    assert {kernel.split("::")[-1] for kernel in executable.artifact.metadata["kernels"]} == {"attention_kernel"}
    for sizes in OPEN_SIZES:
        arrays = case.at(**sizes).arrays()
        found = executable(*arrays)
        np.testing.assert_allclose(found, case.expected(arrays), rtol=2e-6, atol=2e-6, err_msg=str(sizes))
