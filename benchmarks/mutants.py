"""Single-point changes of Python code: where they can be made, and the changed text."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDERS = (
    "dialects", "driver", "extend", "frontends", "passes", "plugins", "runtime",
    "targets", "tools",
)  # fmt: skip
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip

SYMMETRIC = ("max", "min")
"""Functions whose arguments have no order."""


@dataclass(frozen=True)
class Mutant:
    """A change of one expression or statement."""

    path: str
    kind: str
    line: int
    column: int
    end_line: int
    end_column: int
    before: str
    after: str
    statement_line: int
    """The line before which a record of the statement's execution can stand."""
    indent: int
    """The indentation of that line."""
    is_global: bool = False
    """Whether the statement is executed when its module is imported: what runs of the file may notice the change."""
    number: int = -1


def _comparison(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Compare) or len(node.ops) > 1:
        return None
    return ast.Compare(node.left, [FLIPPED[type(node.ops[0])]()], node.comparators)


def _constant(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Constant) or type(node.value) is not int:
        return None
    return ast.Constant(node.value + 1)


def _branch(node: ast.AST) -> ast.AST | None:
    # The test of an `if`: `_expressions` passes on nothing else of statements.
    return ast.UnaryOp(ast.Not(), node) if isinstance(node, ast.expr) else None


def _returned(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Return) or node.value is None:
        return None
    is_none = isinstance(node.value, ast.Constant) and node.value.value is None
    return None if is_none else ast.Return(ast.Constant(None))


def _dropped(node: ast.AST) -> ast.AST | None:
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return ast.Pass() if is_call or isinstance(node, ast.AugAssign) else None


def _swapped(node: ast.AST) -> ast.AST | None:
    if (
        not isinstance(node, ast.Call)
        or len(node.args) < 2
        or any(isinstance(arg, ast.Starred) for arg in node.args[:2])
    ):
        return None
    first, second, *others = node.args
    is_symmetric = isinstance(node.func, ast.Name) and node.func.id in SYMMETRIC
    if is_symmetric or ast.dump(first) == ast.dump(second):
        return None
    return ast.Call(node.func, [second, first, *others], node.keywords)


KINDS: dict[str, Callable[[ast.AST], ast.AST | None]] = {
    "comparison flipped": _comparison, "constant off by one": _constant, "branch negated": _branch,
    "return replaced": _returned, "statement dropped": _dropped, "arguments swapped": _swapped,
}  # fmt: skip


def find_mutants(root: Path, areas: Sequence[str] = FOLDERS) -> list[Mutant]:
    """Return all changes of the shipped code in some folders or files, each once."""
    inside = {
        path for area in areas for path in ((root / area).rglob("*.py") if (root / area).is_dir() else [root / area])
    }
    mutants: list[Mutant] = []
    for path in sorted(inside):
        if not {"stubs", "tests"} & set(path.parts):
            mutants += _of_file(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
    return mutants


def _of_file(path: str, text: str) -> Iterator[Mutant]:
    lines, tree = text.splitlines(), ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    inside = {line for node in functions for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    for statement, anchor in _statements(tree.body, None):
        for node, kinds in _expressions(statement):
            for kind in kinds:
                changed = KINDS[kind](node)
                before = _segment(lines, node) if changed is not None else ""
                if changed is None or not before.isascii():
                    continue
                after = ast.unparse(ast.fix_missing_locations(changed))
                if isinstance(node, ast.expr):
                    after = f"({after})"
                yield Mutant(
                    path, kind, node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0, before,
                    after, anchor, len(lines[anchor - 1]) - len(lines[anchor - 1].lstrip()), node.lineno not in inside,
                )  # fmt: skip


def _segment(lines: Sequence[str], node: ast.expr | ast.stmt) -> str:
    """Return the text of a node: `ast.get_source_segment` takes the whole file apart for each."""
    inside = lines[node.lineno - 1 : node.end_lineno]
    last = inside[-1].encode()[: node.end_col_offset].decode()
    joined = "\n".join([*inside[:-1], last])
    return joined.encode()[node.col_offset :].decode()


def _statements(body: Sequence[ast.stmt], above: int | None) -> Iterator[tuple[ast.stmt, int]]:
    """Yield statements and the lines before which a record can stand: that of an `elif` is its `if`'s."""
    for statement in body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)) or _is_for_types(statement):
            continue
        anchor = above or _first_line(statement)
        yield statement, anchor
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if not isinstance(inner, list):
                continue
            is_elif = name == "orelse" and isinstance(statement, ast.If) and len(inner) == 1
            is_elif = is_elif and isinstance(inner[0], ast.If) and inner[0].col_offset == statement.col_offset
            yield from _statements(inner, anchor if is_elif else None)
        for handler in getattr(statement, "handlers", ()):
            yield from _statements(handler.body, None)


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min(statement.lineno, *(decorator.lineno for decorator in decorators), statement.lineno)


def _is_for_types(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.If) and isinstance(statement.test, ast.Name) and statement.test.id == "TYPE_CHECKING"
    )


def _expressions(statement: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, list[str]]]:
    """Yield what can be changed in a statement, without the statements inside of it, and by which kinds."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        return
    yield statement, ["return replaced", "statement dropped"]
    if isinstance(statement, (ast.If, ast.While)):
        yield statement.test, ["branch negated"]
    for name, value in ast.iter_fields(statement):
        if name in ("body", "orelse", "finalbody", "handlers", "annotation", "cases"):
            continue
        for part in value if isinstance(value, list) else [value]:
            for node in ast.walk(part) if isinstance(part, ast.AST) else ():
                if isinstance(node, ast.JoinedStr):  # the parts of an f-string have no places of their own
                    break
                if isinstance(node, ast.expr):
                    yield node, ["comparison flipped", "constant off by one", "arguments swapped"]


def mutated(text: str, mutant: Mutant) -> str:
    """Return a file's text with a change."""
    lines = text.splitlines(keepends=True)
    first, last = lines[mutant.line - 1], lines[mutant.end_line - 1]
    joined = first[: mutant.column] + mutant.after + last[mutant.end_column :]
    return "".join([*lines[: mutant.line - 1], joined, *lines[mutant.end_line :]])


def with_hits(text: str, mutants: Sequence[Mutant]) -> str:
    """Return a file's text with a record of execution before each statement that has a change.

    What is executed when the module is imported is recorded wherever a function of the file begins. The record binds no
    name: functions whose local variables are looked at have no more of them, nor classes attributes.
    """
    lines = text.splitlines(keepends=True)
    places: dict[tuple[int, int], list[Mutant]] = defaultdict(list)
    beginnings = list(_beginnings(ast.parse(text)))
    for mutant in mutants:
        for place in [(mutant.statement_line, mutant.indent), *(beginnings if mutant.is_global else [])]:
            places[place].append(mutant)
    for line, indent in sorted(places, reverse=True):
        numbers = ", ".join(str(mutant.number) for mutant in places[line, indent])
        lines.insert(line - 1, f"{' ' * indent}__import__('mirlo.mutation_hits').mutation_hits.hit({numbers})\n")
    return "".join(lines)


def _beginnings(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Yield the line and the indentation of the first statement of each function that is not only a docstring."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[1:2] if ast.get_docstring(node) is not None else node.body[:1]
            if first and first[0].lineno > node.lineno:
                yield _first_line(first[0]), first[0].col_offset
