"""The source of a script: its syntax tree, with positions in the user's file."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import FrameType

from mirlo.dialects.bindings import ir
from mirlo.frontends.script.errors import ScriptError
from mirlo.frontends.script.tvm_spelling import is_of_tvm, translate
from mirlo.runtime.records import dataclass

Located = ast.expr | ast.stmt | ast.arg | ast.keyword
"""A node of a syntax tree that has a place in the text."""


@dataclass(frozen=True)
class ScriptSource:
    """Text of a file from a line on, dedented."""

    file: str
    lines: tuple[str, ...]
    first_line: int = 1
    indentation: int = 0
    is_of_tvm: bool = False
    """Whether it imports TVM's script, whose operators may have other defaults."""

    def error(self, node: Located, problem: str) -> ScriptError:
        """Return an error that points at a node."""
        row = node.lineno - 1
        line = self.lines[row] if row < len(self.lines) else ""
        # The tree counts bytes of UTF-8, messages count characters.
        start = len(line.encode()[: node.col_offset].decode(errors="ignore"))
        end = node.end_col_offset if node.end_lineno == node.lineno else len(line.encode())
        width = len(line.encode()[node.col_offset : end].decode(errors="ignore"))
        position = f"{self.file}:{self.first_line + row}:{self.indentation + start + 1}"
        return ScriptError(problem, position, line, start, width)

    def location(self, node: Located) -> ir.Location:
        """Return the location of a node for the IR made from it."""
        column = self.indentation + node.col_offset + 1
        return ir.Location.file(self.file, self.first_line + node.lineno - 1, column)


def parse_object(thing: Callable[..., object] | type, frame: FrameType | None = None) -> tuple[ast.stmt, ScriptSource]:
    """Parse the definition of a function or class; `frame` is where a decorator is called.

    Functions have a code object, which knows its line. That of a class is found by the line of its decorator.
    """
    try:
        if isinstance(thing, type):
            file, lines, first = _class_lines(thing, frame)
        else:
            lines, first = inspect.getsourcelines(thing)
            file = inspect.getsourcefile(thing) or "<script>"
    except (OSError, TypeError):
        name = getattr(thing, "__name__", str(thing))
        raise ScriptError(
            f"the source of '{name}' is not available: scripts are parsed from their file, so define it in one"
        ) from None
    text = "".join(lines)
    dedented = textwrap.dedent(text)
    indentation = len(text) - len(text.lstrip()) if dedented != text else 0
    source = ScriptSource(file, tuple(dedented.splitlines()), first, indentation)
    tree = _parse(dedented, source).body[0]
    name = getattr(getattr(thing, "__code__", thing), "co_name", getattr(thing, "__name__", ""))
    if getattr(tree, "name", "") != name:
        raise ScriptError(
            f"the source of '{name}' is not at {file}:{first}: the file has changed since it was read; run it again"
        )
    return tree, source


def _class_lines(cls: type, frame: FrameType | None) -> tuple[str, list[str], int]:
    """Return the file, the lines and the first line of the definition of a class, decorators included."""
    file, line = _class_place(cls, frame)
    lines = linecache.getlines(file, vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else None)
    if not lines:
        raise OSError
    spans = [
        (min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]), node)
        for node in ast.walk(ast.parse("".join(lines)))
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    ]
    around = [(first, node) for first, node in spans if line is not None and first <= line <= (node.end_lineno or 0)]
    if not around and len(spans) > 1:
        listed = ", ".join(f"{file}:{first}" for first, _ in spans)
        raise ScriptError(
            f"'{cls.__qualname__}' is defined {len(spans)} times, at {listed}, and nothing tells which one this is: "
            "decorate the class where it is defined, with @mirlo.script, or give the definitions different names"
        )
    if not spans:
        raise OSError
    first, node = max(around or spans, key=lambda span: span[0])
    return file, lines[first - 1 : node.end_lineno], first


def _class_place(cls: type, frame: FrameType | None) -> tuple[str, int | None]:
    """Return the file of a class and a line within its definition, or None for the line where that is unknown."""
    for member in vars(cls).values():
        code = getattr(member, "__code__", None)
        if code is not None and member.__qualname__ == f"{cls.__qualname__}.{code.co_name}":
            return code.co_filename, code.co_firstlineno
    if frame is not None and frame.f_globals.get("__name__") == cls.__module__:
        return frame.f_code.co_filename, frame.f_lineno
    return inspect.getsourcefile(cls) or "<script>", None


def parse_text(text: str, file: str = "<script>") -> tuple[ast.Module, ScriptSource]:
    """Parse a script given as text."""
    source = ScriptSource(file, tuple(text.splitlines()))
    tree = _parse(text, source)
    return tree, replace(source, is_of_tvm=is_of_tvm(tree))


def _parse(text: str, source: ScriptSource) -> ast.Module:
    try:
        return translate(ast.parse(text))
    except SyntaxError as error:
        line = error.lineno or 1
        shown = source.lines[line - 1] if line <= len(source.lines) else ""
        position = f"{source.file}:{source.first_line + line - 1}:{error.offset or 1}"
        raise ScriptError(error.msg, position, shown, (error.offset or 1) - 1) from None


def names_read(tree: ast.AST) -> set[str]:
    """Return all names in a piece of syntax."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def captured_names(
    function: Callable[..., object] | type, tree: ast.AST, frame: FrameType | None = None
) -> dict[str, object]:
    """Return the current values of names that a function captures.

    `frame` is where it is defined: names that only its annotations use are in no closure.
    """
    result: dict[str, object] = {}
    scope = getattr(function, "__globals__", None) or getattr(frame, "f_globals", {})
    code = getattr(function, "__code__", None)
    cells = dict(zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=True)) if code else {}
    around = _enclosing(frame)
    for name in names_read(tree):
        if name in cells:
            try:
                result[name] = cells[name].cell_contents
            except ValueError:
                continue  # defined later: unknown here
        else:
            place = next((names for names in (*around, scope) if name in names), None)
            if place is not None:
                result[name] = place[name]
    return result


def _enclosing(frame: FrameType | None) -> list[Mapping[str, object]]:
    """Return the local names of the functions and classes around a definition."""
    result: list[Mapping[str, object]] = []
    file = frame.f_code.co_filename if frame is not None else None
    while frame is not None and frame.f_code.co_filename == file and frame.f_locals is not frame.f_globals:
        result.append(frame.f_locals)
        frame = frame.f_back
    return result
