"""Layers with steps, and other nodes with weights of their own."""

from __future__ import annotations

import numpy as np

from mirlo.tools.fuzz.operators import plans
from mirlo.tools.fuzz.pool import NodeDraft, ValuePool

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@plans()
def recurrent(pool: ValuePool) -> NodeDraft:
    operator = pool.choice(tuple(GATES))
    x = pool.floats(3, 3, dtype=np.float32)
    steps, batch, width = x.shape
    hidden, gates = pool.choice((1, 3, 4, 8)), GATES[operator]
    weights = [pool.of_shape((1, gates * hidden, size), np.float32) for size in (width, hidden)]
    bias = pool.of_shape((1, 2 * gates * hidden), np.float32) if pool.chance(0.6) else None
    state = pool.of_shape((1, batch, hidden), np.float32) if pool.chance(0.4) else None
    attributes: dict[str, object] = {"hidden_size": hidden}
    if operator == "GRU" and pool.chance(0.5):
        attributes["linear_before_reset"] = 1
    return NodeDraft(operator, (x, *weights, bias, None, state), attributes, outputs=2)


@plans()
def grid_sample(pool: ValuePool) -> NodeDraft:
    x = pool.floats(4, 4, dtype=np.float32)
    grid = pool.leaf(pool.array((x.shape[0], pool.number(1, 4), pool.number(1, 5), 2), np.float32, -1.5, 1.5))
    attributes = {
        "mode": pool.choice(("linear", "nearest")),
        "padding_mode": pool.choice(("zeros", "border")),
        "align_corners": pool.number(0, 1),
    }
    return NodeDraft("GridSample", (x, grid), attributes)


@plans()
def rotated(pool: ValuePool) -> NodeDraft:
    """Add a discrete Fourier transform."""
    x = pool.floats(2, 3, dtype=np.float32)
    parts = pool.leaf(pool.array((*x.shape[:2], pool.choice((1, 2))), np.float32))
    return NodeDraft("DFT", (parts, None, pool.constant(np.int64(1))), {"inverse": 0})
