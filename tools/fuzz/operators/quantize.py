"""Quantized numbers."""

from __future__ import annotations

import numpy as np

from mirlo.tools.fuzz.operators import plans
from mirlo.tools.fuzz.pool import NodeDraft, ValuePool

INTEGERS: tuple[type[np.int8] | type[np.uint8], ...] = (np.int8, np.uint8)


@plans()
def quantize(pool: ValuePool) -> NodeDraft:
    """Quantize by a power of two, so that no rounding error decides what is rounded."""
    x = pool.floats(exact=True, dtype=np.float32)
    kind = pool.choice(INTEGERS)
    scale, zero = pool.constant(np.float32(0.0625)), pool.constant(kind(pool.number(0, 20)))
    return NodeDraft("QuantizeLinear", (x, scale, zero), is_exact=True)


@plans()
def dequantize(pool: ValuePool) -> NodeDraft | None:
    x = pool.any(1, 4, kinds="iu")
    if x.dtype not in (np.int8, np.uint8):
        x = pool.leaf(pool.array(pool.shape(1, 4), pool.choice((np.int8, np.uint8))))
    axis = pool.number(0, x.rank - 1)
    shape = (x.shape[axis],) if pool.chance(0.5) else ()
    scale = pool.leaf(np.abs(pool.array(shape, np.float32)) + np.float32(0.25))
    zero = pool.leaf(pool.array(shape, x.dtype))
    return NodeDraft("DequantizeLinear", (x, scale, zero), {"axis": axis})


@plans()
def product_of_integers(pool: ValuePool) -> NodeDraft:
    m, k, n = (pool.choice((1, 2, 5, 8, 17)) for _ in range(3))
    left, right = (pool.of_shape(shape, pool.choice((np.int8, np.uint8))) for shape in ((m, k), (k, n)))
    return NodeDraft("MatMulInteger", (left, right), is_exact=True)


@plans()
def quantized_product(pool: ValuePool) -> NodeDraft:
    """Dequantize by powers of two."""
    m, k, n = (pool.choice((1, 2, 5, 8, 17)) for _ in range(3))
    kind = pool.choice(INTEGERS)
    inputs = []
    for shape in ((m, k), (k, n)):
        inputs += [pool.of_shape(shape, kind), pool.constant(np.float32(0.25)), pool.constant(kind(pool.number(0, 3)))]
    inputs += [pool.constant(np.float32(pool.choice((0.125, 0.5, 2.0)))), pool.constant(kind(pool.number(0, 20)))]
    return NodeDraft("QLinearMatMul", tuple(inputs), is_exact=True)
