"""Axes that are as long as a model may say: what is made of them does not grow with them."""

from __future__ import annotations

from typing import Any

import pytest
from onnx_models import F32, make_model, node

import mirlo
from mirlo.targets.llvm.schedule.contraction import dot, padding, register_tile, tiles


def test_panels_of_a_long_axis_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def pieces(columns: int, lanes: int, masked: bool) -> list[Any]:
        asked.append(columns)
        return tiles.column_vectors(min(columns, 1 << 20), lanes, masked)

    for module in (dot, padding, register_tile):
        monkeypatch.setattr(module, "column_vectors", pieces)
    made = node("LpPool", "x", "y", kernel_shape=[1, 1], strides=[3, 3])
    mirlo.compile(make_model([made], {"x": (F32, [1, 4, 2**31 - 1, 1])}, ["y"]), cache=False)
    assert asked and max(asked) < 1000
