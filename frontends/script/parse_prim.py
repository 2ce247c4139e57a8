"""`@mirlo.prim_func`, and the parser of such functions: their parameters, shapes and element types."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, overload

from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.frontends.script.describe import kind_of
from mirlo.frontends.script.errors import ScriptError
from mirlo.frontends.script.interpreter import Interpreter
from mirlo.frontends.script.source import Located, ScriptSource, captured_names, parse_object
from mirlo.frontends.script.symbols import AttributeSymbol, DimSymbol, ScriptName, ShapeSymbol, TypeSymbol
from mirlo.frontends.script.syntax import dims_declared, dotted

if TYPE_CHECKING:
    pass
from mirlo.frontends.script.prim import KIND, SYMBOLS, Parameter, PrimFunc, ShapePart

KINDS = ("elementwise", "broadcast", "injective", "reduce", "row", "contraction", "opaque")


@overload
def prim_func(
    function: Callable[..., object],
    *,
    kind: str | None = None,
    buffers: bool = False,
    name: str | None = None,
    attrs: dict[str, str] | None = None,
    _depth: int = 1,
) -> PrimFunc: ...


@overload
def prim_func(
    function: None = None,
    *,
    kind: str | None = None,
    buffers: bool = False,
    name: str | None = None,
    attrs: dict[str, str] | None = None,
    _depth: int = 1,
) -> Callable[[Callable[..., object]], PrimFunc]: ...


def prim_func(
    function: Callable[..., object] | None = None,
    *,
    kind: str | None = None,
    buffers: bool = False,
    name: str | None = None,
    attrs: dict[str, str] | None = None,
    _depth: int = 1,
) -> PrimFunc | Callable[[Callable[..., object]], PrimFunc]:
    """Make a prim function of a Python function, which is parsed and never executed.

    `kind` declares its kind for fusion ("elementwise", "reduce", ...) instead of the analysis. `buffers=True` keeps
    it as written loops, even if it could be raised to blocks and scheduled. `name` is its symbol, by default the
    function's name; `attrs` are more attributes, as MLIR text.
    """
    if kind is not None and kind not in KINDS:
        raise ScriptError(f"kind: expected one of {', '.join(KINDS)}; found {kind!r}")
    frame = sys._getframe(_depth)
    attributes = {**(attrs or {}), **({KIND: f'"{kind}"'} if kind else {})}

    def decorate(decorated: Callable[..., object]) -> PrimFunc:
        tree, source = parse_object(decorated)
        func = parse_prim_func(tree, source, captured_names(decorated, tree, frame), attributes, buffers)
        return func.renamed(name) if name else func

    return decorate if function is None else decorate(function)


def parse_prim_func(
    tree: ast.stmt,
    source: ScriptSource,
    captured: dict[str, object],
    attributes: dict[str, str],
    buffers: bool = False,
) -> PrimFunc:
    """Parse a definition to a prim function."""
    if not isinstance(tree, ast.FunctionDef):
        raise source.error(tree, "a prim function is a plain 'def'")
    arguments = tree.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
        raise source.error(tree, "a prim function takes plain parameters: no defaults, no *, no **")
    tree, declared = _with_declared_dims(tree)
    symbols = {v.name: v for v in captured.values() if isinstance(v, SYMBOLS)} | declared
    names = {name: value for name, value in captured.items() if not isinstance(value, SYMBOLS)}
    for name, value in captured.items():
        if isinstance(value, SYMBOLS) and name != value.name:
            raise source.error(tree, f"symbol '{value.name}' goes by the name '{name}': give it one name")
    reader = Interpreter(source, {}, {**names, **symbols})
    parameters = tuple(_parameter(reader, argument) for argument in tree.args.args)
    if not any(p.is_output for p in parameters):
        # TVM has no mark for outputs: they are the parameters that are stored to.
        stored = _stored_names(tree)
        parameters = tuple(replace(p, is_output=p.name in stored) for p in parameters)
    if not any(p.is_output for p in parameters):
        raise source.error(tree, f"'{tree.name}' has no output: annotate the parameters that it writes with T.Out[...]")
    numbers = tuple(name for name, symbol in symbols.items() if isinstance(symbol, AttributeSymbol))
    return PrimFunc(tree.name, parameters, tree, source, names, attributes, numbers, buffers)


def _with_declared_dims(tree: ast.FunctionDef) -> tuple[ast.FunctionDef, dict[str, DimSymbol]]:
    """Return a function without its statements `n = T.dims("n")` and parameters of that name, and the symbols."""
    names = [name for node in tree.body for name in dims_declared(node)]
    typed = [each.arg for each in tree.args.args if dotted(each.annotation) in ("T.i64", "T.i32")]
    if not names and not typed:
        return tree, {}
    body = [node for node in tree.body if not dims_declared(node)]
    kept = [each for each in tree.args.args if each.arg not in (*names, *typed)]
    arguments = ast.arguments([], kept, None, [], [], None, [])
    parsed = ast.FunctionDef(tree.name, arguments, body, tree.decorator_list, tree.returns)
    return ast.copy_location(parsed, tree), {name: DimSymbol(name) for name in (*names, *typed)}


def _stored_names(tree: ast.FunctionDef) -> set[str]:
    """Return the names of buffers to whose elements a function stores."""
    stores = (n for n in ast.walk(tree) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
    return {store.value.id for store in stores if isinstance(store.value, ast.Name)}


def _parameter(reader: Interpreter, argument: ast.arg) -> Parameter:
    wanted = 'T.Buffer[(M, N), "f32"] or T.Out[(M, N), "f32"]'
    note = argument.annotation
    if isinstance(note, ast.Constant) and isinstance(note.value, str):
        raise reader.error(note, f"write the annotation without quotes: {wanted}")
    if isinstance(note, ast.Call) and not note.keywords:
        # TVM's spelling: T.Buffer((4, 8), "float32").
        inside = ast.copy_location(ast.Tuple(note.args, ast.Load()), note)
        note = ast.copy_location(ast.Subscript(note.func, inside, ast.Load()), note)
    callee = reader.value(note.value) if isinstance(note, ast.Subscript) else None
    if (
        not isinstance(note, ast.Subscript)
        or not isinstance(callee, ScriptName)
        or callee.name not in ("Buffer", "Out")
    ):
        raise reader.error(note or argument, f"parameter '{argument.arg}' needs a type: {wanted}")
    parts = note.slice.elts if isinstance(note.slice, ast.Tuple) else []
    if len(parts) != 2:
        raise reader.error(note, f"a buffer has a shape and an element type: {wanted}")
    return Parameter(argument.arg, callee.name == "Out", _shape(reader, parts[0]), _element(reader, parts[1]), argument)


def _shape(reader: Interpreter, node: ast.expr) -> tuple[ShapePart, ...]:
    """Return dims that are numbers or symbols; others stay syntax, evaluated when the symbols are bound."""
    elements = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    dims: list[ShapePart] = []
    for element in elements:
        plain = element.value if isinstance(element, ast.Starred) else element
        symbol = reader.captured.get(plain.id) if isinstance(plain, ast.Name) else None
        if any(isinstance(n, ast.Name) and isinstance(reader.captured.get(n.id), DimSymbol) for n in ast.walk(plain)):
            dims.append(symbol if isinstance(symbol, DimSymbol) else plain)
            continue
        value = reader.value(plain)
        for dim in reader.flat(value):
            if isinstance(dim, DimSymbol):
                # Arithmetic with symbols is that of the annotation's syntax: outside of it, it returns the symbol.
                raise reader.error(element, f"symbol '{dim.name}' is in a tuple: write the symbols in the annotation")
            if not isinstance(dim, ShapeSymbol) and (isinstance(dim, bool) or not isinstance(dim, int) or dim < 0):
                raise reader.error(element, f"a dim is a number or a symbol of T.dims, found {kind_of(dim)}")
            dims.append(dim)
    if sum(isinstance(dim, ShapeSymbol) for dim in dims) > 1:
        raise reader.error(node, "expected at most one symbol of T.shapes in a shape: two have no boundary")
    return tuple(dims)


def _element(reader: Interpreter, node: Located) -> DType | TypeSymbol:
    value = reader.value(node) if isinstance(node, ast.Name) else None
    if isinstance(value, TypeSymbol):
        return value
    result = reader.element_type(node)
    assert result.name in DTYPES
    return result
