"""The number of rounds that the maxima of a kernel need: in each round, one operand of a maximum decides its result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mirlo.dialects.tir.view import BlockView, PrimView
from mirlo.passes.exact.memory import number_of

EXTREMES = (
    "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf", "arith.maxsi", "arith.minsi", "arith.maxui",
    "arith.minui", "arith.cmpf", "arith.cmpi",
)  # fmt: skip
MOST_POINTS = 1 << 25
"""The most points of blocks that are computed in the rounds of a kernel: some tenths of a second."""
MOST_ROUNDS = 2000
MARGIN = 5
"""How much more than n ln n: each operand wins but for a probability of e^-5."""


def rounds_for_maxima(view: PrimView, sizes: Mapping[str, int], least: int) -> tuple[int, float]:
    """Return the rounds for a kernel, and the share of the operands of its maxima that win in one of them."""
    needed, points = least, 0
    pairs = []
    for block in view.blocks:
        operands, results = _extents(block, sizes)
        points += operands * results
        if block.is_reduction and operands > 1 and results and any(op.name in EXTREMES for op in block.body_ops):
            pairs.append((operands, results))
            needed = max(needed, math.ceil(operands * (math.log(operands) + MARGIN) / results))
    rounds = max(least, min(needed, MOST_ROUNDS, MOST_POINTS // max(points, 1)))
    share = min((1 - math.exp(-rounds * results / operands) for operands, results in pairs), default=1.0)
    return rounds, share


def points_of(blocks: Sequence[BlockView], sizes: Mapping[str, int]) -> int:
    """Return how many points blocks have."""
    return sum(math.prod(_extents(block, sizes)) for block in blocks)


def _extents(block: BlockView, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the points of a block along its reduction axes, and along the others."""
    extents = [number_of(dim, sizes) for dim in block.domain]
    return math.prod(extents[i] for i in block.reduce), math.prod(extents[i] for i in block.spatial)
