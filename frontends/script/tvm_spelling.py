"""TVM's spelling of scripts, as users paste it, rewritten to Mirlo's before anything reads the syntax tree.

    with R.dataflow():                                    lv = R.call_tir(mm, x, w, out=R.Tensor[(4, 4), "float32"])
        lv = R.call_tir(                                  gv = R.round(lv)
            cls.mm, (x, w), out_sinfo=R.Tensor((4, 4), "float32"))
        gv = R.rint(lv)
        R.output(gv)

Positions stay those of the user's text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TypeVar

WORDS = {
    "R.rint": "R.round", "T.rint": "T.roundeven", "T.nearbyint": "T.roundeven", "T.sblock": "T.block",
    "T.if_then_else": "T.select", "T.float64": "T.f64", "T.float32": "T.f32", "T.float16": "T.f16",
    "T.int64": "T.i64", "T.int32": "T.i32", "T.int16": "T.i16", "T.int8": "T.i8",
    "T.uint64": "T.u64", "T.uint32": "T.u32", "T.uint16": "T.u16", "T.uint8": "T.u8",
}  # fmt: skip
"""Words of TVM, and those of Mirlo with the same meaning."""
DROPPED = ("R.output", "R.func_attr", "T.func_attr", "T.block_attr", "T.sblock_attr", "T.writes")
"""Statements that say nothing to Mirlo, which finds it in the function."""
AXES = {"T.axis.spatial": "S", "T.axis.S": "S", "T.axis.reduce": "R", "T.axis.R": "R"}

Syntax = TypeVar("Syntax", bound=ast.AST)


def translate(tree: Syntax) -> Syntax:
    """Rewrite TVM's spelling in place; other syntax stays as it is."""
    _Translator().visit(tree)
    ast.fix_missing_locations(tree)
    return tree


class _Translator(ast.NodeTransformer):
    def __init__(self) -> None:
        self.modules: set[str] = set()
        """Names of the class that is the module, whose members are called by their own names."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.modules.add(node.name)
        for each in ast.walk(node):
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.Name) and each.value.id == node.name:
                self.modules |= {target.id for target in each.targets if isinstance(target, ast.Name)}
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body = self._statements(node.body)
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        node.body = self._statements(node.body)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.body = self._statements(node.body)
        return node

    def _statements(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.With) and [_called(item.context_expr) for item in node.items] == ["R.dataflow"]:
                result += node.body
            elif _is_axes(node) and result and _is_axes(result[-1]):
                _join(result[-1], node)
            elif not (isinstance(node, ast.Expr) and _called(node.value) in DROPPED or self._is_alias(node)):
                result.append(node)
        return result

    def _is_alias(self, node: ast.stmt) -> bool:
        """Return whether this is `cls = Module`."""
        return isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in self.modules

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self.modules:
            return ast.copy_location(ast.Name(node.attr, node.ctx), node)
        word = WORDS.get(_dotted(node))
        if word is not None:
            node.attr = word.partition(".")[2]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        word = _called(node)
        if word == "R.Tensor" and node.args:
            dtype = [k.value for k in node.keywords if k.arg == "dtype"]
            elements = ast.copy_location(ast.Tuple([*node.args, *dtype], ast.Load()), node)
            return ast.copy_location(ast.Subscript(node.func, elements, ast.Load()), node)
        if word == "R.call_tir" and len(node.args) == 2 and isinstance(node.args[1], (ast.Tuple, ast.List)):
            node.args[1:] = node.args[1].elts
            for keyword in node.keywords:
                keyword.arg = "out" if keyword.arg in ("out_sinfo", "out_ty") else keyword.arg
        if word == "T.axis.remap" and len(node.args) == 2 and isinstance(node.args[1], (ast.Tuple, ast.List)):
            return _axes(node, node.args[0], node.args[1].elts)
        if word in AXES and len(node.args) == 2:
            return _axes(node, ast.copy_location(ast.Constant(AXES[word]), node), node.args[1:])
        return node


def _axes(node: ast.Call, letters: ast.expr, indices: Iterable[ast.expr]) -> ast.Call:
    """Return `T.axes(letters, indices...)` in the place of a call."""
    function = ast.copy_location(ast.Attribute(ast.Name("T", ast.Load()), "axes", ast.Load()), node)
    return ast.copy_location(ast.Call(function, [letters, *indices], []), node)


def _is_axes(node: ast.stmt) -> bool:
    """Return whether a statement names axes of a block, with their letters."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or _called(node.value) != "T.axes":
        return False
    letters = node.value.args[0] if isinstance(node.value, ast.Call) and node.value.args else None
    return isinstance(letters, ast.Constant) and isinstance(letters.value, str)


def _join(first: ast.stmt, second: ast.stmt) -> None:
    """Add what a statement says of axes to the one before it."""
    assert isinstance(first, ast.Assign) and isinstance(first.value, ast.Call)
    assert isinstance(second, ast.Assign) and isinstance(second.value, ast.Call)
    letters = [call.args[0].value for call in (first.value, second.value) if isinstance(call.args[0], ast.Constant)]
    joined = ast.copy_location(ast.Constant("".join(map(str, letters))), first.value.args[0])
    first.value.args = [joined, *first.value.args[1:], *second.value.args[1:]]
    names = [*_targets(first.targets[0]), *_targets(second.targets[0])]
    first.targets = [ast.copy_location(ast.Tuple(names, ast.Store()), first.targets[0])]


def _targets(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _called(node: ast.expr) -> str:
    """Return `R.call_tir` for a call of that word, or ''."""
    return _dotted(node.func) if isinstance(node, ast.Call) else ""


def _dotted(node: ast.expr) -> str:
    """Return `T.axis.remap` for an attribute of a name, or ''."""
    if isinstance(node, ast.Name):
        return node.id
    owner = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{owner}.{node.attr}" if owner and isinstance(node, ast.Attribute) else ""
