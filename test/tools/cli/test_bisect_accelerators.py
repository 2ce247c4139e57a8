"""`mirlo bisect` names the node and the pattern of an accelerator that computes a quantized network wrongly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from broken_accelerators import (
    FAULTS,
    SHOWN_BY_QUANTIZED,
    SHOWN_BY_RESIDUAL,
    VARIANTS,
    accelerator,
    network_of,
    quantized_network,
    quantized_residual_network,
)

from mirlo.tools.bisect.bisect import Departure, Rounding, bisect
from mirlo.tools.bisect.trial import TrialOptions

ENDS = ("a0_quantize", "a1_quantize", "a2_quantize", "difference", "product", "y_quantize")
"""The last nodes of the composites."""
PATTERNS = ("qconv_relu", "qconv", "qmatmul", "matmul", "difference")
SHOWN = (*SHOWN_BY_QUANTIZED, *SHOWN_BY_RESIDUAL)
"""The faults that quantized networks show."""


def bisected(model: onnx.ModelProto, target: str, folder: Path) -> Departure | Rounding | None:
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(5).uniform(-2.3, 2.7, shape).astype(np.float32)
    return bisect(
        model, {"x": x}, against="reference", settings=TrialOptions(f"{target},llvm"),
        bundle=folder / "bundle", progress=lambda text: None,
    )  # fmt: skip


NIGHTLY = pytest.mark.sample(0)


def test_quantized_networks_show_all_faults_of_one_thread() -> None:
    assert set(FAULTS) - set(SHOWN) == {"shared_scratch"} and len(SHOWN) == len(set(SHOWN))


@pytest.mark.sample(0)
@pytest.mark.parametrize("fault", [pytest.param(f, marks=() if f == "wrong_layout" else NIGHTLY) for f in SHOWN])
def test_a_wrong_accelerator(fault: str, tmp_path: Path) -> None:
    target = accelerator(fault)
    found = bisected(network_of(fault), target, tmp_path)
    assert isinstance(found, Departure), found
    assert found.node in ENDS
    assert found.culprit.pattern in [f"{target}.{name}" for name in PATTERNS]
    assert found.replays


@pytest.mark.sample(0)
@pytest.mark.parametrize("network", [quantized_network, quantized_residual_network])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_correct_accelerator_is_not_accused(
    variant: str, network: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    found = bisected(network(), accelerator("", VARIANTS[variant]), tmp_path)
    assert found is None or isinstance(found, Rounding)
