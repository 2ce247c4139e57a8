"""The special registers: which thread, which block, which chip."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mirlo.testing.ptx.group import Group
from mirlo.testing.ptx.types import Array


def _of_thread(name: str) -> Callable[[Group], Array]:
    return lambda group: group.batch.threads[name][group.tids]


def _of_block(name: str) -> Callable[[Group], Array]:
    def values(group: Group) -> Array:
        indices = group.batch.blocks[name]
        return indices if len(indices) == 1 else indices[group.tids // group.batch.block_size]

    return values


def _same(name: str) -> Callable[[Group], Array]:
    return lambda group: group.batch.same[name]


def _lane_mask(compare: Callable[[Array, Array], Array]) -> Callable[[Group], Array]:
    def values(group: Group) -> Array:
        lane = group.batch.threads["%laneid"][group.tids]
        chosen = compare(np.arange(32, dtype=np.uint32)[None], lane[:, None])
        return (chosen.astype(np.uint32) << np.arange(32, dtype=np.uint32)).sum(1).astype(np.uint32)

    return values


_AXES = ("x", "y", "z")
SPECIAL: dict[str, Callable[[Group], Array]] = {
    **{f"%tid.{axis}": _of_thread(f"%tid.{axis}") for axis in _AXES},
    **{f"%ctaid.{axis}": _of_block(f"%ctaid.{axis}") for axis in _AXES},
    **{f"%clusterid.{axis}": _of_block(f"%clusterid.{axis}") for axis in _AXES},
    **{f"%cluster_ctaid.{axis}": _of_block(f"%cluster_ctaid.{axis}") for axis in _AXES},
    **{f"%{what}.{axis}": _same(f"%{what}.{axis}") for axis in _AXES
       for what in ("ntid", "nctaid", "cluster_nctaid", "nclusterid")},
    "%cluster_ctarank": _of_block("%cluster_ctarank"),
    "%cluster_nctarank": _same("%cluster_nctarank"),
    "%laneid": _of_thread("%laneid"),
    "%warpid": _of_thread("%warpid"),
    "%dynamic_smem_size": _same("%dynamic_smem_size"),
    "%total_smem_size": _same("%total_smem_size"),
    "%lanemask_eq": _lane_mask(np.equal),
    "%lanemask_lt": _lane_mask(np.less),
    "%lanemask_le": _lane_mask(np.less_equal),
    "%lanemask_gt": _lane_mask(np.greater),
    "%lanemask_ge": _lane_mask(np.greater_equal),
}  # fmt: skip
