"""The scripts in a file of Python, without running it: all their errors, and the modules of those without any."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import partial

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dim_algebra import symbol
from mirlo.dialects.core.symbols import ENTRY_NAME
from mirlo.frontends.script.errors import ScriptError
from mirlo.frontends.script.interpreter import Interpreter
from mirlo.frontends.script.language import R, T
from mirlo.frontends.script.module import ModuleBuilder, decorator
from mirlo.frontends.script.prim import PrimFunc
from mirlo.frontends.script.source import ScriptSource, parse_text
from mirlo.frontends.script.symbols import AttributeSymbol, DimSymbol, ShapeSymbol, TypeSymbol
from mirlo.frontends.script.syntax import called
from mirlo.runtime.records import dataclass

_SYMBOLS = {"T.dims": DimSymbol, "T.shapes": ShapeSymbol, "T.types": TypeSymbol, "T.attrs": AttributeSymbol}
_LANGUAGES = {"T": T, "R": R}
_SIZE = 64
"""A dim of templates that are not for any size: many things divide it."""
_STATIC = (
    ast.Constant,
    ast.Name,
    ast.BinOp,
    ast.UnaryOp,
    ast.Tuple,
    ast.List,
    ast.operator,
    ast.unaryop,
    ast.expr_context,
)
"""Syntax of constants whose values are known without running the file."""


@dataclass
class CheckedScripts:
    """The results of checking the scripts of a file."""

    errors: list[ScriptError] = field(default_factory=list)
    unchecked: list[ScriptError] = field(default_factory=list)
    """Where a script needs a value that Python computes when the file runs."""
    modules: list[ir.Module] = field(default_factory=list)


def check_scripts(text: str, file: str, context: ir.Context) -> CheckedScripts:
    """Parse all definitions with the decorators of scripts at the top of a file."""
    try:
        tree, source = parse_text(text, file)
    except ScriptError as error:
        return CheckedScripts([error])
    return _Checker(source, context).check(tree)


def is_definition(node: ast.stmt) -> bool:
    """Return whether a function or class has a decorator of scripts."""
    if isinstance(node, ast.ClassDef):
        return decorator(node)[0] in ("script", "ir_module")
    return isinstance(node, ast.FunctionDef) and decorator(node)[0] in ("script", "prim_func", "inline", "function")


class _Checker:
    """Reads a file from its first line to its last one, as Python does."""

    def __init__(self, source: ScriptSource, context: ir.Context):
        self.source = source
        self.context = context
        self.names: dict[str, object] = dict(_LANGUAGES)
        self.unknown: set[str] = set()
        """Names whose values are not known without running the file."""
        self.failed: set[str] = set()
        """Definitions with errors: what uses them has none of its own."""
        self.result = CheckedScripts()

    def check(self, tree: ast.Module) -> CheckedScripts:
        graphs = [node for node in tree.body if isinstance(node, ast.FunctionDef) and decorator(node)[0] == "function"]
        if graphs:
            # Graphs beside each other are one module, in which any calls any.
            self._collect(node for node in tree.body if not is_definition(node))
            self._module([node for node in tree.body if is_definition(node)], None)
            return self.result
        for node in tree.body:
            if is_definition(node):
                self._definition(node)
            else:
                self._collect([node])
        return self.result

    def _collect(self, nodes: Iterable[ast.stmt]) -> None:
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module == "mirlo":
                self.names.update({a.asname or a.name: _LANGUAGES[a.name] for a in node.names if a.name in _LANGUAGES})
            values = _symbols(node) or self._constants(node)
            self.names.update(values)
            self.unknown.update(set(_bound(node)) - values.keys())
            self.unknown.difference_update(values)

    def _constants(self, node: ast.stmt) -> dict[str, object]:
        """Return the values of an assignment of constants."""
        if not isinstance(node, ast.Assign) or not all(isinstance(n, _STATIC) for n in ast.walk(node.value)):
            return {}
        reader = Interpreter(self.source, {}, self.names)
        constants: dict[str, object] = {}
        try:
            value = reader.value(node.value)
            for target in node.targets:
                constants.update(reader.unpack(target, value))
        except ScriptError:
            return {}
        return constants

    def _definition(self, node: ast.stmt) -> None:
        if isinstance(node, ast.ClassDef):
            self._module(node.body, None)
        elif isinstance(node, ast.FunctionDef) and decorator(node)[0] == "script":
            self._module([node], ENTRY_NAME)
        elif isinstance(node, ast.FunctionDef):
            self._prim_func(node)

    def _prim_func(self, node: ast.FunctionDef) -> None:
        if not self._attempt(node, lambda: ModuleBuilder(self.source, self.names, self.context).declare(node)):
            return
        known = self.names.get(node.name)
        if not isinstance(known, PrimFunc):
            return
        if known.is_template:
            self._template(node, known)
        else:
            self._module([node], None)

    def _template(self, node: ast.FunctionDef, template: PrimFunc) -> None:
        """Instantiate a template for dims of any size; other symbols get placeholders, as only a use decides them."""
        parts = [part for parameter in template.parameters for part in (*parameter.shape, parameter.dtype)]
        if template.numbers or any(isinstance(part, (ShapeSymbol, TypeSymbol)) for part in parts):
            return
        dims = {part.name for part in parts if isinstance(part, DimSymbol)}
        with self.context, ir.Location.unknown():
            if self._error(lambda: template.build({name: symbol(name) for name in dims})) is not None:
                # Memory on the stack, for example, has a size that each use knows.
                self._attempt(node, lambda: template.build(dict.fromkeys(dims, _SIZE)))

    def _module(self, body: list[ast.stmt], symbol: str | None) -> None:
        """Build a module without the definitions that have errors, so that the others are checked as well."""
        rest = list(body)
        while rest:
            error = self._error(partial(self._build, list(rest), symbol))
            if error is None:
                return
            wrong = _around(rest, error) or rest[0]
            self._note(wrong, error)
            rest.remove(wrong)

    def _build(self, body: list[ast.stmt], symbol: str | None) -> None:
        builder = ModuleBuilder(self.source, dict(self.names), self.context)
        self.result.modules.append(builder.module(body, symbol))

    def _attempt(self, node: ast.stmt, build: Callable[[], object]) -> bool:
        error = self._error(build)
        if error is not None:
            self._note(node, error)
        return error is None

    def _error(self, build: Callable[[], object]) -> ScriptError | None:
        try:
            build()
        except ScriptError as error:
            return error
        except (ValueError, ir.MLIRError) as error:
            return ScriptError(str(error))
        return None

    def _note(self, node: ast.stmt, error: ScriptError) -> None:
        if not error.place and isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            error = self.source.error(node, error.problem)
        if error.named in self.unknown:
            self.result.unchecked.append(error)
        elif error.named not in self.failed:
            self.result.errors.append(error)
        self.failed.update(_bound(node))


def _symbols(node: ast.stmt) -> dict[str, object]:
    """Return the symbols of `M, N = T.dims("M", "N")`, of shapes, types and attributes."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or called(node.value) not in _SYMBOLS:
        return {}
    assert isinstance(node.value, ast.Call)
    kind, arguments = _SYMBOLS[called(node.value)], node.value.args
    names = [each.value for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    targets = _bound(node)
    return dict(zip(targets, map(kind, names), strict=True)) if len(names) == len(targets) == len(arguments) else {}


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that a statement and the blocks in it assign."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    names = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names.append(inner.id)
        elif inner is not node and isinstance(inner, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
            names += _bound(inner)
    return names


def _around(body: Sequence[ast.stmt], error: ScriptError) -> ast.stmt | None:
    """Return the statement that contains the position of an error."""
    if not error.place:
        return None
    line = int(error.place.rsplit(":", 2)[1])
    return next((node for node in body if node.lineno <= line <= (node.end_lineno or node.lineno)), None)
