"""Numbers that are added to the scores of attention by the distance of two tokens, in groups that grow."""

from __future__ import annotations

import math

import numpy as np

from mirlo.extend.frontend import Tensor, maximum, minimum
from mirlo_llm.generate.checkpoints.encoder_options import Distances
from mirlo_llm.generate.checkpoints.graph import CheckpointGraph


def scores_of(
    graph: CheckpointGraph, name: str, heads: int, apart: Tensor, distances: Distances, has_both_sides: bool
) -> Tensor:
    """Return what a table adds to scores, [..., heads]; `apart` is how far each key is behind a token."""
    table, far = graph.weight(name, distances.buckets, heads), distances.far
    groups = groups_of(np.arange(-far, far + 1), distances, has_both_sides)
    return table.gather(graph.builder.constant(groups, "i64").gather(minimum(maximum(apart, -far), far) + far))


def groups_of(distances: np.ndarray, how: Distances, has_both_sides: bool) -> np.ndarray:
    """Return the group of each distance to a key: near ones alone, farther ones in groups that grow."""
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
