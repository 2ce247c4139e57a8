"""Order of dims in memory of tensors of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def memory_order(example: torch.Tensor) -> tuple[int, ...] | None:
    """Return the dims by their strides, the largest first, if that is how a dense tensor has its elements in memory.

    None if it is contiguous, or not dense.
    """
    order = _dense_order(example)
    moved = [axis for axis in order or () if hint(example.shape[axis]) != 1]
    return None if moved == sorted(moved) else order


def sparse_strides(example: torch.Tensor) -> tuple[int, ...] | None:
    """Return the strides of a result with gaps or repeated elements, such as an expanded one.

    None if it is dense, or if they depend on dynamic dims: the result is contiguous then.
    """
    strides = [stride for stride in example.stride() if isinstance(stride, int)]
    return None if len(strides) < example.ndim or _dense_order(example) is not None else tuple(strides)


def _dense_order(example: torch.Tensor) -> tuple[int, ...] | None:
    """Return the dims by their strides, the largest first; None if elements have gaps or are repeated."""
    sizes, strides = [hint(size) for size in example.shape], [hint(stride) for stride in example.stride()]
    order = tuple(sorted(range(len(sizes)), key=lambda axis: (-strides[axis], -sizes[axis], axis)))
    count = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != count:
            return None
        count *= sizes[axis]
    return order if 0 not in sizes else None


def hint(dim: torch.SymInt | int) -> int:
    """Return the size or stride that a graph was captured for; 2 for one that depends on data."""
    if isinstance(dim, int):
        return dim
    return int(dim.node.hint) if dim.node.hint is not None else 2
