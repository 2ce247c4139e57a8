"""Factors of matrices and triangular systems; the functions of LAPACK to which JAX lowers them on CPUs."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.stablehlo.operation import StablehloOperation
from mirlo.frontends.stablehlo.registry import Converter, converter
from mirlo.frontends.tensor import Tensor


@converter("cholesky")
def cholesky(op: StablehloOperation) -> Tensor:
    """Convert `cholesky`: the upper factor is the transpose of the lower one."""
    lower = op.flag("lower")
    x = op.operands[0] if lower else _transposed(op, op.operands[0])
    made = op.emit("cholesky", x)
    return made if lower else _transposed(op, made)


@converter("triangular_solve")
def triangular_solve(op: StablehloOperation) -> Tensor:
    """Convert `triangular_solve`; the adjoint of real matrices is the transpose."""
    transposed = op.word("transpose_a") in ("TRANSPOSE", "ADJOINT")
    return _solved(op, op.flag("left_side"), op.flag("lower"), transposed, op.flag("unit_diagonal"))


def _solved(op: StablehloOperation, left: bool, lower: bool, transposed: bool, unit: bool) -> Tensor:
    """Solve a y = b, or y a = b by the transpose."""
    a, b = op.operands[:2]
    words = {"lower": lower, "transposed": transposed == left, "unit_diagonal": unit}
    made = op.emit("triangular_solve", a, b if left else _transposed(op, b), **words)
    return made if left else _transposed(op, made)


def _transposed(op: StablehloOperation, x: Tensor) -> Tensor:
    rank = x.rank
    return op.permuted(x, [*range(rank - 2), rank - 1, rank - 2])


# What JAX calls on CPUs, `lapack_sgetrf_ffi`: the names between the element type and the suffix.


def lapack_function(name: str) -> Converter | None:
    """Return the converter of a function of LAPACK on real matrices, None for others."""
    library, _, rest = name.partition("_")
    function, _, suffix = rest.partition("_")
    if library != "lapack" or suffix != "ffi" or function[:1] not in ("s", "d"):
        return None
    return _LAPACK.get(function[1:])


def convert_lapack(op: StablehloOperation, convert: Converter) -> Sequence[Tensor]:
    """Convert a call of a function of LAPACK, of which nothing has checked the operands."""
    count = 2 if convert is _trsm else 1
    if len(op.operands) < count:
        raise UnsupportedOperation(f"takes {count} operands, found {len(op.operands)}")
    made = convert(op)
    return [made] if isinstance(made, Tensor) else made


def _letter(op: StablehloOperation, name: str) -> str:
    """Return an argument of a function of LAPACK, which is a letter."""
    config = op.op.attributes["mhlo.backend_config"] if op.has("mhlo.backend_config") else None
    if not isinstance(config, ir.DictAttr) or name not in config or not isinstance(config[name], ir.IntegerAttr):
        raise UnsupportedOperation(f"has no argument '{name}'")
    return chr(int(config[name].value) & 127)


def _potrf(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `potrf`, whose second result is the number of the first pivot that is not positive."""
    lower = _letter(op, "uplo") == "L"
    x = op.operands[0] if lower else _transposed(op, op.operands[0])
    made = op.emit("cholesky", x)
    return [made if lower else _transposed(op, made), _first(op, op.elementwise("isnan", made))]


def _getrf(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `getrf`, which counts rows from 1; the last result is the number of the first pivot that is 0."""
    factors, pivots = op.emit_all("lu", op.operands[0])
    one = op.constant(1, pivots.dtype)
    zero = op.elementwise("equal", factors, op.constant(0, factors.dtype))
    return [factors, op.elementwise("add", pivots, one), _first(op, zero)]


def _first(op: StablehloOperation, flags: Tensor) -> Tensor:
    """Return the number, from 1, of the first element on the diagonal that is set; 0 if none is."""
    *batch, rows, columns = flags.shape
    size = D.minimum(rows, columns)
    row, column = (op.positions(TensorType.of((size, size), "i64"), axis) for axis in (0, 1))
    square = op.emit("slice_dims", flags, begin=[0] * flags.rank, shape=(*batch, size, size),
                     strides=[1] * flags.rank)  # fmt: skip
    diagonal = op.elementwise("logical_and", square, op.elementwise("equal", row, column))
    marked = op.emit("reduce_any", diagonal, axes=[diagonal.rank - 1])
    numbers = op.elementwise("cast", marked, dtype="i32")
    found = op.emit("reduce_max", numbers, axes=[numbers.rank - 1])
    place = op.elementwise("cast", op.emit("argmax", numbers, axis=-1, keepdims=False), dtype="i32")
    return op.elementwise("multiply", found, op.elementwise("add", place, op.constant(1, found.dtype)))


def _trsm(op: StablehloOperation) -> Tensor:
    side, part, transposed, diagonal = (_letter(op, name) for name in ("side", "uplo", "trans_x", "diag"))
    return _solved(op, side == "L", part == "L", transposed in ("T", "C"), diagonal == "U")


_LAPACK: dict[str, Converter] = {"potrf": _potrf, "getrf": _getrf, "trsm": _trsm}
