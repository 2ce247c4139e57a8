"""The index of a Python file: names of its scripts from the syntax tree, problems and types from the parser."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from mirlo.extend.inspect import ScriptError, check_scripts, dotted, find_source_position, is_definition
from mirlo.extend.ops import ir, make_context, walk
from mirlo_editor.document import Function, Index, Name, TextProblem, TextSpan

UNCHECKED = "not checked: its value is known only when the file runs"
Types = dict[tuple[int, int], str]
"""The types of results by the line and column of the expression, from 1, as the parser counts: in bytes."""


def index_of_scripts(text: str, file: str) -> Index:
    """Check the scripts of a file; return the index."""
    context = make_context()
    checked = check_scripts(text, file, context)
    lines = text.split("\n")
    index = Index()
    index.problems = [TextProblem("error", error.problem, _error_span(error, lines)) for error in checked.errors]
    index.problems += [
        TextProblem("information", f"'{error.named}' is {UNCHECKED}", _error_span(error, lines))
        for error in checked.unchecked
    ]
    types: Types = {}
    for module in checked.modules:
        types.update(_types(module))
    index.operations = sorted(types)
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return index
    reader = _Names(lines, types)
    reader.read(tree)
    index.names, index.functions = reader.names, reader.functions
    return index


def module_of_scripts(text: str, file: str, line: int, context: ir.Context) -> ir.Module | None:
    """Return the module of the script around a line, counted from 0, or of the next script that calls it."""
    checked = check_scripts(text, file, context)
    best = None
    for module in checked.modules:
        lines = [place[0] - 1 for place in _types(module)]
        graphs = any("tir.prim_func" not in op.operation.attributes for op in module.body.operations)
        if lines and graphs and min(lines) <= line <= max(lines):
            return module
        if lines and graphs and best is None:
            best = module
    return best


def _types(module: ir.Module) -> Types:
    types: Types = {}

    def visit(op: ir.Operation) -> ir.WalkResult:
        place = find_source_position(op.location)
        if place is not None and place.line > 0 and op.name not in ("builtin.module", "func.func"):
            # The outermost operator of an expression comes last, and is where the expression is.
            types[place.line, place.column] = ", ".join(str(result.type) for result in op.results)
        return ir.WalkResult.ADVANCE

    walk(module, visit)
    return types


def _error_span(error: ScriptError, lines: Sequence[str]) -> TextSpan:
    if not error.place:
        return TextSpan(0, 0, len(lines[0]))
    _, line, column = error.place.rsplit(":", 2)
    row, start = int(line) - 1, int(column) - 1
    width = max(1, len(error.named))
    return TextSpan(row, start, min(start + width, len(lines[row]) if row < len(lines) else start))


class _Names:
    """Finds the names in scripts, and the statements that bind them."""

    def __init__(self, lines: Sequence[str], types: Types):
        self.lines = lines
        self.types = types
        self.names: list[Name] = []
        self.functions: list[Function] = []

    def read(self, tree: ast.Module) -> None:
        outer: dict[str, list[Name]] = {}
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not is_definition(node):
                continue  # not of scripts
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                self._bind_definition(node, outer)
            else:
                self._bind_targets(node, outer)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and is_definition(node):
                self._function(node, outer)
            elif isinstance(node, ast.ClassDef) and is_definition(node):
                self._class(node, outer)

    def _class(self, node: ast.ClassDef, outer: dict[str, list[Name]]) -> None:
        inner = {name: list(bound) for name, bound in outer.items()}
        for member in node.body:
            if isinstance(member, ast.FunctionDef):
                self._bind_definition(member, inner)
            else:
                self._bind_targets(member, inner)
        for member in node.body:
            if isinstance(member, ast.FunctionDef):
                self._function(member, inner)

    def _bind_definition(self, node: ast.FunctionDef | ast.ClassDef, names: dict[str, list[Name]]) -> None:
        keyword = "class" if isinstance(node, ast.ClassDef) else "def"
        start = self._column(node.lineno, node.col_offset) + len(keyword) + 1
        span = TextSpan(node.lineno - 1, start, start + len(node.name))
        self._bind(Name(span, "function", node.name, span), names)
        self.functions.append(Function(node.name, span, (node.end_lineno or node.lineno) - 1))

    def _bind_targets(self, node: ast.stmt, names: dict[str, list[Name]]) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                span = self._span(inner)
                self._bind(Name(span, "value", inner.id, span), names)

    def _bind(self, name: Name, names: dict[str, list[Name]]) -> None:
        self.names.append(name)
        names.setdefault(name.text, []).append(name)

    def _function(self, node: ast.FunctionDef, outer: dict[str, list[Name]]) -> None:
        names = dict(outer)
        own: dict[str, list[Name]] = {}
        for argument in node.args.args:
            start = self._column(argument.lineno, argument.col_offset)
            span = TextSpan(argument.lineno - 1, start, start + len(argument.arg))
            note = ast.unparse(argument.annotation) if argument.annotation is not None else None
            self._bind(Name(span, "value", argument.arg, span, note), own)
        for statement in _statements(node.body):
            for target, value in _assigned(statement):
                kind = self.types.get((value.lineno, value.col_offset + 1)) if value is not None else None
                span = self._span(target)
                self._bind(Name(span, "value", target.id, span, kind), own)
        names.update(own)
        for part in (*node.decorator_list, *(a.annotation for a in node.args.args), node.returns, *node.body):
            if part is not None:
                self._uses(part, names)

    def _uses(self, node: ast.AST, names: dict[str, list[Name]]) -> None:
        text = dotted(node) if isinstance(node, ast.Attribute) else ""
        if isinstance(node, ast.Attribute) and text.startswith(("R.", "T.")):
            self.names.append(Name(self._span(node), "script", text))
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            span = self._span(node)
            before = [name for name in names[node.id] if (name.span.line, name.span.start) < (span.line, span.start)]
            bound = (before or names[node.id])[-1 if before else 0]
            self.names.append(Name(span, bound.kind, node.id, bound.span, bound.type))
        for child in ast.iter_child_nodes(node):
            self._uses(child, names)

    def _span(self, node: ast.expr) -> TextSpan:
        start = self._column(node.lineno, node.col_offset)
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        last = len(self.lines[node.lineno - 1]) if end is None else self._column(node.lineno, end)
        return TextSpan(node.lineno - 1, start, last)

    def _column(self, line: int, offset: int) -> int:
        """Return the column in characters of a column in bytes."""
        return len(self.lines[line - 1].encode("utf-8")[:offset].decode("utf-8", "ignore"))


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for inner in ("body", "orelse"):
            yield from _statements(getattr(statement, inner, ()))


def _assigned(node: ast.stmt) -> Iterator[tuple[ast.Name, ast.expr | None]]:
    """Yield the names that a statement itself binds, each with the expression of its value, if it is one."""
    targets: list[ast.expr] = []
    value: ast.expr | None = None
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AnnAssign):
        targets, value = [node.target], node.value
    elif isinstance(node, ast.For):
        targets = [node.target]
    elif isinstance(node, ast.With):
        targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
    for target in targets:
        if isinstance(target, ast.Name):
            yield target, value
            continue
        for inner in ast.walk(target):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner, None
