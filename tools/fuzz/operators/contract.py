"""Products, convolutions, pooling."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from mirlo.tools.fuzz.operators import plans
from mirlo.tools.fuzz.pool import NodeDraft, ValuePool

EINSUMS = ("ij,jk->ik", "bij,bjk->bik", "ij,ij->i", "ij->ji", "i,j->ij", "bij,kj->bik", "bhid,bhjd->bhij")


@plans(4)
def matmul(pool: ValuePool) -> NodeDraft:
    x = pool.floats(1, 4)
    k, n = x.shape[-1], pool.choice(pool.dims)
    batch = [dim if pool.chance(0.7) else 1 for dim in x.shape[:-2]]
    batch = batch[pool.number(0, len(batch)) if pool.chance(0.5) else 0 :]
    y = pool.of_shape((k,) if pool.chance(0.1) else (*batch, k, n), x.dtype)
    return NodeDraft("MatMul", (x, y))


@plans(2)
def gemm(pool: ValuePool) -> NodeDraft:
    x = pool.floats(2, 2)
    trans_a, trans_b = pool.number(0, 1), pool.number(0, 1)
    m, k = x.shape[::-1] if trans_a else x.shape
    n = pool.choice(pool.dims)
    y = pool.of_shape((n, k) if trans_b else (k, n), x.dtype)
    bias = pool.of_shape(pool.choice(((n,), (1, n), (m, n), (m, 1), ())), x.dtype) if pool.chance(0.6) else None
    attributes: dict[str, object] = {"transA": trans_a, "transB": trans_b}
    if pool.chance(0.3):
        attributes |= {"alpha": 0.5, "beta": 0.25}
    return NodeDraft("Gemm", (x, y) if bias is None else (x, y, bias), attributes)


@plans()
def einsum(pool: ValuePool) -> NodeDraft:
    equation = pool.choice(EINSUMS)
    sizes = {letter: pool.choice((1, 2, 3, 5, 8)) for letter in "bhijkd"}
    terms = equation.split("->")[0].split(",")
    inputs = [pool.of_shape([sizes[letter] for letter in term], np.float32) for term in terms]
    return NodeDraft("Einsum", tuple(inputs), {"equation": equation})


class WindowAttributes(TypedDict, total=False):
    """The attributes of a window of ONNX."""

    kernel_shape: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]
    auto_pad: str
    count_include_pad: int
    group: int


def _window(pool: ValuePool, spatial: tuple[int, ...], dilated: bool = True) -> WindowAttributes | None:
    """Draw the attributes of a window over these dims."""
    kernel = [pool.number(1, min(5, dim + 1)) for dim in spatial]
    dilations = [pool.choice((1, 1, 2)) if dilated else 1 for _ in spatial]
    attributes: WindowAttributes = {"kernel_shape": kernel, "strides": [pool.choice((1, 1, 2, 3)) for _ in spatial]}
    if dilated:
        attributes["dilations"] = dilations
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    # Windows further apart than they are long would be padded by less than nothing: the oracles differ there.
    touching = all(k >= stride for k, stride in zip(kernel, attributes["strides"], strict=True))
    if pool.chance(0.2) and touching and all(d == 1 for d in dilations):
        attributes["auto_pad"] = pool.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        fits = attributes["auto_pad"] != "VALID" or all(r <= dim for r, dim in zip(reach, spatial, strict=True))
        return attributes if fits else None
    pads = [pool.number(0, k - 1) for k in kernel * 2]
    attributes["pads"] = pads
    count = len(spatial)
    padded = [dim + pads[i] + pads[i + count] for i, dim in enumerate(spatial)]
    return attributes if all(r <= dim for r, dim in zip(reach, padded, strict=True)) else None


def _overlaps_input(attributes: WindowAttributes, axis: int, dim: int) -> bool:
    """Return whether each window overlaps the input, whose size is `dim` along this axis."""
    kernel, stride = attributes["kernel_shape"][axis], attributes["strides"][axis]
    if "pads" not in attributes:
        return True
    dilation = attributes.get("dilations", [1] * (axis + 1))[axis]
    before, after = attributes["pads"][axis], attributes["pads"][axis + len(attributes["pads"]) // 2]
    last = dim + after - (kernel - 1) * dilation
    return all(any(0 <= start + i * dilation < dim for i in range(kernel)) for start in range(-before, last, stride))


@plans(4)
def conv(pool: ValuePool) -> NodeDraft | None:
    x = pool.floats(3, 4, dtype=np.float32)
    attributes = _window(pool, x.shape[2:])
    if attributes is None:
        return None
    channels = x.shape[1]
    group = channels if pool.chance(0.2) else pool.choice([g for g in (1, 1, 2, 3) if channels % g == 0])
    out = group * pool.choice((1, 2, 3, 8, 16))
    weight = pool.of_shape((out, channels // group, *attributes["kernel_shape"]), x.dtype)
    bias = (pool.of_shape((out,), x.dtype),) if pool.chance(0.6) else ()
    return NodeDraft("Conv", (x, weight, *bias), attributes | {"group": group})


@plans()
def conv_transpose(pool: ValuePool) -> NodeDraft:
    x = pool.floats(3, 4, dtype=np.float32)
    group = pool.choice([g for g in (1, 1, 2) if x.shape[1] % g == 0])
    kernel = [pool.number(1, 4) for _ in x.shape[2:]]
    strides = [pool.choice((1, 2, 3)) for _ in kernel]
    weight = pool.of_shape((x.shape[1], pool.choice((1, 3, 8)), *kernel), x.dtype)
    attributes = {"group": group, "strides": strides, "kernel_shape": kernel}
    if pool.chance(0.4):
        attributes["output_padding"] = [pool.number(0, stride - 1) for stride in strides]
    return NodeDraft("ConvTranspose", (x, weight), attributes)


@plans(2)
def pool_window(pool: ValuePool) -> NodeDraft | None:
    operator = pool.choice(("MaxPool", "AveragePool", "LpPool"))
    x = pool.floats(3, 4, dtype=np.float32)
    attributes = _window(pool, x.shape[2:], dilated=operator == "MaxPool")
    if attributes is None:
        return None
    # What an implementation makes of windows that lie in the padding alone is its own affair.
    if not all(_overlaps_input(attributes, i, dim) for i, dim in enumerate(x.shape[2:])):
        return None
    if operator == "AveragePool":
        attributes["count_include_pad"] = pool.number(0, 1)
    return NodeDraft(operator, (x,), attributes, is_exact=operator == "MaxPool")


@plans()
def global_pool(pool: ValuePool) -> NodeDraft:
    return NodeDraft(pool.choice(("GlobalAveragePool", "GlobalMaxPool")), (pool.floats(3, 4, dtype=np.float32),))
