"""What a prim function says about the products of run-time sizes that it computes, for callers to check.

    attributes {tir.extents = [["n", "m", 64], ["floordiv(n, 2)"]]}

A function that is given symbols computes dims and iterates over products of them in 64 bits. It does not check them:
each entry lists dims whose product its caller keeps within `MAX_ITERATIONS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import dim_attributes, dims_of_attribute

EXTENTS = "tir.extents"
"""Attribute of a prim function, and of a call of foreign code: lists of dims, of each of which it uses the product."""
MAX_BYTES = 1 << 47
"""Bytes of a tensor: what a process can address on x86-64, and less than the range of unbounded buffers."""
MAX_ITERATIONS = 1 << 60
"""Iterations of a kernel, elements of what it never writes to memory: sums of a few do not overflow 64 bits."""


def add_extents(op: Any, products: Iterable[Sequence[Dim]]) -> None:
    """Note products of dims on an operation, beside those that it has."""
    found = {tuple(map(str, dims)): list(dims) for dims in extents_of(op)}
    for dims in products:
        factors = [dim for dim in dims if dim != 1]
        if any(not isinstance(dim, int) for dim in factors):
            found.setdefault(tuple(map(str, factors)), factors)
    if found:
        op.attributes[EXTENTS] = ir.ArrayAttr.get([dim_attributes(tuple(dims)) for dims in found.values()])


def extents_of(op: Any) -> list[tuple[Dim, ...]]:
    """The products of dims that an operation notes."""
    if EXTENTS not in op.attributes:
        return []
    return [dims_of_attribute(entry) for entry in ir.ArrayAttr(op.attributes[EXTENTS])]
