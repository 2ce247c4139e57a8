"""Makers, which convert each operation of a plan to primitives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from mirlo_onednn.native.builder import PrimitiveBuilder
from mirlo_onednn.native.storage import PrimitiveValue
from mirlo_onednn.plan import PrimitiveNode

Maker = Callable[[PrimitiveBuilder, PrimitiveNode], PrimitiveValue]


@cache
def makers() -> dict[str, Maker]:
    """Return, by operation, the function that adds its steps."""
    from mirlo_onednn.native.makers import conv, elementwise, matmul, normalize, pool, shape

    table: dict[str, Maker] = {}
    for module in (conv, elementwise, matmul, normalize, pool, shape):
        table.update(module.MAKERS)
    return table
