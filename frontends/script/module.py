"""`@mirlo.script`: modules of graphs and prim functions; `parse_script`: the same from text."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import overload

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.symbols import ENTRY_NAME, symbol_name
from mirlo.dialects.tir.view import PRIM_FUNC
from mirlo.frontends.script.errors import ScriptError
from mirlo.frontends.script.graph import build_graph, read_types
from mirlo.frontends.script.graph_values import Callee, PendingGraph, ScriptFunctions
from mirlo.frontends.script.inline import InlineFunction
from mirlo.frontends.script.interpreter import Interpreter
from mirlo.frontends.script.language import R, T
from mirlo.frontends.script.loops import is_docstring
from mirlo.frontends.script.parse_prim import parse_prim_func
from mirlo.frontends.script.prim import KIND, PrimFunc
from mirlo.frontends.script.source import Located, ScriptSource, captured_names, parse_object, parse_text
from mirlo.frontends.script.symbols import MlirText


@overload
def script(thing: Callable[..., object] | type, *, attrs: dict[str, str] | None = None) -> ir.Module: ...


@overload
def script(
    thing: None = None, *, attrs: dict[str, str] | None = None
) -> Callable[[Callable[..., object] | type], ir.Module]: ...


def script(
    thing: Callable[..., object] | type | None = None, *, attrs: dict[str, str] | None = None
) -> ir.Module | Callable[[Callable[..., object] | type], ir.Module]:
    """Make an `ir.Module` of a graph, or of a class of graphs and prim functions.

    A function becomes `@main`. A class has `@R.function` graphs, `@T.prim_func` functions, and constants. Everything
    is parsed from the source and never executed. `attrs` are attributes of the module, as MLIR text.
    """
    frame = sys._getframe(1)

    def decorate(decorated: Callable[..., object] | type) -> ir.Module:
        tree, source = parse_object(decorated, frame)
        outer = captured_names(decorated, tree, frame)
        if isinstance(tree, ast.ClassDef):
            return ModuleBuilder(source, {**outer, **vars(decorated)}).module(tree.body, attributes=attrs)
        return ModuleBuilder(source, outer).module([tree], ENTRY_NAME, attrs)

    return decorate if thing is None else decorate(thing)


def parse_script(text: str, file: str = "<script>", context: ir.Context | None = None) -> ir.Module:
    """Return the `ir.Module` of a script given as text: one class or function of `@mirlo.script`, or prim functions."""
    tree, source = parse_text(text, file)
    body = [n for n in tree.body if not isinstance(n, (ast.Import, ast.ImportFrom)) and not is_docstring(n)]
    names: dict[str, object] = {"T": T, "R": R}
    if len(body) == 1 and isinstance(body[0], ast.ClassDef):
        builder = ModuleBuilder(source, names, context)
        return builder.module(body[0].body, attributes=dict(builder.attributes(decorator(body[0])[1])))
    only = len(body) == 1 and isinstance(body[0], ast.FunctionDef) and decorator(body[0])[0] == "script"
    return ModuleBuilder(source, names, context).module(body, ENTRY_NAME if only else None)


def decorator(tree: ast.FunctionDef | ast.ClassDef) -> tuple[str, ast.Call | None]:
    """Return the last part of the decorator's name, and its call if it has arguments."""
    for node in tree.decorator_list:
        call = node if isinstance(node, ast.Call) else None
        return ast.unparse(call.func if call else node).split(".")[-1], call
    return "", None


