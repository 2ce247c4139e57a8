"""Names in the syntax trees of scripts, such as `T.axis.remap`, and calls of them."""

from __future__ import annotations

import ast

TVM_TYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    **{f"{sign}int{bits}": f"{sign or 'i'}{bits}" for sign in ("", "u") for bits in (64, 32, 16, 8)},
}  # fmt: skip
"""The names of element types in TVM, and in Mirlo."""


def called(node: ast.expr | None) -> str:
    """Return `R.call_tir` for a call of that name, or ''."""
    return dotted(node.func) if isinstance(node, ast.Call) else ""


def dotted(node: ast.expr | None) -> str:
    """Return `T.axis.remap` for an attribute of a name, or ''."""
    if isinstance(node, ast.Name):
        return node.id
    owner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{owner}.{node.attr}" if owner and isinstance(node, ast.Attribute) else ""


def make_call(
    node: ast.expr, callee: str, arguments: list[ast.expr], keywords: list[ast.keyword] | None = None
) -> ast.Call:
    """Return a call of a name in the place of an expression."""
    owner, _, name = callee.partition(".")
    function = ast.copy_location(
        ast.Attribute(ast.copy_location(ast.Name(owner, ast.Load()), node), name, ast.Load()), node
    )
    return ast.copy_location(ast.Call(function, arguments, keywords or []), node)


def dims_declared(node: ast.stmt) -> list[str]:
    """Return the symbols of `m, n = T.dims("m", "n")`."""
    if not isinstance(node, ast.Assign) or called(node.value) != "T.dims" or not isinstance(node.value, ast.Call):
        return []
    return [str(each.value) for each in node.value.args if isinstance(each, ast.Constant)]
