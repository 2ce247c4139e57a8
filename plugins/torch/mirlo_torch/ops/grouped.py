"""Products of groups of rows, each with its own matrix: the experts of a mixture."""

from __future__ import annotations

from mirlo.extend.frontend import Dim, Tensor, UnsupportedOperation, concat
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import converter


@converter("aten._grouped_mm.default")
def grouped_mm(
    op: AtenOperation, x: Tensor, weight: Tensor, ends: Tensor | None = None, bias: Tensor | None = None, *_: object
) -> Tensor:
    if bias is not None:
        raise UnsupportedOperation("adds a bias to each group")
    if (x.rank, weight.rank) == (3, 3) and ends is None:
        return (op.wide(x) @ op.wide(weight)).cast(op.dtype)
    if (x.rank, weight.rank) != (2, 3) or ends is None:
        raise UnsupportedOperation("has groups of columns: only groups of rows are supported")
    return of_rows(op, x, weight, ends)


@converter("transformers.grouped_mm_fallback.default")
def of_rows(op: AtenOperation, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Multiply each group of rows by its matrix; groups end at `ends`, rows after the last group give zeros."""
    groups = weight.shape[0]
    if not isinstance(groups, int):
        raise UnsupportedOperation("has a dynamic number of groups")
    if x.dtype is not weight.dtype:
        raise UnsupportedOperation(f"multiplies {x.dtype} by {weight.dtype}")
    ends = ends.cast("i64")
    before = concat([op.constant(0, ends.dtype, (1,)), ends.slice(0, 0, groups - 1)], 0)
    sizes = op.builder.bind(ends - before, op.name)
    begin: Dim = 0
    parts = []
    for group, size in enumerate(sizes):
        rows = x.slice(0, begin, size)
        matrix = weight.slice(0, group, 1).reshape(weight.shape[1:])
        parts.append(op.wide(rows) @ op.wide(matrix))
        begin = begin + size
    rest = x.shape[0] - begin
    op.builder.require_nonnegative([rest], "groups end within the rows")
    parts.append(op.constant(0, parts[0].dtype, (rest, weight.shape[2])))
    return concat(parts, 0).cast(op.dtype)
