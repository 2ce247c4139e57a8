"""Memories of an accelerator as numbers: residues, floats or integers, each at the address of its first byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mirlo.dialects.core.dtypes import DType
from mirlo.passes.exact.field_number import FieldNumber
from mirlo.passes.exact.memory import Array
from mirlo.passes.exact.primes import P
from mirlo.passes.schedule.primitives.commands import TileOperand


class SimulationError(Exception):
    """A command reads or writes what is not in a memory."""


class CommandMemories:
    """The memories that commands read and write: parameters by name, and those of the accelerator by scope."""

    def __init__(self, kinds: Mapping[str, DType], number: Callable[[Any], Any]):
        """Make memories for buffers of some element types; `number` makes an element of a float buffer."""
        self._kinds, self._number = kinds, number
        self._memories: dict[str, Array] = {}

    def add(self, name: str, size: int, garbage: Callable[[int], Sequence[object]]) -> None:
        """Add a memory of some bytes, which hold garbage."""
        memory = np.empty(size, object)
        memory[:] = garbage(size)
        self._memories[name] = memory

    def read(self, tile: TileOperand, extents: Sequence[int]) -> Array:
        """Return the elements of a tile: a dim for each loop of the command, of size 1 where the tile does not move.

        Elements are Python integers or residues: sums and products of them do not overflow. In a round of floats they
        are 64-bit floats, which all functions of numpy take.
        """
        memory = self._memory(tile)
        dims = _moving(tile, extents)
        inside = tile.inside(extents) if tile.outside is not None else tuple(range(size) for size in dims)
        result = np.empty(dims, object)
        result[...] = self._element(tile, tile.outside or 0)
        if all(inside):
            part = tuple(
                slice(each.start, each.stop) if size > 1 else slice(0, 1)
                for each, size in zip(inside, dims, strict=True)
            )
            result[part] = memory[self._places(tile, dims, memory)[part]]
        is_real = self._kinds[tile.buffer].is_float and self._number is float
        return result.astype(np.float64) if is_real else result

    def write(self, tile: TileOperand, extents: Sequence[int], values: Array) -> None:
        """Write the elements of a tile; integers are wrapped to its type."""
        memory = self._memory(tile)
        dims = _moving(tile, extents)
        elements = np.empty(dims, object)
        elements[...] = np.asarray(values, object)
        written = np.empty(dims, object)
        for place, value in np.ndenumerate(elements):
            written[place] = self._element(tile, value)
        memory[self._places(tile, dims, memory)] = written

    def array(self, name: str) -> Array:
        """Return the elements of a parameter, for a simulator of bytes: integers in float buffers, too."""
        kind = self._kinds[name]
        elements = self._memories[name][:: kind.bytes]
        if kind.is_float:
            elements = np.array([integer_of(each) for each in elements.tolist()])
        return elements.astype(kind.to_numpy())

    def set_array(self, name: str, elements: Array) -> None:
        """Replace the elements of a parameter."""
        numbers = elements.reshape(-1).tolist()
        if self._kinds[name].is_float:
            numbers = [self._number(each) for each in numbers]
        self._memories[name][:: self._kinds[name].bytes] = numbers

    def numbers(self, name: str) -> Array:
        """Return the memory of a parameter or of a scope, by bytes."""
        return self._memories[name]

    def _memory(self, tile: TileOperand) -> Array:
        name = tile.scope or tile.buffer
        if name not in self._memories:
            raise SimulationError(f"there is no memory '{name}'")
        return self._memories[name]

    def _element(self, tile: TileOperand, value: Any) -> Any:
        kind = self._kinds[tile.buffer]
        return self._number(value) if kind.is_float else wrapped(int(value), kind)

    def _places(self, tile: TileOperand, dims: Sequence[int], memory: Array) -> Array:
        places = addresses(tile.address, dims, tile.strides)
        if tile.outside is None and places.size and not (places.min() >= 0 and places.max() < len(memory)):
            where = tile.scope or tile.buffer
            raise SimulationError(
                f"bytes {places.min()} to {places.max()} of '{where}', which has {len(memory)}, are accessed"
            )
        return places


def addresses(begin: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """Return the address of each element of an array with strides in bytes."""
    places = np.full(shape, begin)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        places = places + np.arange(size).reshape([-1 if i == axis else 1 for i in range(len(shape))]) * stride
    return places


def _moving(tile: TileOperand, extents: Sequence[int]) -> list[int]:
    return [size if stride else 1 for size, stride in zip(extents, tile.strides, strict=True)]


def integer_of(number: Any) -> float:
    """Return the integer that a residue is, of those nearest to zero; a float as it is."""
    if isinstance(number, FieldNumber):
        residue = number.residues[0]
        return residue if residue <= P // 2 else residue - P
    return float(number)


def wrapped(value: int, kind: DType) -> int:
    """Return an integer as a type holds it."""
    bits = 8 * kind.bytes
    value &= (1 << bits) - 1
    return value - (1 << bits) if not kind.is_unsigned and value >> (bits - 1) else value
