"""Reductions, norms, sorting."""

from __future__ import annotations

import numpy as np

from mirlo.tools.fuzz.operators import plans
from mirlo.tools.fuzz.pool import GraphValue, NodeDraft, ValuePool

SUM_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")


def axes_of(pool: ValuePool, x: GraphValue) -> list[int]:
    """Draw some axes, counted from either end."""
    count = pool.number(1, x.rank)
    axes = [int(axis) for axis in pool.rng.permutation(x.rank)[:count]]
    return [axis - x.rank if pool.chance(0.3) else axis for axis in axes]


@plans(3)
def reduce(pool: ValuePool) -> NodeDraft:
    operator = pool.choice((*SUM_REDUCTIONS, "ReduceMax", "ReduceMin"))
    x = pool.floats(1, 4)
    axes = pool.constant(np.array(axes_of(pool, x), np.int64)) if pool.chance(0.9) else None
    inputs = (x, axes) if axes is not None else (x,)
    return NodeDraft(operator, inputs, {"keepdims": pool.number(0, 1)}, is_exact=operator in ("ReduceMax", "ReduceMin"))


@plans()
def reduce_integers(pool: ValuePool) -> NodeDraft:
    x = pool.any(1, 4, kinds="i")
    if x.dtype not in (np.int32, np.int64):
        x = pool.leaf(pool.array(pool.shape(1, 4), np.int64))
    axes = pool.constant(np.array(axes_of(pool, x), np.int64))
    operator = pool.choice(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"))
    return NodeDraft(operator, (x, axes), {"keepdims": pool.number(0, 1)}, is_exact=True)


@plans()
def arg(pool: ValuePool) -> NodeDraft:
    x = pool.any(1, 4, kinds="ffi", exact=True)
    attributes = {
        "axis": pool.number(-x.rank, x.rank - 1),
        "keepdims": pool.number(0, 1),
        "select_last_index": pool.number(0, 1),
    }
    return NodeDraft(pool.choice(("ArgMax", "ArgMin")), (x,), attributes, is_exact=True)


@plans()
def cumulative(pool: ValuePool) -> NodeDraft:
    x = pool.floats(1, 3)
    axis = pool.constant(np.array(pool.number(-x.rank, x.rank - 1), np.int64))
    return NodeDraft("CumSum", (x, axis), {"exclusive": pool.number(0, 1), "reverse": pool.number(0, 1)})


@plans()
def top(pool: ValuePool) -> NodeDraft | None:
    x = pool.floats(1, 3, exact=True)
    axis = pool.number(-x.rank, x.rank - 1)
    if x.shape[axis] != len(np.unique(x.array)) or x.array.size != x.shape[axis]:
        count = pool.choice((4, 9, 17))
        x = pool.leaf(pool.rng.permutation(count).astype(np.float32))
        axis = 0
    k = pool.constant(np.array([pool.number(1, x.shape[axis])], np.int64))
    return NodeDraft("TopK", (x, k), {"axis": axis, "largest": pool.number(0, 1)}, outputs=2, is_exact=True)


@plans(2)
def softmax(pool: ValuePool) -> NodeDraft:
    x = pool.floats(1, 4)
    return NodeDraft(pool.choice(("Softmax", "LogSoftmax")), (x,), {"axis": pool.number(-x.rank, x.rank - 1)})


@plans()
def layer_norm(pool: ValuePool) -> NodeDraft:
    x = pool.floats(2, 4, dtype=np.float32)
    axis = pool.number(1, x.rank - 1)
    scale = pool.of_shape(x.shape[axis:], x.dtype)
    bias = pool.of_shape(x.shape[axis:], x.dtype) if pool.chance(0.6) else None
    return NodeDraft("LayerNormalization", (x, scale, bias), {"axis": axis, "epsilon": 0.01})


@plans()
def batch_norm(pool: ValuePool) -> NodeDraft:
    x = pool.floats(2, 4, dtype=np.float32)
    channels = (x.shape[1],)
    scale, bias, mean = (pool.leaf(pool.array(channels, x.dtype), constant=True) for _ in range(3))
    variance = pool.leaf(pool.array(channels, x.dtype, 0.5, 2.0), constant=True)
    return NodeDraft("BatchNormalization", (x, scale, bias, mean, variance), {"epsilon": 0.01})


@plans()
def instance_norm(pool: ValuePool) -> NodeDraft:
    x = pool.floats(3, 4, dtype=np.float32)
    scale, bias = (pool.leaf(pool.array((x.shape[1],), x.dtype)) for _ in range(2))
    return NodeDraft("InstanceNormalization", (x, scale, bias), {"epsilon": 0.01})


@plans()
def local_norm(pool: ValuePool) -> NodeDraft:
    return NodeDraft("LRN", (pool.floats(4, 4, dtype=np.float32),), {"size": pool.choice((3, 5, 7))})


@plans()
def mean_variance(pool: ValuePool) -> NodeDraft | None:
    x = pool.floats(4, 4, dtype=np.float32)
    if x.array.shape[0] * x.array.shape[2] * x.array.shape[3] < 4:
        return None
    return NodeDraft("MeanVarianceNormalization", (x,)) if x.array.std(axis=(0, 2, 3)).min() > 0.1 else None


@plans()
def hardmax(pool: ValuePool) -> NodeDraft:
    x = pool.floats(1, 3, exact=True)
    return NodeDraft("Hardmax", (x,), {"axis": pool.number(-x.rank, x.rank - 1)}, is_exact=True)


@plans()
def lp_normalization(pool: ValuePool) -> NodeDraft | None:
    x = pool.floats(2, 4, dtype=np.float32)
    axis = pool.number(-x.rank, x.rank - 1)
    # Of p = 1 the reference evaluator adds up the numbers, not how large they are.
    far_from_zero = np.abs(x.array).sum(axis=axis).min() > 0.1
    return NodeDraft("LpNormalization", (x,), {"axis": axis, "p": 2}) if far_from_zero else None


@plans()
def group_norm(pool: ValuePool) -> NodeDraft:
    x = pool.floats(3, 4, dtype=np.float32)
    groups = pool.choice([g for g in (1, 2, 3, 4) if x.shape[1] % g == 0])
    scale, bias = (pool.leaf(pool.array((x.shape[1],), x.dtype)) for _ in range(2))
    return NodeDraft("GroupNormalization", (x, scale, bias), {"num_groups": groups, "epsilon": 0.01})
