"""Patterns that the library computes in one call: a product, an addition, an activation; and their limits."""

from __future__ import annotations

import math

from mirlo.extend.codegen import Decline, Match, MatchCheck, Pattern, decline, is_op, wildcard
from mirlo.extend.ops import TensorType
from mirlo_cublas.plan import BYTES, FLOATS8, RESULTS

SMALLEST = 16
"""Rows and columns below which a compiled kernel, fused with its neighbors, is as fast."""


def patterns(f8: bool = False) -> list[tuple[str, Pattern, MatchCheck]]:
    """Return the patterns, longest first; `f8` is whether products of 8-bit floats are supported."""
    product = is_op("relax.matmul")(wildcard(), wildcard()).named("matmul")
    biased = is_op("relax.add")(product, wildcard().named("bias"))
    with_added = is_op("relax.add")(product, wildcard().named("added"))
    rows = [
        ("matmul_bias_added", is_op("relax.add")(biased, wildcard().named("added"))),
        ("matmul_added_bias", is_op("relax.add")(with_added, wildcard().named("bias"))),
        ("matmul_added", with_added),
        ("matmul_bias", biased),
        ("matmul", product),
    ]
    activated = [
        (f"{name}_{short}", _activated(body, f"relax.{short}")) for name, body in rows for short in ("relu", "gelu")
    ]

    def check(match: Match) -> bool | Decline:
        return product_check(match, f8)

    return [(name, pattern, check) for name, pattern in (*activated, *rows)]


def _activated(body: Pattern, op: str) -> Pattern:
    return is_op(op)(body).named("activation")


def product_check(match: Match, f8: bool = False) -> bool | Decline:
    """Check a match: return True, or why the library does not compute it."""
    node = match.nodes[0]
    left, right = (value.type for value in node.operands)
    result = node.type
    if left is None or right is None or result is None or not (left.is_static and right.is_static):
        return decline("the library needs static sizes")
    transposed = tuple(bool(node.attribute(name)) for name in ("transpose_lhs", "transpose_rhs"))
    for refusal in (_types(left, right, result, f8), _shapes(left, right, result, transposed)):
        if refusal is not None:
            return refusal
    if match.nodes[-1].name == "relax.gelu":
        how = match.nodes[-1].attribute("approximate")
        if how != "tanh":
            return decline("the library has gelu by its tanh approximation only", approximate=how)
    return _epilogue(match, left, result)


def _epilogue(match: Match, left: TensorType, result: TensorType) -> bool | Decline:
    """Check the epilogue: a bias along the columns, a matrix of the same shape, an activation."""
    others = len(match.nodes) > 1
    if others and result.dtype != left.dtype and (len(match.nodes) > 2 or "added" not in match):
        return decline(
            "the library has a bias and an activation for results of the factors' type", result=result.dtype.name
        )
    for name in ("bias", "added"):
        kind = match[name].type if name in match else result
        if kind is None or not kind.is_static or kind.dtype != result.dtype:
            return decline("what is added is of another type, or its size is open", added=str(kind))
    if "bias" in match and not is_along_columns(match["bias"].type, result):
        return decline("the added tensor is not a row of columns", bias=str(match["bias"].type))
    if "added" in match:
        kind = match["added"].type
        if kind is None or kind.shape != result.shape or is_along_columns(kind, result):
            return decline("what is added is not a matrix of the result's shape", added=str(kind))
    return True


def _types(left: TensorType, right: TensorType, result: TensorType, f8: bool) -> Decline | None:
    """Return the reason why the library does not support tensors of these types, or None."""
    names = [kind.dtype.name for kind in (left, right, result)]
    if names[0] in FLOATS8 and names[1] in FLOATS8:
        if not f8:
            return decline("products of 8-bit floats need the option cublas{f8} and a GPU from sm_89 on")
        if names[:2] == ["f8e5m2"] * 2:
            return decline("the library multiplies no two factors of e5m2")
    elif names[0] != names[1] or names[0] not in RESULTS:
        return decline("the library multiplies factors of one type", lhs=names[0], rhs=names[1])
    if names[2] not in RESULTS[names[0]]:
        return decline("no such result type for these operands", factors=names[0], result=names[2])
    return None


def _shapes(left: TensorType, right: TensorType, result: TensorType, transposed: tuple[bool, ...]) -> Decline | None:
    """Return the reason why the library does not support tensors of these shapes, or None."""
    if left.rank < 2 or right.rank < 2:
        return decline("an operand is a vector: Mirlo's own kernels are as fast")
    batches = [math.prod(kind.static_shape[:-2]) for kind in (left, right, result)]
    if any(batch not in (1, batches[2]) for batch in batches[:2]):
        return decline("each factor has as many matrices as the result, or one", lhs=left.shape, rhs=right.shape)
    rows, columns = result.static_shape[-2:]
    if min(rows * (batches[2] if batches[1] == 1 else 1), columns) < SMALLEST:
        return decline("it is too small to be worth a call", rows=rows, columns=columns)
    if left.dtype.name in (*BYTES, *FLOATS8):
        apart = 4 if left.dtype.name in BYTES else 16
        depth = left.static_shape[-2 if transposed[0] else -1]
        if transposed != (False, True):
            return decline("8-bit operands must be contiguous along K: transpose the second one, not the first one")
        if any(size % apart for size in (rows, columns, depth)):
            return decline(f"sizes of products of 8 bits are multiples of {apart} for the library", rows=rows,
                           columns=columns, depth=depth)  # fmt: skip
    return None


def is_along_columns(kind: TensorType | None, result: TensorType) -> bool:
    """Return whether a tensor has one value for each column of a result."""
    return kind is not None and tuple(kind.shape) in {(1,) * ones + (result.shape[-1],) for ones in range(result.rank)}
