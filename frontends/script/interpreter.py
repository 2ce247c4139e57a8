"""Meaning of the expressions of prim functions, and of the statements that both forms share.

A value is a Python number, text or tuple known when the function is made, a scalar `Expr`, a buffer, or a word of the
language. The two forms differ in what a loop, a block and a store do: `tensor_form.py`, `buffer_form.py`.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import math
from collections.abc import Sequence
from typing import Any, Protocol

from mirlo.dialects.core.dtypes import DTYPES, DType
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.compute import BOOL, INDEX, Expr, abs_, all_of, constant, lift, maximum, minimum, select
from mirlo.dialects.tir.compute import call as call_intrinsic
from mirlo.dialects.tir.intrinsics import INTRINSICS
from mirlo.frontends.script.errors import ScriptError
from mirlo.frontends.script.inline import InlineFunction
from mirlo.frontends.script.language import Language, Word
from mirlo.frontends.script.source import Source

_OPERATORS: dict[type, tuple[str, str]] = {
    ast.Add: ("__add__", "+"), ast.Sub: ("__sub__", "-"), ast.Mult: ("__mul__", "*"), ast.Div: ("__truediv__", "/"),
    ast.FloorDiv: ("__floordiv__", "//"), ast.Mod: ("__mod__", "%"), ast.BitAnd: ("__and__", "&"),
    ast.BitOr: ("__or__", "|"), ast.BitXor: ("__xor__", "^"), ast.LShift: ("__lshift__", "<<"),
    ast.RShift: ("__rshift__", ">>"), ast.Pow: ("__pow__", "**"), ast.MatMult: ("__matmul__", "@"),
}  # fmt: skip
_PREDICATES = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
_STATIC_CALLS = {name: getattr(builtins, name) for name in ("int", "float", "bool", "len", "range", "tuple", "sum")}
_BITWISE = ("__and__", "__or__", "__xor__", "__lshift__", "__rshift__")


class BufferValue(Protocol):
    """A buffer as scripts see it."""

    name: str

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> DType: ...

    def read(self, indices: Sequence[Any], outside: Any = None) -> Expr: ...


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


class Interpreter:
    """Evaluates expressions; the forms add statements."""

    def __init__(self, source: Source, names: dict[str, Any], captured: dict[str, Any]):
        self.source = source
        self.names = names
        self.captured = captured

    # Errors

    def error(self, node: Any, problem: str) -> ScriptError:
        return self.source.error(node, problem)

    # Values

    def value(self, node: Any) -> Any:
        """What an expression means."""
        handler = getattr(self, f"_value_{type(node).__name__}", None)
        if handler is None:
            raise self.error(node, f"{_describe(node)} has no meaning in a prim function")
        return handler(node)

    def scalar(self, node: Any, like: DType | None = None) -> Expr:
        """An expression that must be a scalar; numbers take the type `like`."""
        value = self.value(node)
        if isinstance(value, Expr):
            return value
        if is_number(value) and like is not None:
            return self.lifted(value, like, node)
        if is_number(value):
            raise self.error(node, "this number has no type of its own: say which, for instance T.f32(...)")
        raise self.error(node, f"expected a scalar, found {_kind(value)}")

    def lifted(self, value: Any, element: DType, node: Any) -> Expr:
        """A number as a scalar of an element type that it fits."""
        if isinstance(value, Expr):
            return value
        if not is_number(value):
            raise self.error(node, f"expected a scalar, found {_kind(value)}")
        if isinstance(value, float) and not element.is_float and not (element.is_integer and value.is_integer()):
            raise self.error(node, f"{value} is no {element}: cast what it meets, or write an integer")
        return lift(value, element)

    def stored(self, buffer: BufferValue, value: Any, node: Any) -> Expr:
        """A value as an element of a buffer: of its type; indices become integers."""
        scalar = self.lifted(value, buffer.dtype, node)
        if scalar.dtype is INDEX and buffer.dtype.is_integer:
            return scalar.cast(buffer.dtype)
        if scalar.dtype is not buffer.dtype:
            cast = f"cast it with .cast('{buffer.dtype}')"
            raise self.error(node, f"'{buffer.name}' holds {buffer.dtype}, found {scalar.dtype}: {cast}")
        return scalar

    def static(self, node: Any, what: str) -> Any:
        """An integer that is known when the function is made."""
        value = self.value(node)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(node, f"{what} must be an integer known when the function is made, found {_kind(value)}")
        return value

    def text(self, node: Any, what: str) -> str:
        value = self.value(node)
        if not isinstance(value, str):
            raise self.error(node, f"{what} must be text in quotes, found {_kind(value)}")
        return value

    def element_type(self, node: Any) -> DType:
        value = self.value(node)
        if isinstance(value, DType):
            return value
        name = value.name if isinstance(value, Word) else value
        found = DTYPES.get(name) if isinstance(name, str) else None
        if found is None:
            near = difflib.get_close_matches(str(name), DTYPES, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(DTYPES)}"
            raise self.error(node, f"expected an element type such as 'f32', found {name!r}{hint}")
        return found

    def shape(self, node: Any) -> tuple[int, ...]:
        value = self.value(node)
        dims = self.flat(value) if isinstance(value, (tuple, list)) else [value]
        for dim in dims:
            if isinstance(dim, bool) or not isinstance(dim, int) or dim < 0:
                raise self.error(node, f"a shape is a tuple of integers, found {_kind(dim)} in it")
        return tuple(dims)

    def flat(self, value: Any) -> list[Any]:
        if isinstance(value, (tuple, list)):
            return [item for member in value for item in self.flat(member)]
        return [value]

    # Expressions

    def _value_Constant(self, node: Any) -> Any:
        if isinstance(node.value, (int, float, str)) or node.value is None:
            return node.value
        raise self.error(node, f"{_describe(node)} has no meaning in a prim function")

    def _value_Name(self, node: Any) -> Any:
        name = node.id
        for scope in (self.names, self.captured, _STATIC_CALLS):
            if name in scope:
                return self.read_name(scope[name])
        if name in ("min", "max", "abs"):
            return Word("T", name)
        if name == "range":
            return range
        known = [*self.names, *self.captured]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise self.error(node, f"unknown name '{name}'{hint}")

    def read_name(self, value: Any) -> Any:
        """The value of what a name stands for."""
        return value

    def _value_Attribute(self, node: Any) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, Language):
            try:
                return getattr(owner, node.attr)
            except AttributeError as error:
                raise self.error(node, str(error)) from None
        if node.attr == "shape" and hasattr(owner, "read"):
            return tuple(owner.shape)
        if node.attr == "dtype" and isinstance(getattr(owner, "dtype", None), DType):
            return owner.dtype
        if owner is math and isinstance(getattr(math, node.attr, None), float):
            return getattr(math, node.attr)
        if isinstance(owner, (Expr, int, float)) or hasattr(owner, "read") or owner is math:
            return _Method(owner, node.attr)
        value = getattr(owner, node.attr, None)
        if is_number(value) or isinstance(value, (str, tuple, InlineFunction, Language)):
            return value
        raise self.error(node, f"{_kind(owner)} has no attribute '{node.attr}' that a prim function can use")

    def _value_Tuple(self, node: Any) -> Any:
        found: list[Any] = []
        for item in node.elts:
            value = self.value(item.value if isinstance(item, ast.Starred) else item)
            if isinstance(item, ast.Starred):
                if not isinstance(value, (tuple, list)):
                    raise self.error(item, f"* needs a tuple, found {_kind(value)}")
                found += value
            else:
                found.append(value)
        return tuple(found)

    _value_List = _value_Tuple

    def _value_BinOp(self, node: Any) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        method, symbol = _OPERATORS.get(type(node.op), ("", ""))
        if not method:
            raise self.error(node, f"operator {_describe(node.op)} has no meaning in a prim function")
        return self.binary(node, method, symbol, left, right)

    def binary(self, node: Any, method: str, symbol: str, left: Any, right: Any) -> Any:
        """An arithmetic operator on two values."""
        if not isinstance(left, Expr) and not isinstance(right, Expr):
            return self._static_binary(node, method, symbol, left, right)
        left, right = self.matched(left, right, node)
        if method == "__matmul__":
            raise self.error(node, "operator '@' is for tensors of graphs: a prim function sums the products in loops")
        if method == "__pow__":
            return self._checked(node, lambda: call_intrinsic("pow", left, right))
        if method in _BITWISE and left.dtype.is_float:
            raise self.error(node, f"operator '{symbol}' takes integers, found {left.dtype}")
        if method == "__truediv__" and not left.dtype.is_float:
            raise self.error(node, f"operator '/' takes floats, found {left.dtype}: use // or cast with .cast('f32')")
        return self._checked(node, lambda: getattr(left, method)(right))

    def _static_binary(self, node: Any, method: str, symbol: str, left: Any, right: Any) -> Any:
        result = NotImplemented
        if is_number(left) and is_number(right) or isinstance(left, (tuple, str)):
            try:
                result = getattr(left, method)(right)
                if result is NotImplemented:
                    result = getattr(float(left), method)(float(right))
            except (ArithmeticError, TypeError, ValueError, AttributeError) as error:
                raise self.error(node, f"{error}") from None
        if result is NotImplemented:
            raise self.error(node, f"operator '{symbol}' has no meaning for {_kind(left)} and {_kind(right)}")
        return result

    def matched(self, left: Any, right: Any, node: Any) -> tuple[Expr, Expr]:
        """Two scalars of one type: numbers take the type of the other, indices meet integers as indices."""
        element = left.dtype if isinstance(left, Expr) else right.dtype
        a, b = self.lifted(left, element, node), self.lifted(right, element, node)
        if a.dtype is b.dtype:
            return a, b
        if INDEX in (a.dtype, b.dtype) and all(x.dtype is INDEX or x.dtype.is_integer for x in (a, b)):
            return a.cast(INDEX), b.cast(INDEX)
        raise self.error(node, f"{a.dtype} meets {b.dtype}: cast one of them, for instance with .cast('{a.dtype}')")

    def _value_UnaryOp(self, node: Any) -> Any:
        value = self.value(node.operand)
        if is_number(value):
            if isinstance(node.op, ast.Invert) and not isinstance(value, int):
                raise self.error(node, f"operator '~' takes integers, found {_kind(value)}")
            operations: dict[type, Any] = {
                ast.USub: lambda: -value, ast.UAdd: lambda: value, ast.Not: lambda: not value,
                ast.Invert: lambda: ~int(value),
            }  # fmt: skip
            return operations[type(node.op)]()
        if not isinstance(value, Expr):
            raise self.error(node, f"expected a scalar, found {_kind(value)}")
        if isinstance(node.op, ast.USub):
            return -value
        if isinstance(node.op, ast.Not):
            return ~self.condition(value, node.operand)
        if isinstance(node.op, ast.Invert):
            if value.dtype.is_float:
                raise self.error(node, f"operator '~' takes integers, found {value.dtype}")
            return ~value
        return value

    def _value_BoolOp(self, node: Any) -> Any:
        values = [self.value(item) for item in node.values]
        if all(is_number(v) for v in values):
            return all(values) if isinstance(node.op, ast.And) else any(values)
        terms = [self.condition(v, item) for v, item in zip(values, node.values, strict=True)]
        result = terms[0]
        for term in terms[1:]:
            result = result & term if isinstance(node.op, ast.And) else result | term
        return result

    def condition(self, value: Any, node: Any) -> Expr:
        """A scalar that is true or false."""
        if is_number(value):
            return constant(bool(value), BOOL)
        if not isinstance(value, Expr) or value.dtype is not BOOL:
            found = str(value.dtype) if isinstance(value, Expr) else _kind(value)
            raise self.error(node, f"expected a condition (bool), found {found}: compare it, for instance with != 0")
        return value

    def _value_Compare(self, node: Any) -> Any:
        values = [self.value(item) for item in (node.left, *node.comparators)]
        results = []
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            predicate = _PREDICATES.get(type(op))
            if predicate is None:
                raise self.error(node, f"comparison '{_describe(op)}' has no meaning in a prim function")
            if isinstance(left, Expr) or isinstance(right, Expr):
                a, b = self.matched(left, right, node)
                results.append(self._checked(node, lambda a=a, b=b, p=predicate: a.compare(p, b)))
            else:
                results.append(self._checked(node, lambda a=left, b=right, p=predicate: _static_compare(p, a, b)))
        if all(isinstance(r, bool) for r in results):
            return all(results)
        return all_of([constant(r, BOOL) if isinstance(r, bool) else r for r in results])

    def _value_IfExp(self, node: Any) -> Any:
        condition = self.value(node.test)
        if is_number(condition):
            return self.value(node.body if condition else node.orelse)
        return self.choice(node, condition, self.value(node.body), self.value(node.orelse), node.test)

    def choice(self, node: Any, condition: Any, yes: Any, no: Any, test: Any) -> Any:
        """`yes` or `no` by a condition."""
        if is_number(condition):
            return yes if condition else no
        chosen = self.condition(condition, test)
        if not isinstance(yes, Expr) and not isinstance(no, Expr):
            raise self.error(node, "two numbers have no type: say which for one of them, for instance T.f32(...)")
        a, b = self.matched(yes, no, node)
        return self._checked(node, lambda: select(chosen, a, b))

    def _value_Subscript(self, node: Any) -> Any:
        owner = self.value(node.value)
        if hasattr(owner, "read"):
            return self.read(owner, node, self.indices(owner, node.slice, node))
        if isinstance(owner, (tuple, list)):
            if isinstance(node.slice, ast.Slice):
                parts = [None if p is None else self.static(p, "a bound") for p in (node.slice.lower, node.slice.upper)]
                return tuple(owner)[parts[0] : parts[1]]
            position = self.static(node.slice, "a position")
            if not -len(owner) <= position < len(owner):
                raise self.error(node, f"position {position} is outside of a tuple of {len(owner)}")
            return owner[position]
        raise self.error(node, f"{_kind(owner)} cannot be indexed")

    def read(self, buffer: Any, node: Any, indices: list[Expr], outside: Any = None) -> Expr:
        """An element of a buffer."""
        return buffer.read(indices, outside)

    def indices(self, buffer: Any, node: Any, place: Any, padded: bool = False) -> list[Expr]:
        """The indices in `buffer[...]`, checked; padded ones may be outside."""
        if isinstance(node, ast.Slice) or (
            isinstance(node, ast.Tuple) and any(isinstance(e, ast.Slice) for e in node.elts)
        ):
            raise self.error(node, "slices have no meaning here: index single elements")
        values = self.flat(self.value(node))
        if len(values) != len(buffer.shape):
            raise self.error(
                place, f"'{buffer.name}' has rank {len(buffer.shape)}: expected {len(buffer.shape)} indices, "
                f"found {len(values)}",
            )  # fmt: skip
        made = []
        for i, (value, size) in enumerate(zip(values, buffer.shape, strict=True)):
            if isinstance(value, Expr) and not (value.dtype is INDEX or value.dtype.is_integer):
                raise self.error(place, f"index #{i} of '{buffer.name}' must be an integer, found {value.dtype}")
            if not isinstance(value, Expr) and (isinstance(value, bool) or not isinstance(value, int)):
                raise self.error(place, f"index #{i} of '{buffer.name}' must be an integer, found {_kind(value)}")
            if isinstance(value, int) and not padded and not 0 <= value < size:
                raise self.error(place, f"index #{i} of '{buffer.name}' is {value}, outside of 0 to {size - 1}")
            made.append(lift(value, INDEX).cast(INDEX))
        return made

    # Calls

    def _value_Call(self, node: Any) -> Any:
        function = self.value(node.func)
        if isinstance(function, Word):
            return self.call_word(function, node)
        if isinstance(function, _Method):
            return self._call_method(function, node)
        if isinstance(function, InlineFunction):
            return self.call_inline(function, node)
        if function in _STATIC_CALLS.values():
            return self._call_static(function, node)
        raise self.error(
            node, f"{_kind(function)} cannot be called in a prim function: use words of T, or a helper with @T.inline"
        )

    def _call_static(self, function: Any, node: Any) -> Any:
        values = self.arguments(node)
        if any(isinstance(v, Expr) for v in values):
            name = function.__name__
            hint = {"int": "x.cast('i32')", "float": "x.cast('f32')", "bool": "x != 0"}.get(name, "a number")
            raise self.error(node, f"{name}() is for numbers known when the function is made: use {hint}")
        try:
            return function(*values)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self.error(node, f"{function.__name__}: {error}") from None

    def arguments(self, node: Any, least: int = 0, most: int | None = None, keywords: Sequence[str] = ()) -> list[Any]:
        """The values of the positional arguments of a call, their number checked."""
        given = self._value_Tuple(ast.Tuple(elts=node.args))
        count = len(given)
        if count < least or (most is not None and count > most):
            wanted = str(least) if most == least else f"{least} or more" if most is None else f"{least} to {most}"
            noun = "argument" if wanted == "1" else "arguments"
            raise self.error(node, f"{self.called(node)} takes {wanted} {noun}, found {count}")
        for keyword in node.keywords:
            if keyword.arg not in keywords:
                known = f"; it has: {', '.join(keywords)}" if keywords else ""
                raise self.error(keyword, f"{self.called(node)} has no argument '{keyword.arg}'{known}")
        return list(given)

    def called(self, node: Any) -> str:
        return ast.unparse(node.func)

    def keyword(self, node: Any, name: str) -> Any:
        """The syntax of a keyword argument, or None."""
        return next((k.value for k in node.keywords if k.arg == name), None)

    def _call_method(self, method: _Method, node: Any) -> Any:
        owner, name = method.owner, method.name
        if owner is math:
            return self._call_static(_math_function(name, self, node), node)
        if hasattr(owner, "read") and name == "at":
            outside = self.keyword(node, "outside")
            self.arguments(node, keywords=("outside",))
            number = None if outside is None else self.value(outside)
            if number is not None and not is_number(number):
                raise self.error(outside, f"'outside' must be a number, found {_kind(number)}")
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
        raise self.error(node, f"{_kind(owner)} has no method '{name}'; a scalar has cast and bitcast, a buffer has at")

    def call_word(self, word: Word, node: Any) -> Any:
        """`T.something(...)` as an expression."""
        name = word.name
        if name in ("min", "max", "abs"):
            return self._call_extreme(name, node)
        if name in INTRINSICS:
            return self._call_intrinsic(name, node)
        if name in DTYPES:
            value = self.arguments(node, 1, 1)[0]
            if not isinstance(value, Expr):
                return constant(value, name) if is_number(value) else self.lifted(value, DTYPES[name], node)
            return value.cast(name)
        if name == "select":
            condition, yes, no = self.arguments(node, 3, 3)
            return self.choice(node, condition, yes, no, node.args[0])
        if name == "op":
            return self._call_op(node)
        raise self.error(node, f"{word} has no meaning as an expression")

    def _call_extreme(self, name: str, node: Any) -> Any:
        values = self.arguments(node, 1 if name == "abs" else 2, 1 if name == "abs" else None)
        if all(is_number(v) for v in values):
            return getattr(builtins, name)(*values)
        result = values[0]
        for value, argument in zip(values, node.args, strict=False):
            if not is_number(value) and not isinstance(value, Expr):
                raise self.error(argument, f"expected a scalar, found {kind_of(value)}")
        if name == "abs":
            return abs_(result)
        for value in values[1:]:
            if is_number(result) and is_number(value):
                result = getattr(builtins, name)(result, value)
                continue
            a, b = self.matched(result, value, node)
            result = maximum(a, b) if name == "max" else minimum(a, b)
        return result

    def _call_intrinsic(self, name: str, node: Any) -> Any:
        row = INTRINSICS[name]
        values = self.arguments(node, row.arity, row.arity)
        first = next((v for v in values if isinstance(v, Expr)), None)
        if first is None:
            raise self.error(node, f"T.{name} of numbers has no type: say which, for instance T.f32(...)")
        integer = DTYPES["i32"] if row.operands == "float_int" else None
        made = []
        for value, kind, argument in zip(values, row.operand_kinds, node.args, strict=True):
            element = integer if kind == "int" and integer is not None else first.dtype
            scalar = self.lifted(value, element, argument)
            if scalar.dtype.is_float != (kind == "float") or scalar.dtype is BOOL:
                words = "floats" if kind == "float" else "integers"
                raise self.error(argument, f"T.{name} takes {words}, found {scalar.dtype}: cast it")
            if row.operands != "float_int" and scalar.dtype is not first.dtype:
                raise self.error(
                    argument, f"T.{name} takes arguments of one type, found {first.dtype} and {scalar.dtype}"
                )
            made.append(scalar)
        return Expr("intrinsic", tuple(made), BOOL if row.result == "bool" else made[0].dtype, name)

    def _call_op(self, node: Any) -> Any:
        """`T.op("arith.cmpi", x, y, dtype="bool", predicate="2 : i64")`: any scalar operation, by its name."""
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

    def call_inline(self, function: InlineFunction, node: Any) -> Any:
        """A helper, expanded here; its value is what it returns."""
        values = self.arguments(node)
        if len(values) != len(function.parameters):
            wanted = f"the arguments {', '.join(function.parameters)}" if function.parameters else "no arguments"
            raise self.error(node, f"'{function.name}' takes {wanted}; found {len(values)}")
        outer = self.source, self.names, self.captured
        depth = self.names.get("", 0) + 1
        if depth > 64:
            raise self.error(node, f"'{function.name}' calls itself: inline functions cannot be recursive")
        self.source, self.captured = function.source, function.captured
        self.names = {"": depth, function.name: function, **dict(zip(function.parameters, values, strict=True))}
        try:
            return self.inline_body(function)
        finally:
            self.source, self.names, self.captured = outer

    def inline_body(self, function: InlineFunction) -> Any:
        """Run the statements of a helper; what it returns."""
        *statements, last = function.tree.body
        for statement in statements:
            if isinstance(statement, ast.Return):
                raise self.error(statement, "'return' may only be the last statement of an inline function")
            self.statement(statement)
        if isinstance(last, ast.Return):
            return None if last.value is None else self.value(last.value)
        self.statement(last)
        return None

    def statement(self, node: Any) -> None:
        raise NotImplementedError

    def _checked(self, node: Any, build: Any) -> Any:
        try:
            return build()
        except (TypeError, ValueError) as error:
            raise self.error(node, str(error)) from None

    # Assignments

    def unpack(self, target: Any, value: Any) -> list[tuple[str, Any]]:
        """The names on the left of an assignment, each with its value."""
        if isinstance(target, ast.Name):
            return [(target.id, value)]
        if isinstance(target, (ast.Tuple, ast.List)):
            values = list(value) if isinstance(value, (tuple, list)) else None
            if values is None or len(values) != len(target.elts):
                found = f"{len(values)}" if values is not None else _kind(value)
                raise self.error(target, f"expected {len(target.elts)} values for these names, found {found}")
            return [pair for t, v in zip(target.elts, values, strict=True) for pair in self.unpack(t, v)]
        raise self.error(target, f"cannot assign to {_describe(target)}")


class _Method:
    """A method that is about to be called."""

    def __init__(self, owner: Any, name: str):
        self.owner = owner
        self.name = name


def _math_function(name: str, interpreter: Interpreter, node: Any) -> Any:
    found = getattr(math, name, None)
    if not callable(found):
        raise interpreter.error(node, f"module 'math' has no '{name}'")
    return found


def _static_compare(predicate: str, left: Any, right: Any) -> bool:
    import operator

    return bool(getattr(operator, predicate)(left, right))


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


def _describe(node: Any) -> str:
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if isinstance(node, ast.Name):
        return f"'{node.id}'"
    return _ARTICLES.get(type(node), type(node).__name__)


def _kind(value: Any) -> str:
    """What a value is, for messages."""
    if isinstance(value, bool) or value is None or is_number(value):
        return repr(value)
    if isinstance(value, str):
        return f"text '{value}'"
    if isinstance(value, Expr):
        return f"a scalar of {value.dtype}"
    if isinstance(value, (tuple, list)):
        return f"a tuple of {len(value)}"
    if isinstance(value, (Word, DType)):
        return str(value)
    if isinstance(value, InlineFunction):
        return f"the inline function '{value.name}'"
    if hasattr(value, "read"):
        return f"the buffer '{value.name}'"
    if isinstance(getattr(value, "type", None), TensorType):
        return f"a tensor, {value.type}"
    name = getattr(value, "__name__", None)
    return f"'{name}'" if name else f"a value of type {type(value).__name__}"


describe, kind_of = _describe, _kind
