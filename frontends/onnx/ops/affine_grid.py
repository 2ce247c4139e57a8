"""AffineGrid: the points of a regular grid, transformed by a matrix."""

from __future__ import annotations

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.infer import require_equal_shapes
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.tensor import Tensor, maximum, stack


@converter("AffineGrid", since=20)
def affine_grid(node: Node) -> Tensor:
    """Convert AffineGrid: theta [N, 2, 3] or [N, 3, 4].

    The grid sizes [N, C, (D,) H, W] are constants or run-time values.
    """
    theta, corners = node.type(0), node.attr.bool("align_corners", 0)
    sizes = node.dims(1)
    count = len(sizes) - 2
    if theta.rank != 3 or count not in (2, 3):
        raise NodeError(f"inputs must be [N, 2, 3] and 4 sizes, or [N, 3, 4] and 5, got {theta} and {len(sizes)}")
    require_equal_shapes(theta.shape[1:], (count, count + 1), f"the matrices of {theta} and those of {count}-D grids")
    grid = sizes[2:]
    wide = "f64" if theta.dtype.name == "f64" else "f32"
    kind = TensorType((), DTYPES[wide])
    points = []
    for i in reversed(range(count)):  # the last dim comes first
        along = _positions(node, grid[i], corners, kind)
        column = along.reshape(tuple(grid[i] if j == i else 1 for j in range(count)))
        points.append(column.expand(grid))
    points.append(node.emit("full", shape=grid, value=1, dtype=wide))
    base = stack(points, axis=count)
    total: Dim = 1
    for dim in grid:
        total = dim * total
    rows = base.reshape((1, total, count + 1))
    matrix = node[0] if theta.dtype.name == wide else node[0].cast(wide)
    moved = rows.matmul(matrix, transpose_rhs=True)
    result = moved.reshape((theta.shape[0], *grid, count))
    return result if theta.dtype.name == wide else result.cast(theta.dtype)


def _positions(node: Node, size: Dim, corners: bool, kind: TensorType) -> Tensor:
    """Return positions from -1 to 1: the corners, or the centers, of `size` equal parts."""
    i = node.index_vector(size).cast(kind.dtype)
    if isinstance(size, int):
        count = node.constant(size, kind)
    else:
        counted = node.sizes([size]).reshape(())
        count = counted.cast(kind.dtype)
    if corners:
        return i * 2 / maximum(count - 1, node.constant(1, kind)) - 1
    return (i * 2 + 1) / count - 1
