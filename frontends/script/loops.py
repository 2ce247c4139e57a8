"""Parsing of `for` statements and blocks of prim functions, for both forms."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.tir.compute.expr import Expr
from mirlo.frontends.script.describe import describe, is_number, kind_of
from mirlo.frontends.script.interpreter import Interpreter
from mirlo.frontends.script.source import Located
from mirlo.frontends.script.symbols import LOOPS, ScriptName
from mirlo.runtime.records import dataclass

RANGES = ("range", "parallel_range")
"""Loops with a step: those of the compute builder, sequential or parallel."""


@dataclass(frozen=True)
class LoopHeader:
    """`for target in kind(lower, upper, step)`; a grid has several extents, the other kinds one."""

    kind: str
    lower: tuple[Dim | Expr, ...]
    upper: tuple[Dim | Expr, ...]
    step: Dim | Expr
    thread: str | None
    as_tuple: bool
    """Whether one name on the left stands for all indices."""


def header(interpreter: Interpreter, node: ast.For) -> LoopHeader:
    """Parse the header of a `for` statement."""
    if node.orelse:
        raise interpreter.error(node.orelse[0], "a loop of a prim function has no 'else'")
    call = node.iter
    function = interpreter.value(call.func) if isinstance(call, ast.Call) else None
    kind = "range" if function is range else function.name if isinstance(function, ScriptName) else None
    if not isinstance(call, ast.Call) or (kind != "range" and kind not in LOOPS):
        names = ", ".join(f"T.{name}" for name in LOOPS)
        raise interpreter.error(node.iter, f"a loop runs over range or one of {names}; found {describe_call(call)}")
    if kind == "grid":
        extents = [_bound(interpreter, call, extent) for extent in interpreter.flat(interpreter.arguments(call))]
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        as_tuple = isinstance(node.target, ast.Name) and (starred or len(extents) != 1)
        return LoopHeader(kind, (0,) * len(extents), tuple(extents), 1, None, as_tuple)
    if kind == "thread_binding":
        return _thread_binding(interpreter, call)
    arguments = interpreter.arguments(call, 1, 3 if kind in RANGES else 2)
    bounds = [_bound(interpreter, call, bound) for bound in arguments]
    lower, upper = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    step = bounds[2] if len(bounds) == 3 else 1
    if is_number(step) and step < 1:
        raise interpreter.error(call, f"the step of a loop must be positive, found {step}")
    return LoopHeader(str(kind), (lower,), (upper,), step, None, False)


def _thread_binding(interpreter: Interpreter, call: ast.Call) -> LoopHeader:
    extent, thread = interpreter.arguments(call, 2, 2)
    size = _bound(interpreter, call, extent)
    if not isinstance(thread, str):
        raise interpreter.error(call.args[1], "the hardware axis must be text, such as 'threadIdx.x'")
    return LoopHeader("thread_binding", (0,), (size,), 1, thread, False)


def describe_call(node: Located) -> str:
    return f"'{ast.unparse(node.func)}'" if isinstance(node, ast.Call) else describe(node)


def _bound(interpreter: Interpreter, node: Located, bound: object) -> Dim | Expr:
    """Evaluate a bound of a loop, which must be an integer."""
    if isinstance(bound, (int, SymbolicDim)) and not isinstance(bound, bool):
        return bound
    if not isinstance(bound, Expr) or not bound.dtype.is_integer:
        raise interpreter.error(node, f"a bound of a loop must be an integer, found {kind_of(bound)}")
    return bound


def block_name(interpreter: Interpreter, node: Located) -> str | None:
    """Return the name in `with T.block("name"):`, "" without one, None for another `with`."""
    call = _only_context(interpreter, node)
    if call is None or call[0].name != "block":
        return None
    arguments = call[1].args
    return interpreter.text(arguments[0], "the name of a block") if arguments else ""


def is_init(interpreter: Interpreter, node: Located) -> bool:
    """Return whether this is `with T.init():`."""
    call = _only_context(interpreter, node)
    return call is not None and call[0].name == "init"


def _only_context(interpreter: Interpreter, node: Located) -> tuple[ScriptName, ast.Call] | None:
    if not isinstance(node, ast.With) or len(node.items) != 1 or node.items[0].optional_vars is not None:
        return None
    call = node.items[0].context_expr
    if not isinstance(call, ast.Call):
        return None
    function = interpreter.value(call.func)
    return (function, call) if isinstance(function, ScriptName) else None


def callee_of(interpreter: Interpreter, node: Located) -> str | None:
    """Return `name` if an expression is a call of T.name."""
    owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    if not isinstance(node, ast.Call) or not isinstance(owner or node.func, ast.Name):
        return None
    function = interpreter.value(node.func)
    return function.name if isinstance(function, ScriptName) else None


def call_of(interpreter: Interpreter, node: Located, name: str) -> ast.Call | None:
    """Return an expression that is a call of T.name, or None."""
    return node if isinstance(node, ast.Call) and callee_of(interpreter, node) == name else None


def axes_kinds(interpreter: Interpreter, call: ast.Call) -> tuple[str, Sequence[ast.expr]]:
    """Return the letters of `T.axes("SSR", i, j, k)`, one per index, and the arguments."""
    if not call.args:
        raise interpreter.error(call, "T.axes takes a letter for each axis, 'S' or 'R', and then the indices")
    letters = interpreter.text(call.args[0], "the kinds of the axes")
    if set(letters) - {"S", "R"}:
        raise interpreter.error(call.args[0], f"axes are S (spatial) or R (reduction), found '{letters}'")
    if len(letters) != len(call.args) - 1:
        raise interpreter.error(call, f"T.axes has {len(letters)} letters for {len(call.args) - 1} indices")
    return letters, call.args[1:]


def is_docstring(node: Located) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
