"""The orders in which parameters of prim functions are stored, as the primitive `pack` of a constant declares them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.runtime.records import dataclass

STORED = "tir.stored"
"""Attribute of a prim function until it is scheduled: its parameters that are stored in another order of their dims."""


@dataclass(frozen=True)
class PackedOrder:
    """The order in which a parameter is stored."""

    argument: int
    """Position among the parameters of the function."""
    order: tuple[int, ...]
    """Dims from the slowest to the fastest."""
    tiles: tuple[tuple[int, int], ...]
    """Tiled dims, and the sizes of their tiles; the positions in tiles come last, in the order of the dims."""


def set_packed_orders(function: ir.Operation | ir.OpView, orders: Sequence[PackedOrder]) -> None:
    """Record the orders in which parameters of a prim function are stored."""
    encoded = [[each.argument, each.order, each.tiles] for each in orders]
    function.operation.attributes[STORED] = ir.StringAttr.get(json.dumps(encoded))


def packed_orders(function: ir.Operation | ir.OpView) -> list[PackedOrder]:
    """Return the orders in which parameters of a prim function are stored."""
    attributes = function.operation.attributes
    if STORED not in attributes:
        return []
    stored = json.loads(ir.StringAttr(attributes[STORED]).value)
    return [PackedOrder(at, tuple(order), tuple((dim, size) for dim, size in tiles)) for at, order, tiles in stored]
