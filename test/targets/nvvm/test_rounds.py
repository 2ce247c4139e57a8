"""Products whose last round of tiles is a product of its own: executed by the emulator of PTX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from executed import run_on_emulator
from test_formats import product, values
from test_large_tiles import check_convolution

from mirlo.passes.rules import Decline
from mirlo.targets.gpu.schedule.contraction import fma
from mirlo.targets.gpu.schedule.split_k import SplitKPlan, divide
from mirlo.targets.gpu.schedule.stream_k import StreamKPlan, cuts
from mirlo.targets.nvvm.schedule import products, tensorcore


def on_few_units(monkeypatch: pytest.MonkeyPatch, units: int, which: int = 0) -> None:
    """Use a chip of so few units that small products have several rounds, the rest in two parts where possible."""

    def forced(plan: Any, roles: Any, _: int, way: Any) -> Any:
        shape = plan.shape
        whole, rest = list(cuts(roles, shape.height, shape.width, units))[which]
        parts = divide(rest, 2)
        last = way(rest) if isinstance(parts, Decline) else SplitKPlan(parts, way(parts.roles))
        return StreamKPlan(way(whole), last)

    monkeypatch.setattr(products, "whole_waves_if_faster", forced)


@pytest.mark.parametrize(
    ("size", "units", "which"),
    # Rows are cut; columns; rows that tiles do not divide, and columns.
    [((160, 64, 128), 4, 0), ((64, 176, 128), 5, 1), ((150, 70, 64), 4, 0), ((70, 150, 96), 7, 1)],
)
def test_on_matrix_units(size: tuple[int, int, int], units: int, which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    on_few_units(monkeypatch, units, which)
    monkeypatch.setattr(tensorcore, "choose_tile", lambda *_: tensorcore.TILES[-1])
    m, n, k = size
    a, b = (values("f32", *shape).astype(np.float16) for shape in ((m, k), (k, n)))
    found, schedule = run_on_emulator(product((f"{m}x{k}", "f16"), (f"{k}x{n}", "f16"), f"{m}x{n}", "f16"), [a, b])
    assert "the last round tensor cores in 2 parts" in schedule
    np.testing.assert_allclose(found.astype(np.float32), a.astype(np.float32) @ b.astype(np.float32), atol=0.1)


@pytest.mark.sample(0)
def test_what_follows_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elementwise blocks read the rows that belong to theirs, on both sides of the cut."""
    on_few_units(monkeypatch, 4)
    monkeypatch.setattr(fma, "choose_tile", lambda *_: fma.TILES[-1])
    a, b, c, d = values("f32", 330, 40), values("f32", 40, 64), values("f32", 64), values("f32", 330, 64)
    text = """func.func @main(%a: tensor<330x40xf32>, %b: tensor<40x64xf32>, %c: tensor<64xf32>, %d: tensor<330x64xf32>)
        -> tensor<330x64xf32> {
      %p = "relax.matmul"(%a, %b) : (tensor<330x40xf32>, tensor<40x64xf32>) -> tensor<330x64xf32>
      %s = "relax.add"(%p, %c) : (tensor<330x64xf32>, tensor<64xf32>) -> tensor<330x64xf32>
      %t = "relax.add"(%s, %d) : (tensor<330x64xf32>, tensor<330x64xf32>) -> tensor<330x64xf32>
      %r = "relax.relu"(%t) : (tensor<330x64xf32>) -> tensor<330x64xf32>
      return %r : tensor<330x64xf32>
    }"""
    found, schedule = run_on_emulator(text, [a, b, c, d])
    assert "the last round" in schedule
    np.testing.assert_allclose(found, np.maximum(a @ b + c + d, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.sample(0)
def test_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut along the images of a batch, whose edges stay where they are."""
    on_few_units(monkeypatch, 4)
    monkeypatch.setattr(fma, "choose_tile", lambda *_: fma.TILES[-1])
    assert "the last round" in check_convolution(5, 8, 8, 64)
