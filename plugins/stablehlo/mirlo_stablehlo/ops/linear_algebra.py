"""Factors of matrices and triangular systems; the functions of LAPACK to which JAX lowers them on CPUs."""

from __future__ import annotations

from collections.abc import Sequence

from mirlo.extend.frontend import Tensor, UnsupportedOperation, ir
from mirlo.extend.library import cholesky, first_without_root, first_zero_pivot, solve_triangular
from mirlo_stablehlo.operation import StablehloOperation
from mirlo_stablehlo.registry import Converter, converter


@converter("cholesky")
def convert_cholesky(op: StablehloOperation) -> Tensor:
    return cholesky(op, op.operands[0], lower=op.flag("lower"))


@converter("triangular_solve")
def triangular_solve(op: StablehloOperation) -> Tensor:
    """Convert `triangular_solve`; the adjoint of real matrices is the transpose."""
    return solve_triangular(
        op, *op.operands[:2], left=op.flag("left_side"), lower=op.flag("lower"),
        is_transposed=op.word("transpose_a") in ("TRANSPOSE", "ADJOINT"), unit=op.flag("unit_diagonal"),
    )  # fmt: skip


# What JAX calls on CPUs, `lapack_sgetrf_ffi`: the names between the element type and the suffix.


def lapack_function(name: str) -> Converter | None:
    """Return the converter of a function of LAPACK on real matrices, None for others."""
    library, _, rest = name.partition("_")
    function, _, suffix = rest.partition("_")
    if library != "lapack" or suffix != "ffi" or function[:1] not in ("s", "d"):
        return None
    return _LAPACK.get(function[1:])


def convert_lapack(op: StablehloOperation, convert: Converter) -> Sequence[Tensor]:
    """Convert a call of a LAPACK function, whose operands are not verified yet."""
    count = 2 if convert is _trsm else 1
    if len(op.operands) < count:
        raise UnsupportedOperation(f"takes {count} operands, found {len(op.operands)}")
    result = convert(op)
    return [result] if isinstance(result, Tensor) else result


def _letter(op: StablehloOperation, name: str) -> str:
    """Return a letter argument of a LAPACK function."""
    config = op.op.attributes["mhlo.backend_config"] if op.has("mhlo.backend_config") else None
    if not isinstance(config, ir.DictAttr) or name not in config or not isinstance(config[name], ir.IntegerAttr):
        raise UnsupportedOperation(f"has no argument '{name}'")
    return chr(int(config[name].value) & 127)


def _potrf(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `potrf`; the second result is the index of the first pivot that is not positive, from 1."""
    result = cholesky(op, op.operands[0], lower=_letter(op, "uplo") == "L")
    return [result, first_without_root(op, result)]


def _getrf(op: StablehloOperation) -> Sequence[Tensor]:
    """Convert `getrf`, which counts rows from 1; the last result is the index of the first zero pivot."""
    factors, pivots = op.emit_all("lu", op.operands[0])
    one = op.constant(1, pivots.dtype)
    return [factors, pivots + one, first_zero_pivot(op, factors)]


def _trsm(op: StablehloOperation) -> Tensor:
    side, part, transposed, diagonal = (_letter(op, name) for name in ("side", "uplo", "trans_x", "diag"))
    return solve_triangular(
        op, *op.operands[:2], left=side == "L", lower=part == "L", is_transposed=transposed in ("T", "C"),
        unit=diagonal == "U",
    )  # fmt: skip


_LAPACK: dict[str, Converter] = {"potrf": _potrf, "getrf": _getrf, "trsm": _trsm}
