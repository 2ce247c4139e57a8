"""Factorizations of matrices with orthogonal ones: QR, eigenvalues of symmetric matrices, singular values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.extend.frontend import Tensor, TensorType, concat, where
from mirlo.extend.frontend import dims as D
from mirlo.extend.library import transposed
from mirlo_torch.operation import AtenOperation
from mirlo_torch.orthogonal import (
    eigen_symmetric,
    orthogonal_matrix,
    qr_factors,
    reflected,
    singular_values,
)
from mirlo_torch.registry import converter, decomposition

if TYPE_CHECKING:
    import torch


def _zeros(op: AtenOperation, index: int | None = None) -> Tensor:
    """Return zeros for a result that is not used, or for matrices without elements."""
    result = op.result(index)
    return op.constant(0, result.dtype).expand(result.shape)


def _is_empty(*types: Tensor | TensorType) -> bool:
    return any(0 in each.shape for each in types)


@converter("aten.geqrf.default")
def convert_geqrf(op: AtenOperation, x: Tensor) -> Sequence[Tensor]:
    return [x, _zeros(op, 1)] if _is_empty(x) else qr_factors(op, x)


@converter("aten.linalg_householder_product.default")
def householder_product(op: AtenOperation, vectors: Tensor, factors: Tensor) -> Tensor:
    """Multiply reflections; the result has as many columns as the matrix of their vectors."""
    return _zeros(op) if _is_empty(vectors) else orthogonal_matrix(op, vectors, factors, vectors.shape[-1])


@converter("aten.ormqr.default")
def ormqr(
    op: AtenOperation, vectors: Tensor, factors: Tensor, y: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Multiply by Q from the left, or from the right by the transposes."""
    if _is_empty(op.result()):
        return _zeros(op)
    if left:
        return reflected(op, vectors, factors, y, is_transposed=transpose)
    return transposed(op, reflected(op, vectors, factors, transposed(op, y), is_transposed=not transpose))


@converter("aten.linalg_qr.default")
def qr(op: AtenOperation, x: Tensor, mode: str = "reduced") -> list[Tensor]:
    """Convert the QR factorization; mode "r" has no Q, "complete" has a square one."""
    rows, columns = x.shape[-2:]
    if _is_empty(x):
        q = op.result(0)
        return [op.emit("eye", shape=q.shape[-2:], dtype=q.dtype).expand(q.shape) if q.rank > 1 else _zeros(op, 0),
                _zeros(op, 1)]  # fmt: skip
    matrix, factors = qr_factors(op, x)
    kept = rows if mode == "complete" else D.minimum(rows, columns)
    r = op.emit("tri", matrix[..., :kept, :], k=0, upper=True)
    return [_zeros(op, 0) if mode == "r" else orthogonal_matrix(op, matrix, factors, kept), r]


@converter("aten._linalg_eigh.default")
def eigh(op: AtenOperation, x: Tensor, uplo: str = "L", compute_v: bool = True) -> list[Tensor]:
    """Convert eigenvalues and eigenvectors of symmetric matrices, of which one triangle is read."""
    if _is_empty(x):
        return [_zeros(op, 0), _zeros(op, 1)]
    op.fixed(x.shape[-1], "a number of rows")
    is_upper = uplo.upper() == "U"
    triangle = op.emit("tri", x, k=0, upper=is_upper)
    other = op.emit("tri", x, k=1 if is_upper else -1, upper=is_upper)
    values, vectors = eigen_symmetric(op, triangle + transposed(op, other))
    return [values, vectors if compute_v else _zeros(op, 1)]


@converter("aten._linalg_svd.default")
def svd(
    op: AtenOperation, x: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> list[Tensor]:
    """Convert singular values and vectors; matrices with more columns than rows are transposed first."""
    results = [op.result(index) for index in range(3)]
    if _is_empty(x):
        square = [op.emit("eye", shape=each.shape[-2:], dtype=each.dtype).expand(each.shape)
                  if compute_uv else _zeros(op, index) for index, each in enumerate(results) if index != 1]  # fmt: skip
        return [square[0], _zeros(op, 1), square[1]]
    rows, columns = (op.fixed(size, "a size of the matrix") for size in x.shape[-2:])
    is_wide = columns > rows
    left, values, right = singular_values(op, transposed(op, x) if is_wide else x)
    if not compute_uv:
        return [_zeros(op, 0), values, _zeros(op, 2)]
    left = _completed(op, left, values, max(rows, columns) if full_matrices else min(rows, columns))
    return [transposed(op, right), values, transposed(op, left)] if is_wide else [left, values, right]


def _completed(op: AtenOperation, left: Tensor, values: Tensor, columns: int) -> Tensor:
    """Return orthogonal columns: those of `left` with a nonzero singular value, and columns that complete them."""
    matrix, factors = qr_factors(op, left)
    others = orthogonal_matrix(op, matrix, factors, columns)
    known = values.shape[-1]
    kept = where(values.expand_dims(-2) > 0, left, others[..., :known])
    return kept if columns == known else concat([kept, others[..., known:]], -1)


@decomposition("aten.linalg_pinv.atol_rtol_tensor")
def pseudoinverse(
    x: torch.Tensor, *, atol: torch.Tensor | None = None, rtol: torch.Tensor | None = None, hermitian: bool = False
) -> torch.Tensor:
    """Compute the pseudoinverse by inverting the singular values, or eigenvalues, that are not small."""
    import torch

    if not x.numel():
        return x.new_zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]))
    if hermitian:
        values, right = torch.linalg.eigh(x)
        left = right.mT
    else:
        rows, values, columns = torch.linalg.svd(x, full_matrices=False)
        left, right = rows.mT, columns.mT
    sizes = values.abs()
    largest = sizes.amax(-1, keepdim=True)
    least: float | torch.Tensor = max(x.shape[-2:]) * torch.finfo(x.dtype).eps
    if rtol is not None:
        least = rtol.unsqueeze(-1)
    elif atol is not None:  # the relative tolerance is for those that have no absolute one
        least = torch.where(atol.unsqueeze(-1) > 0, 0.0, least)
    bound = (least * largest).to(x.dtype)
    if atol is not None:
        bound = torch.maximum(bound, atol.unsqueeze(-1).to(x.dtype))
    inverse = torch.where(sizes > bound, values.reciprocal(), 0.0)
    return (right * inverse.unsqueeze(-2)) @ left
