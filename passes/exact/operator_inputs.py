"""Inputs of operators that random elements are not: made of those, for the operators that define them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.array_meanings import NAN_IS_TRUE
from mirlo.dialects.relax.tree import MODES, NAN_BY_NODE
from mirlo.passes.exact.memory import GuardedBuffer, RandomMemory, number_of

Prepare = Callable[[ir.Operation, Sequence[GuardedBuffer], Mapping[str, int], RandomMemory, Collection[int]], None]
"""Changes the random inputs of an operator, but for those at the positions of constants."""


def _shape(value: ir.Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    kind = TensorType.from_mlir(value.type)
    assert kind is not None
    return tuple(number_of(dim, sizes) for dim in kind.shape)


def _nonzero(
    op: ir.Operation, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int], memory: RandomMemory,
    constants: Collection[int],
) -> None:  # fmt: skip
    """Make as many elements non-zero as `nonzero` is called with."""
    (x,), count = inputs, _shape(op.results[0], sizes)[1]
    chosen = memory.rng.permutation(x.count) < count
    kind = TensorType.from_mlir(op.operands[0].type)
    for plane in x.planes:
        one = np.ones_like(plane) if kind is not None and kind.dtype.is_bool else np.where(plane == 0, 1, plane)
        plane[:] = np.where(chosen, one, 0)


def _tree_ensemble(
    op: ir.Operation, inputs: Sequence[GuardedBuffer], sizes: Mapping[str, int], memory: RandomMemory,
    constants: Collection[int],
) -> None:  # fmt: skip
    """Make nodes that go to later levels or to leaves: no path is longer than the depth."""
    rng, view = memory.rng, op.opview
    (_, features), (count, _), (leaves, _) = (_shape(value, sizes) for value in (view.x, view.nodes, view.weights))
    nodes, roots = np.empty((count, 4), np.int64), inputs[3].planes[0]
    number = np.arange(count)
    levels = number * min(view.depth or count, count) // count
    nodes[:, 0] = rng.integers(0, max(features, 1), count)
    shared = max(view.mode, 0)
    nodes[:, 1] = shared % NAN_IS_TRUE if view.mode >= 0 else rng.integers(0, len(MODES), count)
    is_by_node = view.mode < 0 or shared & NAN_BY_NODE
    nodes[:, 1] += rng.choice((0, NAN_IS_TRUE), count) if is_by_node else shared & NAN_IS_TRUE
    later = np.searchsorted(levels, levels, side="right")[:, None]
    inner = rng.integers(np.minimum(later, count - 1), count, (count, 2))
    is_leaf = (rng.random((count, 2)) < 0.3) | (later == count)
    nodes[:, 2:] = np.where(is_leaf, -1 - rng.integers(0, leaves, (count, 2)), inner)
    if 2 not in constants:
        inputs[2].planes[0][:] = nodes.reshape(-1)
    if 3 not in constants:
        roots[:] = rng.integers(-leaves, count if features else 0, len(roots))


PREPARED: dict[str, Prepare] = {"relax.nonzero": _nonzero, "relax.tree_ensemble": _tree_ensemble}
"""By the names of operators."""
