"""`mirlo bisect` names the node and the pattern of an accelerator that computes a quantized network wrongly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from broken_accelerators import SHOWN_BY_QUANTIZED, VARIANTS, accelerator, quantized_network

from mirlo.tools.bisect.bisect import Departure, Rounding, bisect
from mirlo.tools.bisect.trial import TrialOptions

X = np.random.default_rng(5).uniform(-2.3, 2.7, (1, 3, 10, 7)).astype(np.float32)
ENDS = ("a0_quantize", "a1_quantize", "a2_quantize", "product", "y_quantize")
"""The last nodes of the composites."""


def bisected(target: str, folder: Path) -> Departure | Rounding | None:
    return bisect(
        quantized_network(), {"x": X}, against="reference", settings=TrialOptions(f"{target},llvm"),
        bundle=folder / "bundle", tell=lambda text: None,
    )  # fmt: skip


NIGHTLY = pytest.mark.sample(0)


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=() if fault == "wrong_layout" else NIGHTLY) for fault in SHOWN_BY_QUANTIZED]
)
def test_a_wrong_accelerator(fault: str, tmp_path: Path) -> None:
    target = accelerator(fault)
    found = bisected(target, tmp_path)
    assert isinstance(found, Departure), found
    assert found.node in ENDS
    assert found.culprit.pattern in (f"{target}.{name}" for name in ("qconv_relu", "qconv", "qmatmul", "matmul"))
    assert found.replays


@pytest.mark.sample(0)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_correct_accelerator_is_not_accused(variant: str, tmp_path: Path) -> None:
    found = bisected(accelerator("", VARIANTS[variant]), tmp_path)
    assert found is None or isinstance(found, Rounding)
