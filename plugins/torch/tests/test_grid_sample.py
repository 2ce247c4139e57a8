"""`grid_sample` at positions that are not finite, against PyTorch."""

from __future__ import annotations

from itertools import product

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

import torch.nn.functional as F  # noqa: E402
from module_cases import Calls  # noqa: E402

import mirlo  # noqa: E402

CASES = list(product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)))


@pytest.mark.parametrize("size", [5, None], ids=["static", "dynamic"])
def test_positions_that_are_not_finite(size: int | None) -> None:
    x, grid = torch.arange(120.0).reshape(2, 3, 4, 5), torch.linspace(-1.2, 1.2, 48).reshape(2, 3, 4, 2)
    for wild, at in zip(("nan", "inf", "-inf"), (grid[0], grid[1], grid[1, 1:]), strict=True):
        at[0, 0, 0] = at[0, 1, 1] = at[1, 2] = float(wild)
    module = Calls(lambda x, grid: [
        F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=align) for mode, padding, align in CASES
    ]).eval()  # fmt: skip
    dynamic = None if size else {"x": {3: torch.export.Dim.DYNAMIC}, "rest": ({2: torch.export.Dim.DYNAMIC},)}
    made = mirlo.compile(module, args=(x, grid), dynamic_shapes=dynamic, cache=False)
    for case, one, other in zip(CASES, made.torch(x, grid), module(x, grid), strict=True):
        torch.testing.assert_close(
            one, other, rtol=1e-4, atol=1e-4, equal_nan=True, msg=lambda text, case=case: f"{case}: {text}"
        )
