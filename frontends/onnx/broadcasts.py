"""Broadcast dims of which only the call can tell whether they are 1."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce
from typing import Protocol
from zlib import crc32

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.inputs import identifier


class Import(Protocol):
    """What one import of the model knows about symbols."""

    taken: set[str]
    of_data: list[str]
    solutions: Mapping[str, Dim] | None


class Broadcasts:
    """The broadcast sizes of one import.

    Each is a symbol until the import ends, because operators may require one of its dims.
    """

    def __init__(self) -> None:
        self._made: dict[frozenset[Dim], Dim] = {}

    def size(self, key: str, base: str, dims: Collection[Dim], of: Import) -> Dim:
        """Return the dim that dims broadcast to; `key` identifies the place across imports."""
        known = {made: parts for parts, made in self._made.items() if made not in parts}
        parts = frozenset().union(*(known.get(dim, frozenset([dim])) for dim in dims))
        if parts not in self._made:
            if of.solutions is None:
                self._made[parts] = _broadcast(parts)
            else:
                name = f"{identifier(base)}.at_{crc32(key.encode()):x}"
                while name in of.of_data or name in of.taken:
                    name += "_"
                of.of_data.append(name)
                self._made[parts] = of.solutions.get(name, D.symbol(name))
        return self._made[parts]

    def undecided(self, of_data: Collection[str]) -> dict[str, Dim]:
        """Return what dims broadcast to, by symbol, if no operator required more."""
        found = {str(made): _broadcast(parts) for parts, made in self._made.items()}
        return {name: dim for name, dim in found.items() if name in of_data}


def _broadcast(dims: frozenset[Dim]) -> Dim:
    """Return the broadcast of dims: the largest, or 0 if one is."""
    ordered = sorted(dims, key=str)
    return reduce(D.maximum, ordered) * D.product([D.minimum(1, dim) for dim in ordered])
