"""Nodes that move elements."""

from __future__ import annotations

import numpy as np

from mirlo.tools.fuzz.operators import plans
from mirlo.tools.fuzz.pool import MAX_ELEMENTS, GraphValue, NodeDraft, ValuePool


def _ints(pool: ValuePool, values: object) -> GraphValue:
    return pool.constant(np.array(values, np.int64))


@plans(2)
def transpose(pool: ValuePool) -> NodeDraft:
    x = pool.any(1)
    return NodeDraft("Transpose", (x,), {"perm": [int(i) for i in pool.rng.permutation(x.rank)]}, is_exact=True)


@plans(2)
def reshape(pool: ValuePool) -> NodeDraft:
    x = pool.any(1)
    dims = list(x.shape)
    if len(dims) > 1 and pool.chance(0.6):
        at = pool.number(0, len(dims) - 2)
        dims[at : at + 2] = [dims[at] * dims[at + 1]]
    else:
        at = pool.number(0, len(dims) - 1)
        factors = [f for f in (1, 2, 3, 4) if dims[at] % f == 0]
        factor = pool.choice(factors)
        dims[at : at + 1] = [factor, dims[at] // factor]
    if pool.chance(0.3):
        dims[pool.number(0, len(dims) - 1)] = -1
    return NodeDraft("Reshape", (x, pool.sizes(dims)), is_exact=True)


@plans()
def flatten(pool: ValuePool) -> NodeDraft:
    x = pool.any(1)
    return NodeDraft("Flatten", (x,), {"axis": pool.number(-x.rank, x.rank)}, is_exact=True)


@plans()
def unsqueeze(pool: ValuePool) -> NodeDraft:
    x = pool.any(0, 3)
    return NodeDraft("Unsqueeze", (x, _ints(pool, [pool.number(-x.rank - 1, x.rank)])), is_exact=True)


@plans()
def squeeze(pool: ValuePool) -> NodeDraft | None:
    x = pool.any(1)
    ones = [axis for axis, dim in enumerate(x.shape) if dim == 1]
    return NodeDraft("Squeeze", (x, _ints(pool, [pool.choice(ones)])), is_exact=True) if ones else None


@plans(2)
def concat(pool: ValuePool) -> NodeDraft:
    x = pool.any(1)
    axis = pool.number(0, x.rank - 1)
    more = []
    for _ in range(pool.number(1, 2)):
        shape = list(x.shape)
        shape[axis] = pool.choice((1, 2, 5))
        more.append(pool.of_shape(shape, x.dtype))
    return NodeDraft("Concat", (x, *more), {"axis": axis - x.rank if pool.chance(0.3) else axis}, is_exact=True)


@plans()
def split(pool: ValuePool) -> NodeDraft | None:
    x = pool.any(1)
    axis = pool.number(0, x.rank - 1)
    if x.shape[axis] < 2:
        return None
    first = pool.number(1, x.shape[axis] - 1)
    sizes = pool.sizes([first, x.shape[axis] - first])
    return NodeDraft("Split", (x, sizes), {"axis": axis}, outputs=2, is_exact=True)


@plans(3)
def slice_(pool: ValuePool) -> NodeDraft:
    x = pool.any(1)
    axes = sorted(int(i) for i in pool.rng.permutation(x.rank)[: pool.number(1, x.rank)])
    starts, ends, steps = [], [], []
    for axis in axes:
        dim = x.shape[axis]
        step = pool.choice((1, 1, 1, 2, 3, -1, -2))
        first, second = sorted((pool.number(0, dim - 1), pool.number(0, dim - 1)))
        begin, end = (first, second + 1) if step > 0 else (second, first - 1)
        # Counting from the end, and far beyond it, are said in many ways.
        if step < 0 and end < 0:
            end = -dim - 1
        elif end == dim and pool.chance(0.5):
            end = 2**31 - 1 if pool.chance(0.5) else 2**63 - 1
        elif step > 0 and end < dim and pool.chance(0.3):
            end -= dim
        starts.append(begin - dim if pool.chance(0.3) else begin)
        ends.append(end)
        steps.append(step)
    return NodeDraft(
        "Slice", (x, pool.sizes(starts), pool.sizes(ends), _ints(pool, axes), _ints(pool, steps)), is_exact=True
    )


@plans(2)
def pad(pool: ValuePool) -> NodeDraft:
    x = pool.any(1, 4, kinds="fffi")
    mode = pool.choice(("constant", "edge", "reflect", "wrap"))
    most = [0 if mode == "reflect" and dim == 1 else min(2, dim - 1 if mode == "reflect" else dim) for dim in x.shape]
    pads = [pool.number(0, m) for m in most * 2]
    value = (pool.constant(np.array(1.5, x.dtype)),) if mode == "constant" and pool.chance(0.6) else ()
    return NodeDraft("Pad", (x, pool.sizes(pads), *value), {"mode": mode}, is_exact=True)


@plans()
def tile(pool: ValuePool) -> NodeDraft:
    x = pool.any(1, 4)
    return NodeDraft("Tile", (x, pool.sizes([pool.choice((1, 1, 2, 3)) for _ in x.shape])), is_exact=True)


@plans()
def expand(pool: ValuePool) -> NodeDraft:
    x = pool.any(0, 3)
    shape = [pool.choice((2, 3)) if dim == 1 and pool.chance(0.6) else dim for dim in x.shape]
    shape = [pool.choice((1, 2)), *shape] if pool.chance(0.3) else shape
    return NodeDraft("Expand", (x, pool.sizes(shape)), is_exact=True)


@plans(2)
def gather(pool: ValuePool) -> NodeDraft:
    x = pool.any(1, 4)
    axis = pool.number(0, x.rank - 1)
    indices = pool.rng.integers(-x.shape[axis], x.shape[axis], pool.shape(0, 2))
    return NodeDraft("Gather", (x, pool.leaf(indices.astype(np.int64))), {"axis": axis}, is_exact=True)


@plans()
def gather_elements(pool: ValuePool) -> NodeDraft:
    x = pool.any(1, 4)
    axis = pool.number(0, x.rank - 1)
    shape = [pool.number(1, dim) for dim in x.shape]
    indices = pool.rng.integers(-x.shape[axis], x.shape[axis], shape)
    return NodeDraft("GatherElements", (x, pool.leaf(indices.astype(np.int64))), {"axis": axis}, is_exact=True)


@plans()
def scatter_elements(pool: ValuePool) -> NodeDraft:
    x = pool.any(1, 3, kinds="ffi")
    axis = pool.number(0, x.rank - 1)
    count = pool.number(1, x.shape[axis])
    shape = [count if at == axis else dim for at, dim in enumerate(x.shape)]
    # Each place once: which of several updates stays is not said.
    indices = np.argsort(pool.rng.random(x.shape), axis=axis)
    indices = np.take(indices, range(count), axis=axis).astype(np.int64)
    reduction = pool.choice(("none", "none", "add"))
    updates = pool.of_shape(shape, x.dtype)
    return NodeDraft(
        "ScatterElements", (x, pool.leaf(indices), updates), {"axis": axis, "reduction": reduction},
        is_exact=reduction == "none",
    )  # fmt: skip


@plans()
def scatter_nd(pool: ValuePool) -> NodeDraft:
    x = pool.any(1, 3, kinds="ffi")
    count = pool.number(1, x.shape[0])
    indices = pool.rng.permutation(x.shape[0])[:count].reshape(-1, 1).astype(np.int64)
    updates = pool.of_shape((count, *x.shape[1:]), x.dtype)
    return NodeDraft("ScatterND", (x, pool.leaf(indices), updates), is_exact=True)


@plans()
def gather_nd(pool: ValuePool) -> NodeDraft:
    x = pool.any(1, 4)
    depth = pool.number(1, x.rank)
    outer = pool.shape(1, 2)
    indices = np.stack([pool.rng.integers(0, dim, outer) for dim in x.shape[:depth]], axis=-1).astype(np.int64)
    return NodeDraft("GatherND", (x, pool.leaf(indices)), is_exact=True)


@plans()
def depth(pool: ValuePool) -> NodeDraft | None:
    x = pool.floats(4, 4)
    if x.shape[1] % 4 == 0:
        return NodeDraft("DepthToSpace", (x,), {"blocksize": 2, "mode": pool.choice(("DCR", "CRD"))}, is_exact=True)
    if x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0:
        return NodeDraft("SpaceToDepth", (x,), {"blocksize": 2}, is_exact=True)
    return None


@plans()
def triangle(pool: ValuePool) -> NodeDraft:
    x = pool.any(2, 4, kinds="ffi")
    k = (_ints(pool, pool.number(-2, 2)),) if pool.chance(0.6) else ()
    return NodeDraft("Trilu", (x, *k), {"upper": pool.number(0, 1)}, is_exact=True)


@plans()
def one_hot(pool: ValuePool) -> NodeDraft:
    indices = pool.leaf(pool.rng.integers(-3, 4, pool.shape(0, 2)).astype(np.int64))
    values = pool.leaf(pool.array((2,), np.float32))
    return NodeDraft("OneHot", (indices, _ints(pool, [4]), values), {"axis": pool.choice((-1, 0))}, is_exact=True)


@plans()
def resize(pool: ValuePool) -> NodeDraft | None:
    x = pool.floats(4, 4, dtype=np.float32)
    sizes = [x.shape[0], x.shape[1], pool.choice((1, 2, 4, 7)), pool.choice((1, 3, 6, 8))]
    if np.prod(sizes) > MAX_ELEMENTS or 1 in sizes[2:]:
        return None
    mode = pool.choice(("nearest", "linear"))
    attributes: dict[str, object] = {
        "mode": mode,
        "coordinate_transformation_mode": pool.choice(("half_pixel", "asymmetric")),
    }
    if mode == "nearest":
        # What lies half-way between two elements depends on a rounding error.
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        if any(size % dim and dim % size for size, dim in zip(sizes, x.shape, strict=True)):
            return None
    elif pool.choice((True, False)):
        attributes["antialias"] = 1
    return NodeDraft("Resize", (x, None, None, pool.sizes(sizes)), attributes)


@plans()
def shape_arithmetic(pool: ValuePool) -> NodeDraft:
    return NodeDraft("Shape", (pool.any(1),), is_exact=True)


@plans()
def filled(pool: ValuePool) -> NodeDraft:
    return NodeDraft("ConstantOfShape", (pool.sizes(pool.shape(0, 3)),), is_exact=True)


@plans()
def reverse_sequence(pool: ValuePool) -> NodeDraft:
    x = pool.any(2, 4)
    lengths = pool.rng.integers(1, x.shape[0] + 1, x.shape[1])
    return NodeDraft(
        "ReverseSequence", (x, pool.leaf(lengths.astype(np.int64))), {"batch_axis": 1, "time_axis": 0}, is_exact=True
    )


@plans()
def eye_like(pool: ValuePool) -> NodeDraft:
    return NodeDraft("EyeLike", (pool.any(2, 2, kinds="fi"),), {"k": pool.number(-2, 2)}, is_exact=True)
