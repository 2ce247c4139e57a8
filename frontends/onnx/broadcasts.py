"""Broadcast dims of which only the call can tell whether they are 1."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from typing import Protocol
from zlib import crc32

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.equations import Solutions
from mirlo.frontends.onnx.inputs import identifier


class Import(Protocol):
    """What one import of the model knows about symbols."""

    taken: set[str]
    of_data: dict[str, int]
    solutions: Solutions | None


class Broadcasts:
    """The broadcast sizes of one import.

    Each is a symbol until the import ends, because operators may require one of its dims.
    """

    def __init__(self) -> None:
        self._sizes: dict[frozenset[Dim], Dim] = {}
        self._parts: dict[Dim, frozenset[Dim]] = {}
        """The dims of each size that is none of them."""
        self._names: dict[frozenset[Dim], str] = {}
        """The symbol that was made for each."""

    def __len__(self) -> int:
        return len(self._sizes)

    def truncate(self, count: int) -> None:
        """Forget all but the first of them."""
        while len(self._sizes) > count:
            parts, size = self._sizes.popitem()
            self._parts.pop(size, None)
            self._names.pop(parts, None)

    def size(self, key: str, base: str, dims: Collection[Dim], of: Import) -> Dim:
        """Return the dim that dims broadcast to; `key` identifies the place across imports."""
        parts = self._flat(dims)
        if parts not in self._sizes:
            if of.solutions is None:
                size = _broadcast(parts)
            else:
                name = f"{identifier(base)}.at_{crc32(key.encode()):x}"
                while name in of.of_data or name in of.taken:
                    name += "_"
                of.of_data[name] = len(of.of_data)
                size = of.solutions.dims.get(name, D.symbol(name))
                self._names[parts] = name
            self._sizes[parts] = size
            if size not in parts:
                self._parts[size] = parts
        return self._sizes[parts]

    def requirement(self, dims: Collection[Dim]) -> tuple[Dim, Dim] | None:
        """Return the size that operators require of the broadcast of dims, and the broadcast; None if one is the other.

        Dims that are all 1 broadcast to any size, but their broadcast is 1.
        """
        parts = self._flat(dims)
        size, name = self._sizes[parts], self._names.get(parts)
        if name is None or size in parts or size == D.symbol(name) or size == (broadcast := _broadcast(parts)):
            return None
        return size, broadcast

    def _flat(self, dims: Collection[Dim]) -> frozenset[Dim]:
        """Return dims with the dims of each broadcast in its place."""
        return frozenset().union(*(self._parts.get(dim, frozenset([dim])) for dim in dims))

    def undecided(self) -> dict[str, Dim]:
        """Return what dims broadcast to, by symbol, if no operator required more."""
        return {name: _broadcast(parts) for parts, name in self._names.items() if self._sizes[parts] == D.symbol(name)}


def _broadcast(dims: frozenset[Dim]) -> Dim:
    """Return the broadcast of dims: the largest, or 0 if one is."""
    ordered = sorted(dims, key=str)
    return reduce(D.maximum, ordered) * D.product([D.minimum(1, dim) for dim in ordered])
