"""Constants of a function, each emitted once, at its start."""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.value import create
from mirlo.passes.schedule.buffers import BufferFunction


class FunctionConstants:
    """Numbers, sizes, splats, masks and scratch memory at the start of a function."""

    def __init__(self, function: BufferFunction) -> None:
        self._function = function
        self._known: dict[object, ir.Value] = {}

    def index(self, value: Dim) -> ir.Value:
        """Return a number or a size."""
        kind = ir.IndexType.get()
        if isinstance(value, int):
            return self._at_start(value, lambda: _constant(kind, ir.IntegerAttr.get(kind, value)))
        return self._at_start(value, lambda: create("tir.size", kind, dim=ir.StringAttr.get(str(value))))

    def splat(self, lanes: int, element: ir.Attribute) -> ir.Value:
        """Return a vector whose lanes have the same value."""
        kind = ir.VectorType.get([lanes], element.type)
        return self._at_start((lanes, element), lambda: _constant(kind, ir.DenseElementsAttr.get_splat(kind, element)))

    def mask(self, lanes: int, active: Dim) -> ir.Value:
        """Return a mask whose first lanes are active."""
        kind = ir.VectorType.get([lanes], ir.IntegerType.get_signless(1))
        key = ("mask", lanes, active)
        if not isinstance(active, int):
            if key not in self._known:
                count = self.index(active)
                with ir.InsertionPoint.after(count.owner), self._function.location:
                    self._known[key] = create("vector.create_mask", kind, count)
            return self._known[key]
        on = [ir.BoolAttr.get(i < active) for i in range(lanes)]
        return self._at_start(key, lambda: _constant(kind, ir.DenseElementsAttr.get(on, kind)))

    def scratch(self, key: object, elements: int, kind: ir.Type) -> ir.Value:
        """Return memory for this many elements, the same for each use of a key."""
        if key not in self._known:
            self._known[key] = self._function.scratch([elements], kind)
        return self._known[key]

    def _at_start(self, key: object, emit: Callable[[], ir.Value]) -> ir.Value:
        if key not in self._known:
            with ir.InsertionPoint.at_block_begin(self._function.entry), self._function.location:
                self._known[key] = emit()
        return self._known[key]


def _constant(kind: ir.Type, value: ir.Attribute) -> ir.Value:
    return create("arith.constant", kind, value=value)
