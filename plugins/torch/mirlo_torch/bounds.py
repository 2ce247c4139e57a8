"""Run-time checks of data that PyTorch's kernels refuse: positions outside of an axis, division by zero.

A check is one pass over the positions or the divisors. Known values are checked at import. An import without `checks`
omits the run-time checks; the effect of an invalid position is then undefined.
"""

from __future__ import annotations

import numpy as np

from mirlo.extend.frontend import Dim, Tensor, UnsupportedOperation
from mirlo_torch.operation import AtenOperation


def require_positions(op: AtenOperation, indices: Tensor, size: Dim, wraps: bool = False) -> None:
    """Check positions on an axis of a size; with `wraps`, they may be negative and count from the end."""
    what = f"{op.name}: positions outside of an axis of {size} elements; minus their number"
    number = indices.constant
    if number is not None and isinstance(size, int):
        _require_known(not np.any((number < (-size if wraps else 0)) | (number >= size)), what)
        return
    at = indices.cast("i64")
    below = at < (size * -1 if wraps else 0)
    require_none(op, below | (at >= size), what)


def require_divisors(op: AtenOperation, divisors: Tensor) -> None:
    """Check that integer divisors are not 0."""
    if not divisors.dtype.is_integer:
        return
    what = f"{op.name}: integer division by zero; minus the number of zeros"
    if divisors.array is not None:
        _require_known(bool(np.all(divisors.array != 0)), what)
    else:
        require_none(op, divisors.equals(0), what)


def _require_known(holds: bool, what: str) -> None:
    if not holds:
        raise UnsupportedOperation(f"computes what PyTorch refuses: {what.partition(';')[0]}")


def require_none(op: AtenOperation, flags: Tensor, what: str) -> None:
    """Check at run time that no flag is set, if the import makes checks."""
    if not op.builder.checks:
        return
    count = flags.cast("i64") if not flags.rank else flags.cast("i64").sum()
    op.builder.require_values((-count).reshape((1,)), 1, what)
