"""Addresses of shared memory in kernels with clusters, which name the block."""

from __future__ import annotations

from mirlo.testing.ptx.types import Array

RANK_SHIFT = 24
"""Of the rank of a block, plus one, in such addresses, those of a block's own variables too.

The manual leaves the encoding open. Hopper has the rank there: the addresses do not fit the fields of descriptors.
"""
OFFSETS = (1 << RANK_SHIFT) - 1
"""The bits below."""


def with_rank(addresses: Array, ranks: Array) -> Array:
    """Return addresses in the shared memory of blocks of a cluster."""
    kind = addresses.dtype.type
    moved: Array = addresses & kind(OFFSETS) | (ranks + 1).astype(kind) << kind(RANK_SHIFT)
    return moved
