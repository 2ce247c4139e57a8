"""Names of syntax and values in messages."""

from __future__ import annotations

import ast
from typing import TypeGuard

from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.compute import Expr
from mirlo.frontends.script.buffers import ScriptBuffer
from mirlo.frontends.script.inline import InlineFunction
from mirlo.frontends.script.symbols import ScriptName


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float))


_ARTICLES = {
    ast.Lambda: "a lambda", ast.Dict: "a dict", ast.Set: "a set", ast.ListComp: "a comprehension", ast.Slice: "a slice",
    ast.GeneratorExp: "a generator", ast.JoinedStr: "an f-string", ast.Starred: "*", ast.NamedExpr: "':='",
    ast.Await: "await", ast.Yield: "yield", ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
    ast.MatMult: "'@'", ast.While: "while", ast.Try: "try", ast.Return: "return", ast.FunctionDef: "a nested function",
    ast.ClassDef: "a class", ast.Delete: "del", ast.Raise: "raise", ast.Assert: "assert", ast.Import: "import",
    ast.ImportFrom: "import", ast.Global: "global", ast.Nonlocal: "nonlocal", ast.Break: "break",
    ast.Continue: "continue", ast.With: "with", ast.For: "for", ast.If: "if", ast.AugAssign: "an update",
    ast.AnnAssign: "an annotated assignment", ast.Assign: "an assignment", ast.Subscript: "an element",
    ast.Attribute: "an attribute", ast.Call: "a call", ast.Not: "not",
}  # fmt: skip


def describe(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if isinstance(node, ast.Name):
        return f"'{node.id}'"
    return _ARTICLES.get(type(node), type(node).__name__)


def kind_of(value: object) -> str:
    """Return the description of a value in messages."""
    if isinstance(value, bool) or value is None or is_number(value):
        return repr(value)
    if isinstance(value, str):
        return f"text '{value}'"
    if isinstance(value, Expr):
        return f"a scalar of {value.dtype}"
    if isinstance(value, (tuple, list)):
        return f"a tuple of {len(value)}"
    if isinstance(value, (ScriptName, DType)):
        return str(value)
    if isinstance(value, InlineFunction):
        return f"the inline function '{value.name}'"
    if isinstance(value, ScriptBuffer):
        return f"the buffer '{value.name}'"
    type_ = getattr(value, "type", None)
    if isinstance(type_, TensorType):
        return f"a tensor, {type_}"
    name = getattr(value, "__name__", None)
    return f"'{name}'" if name else f"a value of type {type(value).__name__}"
