"""Broadcast dims of which only the call can tell whether they are 1."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any, Protocol
from zlib import crc32

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.errors import BroadcastDiffers
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.frontends.onnx.equations import Solutions
from mirlo.frontends.onnx.inputs import identifier


class Import(Protocol):
    """What one import of the model knows about symbols."""

    taken: set[str]
    of_data: dict[str, int]
    solutions: Solutions | None


class BroadcastImporter(Protocol):
    """The interface of an import that broadcasting uses."""

    def broadcast_size(self, dims: Collection[Dim]) -> Dim:
        """Return what these dims broadcast to if only the call tells whether they are 1: a required dim or a symbol."""


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


def broadcast_dim(body: BroadcastImporter, left: Dim, right: Dim) -> Dim:
    """Return the dim that two dims broadcast to, each of which may be 1, or equal to the other."""
    if left == 1 or left == right or (isinstance(left, int) and isinstance(right, int) and right != 1):
        return right
    if right == 1:
        return left
    for one, other in ((left, right), (right, left)):
        if isinstance(one, int):
            return one
        if D.is_nonnegative(1 - one):  # 0 or 1
            return one * other
        if other == D.maximum(one, 0):  # a dim of an array is not negative
            return one
    for one, other in ((left, right), (right, left)):
        if _is_equal_unless_empty(one, other):
            return one
    largest = D.maximum(left, right)
    result = largest * D.minimum(1, left) * D.minimum(1, right)
    if result in (left, right):
        return result
    return body.broadcast_size((left, right))


def _is_equal_unless_empty(one: Dim, other: Dim) -> bool:
    """Return whether a dim is 0 where some symbol is, and equal to the other dim where none is."""
    names = D.symbols_of(one)
    if not names or D.symbols_of(other) != names:
        return False
    positive = {name: D.symbol(name) + 1 for name in names}
    return D.substitute(one, positive) == D.substitute(other, positive) and all(
        D.substitute(one, {name: 0}) == 0 for name in names
    )


def expanded_operands(
    body: BroadcastImporter, operands: Sequence[Any], error: BroadcastDiffers
) -> tuple[Any, ...] | None:
    """Return the operands with broadcast axes expanded; None if they cannot be."""
    sides = (error.left, error.right)
    if any(side is D.UNKNOWN for side in sides) or all(isinstance(side, int) for side in sides):
        return None
    size = _broadcast_size(body, error) if error.target is None else error.target
    made = [_expanded(operand, error, size) for operand in operands]
    return None if all(new is old for new, old in zip(made, operands, strict=True)) else tuple(made)


def _broadcast_size(body: BroadcastImporter, error: BroadcastDiffers) -> Dim:
    """Return what all operands broadcast to along the axis, of which the error names two; numbers come first."""
    dims = [shape[error.axis] for shape in error.shapes if -error.axis <= len(shape)]
    dims.sort(key=lambda dim: not isinstance(dim, int))
    return reduce(lambda left, right: broadcast_dim(body, left, right), (dim for dim in dims if dim is not D.UNKNOWN))


def _expanded(operand: Any, error: BroadcastDiffers, size: Dim) -> Any:
    tensor_type = TensorType.from_mlir(operand.type) if hasattr(operand, "type") else None
    if tensor_type is None or tensor_type.shape not in error.shapes or -error.axis > tensor_type.rank:
        return operand
    shape = list(tensor_type.shape)
    if shape[error.axis] in (1, size):
        return operand
    shape[error.axis] = size
    return OPS["expand"].make(operand, shape=tuple(shape))
