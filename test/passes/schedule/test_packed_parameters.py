"""`pack` of a parameter: a constant that target llvm stores as its schedule reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import F32, make_model, node
from schedules import scheduled

import mirlo
from mirlo import Schedule
from mirlo.extend.schedules import ScheduleError

ROWS, DEPTH = 30, 40


def product(columns: int) -> onnx.ModelProto:
    """Return a product of an input and a constant, with an epilogue."""
    weight = np.random.default_rng(0).standard_normal((DEPTH, columns)).astype(np.float32)
    nodes = [node("MatMul", "x w", "h"), node("Relu", "h", "y")]
    return make_model(nodes, {"x": (F32, [ROWS, DEPTH])}, ["y"], {"w": weight})


def tiles(s: Schedule, width: int = 32) -> None:
    """Store the columns in panels, and compute tiles of registers."""
    block, after = s.blocks()
    s.pack("x1", (1, 0), ((1, width),))
    i, j, k = s.loops(block)
    panel, vector, lane = s.split(j, (None, width // 16, 16))
    tile, row = s.split(i, (None, 6))
    s.reorder(panel, tile, k, row, vector, lane)
    s.reverse_compute_inline(after)
    s.register_tile(block, (row, vector, lane), (k,))


def refused(parameter: str, target: str) -> str:
    """Return the error of a schedule that packs a parameter."""
    given = {"fused_matmul_relu": lambda s: s.pack(parameter, (1, 0), ((1, 8),))}
    with pytest.raises(mirlo.MirloError) as error:
        mirlo.compile(product(64), target, schedules=given, cache=False)
    return str(error.value)


@pytest.mark.parametrize(("columns", "width"), [(64, 32), (70, 32), (70, 16), (20, 32)])
def test_a_constant_is_stored_in_panels(columns: int, width: int) -> None:
    model, given = product(columns), {"fused_matmul_relu": lambda s: tiles(s, width=width)}
    code, (record,) = scheduled(model, given, "llvm")
    assert f'"w.panels"}} : () -> tensor<{-(-columns // width)}x{DEPTH}x{width}xf32>' in code
    assert "tir.stored" not in code
    x = np.random.default_rng(1).standard_normal((ROWS, DEPTH)).astype(np.float32)
    expected = mirlo.compile(model, cache=False)(x)
    np.testing.assert_allclose(mirlo.compile(model, schedules=given, cache=False)(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [64, 70, 500])
def test_the_primitives_of_a_rule_store_what_it_stores(columns: int) -> None:
    code, (record,) = scheduled(product(columns), {}, "llvm")
    assert record.rule.name == "contraction" and not record.is_applied
    assert [call.primitive for call in record.trace].count("pack") == code.count('w.panels"')
    again, (repeated,) = scheduled(product(columns), {"fused_matmul_relu": record.trace}, "llvm")
    assert again == code and str(repeated.trace) == str(record.trace)


def test_only_constants_are_stored_packed() -> None:
    assert "pack: 'x0' is no constant in all calls; pack a copy of it" in refused("x0", "llvm")
    assert "pack: 'x1' is a parameter, which is stored in another order where all calls pass a" in refused("x1", "c")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((0, 0), ()), "expected an order of the 2 dims"),
        (((1, 0), ((2, 8),)), "expected tiles as"),
        (((1, 0), ((1,),)), "expected tiles as"),
    ],
)
def test_orders_are_checked(arguments: Any, message: str) -> None:
    def by_hand(s: Schedule) -> None:
        before = str(s)
        with pytest.raises(ScheduleError, match=message):
            s.pack("x1", *arguments)
        s.pack("x1", (1, 0), ((1, 32),))
        with pytest.raises(ScheduleError, match="'x1' is packed already|is stored in order"):
            s.pack("x1", (1, 0, 2), ())
        s.undo(0)
        assert str(s) == before

    scheduled(product(64), {"fused_matmul_relu": by_hand}, "llvm")
