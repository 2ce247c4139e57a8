"""Numbers as the matrix units see them."""

from __future__ import annotations

import numpy as np


def rounded_to_tf32(x: np.ndarray) -> np.ndarray:
    """Round to ten bits of fraction, ties away from zero."""
    return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)
