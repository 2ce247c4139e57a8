"""Relative position biases: terms of attention scores by the distance of two tokens, in buckets (T5)."""

from __future__ import annotations

import math

import numpy as np

from mirlo.extend.frontend import Tensor, maximum, minimum
from mirlo_llm.generate.checkpoints.encoder_options import Distances
from mirlo_llm.generate.checkpoints.graph import CheckpointGraph


def scores_of(
    graph: CheckpointGraph, name: str, heads: int, apart: Tensor, distances: Distances, has_both_sides: bool
) -> Tensor:
    """Return the position bias [..., heads]; `apart` is the position of each key minus that of the query."""
    table, far = graph.weight(name, distances.buckets, heads), distances.far
    groups = groups_of(np.arange(-far, far + 1), distances, has_both_sides)
    return table.gather(graph.builder.constant(groups, "i64").gather(minimum(maximum(apart, -far), far) + far))


def groups_of(distances: np.ndarray, how: Distances, has_both_sides: bool) -> np.ndarray:
    """Return the bucket of each distance: one per small distance, and logarithmic ranges of larger ones."""
    count, before = how.buckets, np.zeros(len(distances), np.int64)
    if has_both_sides:
        count //= 2
        before, size = np.where(distances > 0, count, 0), np.abs(distances)
    else:
        size = np.maximum(-distances, 0)
    near = count // 2
    with np.errstate(divide="ignore"):
        steps = np.log(size.astype(np.float32) / np.float32(near)) / math.log(how.far / near) * (count - near)
    grown = np.minimum(near + np.maximum(steps, 0).astype(np.int64), count - 1)
    result: np.ndarray = before + np.where(size < near, size, grown)
    return result