class ModuleBuilder:
    """Builds a module from the definitions in a class or file, in order."""

    def __init__(self, source: ScriptSource, names: dict[str, object], context: ir.Context | None = None):
        self.source = source
        self.names = names
        self.context = context
        self.callees: dict[str, Callee | PendingGraph] = {}
        """Graphs that are defined, or announced by their types, by their names in the script."""
        self.parsed: dict[ast.stmt, tuple[ir.Module, list[ir.Operation]]] = {}
        """What MLIR text defines, and the module that owns it, by the statements that hold the text."""

    def module(
        self, body: list[ast.stmt], symbol: str | None = None, attributes: dict[str, str] | None = None
    ) -> ir.Module:
        """Build the module; `symbol` names its graph if there is only one."""
        with self.context or make_context(), ir.Location.unknown():
            module = ir.Module.create()
            for name, text in (attributes or {}).items():
                module.operation.attributes[name] = ir.Attribute.parse(text)
            self.functions = ScriptFunctions(module)
            for node in body:
                self._check(node)
                self.declare(node)
                known = self.names.get(node.name) if isinstance(node, ast.FunctionDef) else None
                if isinstance(known, PrimFunc) and not known.is_template:
                    self.functions.declare(known)
            for node in body:
                self._announce(node, symbol)
            self._announce_texts({node: mlir_text for node in body if (mlir_text := self._text(node)) is not None})
            for node in body:
                self._define(node, symbol)
            try:
                module.operation.verify()
            except ir.MLIRError as error:
                raise ScriptError(f"{self.source.file}: the script makes no valid module: {error}") from error
            return module

    def _check(self, node: ast.stmt) -> None:
        """Refuse statements that would have to be executed."""
        if not isinstance(node, (ast.FunctionDef, ast.Assign, ast.Pass)) and not is_docstring(node):
            what = "a module has graphs (@R.function), prim functions (@T.prim_func) and constants"
            raise self.source.error(node, what)

    def declare(self, node: Located) -> None:
        """Declare names that definitions may use before they are defined: prim functions, helpers and constants."""
        if isinstance(node, ast.FunctionDef):
            callee, call = decorator(node)
            if isinstance(self.names.get(node.name), (PrimFunc, InlineFunction)):
                return
            if callee == "prim_func":
                self.names[node.name] = self._prim_func(node, call)
            elif callee == "inline":
                parameters = tuple(argument.arg for argument in node.args.args)
                self.names[node.name] = InlineFunction(node.name, parameters, node, self.source, self.names)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self.names.setdefault(node.targets[0].id, None)
            if self.names[node.targets[0].id] is None:
                self.names[node.targets[0].id] = self._constant(node.value)

    def _announce(self, node: Located, symbol: str | None) -> None:
        """Declare a graph, so that graphs before it may call it."""
        if not isinstance(node, ast.FunctionDef) or isinstance(self.names.get(node.name), (PrimFunc, InlineFunction)):
            return
        name = self._symbol(node, symbol)
        self.functions.pending[name] = partial(self._graph, node, symbol)
        if node.returns is None:
            self.callees[node.name] = PendingGraph(name)
        else:
            types = read_types(node, self.source, self.names, self.functions)
            self.functions.graphs[name] = self.callees[node.name] = Callee(name, *types)

    def _text(self, node: Located) -> MlirText | None:
        """Return the MLIR text that a statement defines, or None."""
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return None
        text = self.names.get(node.targets[0].id)
        return text if isinstance(text, MlirText) else None

    def _symbol(self, node: ast.FunctionDef, symbol: str | None) -> str:
        """Return the name of a graph in the module."""
        call = decorator(node)[1]
        reader = Interpreter(self.source, {}, {})
        name_node = next((k.value for k in call.keywords if k.arg == "name"), None) if call else None
        return str((reader.value(name_node) if name_node is not None else None) or symbol or node.name)

    def _constant(self, node: Located) -> object:
        reader = Interpreter(self.source, {}, self.names)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("T.mlir", "R.mlir") and len(node.args) == 1:
            return MlirText(reader.text(node.args[0], "the IR"))
        return reader.value(node)

    def _prim_func(self, node: ast.FunctionDef, call: ast.Call | None) -> PrimFunc:
        reader = Interpreter(self.source, {}, {})
        options = {k.arg: reader.value(k.value) for k in call.keywords if k.arg != "attrs"} if call else {}
        attributes = dict(self.attributes(call))
        if options.get("kind"):
            attributes[KIND] = f'"{options["kind"]}"'
        func = parse_prim_func(node, self.source, self.names, attributes, bool(options.get("buffers")))
        name = options.get("name")
        return func.renamed(str(name)) if name else func

    def attributes(self, call: ast.Call | None) -> list[tuple[str, str]]:
        """Return `attrs={"tir.kind": '"reduce"'}` of a decorator: attributes as MLIR text."""
        attrs_node = next((k.value for k in call.keywords if k.arg == "attrs"), None) if call else None
        if attrs_node is None:
            return []
        if not isinstance(attrs_node, ast.Dict):
            raise self.source.error(attrs_node, "attrs: expected a dict of names and attributes as text")
        reader = Interpreter(self.source, {}, {})
        return [
            (
                reader.text(attrs_node if key is None else key, "the name of an attribute"),
                reader.text(value, "an attribute"),
            )
            for key, value in zip(attrs_node.keys, attrs_node.values, strict=True)
        ]

    def _define(self, node: ast.stmt, symbol: str | None) -> None:
        if isinstance(node, ast.FunctionDef):
            known = self.names.get(node.name)
            if isinstance(known, PrimFunc):
                if not known.is_template:
                    self.functions.define(known)
            elif not isinstance(known, InlineFunction):
                define = self.functions.pending.pop(self._symbol(node, symbol), None)
                if define is not None:
                    define()
        elif isinstance(node, ast.Assign):
            for op in self.parsed[node][1] if node in self.parsed else ():
                self.functions.module.body.append(op.clone())

    def _graph(self, node: ast.FunctionDef, symbol: str | None) -> None:
        call = decorator(node)[1]
        reader = Interpreter(self.source, {}, {})
        options = {k.arg: reader.value(k.value) for k in call.keywords if k.arg != "attrs"} if call else {}
        function = self.names.get(node.name)
        own = captured_names(function, node) if callable(function) else {}
        captured = {**own, **self.names, **self.functions.graphs, **self.callees}
        name = self._symbol(node, symbol)
        graph = build_graph(node, self.source, captured, self.functions, name, bool(options.get("private")))
        for key, text in self.attributes(call):
            graph.operation.attributes[key] = ir.Attribute.parse(text)
        self.names[node.name] = self.callees[node.name] = self.functions.graphs[name]

    def _announce_texts(self, nodes: dict[ast.stmt, MlirText]) -> None:
        """Parse MLIR text; its graphs and prim functions may be called from now on, also from one another."""
        errors: dict[ast.stmt, ir.MLIRError] = {}
        for node, text in nodes.items():
            try:
                self._announce_text(node, text, ir.Module.parse(text.text))
            except ir.MLIRError as error:
                errors[node] = error
        if not errors:
            return
        # Operations such as func.call name functions that stand elsewhere, and are verified where they are parsed.
        texts = {node: text.text for node, text in nodes.items() if not _IS_MODULE.match(text.text)}
        defined = {name: node for node, text in texts.items() for name in _defined_names(text)}
        missing = {name for text in texts.values() for name in _NAMED.findall(text)} - defined.keys()
        declared = [function for name in sorted(missing) if (function := self._declaration(name)) is not None]
        try:
            module_attributes = ", ".join(f"{named.name} = {named.attr}" for named in self._module_attributes())
            body = "\n".join([*declared, *texts.values()])
            whole = ir.Module.parse(f"module attributes {{{module_attributes}}} {{\n{body}\n}}")
        except ir.MLIRError:
            node, wrong = next(iter(errors.items()))
            first = wrong.error_diagnostics[0].message if wrong.error_diagnostics else str(wrong)
            raise self.source.error(node, f"this is not valid IR: {first}") from None
        for node in texts:
            own = [op for op in _members(whole) if defined.get(symbol_name(op)) is node]
            self._announce_text(node, nodes[node], whole, own)

    def _announce_text(
        self, node: ast.stmt, text: MlirText, parsed: ir.Module, own: list[ir.Operation] | None = None
    ) -> None:
        self.parsed[node] = (parsed, _members(parsed) if own is None else own)
        for op in self.parsed[node][1]:
            name = self.functions.symbols[text] = symbol_name(op)
            if op.name == "func.func" and PRIM_FUNC not in op.attributes:
                kind = ir.TypeAttr(op.attributes["function_type"]).value
                self.functions.graphs[name] = Callee(name, tuple(kind.inputs), tuple(kind.results))

    def _module_attributes(self) -> list[ir.NamedAttribute]:
        """Return the attributes of the module under construction."""
        attributes = self.functions.module.operation.attributes
        return [attributes[i] for i in range(len(attributes))]

    def _declaration(self, name: str) -> str | None:
        """Return a declaration of a function that is not a text; None if there is no such function."""
        prim = next((f for f in self.names.values() if isinstance(f, PrimFunc) and f.name == name), None)
        if prim is not None and not prim.is_template:
            kind = ir.TypeAttr(prim.build({}).operation.attributes["function_type"]).value
            return _declared(name, kind.inputs, kind.results)
        graph = self.functions.graphs.get(name)
        return None if graph is None else _declared(name, graph.inputs, graph.results)


_NAME = r'@([\w$.-]+|"[^"]*")'
_NAMED = re.compile(_NAME)
_DEFINED = re.compile(r"^\s*([\w.]+)\s+(?:\"?(?:private|public|nested)\"?\s+)?(?:constant\s+)?" + _NAME, re.MULTILINE)
_FUNCTION = "func.func"
_IS_MODULE = re.compile(r"\s*module\b")


def _defined_names(text: str) -> list[str]:
    """Return the symbols that text defines: of a module within, its own, not those of its members."""
    names = _DEFINED.findall(text)
    return (
        [name for kind, name in names if kind == _FUNCTION]
        if names[:1] and names[0][0] == _FUNCTION
        else [name for _, name in names[:1]]
    )


def _declared(name: str, inputs: Iterable[ir.Type], results: Iterable[ir.Type]) -> str:
    return f"func.func private @{name}({', '.join(map(str, inputs))}) -> ({', '.join(map(str, results))})"


def _members(parsed: ir.Module) -> list[ir.Operation]:
    """Return the operations of text; text that is one module must not be wrapped in another."""
    if symbol_name(parsed):
        return [parsed.operation]
    return [op.operation for op in parsed.body.operations]
