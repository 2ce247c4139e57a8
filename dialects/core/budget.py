"""Limits on the constants that are computed while compiling, in bytes.

Code that makes constants whose size the model decides asks here first, before it allocates: importers, folding, tables
of weights. A few bytes of a model must not become gigabytes.
"""

from __future__ import annotations

from math import prod

from mirlo.dialects.core.errors import OpError

TABLE_BYTES = 64 << 20
"""Bytes of one table: 16 million weights are more than any image or signal that is resampled has places."""
GROWTH = 64
"""The budget of a table grows by this multiple of the bytes that it is computed from: each weight of a tree has one for
each class."""
FOLDED_BYTES = 1 << 28
"""Bytes that `fold-constant` may make of any model."""
FOLDINGS = 4
"""That budget grows by this multiple of the bytes of the model's constants: weights are permuted, dequantized."""


class ConstantTooLarge(OpError):
    """A constant that would have to be computed while compiling is beyond the budget."""


def fits_table(*dims: int, element_bytes: int = 8) -> bool:
    """Return whether a table of these dims may be computed at compile time."""
    return prod(dims) * element_bytes <= TABLE_BYTES


def require_table(
    what: str, *dims: int, element_bytes: int = 8, source_bytes: int = 0, most: int = TABLE_BYTES
) -> None:
    """Refuse a table of these dims that is beyond the budget; `what` says what it holds.

    The budget is `most` bytes plus `GROWTH` times the bytes of the constants from which the table is computed.
    """
    limit = most + GROWTH * source_bytes
    if prod(dims) * element_bytes > limit:
        size = " x ".join(map(str, dims))
        raise ConstantTooLarge(
            f"{what} would be a table of {size} elements that is computed while compiling, "
            f"{prod(dims) * element_bytes >> 20} MiB: the limit is {limit >> 20} MiB; give smaller sizes"
        )
