"""Host functions on sequences, as tuples, and optional values, as the value itself or None."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from mirlo.runtime.host import host_function

T = TypeVar("T")


@host_function("mirlo.sequence.construct")
def construct(*items: T) -> tuple[T, ...]:
    return tuple(items)


@host_function("mirlo.sequence.extended")
def extended(items: tuple[T, ...], *more: T) -> tuple[T, ...]:
    return (*items, *more)


@host_function("mirlo.sequence.length")
def length(items: tuple[object, ...]) -> np.ndarray:
    return np.array(len(items), np.int64)


@host_function("mirlo.sequence.at")
def at(items: tuple[T, ...], position: np.ndarray) -> T:
    return items[_normalize_position(position, len(items), len(items) - 1)]


@host_function("mirlo.sequence.insert")
def insert(items: tuple[T, ...], item: T, position: np.ndarray | None = None) -> tuple[T, ...]:
    index = len(items) if position is None else _normalize_position(position, len(items), len(items))
    return (*items[:index], item, *items[index:])


@host_function("mirlo.sequence.erase")
def erase(items: tuple[T, ...], position: np.ndarray | None = None) -> tuple[T, ...]:
    if not items:
        raise ValueError("the sequence is empty: there is nothing to erase")
    index = len(items) - 1 if position is None else _normalize_position(position, len(items), len(items) - 1)
    return (*items[:index], *items[index + 1 :])


@host_function("mirlo.sequence.split")
def split(x: np.ndarray, sizes: np.ndarray | None = None, *, axis: int, keepdims: bool) -> tuple[np.ndarray, ...]:
    """Split a tensor into parts of the given sizes, of one given size, or of one element."""
    extent = x.shape[axis]
    if sizes is None or sizes.ndim == 0:
        piece = 1 if sizes is None else int(sizes)
        if piece < 1:
            raise ValueError(f"a dim of {extent} cannot be split into pieces of {piece}")
        ends = list(range(piece, extent, piece))
    else:
        if int(sizes.sum()) != extent or (sizes < 0).any():
            raise ValueError(f"a dim of {extent} cannot be split into {sizes.tolist()}: the sum must be {extent}")
        ends = np.cumsum(sizes)[:-1].tolist()
    pieces = np.split(x, ends, axis)
    if sizes is None and not keepdims:
        return tuple(np.squeeze(piece, axis) for piece in pieces)
    return tuple(pieces)


@host_function("mirlo.sequence.concat")
def concat(items: tuple[np.ndarray, ...], *, axis: int, new_axis: bool) -> np.ndarray:
    if not items:
        raise ValueError("the sequence is empty: the shape of the result is not known")
    return np.stack(items, axis) if new_axis else np.concatenate(items, axis)


@host_function("mirlo.sequence.has_element")
def has_element(value: np.ndarray | None) -> np.ndarray:
    return np.array(value is not None)


@host_function("mirlo.sequence.element")
def element(value: np.ndarray) -> np.ndarray:
    if value is None:
        raise ValueError("the optional value is empty: it has no element to get")
    return value


@host_function("mirlo.sequence.nothing")
def nothing() -> None:
    return None


@host_function("mirlo.sequence.same")
def same(value: T) -> T:
    return value


def _normalize_position(position: np.ndarray, count: int, most: int) -> int:
    """Normalize a position, which counts from the end if it is negative."""
    index = int(np.reshape(position, ()))
    if not -count <= index <= most:
        raise ValueError(f"position {index} is outside a sequence of {count}")
    return index + count if index < 0 else index
