"""Axes of the greatest possible length: the size of the code does not depend on the length."""

from __future__ import annotations

from typing import Any

import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.passes.schedule.primitives import dot_tile_code, tile_points, vector_memory
from mirlo.targets.llvm.schedule.contraction import tiled_contraction


def test_panels_of_a_long_axis_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def pieces(columns: int, lanes: int, is_masked: bool) -> list[Any]:
        asked.append(columns)
        return vector_memory.pieces_of(min(columns, 1 << 20), lanes, is_masked)

    for module in (dot_tile_code, tile_points, tiled_contraction):
        monkeypatch.setattr(module, "pieces_of", pieces)
    made = node("LpPool", "x", "y", kernel_shape=[1, 1], strides=[3, 3])
    mirlo.compile(make_model([made], {"x": (F32, [1, 4, 2**31 - 1, 1])}, ["y"]), cache=False)
    assert asked and max(asked) < 1000
