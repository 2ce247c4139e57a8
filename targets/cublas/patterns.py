"""What the library computes in one call: a product, a bias along its columns, an activation; and why not more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mirlo.dialects.core.types import TensorType
from mirlo.passes.byoc.operators import is_op, wildcard
from mirlo.passes.byoc.pattern import Pattern
from mirlo.passes.byoc.search import Match
from mirlo.passes.rules import decline
from mirlo.targets.cublas.plan import DTYPES

SMALLEST = 16
"""Rows and columns below which a kernel of a model's own, fused with what is around, is as fast."""


def patterns() -> list[tuple[str, Pattern, Callable[[Match], Any]]]:
    """The longest first."""
    product = is_op("relax.matmul")(wildcard(), wildcard()).named("matmul")
    biased = is_op("relax.add")(product, wildcard().named("bias"))
    rows = [("matmul_bias", biased), ("matmul", product)]
    made = [
        (f"{name}_{short}", _activated(body, f"relax.{short}")) for name, body in rows for short in ("relu", "gelu")
    ]
    return [(name, pattern, product_check) for name, pattern in (*made, *rows)]


def _activated(body: Pattern, op: str) -> Pattern:
    return is_op(op)(body).named("activation")


def product_check(match: Match) -> Any:
    """Whether the library computes a match: True, or why not."""
    node = match.nodes[0]
    left, right = (value.type for value in node.operands)
    result = node.type
    refusal = _types(left, right, result)
    if refusal is not None:
        return refusal
    if left is not None and right is not None and left.rank > right.rank and node.attribute("transpose_lhs"):
        return decline("batches of turned matrices share a factor")
    if match.nodes[-1].name == "relax.gelu":
        how = match.nodes[-1].attribute("approximate")
        if how != "tanh":
            return decline("the library has gelu by its tanh approximation only", approximate=how)
    if "bias" in match:
        bias = match["bias"].type
        if (
            result is None
            or bias is None
            or bias.dtype != result.dtype
            or tuple(bias.shape) not in _along_columns(result)
        ):
            return decline("what is added does not lie along the columns", bias=str(bias))
    return True


def _types(left: TensorType | None, right: TensorType | None, result: TensorType | None) -> Any:
    """Why the library does not take tensors of these types, if so."""
    if left is None or right is None or result is None or not (left.is_static and right.is_static):
        return decline("the library is told sizes when compiling: they are open")
    if left.dtype.name not in DTYPES or {left.dtype, right.dtype, result.dtype} != {left.dtype}:
        return decline("the library multiplies floats of one type", lhs=left.dtype.name, result=result.dtype.name)
    if left.rank < 2 or right.rank < 2:
        return decline("a vector is no matrix: kernels of the model's own read it as fast")
    if right.rank > 2 and left.shape[:-2] != right.shape[:-2]:
        return decline("batches of both factors are not the same", lhs=left.shape, rhs=right.shape)
    rows, columns = result.static_shape[-2:]
    if min(rows, columns) < SMALLEST:
        return decline("it is too small to be worth a call", rows=rows, columns=columns)
    return None


def _along_columns(result: TensorType) -> set[tuple[Any, ...]]:
    columns = result.shape[-1]
    return {(1,) * ones + (columns,) for ones in range(result.rank)}
