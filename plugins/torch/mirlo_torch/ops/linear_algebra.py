"""Factors, inverses and determinants of matrices, and systems of equations."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import Dim, DType, Tensor, TensorType, UnsupportedOperation, broadcast_shape, concat, where
from mirlo.extend.frontend import dims as D
from mirlo.extend.library import cholesky, first_without_root, first_zero_pivot, solve_triangular, transposed
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import converter


@converter("aten._linalg_check_errors.default")
def check_errors(op: AtenOperation, info: Tensor, name: str, *, is_matrix: bool) -> None:
    """Check in the call that a factorization or a solution exists for all matrices."""
    flags = info.not_equals(0).cast("i64")
    failed = flags if not info.rank else flags.sum()
    what = "not positive definite" if "cholesky" in name else "singular"
    message = f"{name}: a matrix is {what}; minus the number of such matrices"
    op.builder.require_values((-failed).reshape((1,)), 1, message)


def _checked(op: AtenOperation, info: Tensor, name: str, wanted: bool) -> Tensor:
    """Return the numbers of the pivots that failed; if errors are requested, check that there are none."""
    if wanted:
        check_errors(op, info, name, is_matrix=info.rank == 0)
    return info


@converter("aten.linalg_cholesky_ex.default")
def cholesky_ex(op: AtenOperation, x: Tensor, *, upper: bool = False, check_errors: bool = False) -> list[Tensor]:
    if _is_empty(x):
        return [x, _no_errors(op, 1)]
    result = cholesky(op, x, lower=not upper)
    return [result, _checked(op, first_without_root(op, result), "linalg.cholesky_ex", check_errors)]


@converter("aten.cholesky.default")
def convert_cholesky(op: AtenOperation, x: Tensor, upper: bool = False) -> Tensor:
    if _is_empty(x):
        return x
    result = cholesky(op, x, lower=not upper)
    _checked(op, first_without_root(op, result), "cholesky", True)
    return result


@converter("aten.cholesky_solve.default")
def cholesky_solve(op: AtenOperation, b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """Solve with the Cholesky factor and its transpose."""
    if _is_empty(op.result()):
        return _zeros(op)
    a, b = _with_equal_batches(op, factor, b)
    result = solve_triangular(op, a, b, lower=not upper, is_transposed=upper)
    return solve_triangular(op, a, result, lower=not upper, is_transposed=not upper)


@converter("aten.cholesky_inverse.default")
def cholesky_inverse(op: AtenOperation, factor: Tensor, upper: bool = False) -> Tensor:
    if _is_empty(factor):
        return factor
    result = solve_triangular(op, factor, _identity(op, factor), lower=not upper, is_transposed=upper)
    return solve_triangular(op, factor, result, lower=not upper, is_transposed=not upper)


@converter("aten.linalg_solve_triangular.default")
def solve_triangle(
    op: AtenOperation, a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    if _is_empty(op.result()):
        return _zeros(op)
    a, b = _with_equal_batches(op, a, b)
    return solve_triangular(op, a, b, left=left, lower=not upper, unit=unitriangular)


@converter("aten.triangular_solve.default")
def triangular_solve(
    op: AtenOperation, b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unit: bool = False
) -> list[Tensor]:
    a, b = _with_equal_batches(op, a, b)
    if _is_empty(op.result(0)):
        return [op.constant(0, b.dtype).expand(b.shape), a]
    return [solve_triangular(op, a, b, lower=not upper, is_transposed=transpose, unit=unit), a]


# Elimination with exchanged rows


@converter("aten.linalg_lu_factor_ex.default")
def lu_factor_ex(op: AtenOperation, x: Tensor, *, pivot: bool = True, check_errors: bool = False) -> list[Tensor]:
    factors, pivots = _factors(op, x, pivot)
    if _is_empty(x):
        return [factors, pivots, _no_errors(op, 2)]
    info = _checked(op, first_zero_pivot(op, factors), "linalg.lu_factor_ex", check_errors)
    return [factors, pivots + 1, info]


@converter("aten.linalg_lu.default")
def lu(op: AtenOperation, x: Tensor, *, pivot: bool = True) -> list[Tensor]:
    factors, pivots = _factors(op, x, pivot)
    rows = _permutation(op, pivots, x.shape[-2])
    return [_permutation_matrix(op, rows, op.result(0)), *_triangles(op, factors)]


@converter("aten.lu_unpack.default")
def lu_unpack(op: AtenOperation, factors: Tensor, pivots: Tensor, data: bool = True, rows: bool = True) -> list[Tensor]:
    nothing = [op.constant(0, op.result(i).dtype).expand(op.result(i).shape) for i in range(3)]
    results = nothing[:1]
    if rows:
        order = _permutation(op, pivots - 1, factors.shape[-2])
        results = [_permutation_matrix(op, order, op.result(0))]
    return [*results, *(_triangles(op, factors) if data else nothing[1:])]


@converter("aten.linalg_lu_solve.default")
def lu_solve(
    op: AtenOperation, factors: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """Solve with the two triangles and the order of rows; x a = b is solved with the transposes."""
    if _is_empty(op.result()):
        return _zeros(op)
    a, b = _with_equal_batches(op, factors, b)
    order = _permutation(op, pivots - 1, factors.shape[-2])
    y = b if left else transposed(op, b)
    if adjoint == left:
        y = solve_triangular(op, a, y, lower=False, is_transposed=True)
        y = solve_triangular(op, a, y, lower=True, is_transposed=True, unit=True)
        y = _rows(op, y, op.sorted_order(order, order.rank - 1, False))
    else:
        y = solve_triangular(op, a, _rows(op, y, order), lower=True, unit=True)
        y = solve_triangular(op, a, y, lower=False)
    return y if left else transposed(op, y)


@converter("aten._linalg_solve_ex.default")
def solve_ex(
    op: AtenOperation, a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False
) -> list[Tensor | None]:
    """Solve systems of equations; right sides may be vectors."""
    kept = _kept_results(op, a, (1, 2), is_transposed=False)
    is_vector = b.rank == 1 or (b.rank == a.rank - 1 and b.shape == a.shape[:-1])
    right = b.reshape((*b.shape, 1)) if is_vector else b
    if _is_empty(op.result(0)):
        return [op.constant(0, b.dtype).expand(op.result(0).shape), *kept, _no_errors(op, 3)]
    a, right = _with_equal_batches(op, a, right)
    if left or is_vector:
        solution, info = _solved(op, a, right)
    else:
        solution, info = _solved(op, transposed(op, a), transposed(op, right))
        solution = transposed(op, solution)
    # The systems of a matrix that is used for a batch of right sides have one number.
    wanted = op.result(3).shape
    if info.shape != wanted:
        info = info.max(list(range(info.rank - len(wanted))))
    _checked(op, info, "linalg.solve_ex", check_errors)
    return [solution.reshape(op.result(0).shape), *kept, info]


@converter("aten.linalg_inv_ex.default")
def inverse_ex(op: AtenOperation, x: Tensor, *, check_errors: bool = False) -> list[Tensor]:
    if _is_empty(x):
        return [x, _no_errors(op, 1)]
    solution, info = _solved(op, x, _identity(op, x))
    return [solution, _checked(op, info, "linalg.inv_ex", check_errors)]


@converter("aten._linalg_det.default")
def determinant(op: AtenOperation, x: Tensor) -> list[Tensor | None]:
    return [op.emit("det", x), *_kept_results(op, x, (1, 2), _is_factored_transposed(op))]


@converter("aten._linalg_slogdet.default")
def log_determinant(op: AtenOperation, x: Tensor) -> list[Tensor | None]:
    """Convert the sign and the logarithm of determinants, from the pivots and the exchanges of rows."""
    size, kind = x.shape[-1], x.dtype
    if size == 0:
        results = [op.constant(number, kind).expand(x.shape[:-2]) for number in (1, 0)]
        return [*results, *_kept_results(op, x, (2, 3), _is_factored_transposed(op))]
    factors, pivots = _kept_factors(op, x, _is_factored_transposed(op))
    diagonal, axis = _diagonal(op, factors), x.rank - 2
    logs = abs(diagonal).log()
    return [_sign_of_order(op, pivots, kind) * diagonal.sign().prod(axis), logs.sum(axis), factors, pivots + 1]


# Parts


def _kept_factors(op: AtenOperation, x: Tensor, is_transposed: bool) -> tuple[Tensor, Tensor]:
    """Return the factors and the pivots, which gradients read."""
    return _factors(op, transposed(op, x) if is_transposed else x, True)


def _is_factored_transposed(op: AtenOperation) -> bool:
    """Return whether PyTorch factors the transposes of matrices for their determinants, as gradients expect."""
    return bool(op.node.args[0].meta["val"].is_contiguous())


def _kept_results(op: AtenOperation, x: Tensor, indices: Sequence[int], is_transposed: bool) -> list[Tensor | None]:
    """Return the results that gradients read, if any: the factors and the exchanged rows, counted from 1."""
    if not any(map(op.is_used, indices)):
        return [None, None]
    factors, pivots = _kept_factors(op, x, is_transposed)
    return [factors, pivots if _is_empty(x) else pivots + 1]


def _sign_of_order(op: AtenOperation, pivots: Tensor, kind: DType) -> Tensor:
    """Return the sign of a determinant by its exchanges of rows."""
    axis = pivots.rank - 1
    moved = pivots.not_equals(op.positions(pivots.type, axis).cast("i32"))
    return where(moved, -1, 1, kind).prod(axis)


def _is_empty(x: Tensor | TensorType) -> bool:
    return 0 in x.shape


def _zeros(op: AtenOperation) -> Tensor:
    return op.constant(0, op.dtype).expand(op.shape)


def _no_errors(op: AtenOperation, index: int) -> Tensor:
    return op.constant(0, op.result(index).dtype).expand(op.result(index).shape)


def _identity(op: AtenOperation, x: Tensor) -> Tensor:
    result = op.emit("eye", shape=x.shape[-2:], dtype=x.dtype)
    return result.expand(x.shape)


def _with_equal_batches(op: AtenOperation, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    batch = broadcast_shape([a.shape[:-2], b.shape[:-2]])
    return a.expand((*batch, *a.shape[-2:])), b.expand((*batch, *b.shape[-2:]))


def _factors(op: AtenOperation, x: Tensor, pivot: bool) -> tuple[Tensor, Tensor]:
    """Return both triangles of each matrix in one matrix, and the row that each row was exchanged with, from 0."""
    if not pivot:
        raise UnsupportedOperation("factors matrices without an exchange of rows")
    if _is_empty(x):
        tensor_type = TensorType.of((*x.shape[:-2], D.minimum(*x.shape[-2:])), "i32")
        return x, op.constant(0, tensor_type.dtype).expand(tensor_type.shape)
    factors, pivots = op.emit_all("lu", x)
    return factors, pivots


def _solved(op: AtenOperation, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the solution of a y = b and the first zero pivot: eliminate in [a, b], then substitute."""
    size, last = a.shape[-1], a.rank - 1
    beside = concat([a, b], last)
    factors, _ = _factors(op, beside, True)
    square, right = factors.slice(last, 0, size), factors.slice(last, size, b.shape[-1])
    return solve_triangular(op, square, right, lower=False), first_zero_pivot(op, square)


