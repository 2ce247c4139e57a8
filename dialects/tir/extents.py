"""Products of run-time sizes that a prim function computes, recorded for callers to check.

    attributes {tir.extents = [["n", "m", 64], ["floordiv(n, 2)"]]}

A function with symbols as parameters computes dims and iterates over products of them in 64 bits without checks:
each entry lists dims whose product its caller keeps within `MAX_ITERATIONS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import dim_attributes, dims_of_attribute

EXTENTS = "tir.extents"
"""Attribute of a prim function, and of a call of external code: lists of dims whose products it uses."""
MAX_BYTES = 1 << 47
"""Most bytes of a tensor: the address space of a process on x86-64, below the range of unbounded buffers."""
MAX_ITERATIONS = 1 << 60
"""Most iterations of a kernel, or elements that are never written to memory: small sums fit into 64 bits."""


def add_extents(op: ir.Operation, products: Iterable[Sequence[Dim]]) -> None:
    """Add products of dims to those recorded on an operation."""
    extents = {tuple(map(str, dims)): list(dims) for dims in extents_of(op)}
    for dims in products:
        factors = [dim for dim in dims if dim != 1]
        if any(not isinstance(dim, int) for dim in factors):
            extents.setdefault(tuple(map(str, factors)), factors)
    if extents:
        op.attributes[EXTENTS] = ir.ArrayAttr.get([dim_attributes(tuple(dims)) for dims in extents.values()])


def extents_of(op: ir.Operation) -> list[tuple[Dim, ...]]:
    """Return the products of dims recorded on an operation."""
    if EXTENTS not in op.attributes:
        return []
    return [dims_of_attribute(entry) for entry in ir.ArrayAttr(op.attributes[EXTENTS])]
