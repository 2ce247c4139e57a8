"""Calls in prim functions, names of the language and helpers, and statements common to both forms."""

from __future__ import annotations

import ast
import builtins
import difflib
import math
import warnings
from collections.abc import Callable, Sequence

from mirlo.dialects.core.dims import SymbolicDim
from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.tir.compute import BOOL, INDEX, Expr, abs_, constant, lift, maximum, minimum
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.dialects.tir.own_intrinsics import OWN, OwnIntrinsic, is_scalar_function
from mirlo.frontends.script.buffers import ScriptBuffer
from mirlo.frontends.script.describe import describe, is_number, kind_of
from mirlo.frontends.script.expressions import STATIC_CALLS, Expressions, Method
from mirlo.frontends.script.inline import InlineFunction
from mirlo.frontends.script.source import Located
from mirlo.frontends.script.symbols import ScriptName


class Interpreter(Expressions):
    """Evaluates expressions with calls; the forms add statements."""

    # Calls

    def _value_Call(self, node: ast.Call) -> object:
        function = self.value(node.func)
        if isinstance(function, ScriptName):
            return self.call_name(function, node)
        if isinstance(function, Method):
            return self._call_method(function, node)
        if isinstance(function, InlineFunction):
            return self.call_inline(function, node)
        if callable(function) and function in STATIC_CALLS.values():
            return self._call_static(function, node)
        raise self.error(
            node, f"{kind_of(function)} cannot be called in a prim function: use names of T, or a helper with @T.inline"
        )

    def _call_static(self, function: Callable[..., object], node: ast.Call) -> object:
        values = self.arguments(node)
        if any(isinstance(v, Expr) for v in values):
            name = function.__name__
            hint = {"int": "x.cast('i32')", "float": "x.cast('f32')", "bool": "x != 0"}.get(name, "a number")
            raise self.error(node, f"{name}() is for numbers known when the function is made: use {hint}")
        try:
            return function(*values)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self.error(node, f"{function.__name__}: {error}") from None

    def arguments(
        self, node: ast.Call, least: int = 0, most: int | None = None, keywords: Sequence[str] = ()
    ) -> list[object]:
        """Evaluate the positional arguments of a call and check their number."""
        values = self._value_Tuple(ast.Tuple(elts=node.args))
        count = len(values)
        if count < least or (most is not None and count > most):
            wanted = str(least) if most == least else f"{least} or more" if most is None else f"{least} to {most}"
            noun = "argument" if wanted == "1" else "arguments"
            raise self.error(node, f"{self.called(node)} takes {wanted} {noun}, found {count}")
        for keyword in node.keywords:
            if keyword.arg not in keywords:
                known = f"; it has: {', '.join(keywords)}" if keywords else ""
                raise self.error(keyword, f"{self.called(node)} has no argument '{keyword.arg}'{known}")
        return list(values)

    def called(self, node: ast.Call) -> str:
        return ast.unparse(node.func)

    def keyword(self, node: ast.Call, name: str) -> ast.expr | None:
        """Return the syntax of a keyword argument, or None."""
        return next((k.value for k in node.keywords if k.arg == name), None)

    def _call_method(self, method: Method, node: ast.Call) -> object:
        owner, name = method.owner, method.name
        if owner is math:
            return self._call_static(_math_function(name, self, node), node)
        if isinstance(owner, ScriptBuffer) and name == "at":
            outside = self.keyword(node, "outside")
            self.arguments(node, keywords=("outside",))
            number = None if outside is None else self.value(outside)
            if number is not None and not is_number(number):
                raise self.error(outside or node, f"'outside' must be a number, found {kind_of(number)}")
            indices = self.indices(owner, ast.Tuple(elts=node.args), node, number is not None)
            return self.read(owner, node, indices, number)
        if name in ("cast", "bitcast") and isinstance(owner, (Expr, int, float)):
            self.arguments(node, 1, 1)
            element = self.element_type(node.args[0])
            if not isinstance(owner, Expr):
                return self.lifted(owner, element, node)
            if name == "bitcast" and element.bits != owner.dtype.bits:
                raise self.error(node, f"{owner.dtype} and {element} have different sizes: bitcast keeps the bits")
            return self._checked(node, lambda: getattr(owner, name)(element))
        raise self.error(
            node, f"{kind_of(owner)} has no method '{name}'; a scalar has cast and bitcast, a buffer has at"
        )

    def call_name(self, callee: ScriptName, node: ast.Call) -> object:
        """Evaluate `T.something(...)` as an expression."""
        name = callee.name
        if name in ("min", "max", "abs"):
            return self._call_extreme(name, node)
        if name in INTRINSICS:
            row = INTRINSICS[name]
            return self._intrinsic(name, self.arguments(node, row.arity, row.arity), node.args, node)
        if name == "call_intrin":
            return self._call_by_name(node)
        if name in DTYPES:
            value = self.arguments(node, 1, 1)[0]
            if not isinstance(value, Expr):
                return constant(value, name) if is_number(value) else self.lifted(value, DTYPES[name], node).cast(name)
            return value.cast(name)
        if name == "select":
            condition, yes, no = self.arguments(node, 3, 3)
            return self.choice(node, condition, yes, no, node.args[0])
        if name == "op":
            return self._call_op(node)
        raise self.error(node, f"{callee} has no meaning as an expression")

    def _call_extreme(self, name: str, node: ast.Call) -> object:
        values = self.arguments(node, 1 if name == "abs" else 2, 1 if name == "abs" else None)
        values = [lift(value, INDEX) if isinstance(value, SymbolicDim) else value for value in values]
        if all(is_number(v) for v in values):
            return getattr(builtins, name)(*values)
        result = values[0]
        for value, argument in zip(values, node.args, strict=False):
            if not is_number(value) and not isinstance(value, Expr):
                raise self.error(argument, f"expected a scalar, found {kind_of(value)}")
        if name == "abs" and isinstance(result, Expr):
            return abs_(result)
        for value in values[1:]:
            if is_number(result) and is_number(value):
                result = getattr(builtins, name)(result, value)
                continue
            a, b = self.matched(result, value, node)
            result = maximum(a, b) if name == "max" else minimum(a, b)
        return result

    def _intrinsic(self, name: str, values: Sequence[object], nodes: Sequence[Located], node: Located) -> Expr:
        row = INTRINSICS[name]
        first = next((v for v in values if isinstance(v, Expr)), None)
        if first is None:
            raise self.error(node, f"T.{name} of numbers needs a type: write T.f32(...), for example")
        integer = DTYPES["i32"] if row.operands == "float_int" else None
        operands = []
        for value, kind, argument in zip(values, row.operand_kinds, nodes, strict=True):
            element = integer if kind == "int" and integer is not None else first.dtype
            scalar = self.lifted(value, element, argument)
            if scalar.dtype.is_float != (kind == "float") or scalar.dtype is BOOL:
                expected = "floats" if kind == "float" else "integers"
                raise self.error(argument, f"T.{name} takes {expected}, found {scalar.dtype}: cast it")
            if row.operands != "float_int" and scalar.dtype is not first.dtype:
                raise self.error(
                    argument, f"T.{name} takes arguments of one type, found {first.dtype} and {scalar.dtype}"
                )
            operands.append(scalar)
        return Expr("intrinsic", tuple(operands), BOOL if row.result == "bool" else operands[0].dtype, name)

    def _call_by_name(self, node: ast.Call) -> object:
        """Read `T.call_intrin("vta.median", x, y, z)`: an intrinsic of a plug-in, or one of tir.

        TVM's order, with the element type of the result first, is read as well.
        """
        values, nodes = self.arguments(node, 1, keywords=("dtype",)), list(node.args)
        declared = self.keyword(node, "dtype")
        wanted = None if declared is None else self.element_type(declared)
        if declared is not None:
            warnings.warn("T.call_intrin(dtype=...): leave it out, or write it first", DeprecationWarning, stacklevel=2)
        if len(values) > 1 and isinstance(values[1], str):
            wanted = self.element_type(nodes[0])
            values, nodes = values[1:], nodes[1:]
        name = values[0]
        if not isinstance(name, str):
            raise self.error(nodes[0], f"the name of an intrinsic must be text in quotes, found {kind_of(name)}")
        name = name.removeprefix("tir.")
        row = OWN.get(name) or INTRINSICS.get(name)
        if row is None:
            near = difflib.get_close_matches(name, [*OWN, *INTRINSICS], n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise self.error(nodes[0], f"no plug-in declares the intrinsic '{name}'{hint}")
        if len(values) - 1 != row.arity:
            raise self.error(node, f"'{name}' takes {row.arity} operands, found {len(values) - 1}")
        if isinstance(row, OwnIntrinsic):
            result = self.own_intrinsic(row, values[1:], nodes[1:], node)
        else:
            result = self._intrinsic(name, values[1:], nodes[1:], node)
        if wanted is not None and not (isinstance(result, Expr) and result.dtype is wanted):
            raise self.error(node.args[0], f"'{name}' returns {kind_of(result)}, not {wanted}: cast what it takes")
        return result

    def own_intrinsic(
        self, row: OwnIntrinsic, values: Sequence[object], nodes: Sequence[Located], node: ast.Call
    ) -> object:
        """Call an intrinsic of a plug-in; a pure one of scalars is part of an expression."""
        if not is_scalar_function(row):
            return self.own_statement(row, self._numbers_typed(row, values), nodes, node)
        operands = []
        for value, kind, argument in zip(self._numbers_typed(row, values), row.operand_kinds, nodes, strict=True):
            if not isinstance(value, Expr) or value.dtype.is_float != (kind == "float") or value.dtype is BOOL:
                expected = "a float" if kind == "float" else "an integer"
                raise self.error(argument, f"'{row.name}' takes {expected} here, found {kind_of(value)}: cast it")
            operands.append(value)
        results = {"same": operands[0].dtype if operands else BOOL, "bool": BOOL}
        element = results[row.result] if row.result in results else DTYPES[str(row.result)]
        return Expr("intrinsic", tuple(operands), element, row.name)

    def own_statement(
        self, row: OwnIntrinsic, values: Sequence[object], nodes: Sequence[Located], node: ast.Call
    ) -> object:
        """Call an intrinsic of a plug-in that is not a function of scalars."""
        raise NotImplementedError

    def _numbers_typed(self, row: OwnIntrinsic, values: Sequence[object]) -> list[object]:
        """Return operands with numbers as constants: floats of the type of the first float, integers as indices."""
        floats = [v.dtype for v in values if isinstance(v, Expr) and v.dtype.is_float]
        element = floats[0] if floats else DTYPES["f32"]
        return [
            constant(value, INDEX if kind == "int" else element) if is_number(value) and kind != "handle" else value
            for value, kind in zip(values, row.operand_kinds, strict=True)
        ]

    def _call_op(self, node: ast.Call) -> Expr:
        """Read `T.op("arith.cmpi", x, y, dtype="bool", predicate="2 : i64")`: any scalar operation, by name."""
        for argument in node.args[1:]:
            self.scalar(argument)
        name = self.text(node.args[0], "the name of the operation") if node.args else ""
        element = self.keyword(node, "dtype")
        if not name or element is None:
            raise self.error(node, "T.op takes the name of an operation, scalars, dtype=..., and attributes as text")
        attributes = tuple(
            (k.arg, self.text(k.value, f"attribute '{k.arg}'")) for k in node.keywords if k.arg not in ("dtype", None)
        )
        scalars = tuple(self.scalar(argument) for argument in node.args[1:])
        return Expr("op", scalars, self.element_type(element), (name, attributes))

    def call_inline(self, function: InlineFunction, node: ast.Call) -> object:
        """Inline a helper and return its value."""
        values = self.arguments(node)
        if len(values) != len(function.parameters):
            wanted = f"the arguments {', '.join(function.parameters)}" if function.parameters else "no arguments"
            raise self.error(node, f"'{function.name}' takes {wanted}; found {len(values)}")
        outer = self.source, self.names, self.captured
        around = self.names.get("")
        depth = (around if isinstance(around, int) else 0) + 1
        if depth > 64:
            raise self.error(node, f"'{function.name}' calls itself: inline functions cannot be recursive")
        self.source, self.captured = function.source, function.captured
        self.names = {"": depth, function.name: function, **dict(zip(function.parameters, values, strict=True))}
        try:
            return self.inline_body(function)
        finally:
            self.source, self.names, self.captured = outer

    def inline_body(self, function: InlineFunction) -> object:
        """Run the statements of a helper and return its value."""
        *statements, last = function.tree.body
        for statement in statements:
            if isinstance(statement, ast.Return):
                raise self.error(statement, "'return' may only be the last statement of an inline function")
            self.statement(statement)
        if isinstance(last, ast.Return):
            return None if last.value is None else self.value(last.value)
        self.statement(last)
        return None

    def statement(self, node: ast.stmt) -> None:
        raise NotImplementedError

    # Assignments

    def unpack(self, target: ast.expr, value: object) -> list[tuple[str, object]]:
        """Return the names on the left of an assignment, each with its value."""
        if isinstance(target, ast.Name):
            return [(target.id, value)]
        if isinstance(target, (ast.Tuple, ast.List)):
            values = list(value) if isinstance(value, (tuple, list)) else None
            if values is None or len(values) != len(target.elts):
                description = f"{len(values)}" if values is not None else kind_of(value)
                raise self.error(target, f"expected {len(target.elts)} values for these names, found {description}")
            return [pair for t, v in zip(target.elts, values, strict=True) for pair in self.unpack(t, v)]
        raise self.error(target, f"cannot assign to {describe(target)}")


def _math_function(name: str, interpreter: Interpreter, node: Located) -> Callable[..., object]:
    attribute = getattr(math, name, None)
    if not callable(attribute):
        raise interpreter.error(node, f"module 'math' has no '{name}'")
    function: Callable[..., object] = attribute
    return function
