"""Counts of n-grams in sequences of integers, such as token ids."""

from __future__ import annotations

from mirlo.dialects.core.attributes import Int
from mirlo.dialects.core.op import OpError, operand
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.base import RelaxOp
from mirlo.dialects.relax.infer import INTEGER, require_kind, require_rank, same_dtype


class CountNgrams(RelaxOp, name="count_ngrams"):
    """How often each row of grams [K, length] occurs in each row of x [N, T]: i64 [N, K].

    Up to `skips` elements are skipped between two elements of a gram, the same number everywhere.
    """

    x = operand()
    grams = operand()
    skips = Int(0)

    @staticmethod
    def infer(x: TensorType, grams: TensorType, *, skips: int) -> TensorType:
        require_kind(x, INTEGER, "operand")
        same_dtype("operand and grams", x, grams)
        require_rank(x, 2, "operand")
        require_rank(grams, 2, "grams")
        if skips < 0:
            raise OpError(f"skips must not be negative, got {skips}")
        return x.with_shape((x.shape[0], grams.shape[0])).with_dtype("i64")
