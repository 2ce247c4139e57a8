"""The code generator: regions become a plan of products for the loader."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mirlo.extend.codegen import PatternTuple, Step
from mirlo.extend.codegen import codegen_option as option
from mirlo.extend.nvidia import NvidiaLibraryCalls, Values
from mirlo_cublas.patterns import is_along_columns, patterns
from mirlo_cublas.plan import MatrixProduct


@dataclass(frozen=True)
class CuBlas(NvidiaLibraryCalls):
    """Matrix products, each with a bias, an added matrix and an activation."""

    name = "cublas"
    format = "cublaslt"
    f8: bool = option(False, "take products of 8-bit floats, which GPUs have from sm_89 on")

    def requirements(self) -> Sequence[str]:
        return ("NVIDIA's cuBLASLt (libcublasLt.so)",)

    def fingerprint(self) -> str:
        """Return the version of the installed library, empty if there is none."""
        from mirlo_cublas.native.library import CUBLAS

        return CUBLAS.version_text()

    def patterns(self) -> Sequence[PatternTuple]:
        """Return the patterns in order of priority."""
        return patterns(self.f8)

    def plan_step(self, values: Values, step: Step) -> MatrixProduct:
        """Return the product that the library computes for a composite."""
        return match_product(values, step)


def match_product(values: Values, step: Step) -> MatrixProduct:
    """Return the plan step of the product that a composite computes."""
    matmul, *rest = step.nodes
    left, right = matmul["lhs"], matmul["rhs"]
    bias, added = None, None
    before = matmul.output
    for node in (node for node in rest if node.op == "relax.add"):
        other = next(value for value in node.inputs if value is not before)
        if other.type.static_shape == node.output.type.static_shape and not is_along_columns(
            other.type, node.output.type
        ):
            added = values.number(other)
        else:
            bias = values.number(other)
        before = node.output
    activation = next((node.op.removeprefix("relax.") for node in rest if node.op != "relax.add"), "")
    *batches, rows, columns = matmul.output.type.static_shape
    batch = math.prod(batches)
    depth = left.type.static_shape[-2 if matmul["transpose_lhs"] else -1]
    many = [math.prod(value.type.static_shape[:-2]) > 1 for value in (left, right)]
    if not many[1] and not matmul["transpose_lhs"]:
        rows, batch = rows * batch, 1  # one matrix with more rows
    dtype, dtype_b, result = (value.type.dtype.name for value in (left, right, matmul.output))
    return MatrixProduct(
        values.number(left), values.number(right), values.number(step.nodes[-1].output), rows, columns, depth, dtype,
        bias, activation, batch, matmul["transpose_lhs"], matmul["transpose_rhs"], added,
        batch > 1 and not many[0], batch > 1 and not many[1], "" if dtype_b == dtype else dtype_b,
        "" if result == dtype else result,
    )  # fmt: skip
