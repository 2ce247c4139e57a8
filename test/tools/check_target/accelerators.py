"""The accelerators of the tests of `check-target`: correct ones are correct, and each fault is one."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from broken_accelerators import (
    FAULTS,
    SHOWN_BY,
    SHOWN_BY_QUANTIZED,
    VARIANTS,
    Variant,
    accelerator,
    float_network,
    quantized_network,
)

import mirlo
from mirlo.tools.cli import main
from mirlo.tools.conformance.check import names
from mirlo.tools.conformance.patterns import check_patterns

FLOAT, QUANTIZED = float_network(), quantized_network()


def largest_error(model: onnx.ModelProto, target: str) -> float:
    """Return the largest difference to ONNX Runtime on the network, of two calls."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).uniform(-2.3, 2.7, shape).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    executable = mirlo.compile(model, f"{target},llvm", cache=False, jobs=1)
    return max(float(np.abs(executable(x) - wanted).max()) for _ in range(2))


@pytest.mark.sample(0)
@pytest.mark.parametrize("variant", VARIANTS)
def test_correct_packages(variant: str) -> None:
    target = accelerator("", VARIANTS[variant], f"right_{variant}")
    assert largest_error(FLOAT, target) < 1e-5
    assert largest_error(QUANTIZED, target) == 0


@pytest.mark.sample(16)
@pytest.mark.parametrize("fault", SHOWN_BY_QUANTIZED)
def test_faults(fault: str) -> None:
    assert fault in FAULTS
    assert largest_error(QUANTIZED, accelerator(fault)) > 0.9


def complaints(target: str) -> tuple[list[str], list[str]]:
    """Return what the check of a target finds wrong, and the patterns that it has no case for."""
    names()  # registers the cases
    checks = list(check_patterns(f"{target},llvm"))
    found = [
        wrong for check in checks for texts in (*check.kinds.values(), *check.failures.values()) for wrong in texts
    ]
    return list(filter(None, found)), [f"{check.name}: {check.untaken}" for check in checks if check.untaken]


@pytest.mark.sample(28)
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_reported(fault: str) -> None:
    target = accelerator(fault, Variant(patterns=(SHOWN_BY[fault],)), f"wrong_{fault}")
    wrong, untaken = complaints(target)
    assert wrong and not untaken


@pytest.mark.sample(0)
@pytest.mark.parametrize(
    "variant", [pytest.param(v, marks=() if v == "vectors_only" else pytest.mark.sample(0)) for v in VARIANTS]
)
def test_correct_packages_are_not_accused(variant: str) -> None:
    assert complaints(accelerator("", VARIANTS[variant], f"accepted_{variant}")) == ([], [])


def test_a_pattern_that_nothing_matches_is_reported() -> None:
    """A tile is larger than all drawn shapes: the pattern is untested, which the exit code reports."""
    wrong, untaken = complaints(accelerator("", Variant(tile=251, patterns=("matmul",)), "never"))
    assert not wrong
    assert len(untaken) == 1 and untaken[0].startswith("never.matmul: no case was found; tried ")
    assert "the last declines: " in untaken[0] and "the unit multiplies whole tiles (tile=251" in untaken[0]


@pytest.mark.sample(0)
def test_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    rows = Variant(patterns=("difference_relu", "difference"))
    command = ["check-target", "--operator", "relax.subtract"]
    assert main([*command, f"{accelerator('', rows, 'right')},llvm"]) == 0
    assert main([*command, f"{accelerator('swapped_operands', rows, 'swapped')},llvm"]) == 1
    told = capsys.readouterr()
    assert "swapped.difference f32: wrong: " in told.out and "fails 3 checks" in told.err
    assert main([*command, f"{accelerator('', Variant(patterns=('difference',), most_rows=-1), 'none')},llvm"]) == 1
    assert "none.difference: never taken: no case was found" in capsys.readouterr().out