def _diagonal(op: AtenOperation, x: Tensor) -> Tensor:
    """Return the diagonals of square matrices."""
    row, column = (op.positions(x.type.with_shape(x.shape[-2:]), axis) for axis in (0, 1))
    kept = where(row.equals(column), x, 0, x.dtype)
    return kept.sum(x.rank - 1)


def _triangles(op: AtenOperation, factors: Tensor) -> list[Tensor]:
    """Return the unit lower triangle L and the upper triangle U."""
    rows, columns = factors.shape[-2:]
    size, last = D.minimum(rows, columns), factors.rank - 1
    left, upper = factors.slice(last, 0, size), factors.slice(last - 1, 0, size)
    if _is_empty(factors):
        return [_eye_of(op, left), upper]
    lower = op.emit("tri", left, k=-1, upper=False)
    return [lower + _eye_of(op, left), op.emit("tri", upper, k=0, upper=True)]


def _eye_of(op: AtenOperation, x: Tensor) -> Tensor:
    return op.emit("eye", shape=x.shape[-2:], dtype=x.dtype).expand(x.shape)


def _permutation(op: AtenOperation, pivots: Tensor, rows: Dim) -> Tensor:
    """Return the order of rows after exchanging each row, one by one, with the row in `pivots`."""
    batch, count, axis = pivots.shape[:-1], pivots.shape[-1], pivots.rank - 1
    kind = TensorType.of((*batch, rows), "i64")
    indices = op.positions(kind, axis)
    if count == 0 or 0 in batch:
        return indices
    wide = pivots.cast("i64")

    def goes_on(values: list[Tensor]) -> Tensor:
        return values[0] < op.operand(count, "i64")

    def exchange(values: list[Tensor]) -> list[Tensor]:
        at, order = values
        spot = at.reshape((1,))
        other = wide.gather(spot, axis=axis)
        here = order.gather(spot, axis=axis)
        there = order.gather_elements(other, axis=axis)
        swapped = where(indices.equals(other), here, order, kind.dtype)
        swapped = where(indices.equals(at), there, swapped, kind.dtype)
        return [at + 1, swapped]

    _, order = op.builder.repeat([op.constant(0, kind.dtype), indices], goes_on, exchange)
    return order


def _permutation_matrix(op: AtenOperation, order: Tensor, matrix_type: TensorType) -> Tensor:
    """Return the matrices whose transposes put rows in order."""
    if _is_empty(matrix_type):
        return op.constant(0, matrix_type.dtype).expand(matrix_type.shape)
    row = op.positions(TensorType.of((*order.shape, 1), "i64").with_shape((order.shape[-1], 1)), 0)
    columns = order.reshape((*order.shape[:-1], 1, order.shape[-1]))
    return row.equals(columns).cast(matrix_type.dtype)


def _rows(op: AtenOperation, x: Tensor, order: Tensor) -> Tensor:
    """Return the rows of matrices in the specified order."""
    axis = x.rank - 2
    wanted = order.reshape((*order.shape, 1)).expand((*x.shape[:-2], order.shape[-1], x.shape[-1]))
    return x.gather_elements(wanted, axis=axis)
