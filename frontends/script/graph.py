"""Graphs of relax operators, written as Python functions: `@R.function`, or `@mirlo.script` on a function."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.attributes import Dims, Ints
from mirlo.dialects.core.dense import dense_of
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.op import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.calls import CallDpsPacked, CallPacked, CallTir
from mirlo.dialects.relax.constant import Constant
from mirlo.frontends.script.errors import ScriptError
from mirlo.frontends.script.interpreter import Interpreter, describe, is_number, kind_of
from mirlo.frontends.script.language import MlirText, Word
from mirlo.frontends.script.loops import is_docstring
from mirlo.frontends.script.prim import PrimFunc
from mirlo.frontends.script.source import Source

_BINARY = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "floor_divide", "%": "mod", "**": "power",
    "@": "matmul", "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor", "<<": "shift_left", ">>": "shift_right",
}  # fmt: skip
_COMPARE = {
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal", ast.Eq: "equal",
    ast.NotEq: "not_equal",
}  # fmt: skip
_LOGICAL = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}
_UNNAMED = object()


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of the graph."""

    value: Any
    type: TensorType

    @staticmethod
    def of(value: Any) -> Tensor:
        found = TensorType.from_mlir(value.type)
        assert found is not None
        return Tensor(value, found)

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype


@dataclass(frozen=True)
class Callee:
    """A function of the module that graphs may call."""

    symbol: str
    inputs: tuple[Any, ...]
    results: tuple[Any, ...]


class Functions:
    """What a module has: prim functions are made when they are first called with some types."""

    def __init__(self, module: Any):
        self.module = module
        self.made: dict[Any, tuple[str, list[TensorType]]] = {}
        self.graphs: dict[str, Callee] = {}
        self.symbols: dict[MlirText, str] = {}

    def call(
        self,
        template: PrimFunc,
        inputs: list[TensorType],
        outputs: list[TensorType] | None,
        attributes: dict[str, Any],
    ) -> tuple[str, list[TensorType]]:
        """The symbol of a prim function for these types and attributes, and the types of its outputs."""
        bindings = {**template.bind(inputs, outputs), **template.attribute_values(attributes)}
        types = tuple(template.type_of(p, bindings) for p in template.parameters)
        key = (id(template), types, tuple(sorted(attributes.items())))
        if key not in self.made:
            self.made[key] = (self.add(template.build(bindings)), template.output_types(bindings))
        symbol, made = self.made[key]
        return symbol, made if outputs is None else outputs

    def declare(self, template: PrimFunc) -> None:
        """Let graphs call a prim function that has no symbols; `define` makes it, in its place."""
        types = tuple(template.type_of(p, {}) for p in template.parameters)
        self.made[(id(template), types, ())] = (template.name, template.output_types({}))

    def define(self, template: PrimFunc) -> None:
        self.add(template.build({}))

    def symbol_of(self, text: MlirText) -> str:
        """The name of the function that IR text defines."""
        if text not in self.symbols:
            parsed = ir.Module.parse(text.text)
            self.symbols[text] = ir.StringAttr(parsed.body.operations[0].operation.attributes["sym_name"]).value
        return self.symbols[text]

    def add(self, function: Any) -> str:
        self.module.body.append(function.operation)
        return ir.StringAttr(ir.SymbolTable(self.module.operation).insert(function.operation)).value


class GraphInterpreter(Interpreter):
    """Reads the body of a graph; each operator is emitted where it stands."""

    functions: Functions

    # Values

    def tensor(self, node: Any, like: TensorType | None = None) -> Tensor:
        return self.as_tensor(self.value(node), node, like)

    def as_tensor(self, value: Any, node: Any, like: TensorType | None = None) -> Tensor:
        """A tensor; a number becomes a constant of the element type of the tensor that it meets."""
        if isinstance(value, Tensor):
            return value
        if is_number(value) and like is not None:
            if isinstance(value, float) and not like.dtype.is_float and not value.is_integer():
                raise self.error(node, f"{value} is no {like.dtype}: cast the tensor that it meets")
            return self._constant(value, TensorType((), like.dtype))
        raise self.error(node, f"expected a tensor, found {kind_of(value)}")

    def _constant(self, value: Any, kind: TensorType | None) -> Tensor:
        import numpy as np

        array = np.asarray(value, dtype=kind.dtype.to_numpy() if kind is not None else None)
        if kind is None:
            from mirlo.dialects.core.dtypes import dtype_of_numpy

            element = dtype_of_numpy(array.dtype)
            if element is None:
                raise TypeError(f"numpy's {array.dtype} is no element type")
            kind = TensorType(array.shape, element)
        if array.size != 1 and array.shape != kind.static_shape:
            raise ValueError(f"an array of shape {array.shape} does not fit the shape {kind.static_shape}")
        array = np.ascontiguousarray(np.broadcast_to(array, kind.static_shape))
        return Tensor.of(Constant.make(value=dense_of(array.reshape(kind.static_shape), kind), result_types=[kind]))

    def binary(self, node: Any, method: str, symbol: str, left: Any, right: Any) -> Any:
        if not isinstance(left, Tensor) and not isinstance(right, Tensor):
            return super().binary(node, method, symbol, left, right)
        like = left.type if isinstance(left, Tensor) else right.type
        a, b = self.as_tensor(left, node, like), self.as_tensor(right, node, like)
        name = _BINARY[symbol]
        return self.make(node, _LOGICAL.get(name, name) if like.dtype.is_bool else name, [a, b])

    def _value_UnaryOp(self, node: Any) -> Any:
        value = self.value(node.operand)
        if not isinstance(value, Tensor):
            return super()._value_UnaryOp(node)
        names: dict[type, str] = {
            ast.USub: "negative",
            ast.Invert: "logical_not" if value.dtype.is_bool else "bitwise_not",
        }
        name = names.get(type(node.op))
        if name is None:
            raise self.error(node, f"operator '{describe(node.op)}' has no meaning for a tensor")
        return self.make(node, name, [value])

    def _value_Compare(self, node: Any) -> Any:
        values = [self.value(item) for item in (node.left, *node.comparators)]
        tensors = [v for v in values if isinstance(v, Tensor)]
        if not tensors:
            return super()._value_Compare(node)
        if len(values) != 2 or type(node.ops[0]) not in _COMPARE:
            raise self.error(node, "tensors are compared two at a time, with <, <=, >, >=, == or !=")
        a, b = (self.as_tensor(v, node, tensors[0].type) for v in values)
        return self.make(node, _COMPARE[type(node.ops[0])], [a, b])

    def _value_Attribute(self, node: Any) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, Tensor):
            if node.attr in ("shape", "dtype"):
                return getattr(owner, node.attr)
            raise self.error(node, f"a tensor has 'shape' and 'dtype' here, not '{node.attr}': use operators of R")
        return super()._value_Attribute(node)

    def _value_Subscript(self, node: Any) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, Tensor):
            raise self.error(node, "a tensor is not indexed here: use R.strided_slice or R.gather")
        if isinstance(owner, Word):
            return self.annotation(node)[0]
        return super()._value_Subscript(node)

    def condition(self, value: Any, node: Any) -> Any:
        raise self.error(node, "a tensor has no truth value: use R.where, R.logical_and or R.logical_or")

    # Calls

    def _value_Call(self, node: Any) -> Any:
        function = self.value(node.func)
        if isinstance(function, Word) and function.language == "R":
            special = getattr(self, f"_call_{function.name}", None)
            return special(node) if special else self._operator(function.name, node)
        if isinstance(function, PrimFunc):
            raise self.error(node, f"call the prim function with R.call_tir({function.name}, ...)")
        if isinstance(function, Callee):
            return self._call_graph(function, node)
        return super()._value_Call(node)

    def _operator(self, name: str, node: Any) -> Any:
        cls = OPS.get(name)
        if cls is None:
            raise self.error(node, f"R.{name} is no operator")
        fields = {field.name: field for field in cls._operand_layout.fields}
        given: dict[str, Any] = {}
        attributes: dict[str, Any] = {}
        names = list(fields)
        if len(node.args) > len(names):
            takes = f"the tensors {', '.join(names)}" if names else "no tensors"
            hint = "attributes are given by name"
            if len(names) == 1 and fields[names[0]].kind == "variadic":
                takes, hint = f"a list, {names[0]}", f"write R.{name}([...], ...)"
            raise self.error(node, f"R.{name} takes {takes}; found {len(node.args)}: {hint}")
        for field, argument in zip(names, node.args, strict=False):
            given[field] = argument
        for keyword in node.keywords:
            if keyword.arg in fields:
                given[keyword.arg] = keyword.value
            elif keyword.arg == "out" or keyword.arg in cls._attributes:
                attributes[keyword.arg] = keyword.value
            else:
                known = [*(f for f in names if f not in given), *cls._attributes]
                near = difflib.get_close_matches(str(keyword.arg), known, n=1)
                hint = f"; did you mean '{near[0]}'?" if near else f"; it has: {', '.join(known) or 'none'}"
                raise self.error(keyword, f"R.{name} has no argument '{keyword.arg}'{hint}")
        out = attributes.pop("out", None)
        values = {key: self.value(value) for key, value in attributes.items()}
        for key, value in values.items():
            if isinstance(value, str) and isinstance(cls._attributes[key], (Dims, Ints)):
                # Text has parts too, so it would pass for a list.
                wanted = cls._attributes[key].expected
                raise self.error(attributes[key], f"R.{name}: attribute '{key}' must be {wanted}, found text '{value}'")
        return self.make(node, name, self._operands(name, fields, given, node), self._types(out), **values)

    def _operands(self, name: str, fields: dict[str, Any], given: dict[str, Any], node: Any) -> list[Any]:
        read = {key: self.value(argument) for key, argument in given.items()}
        flat = [t for value in read.values() for t in self.flat(value)]
        like = next((value.type for value in flat if isinstance(value, Tensor)), None)
        operands: list[Any] = []
        for key, field in fields.items():
            value = read.get(key)
            if field.kind == "variadic":
                operands.append([self.as_tensor(v, given.get(key, node), like) for v in self.flat(value or ())])
            elif value is None:
                if field.kind == "single":
                    raise self.error(node, f"R.{name} needs the tensor '{key}'")
                operands.append(None)
            else:
                operands.append(self.as_tensor(value, given[key], like))
        return operands

    def make(
        self, node: Any, name: str, operands: Sequence[Any], results: list[TensorType] | None = None, **attributes: Any
    ) -> Any:
        """One operator; its tensor, or a tuple of them."""
        values = [[t.value for t in o] if isinstance(o, list) else o and o.value for o in operands]
        try:
            with self.source.location(node):
                made = OPS[name].build(*values, result_types=results, **attributes)
        except (OpError, TypeError, ValueError) as error:
            raise self.error(node, f"R.{name}: {error}") from None
        return _returned(made)

    def _types(self, node: Any) -> list[TensorType] | None:
        """The types that `out=R.Tensor[...]`, or a tuple of them, says."""
        if node is None:
            return None
        elements = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
        return [self.annotation(element)[0] for element in elements]

    def annotation(self, node: Any) -> tuple[TensorType, Any]:
        """Type and name in `R.Tensor[("batch", 128), "f32", "name"]`."""
        word = self.value(node.value) if isinstance(node, ast.Subscript) else None
        parts = node.slice.elts if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) else []
        if not isinstance(word, Word) or str(word) != "R.Tensor" or len(parts) not in (2, 3):
            raise self.error(node, 'expected a type such as R.Tensor[("batch", 128), "f32"]')
        shape = self.value(parts[0])
        dims = list(shape) if isinstance(shape, (tuple, list)) else [shape]
        try:
            found = TensorType.of(dims, self.element_type(parts[1]))
        except (TypeError, ValueError) as error:
            if isinstance(error, ScriptError):
                raise
            raise self.error(parts[0], "a shape is a tuple of integers and of text such as 'batch'") from None
        return found, self.value(parts[2]) if len(parts) == 3 else _UNNAMED

    def _call_call_tir(self, node: Any) -> Any:
        """`R.call_tir(function, x, y, out=R.Tensor[...], epsilon=1e-5)`; `out` where the inputs do not say it."""
        given = list(self._value_Tuple(ast.Tuple(elts=node.args)))
        template = given.pop(0) if given else None
        if not isinstance(template, (PrimFunc, MlirText)):
            raise self.error(node, f"R.call_tir takes a prim function first, found {kind_of(template)}")
        tensors = [self.as_tensor(v, n) for v, n in zip(given, node.args[1:], strict=True)]
        out = self._types(self.keyword(node, "out"))
        attributes = {k.arg: self.value(k.value) for k in node.keywords if k.arg != "out"}
        with self.source.location(node):
            symbol, types = self._prim_function(template, tensors, out, attributes, node)
            made = CallTir.build([t.value for t in tensors], result_types=types, callee=symbol)
        return _returned(made)

    def _prim_function(
        self, template: Any, tensors: Sequence[Tensor], out: list[TensorType] | None, attributes: Any, node: Any
    ) -> tuple[str, list[TensorType]]:
        if isinstance(template, MlirText):
            if out is None or attributes:
                raise self.error(node, "a function given as IR has no attributes, and needs out=R.Tensor[...]")
            return self.functions.symbol_of(template), out
        inputs = [t.type for t in tensors]
        if any(not t.is_static for t in inputs):
            raise self.error(node, "a prim function needs tensors whose dims are numbers")
        try:
            template.bind(inputs, out)
            template.attribute_values(attributes)
        except ScriptError as error:
            raise self.error(node, f"{error.problem} (declared at {error.place})") from None
        return self.functions.call(template, inputs, out, attributes)

    def _call_call_dps_packed(self, node: Any) -> Any:
        return self._packed(node, CallDpsPacked)

    def _call_call_packed(self, node: Any) -> Any:
        return self._packed(node, CallPacked)

    def _packed(self, node: Any, cls: Any) -> Any:
        name, *given = self.arguments(node, 1, keywords=("out",))
        if not isinstance(name, str):
            raise self.error(node.args[0], f"the name of a run-time function is text in quotes, found {kind_of(name)}")
        out = self._types(self.keyword(node, "out"))
        if not out:
            raise self.error(node, "the types of the results are not known: out=R.Tensor[...], or a tuple of them")
        tensors = [self.as_tensor(v, n).value for v, n in zip(given, node.args[1:], strict=True)]
        with self.source.location(node):
            return _returned(cls.build(tensors, result_types=out, function=name))

    def _call_const(self, node: Any) -> Any:
        """`R.const(1.0, "f32")`, `R.const([1, 2], "i64")`, `R.const(0.0, "f32", shape=(4, 4))`, `R.const(array)`."""
        value = self.arguments(node, 1, 2, ("shape", "dtype"))[0]
        import numpy as np

        element = node.args[1] if len(node.args) == 2 else self.keyword(node, "dtype")
        if element is None and not isinstance(value, (np.ndarray, np.generic)):
            raise self.error(node, "a constant needs an element type: R.const(1.0, 'f32')")
        shape = self.keyword(node, "shape")
        try:
            kind = None
            if element is not None:
                found = self.element_type(element)
                dims = self.shape(shape) if shape is not None else np.asarray(value).shape
                kind = TensorType(tuple(dims), found)
            with self.source.location(node):
                return self._constant(value, kind)
        except (TypeError, ValueError) as error:
            if isinstance(error, ScriptError):
                raise
            raise self.error(node, f"R.const: {error}") from None

    def _call_param(self, node: Any) -> Any:
        """`R.param("w", (64, 64), "f32")`: an array of the parameter store."""
        self.arguments(node, 3, 3)
        kind = TensorType(self.shape(node.args[1]), self.element_type(node.args[2]))
        with self.source.location(node):
            return Tensor.of(Constant.make(param=self.text(node.args[0], "the name"), result_types=[kind]))

    def _call_graph(self, callee: Callee, node: Any) -> Any:
        tensors = [self.as_tensor(v, node) for v in self.arguments(node, len(callee.inputs), len(callee.inputs))]
        for tensor, wanted in zip(tensors, callee.inputs, strict=True):
            if tensor.value.type != wanted:
                raise self.error(node, f"'{callee.symbol}' takes {TensorType.from_mlir(wanted)}, found {tensor.type}")
        with self.source.location(node):
            symbol = ir.FlatSymbolRefAttr.get(callee.symbol)
            return _returned(func.CallOp(list(callee.results), symbol, [t.value for t in tensors]))

    # Statements

    def statement(self, node: Any) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            self.names.update(self.unpack(node.targets[0], self.value(node.value)))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            loaded = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
            self.names[node.target.id] = self.value(ast.copy_location(ast.BinOp(loaded, node.op, node.value), node))
        elif isinstance(node, ast.For):
            self._for(node)
        elif isinstance(node, ast.If):
            self._if(node)
        elif not isinstance(node, ast.Pass) and not is_docstring(node):
            raise self.error(node, f"statement '{describe(node)}' has no meaning in a graph")

    def _for(self, node: Any) -> None:
        """A loop over numbers or a tuple: its body is repeated in the graph."""
        values = self.value(node.iter)
        if not isinstance(values, (range, tuple, list)):
            raise self.error(node.iter, f"a loop of a graph runs over range or a tuple, found {kind_of(values)}")
        for value in values:
            self.names.update(self.unpack(node.target, value))
            for statement in node.body:
                self.statement(statement)

    def _if(self, node: Any) -> None:
        test = self.value(node.test)
        if not is_number(test):
            raise self.error(
                node.test, f"'if' needs a condition known when the graph is made, found {kind_of(test)}: use R.where"
            )
        for statement in node.body if test else node.orelse:
            self.statement(statement)


def _returned(made: Any) -> Any:
    """The tensors that an operation returns: one, or a tuple."""
    tensors = tuple(Tensor.of(value) for value in made.operation.results)
    return tensors[0] if len(tensors) == 1 else tensors


def read_signature(interpreter: GraphInterpreter, tree: Any) -> list[tuple[str, TensorType, Any]]:
    """Name in the script, type, and name for the user of each parameter."""
    arguments = tree.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
        raise interpreter.error(tree, "a graph takes plain parameters: no defaults, no *, no **")
    found = []
    for argument in arguments.args:
        if argument.annotation is None:
            raise interpreter.error(
                argument, f'parameter \'{argument.arg}\' needs a type: R.Tensor[("batch", 128), "f32"]'
            )
        kind, name = interpreter.annotation(argument.annotation)
        found.append((argument.arg, kind, argument.arg if name is _UNNAMED else name))
    return found


def build_graph(
    tree: Any, source: Source, captured: dict[str, Any], functions: Functions, symbol: str, private: bool = False
) -> Any:
    """The `func.func` of a graph, appended to the module."""
    interpreter = GraphInterpreter(source, {}, captured)
    interpreter.functions = functions
    signature = read_signature(interpreter, tree)
    *statements, last = tree.body
    if not isinstance(last, ast.Return) or last.value is None:
        raise interpreter.error(last, "a graph ends with 'return' and the tensors that it computes")
    with source.location(tree):
        kind = ir.FunctionType.get([t.to_mlir() for _, t, _ in signature], [])
        made = func.FuncOp(symbol, kind, visibility="private" if private else None, ip=False)
        block = made.add_entry_block()
    functions.module.body.append(made.operation)
    for (name, _, _), argument in zip(signature, block.arguments, strict=True):
        interpreter.names[name] = Tensor.of(argument)
    with ir.InsertionPoint(block):
        for node in statements:
            interpreter.statement(node)
        returned = interpreter.value(last.value)
        values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        tensors = [interpreter.as_tensor(v, last.value) for v in values]
        with source.location(last):
            func.ReturnOp([t.value for t in tensors])
    names = _result_names(interpreter, tree, last, tensors)
    op = made.operation
    op.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get(list(kind.inputs), [t.value.type for t in tensors])
    )
    _name_values(op, "arg_attrs", [name for _, _, name in signature])
    _name_values(op, "res_attrs", names)
    functions.graphs[symbol] = Callee(symbol, tuple(kind.inputs), tuple(t.value.type for t in tensors))
    return made


def _result_names(interpreter: GraphInterpreter, tree: Any, last: Any, tensors: Sequence[Tensor]) -> list[Any]:
    """The user's names of the results: those of the annotation, or of the variables that are returned."""
    returned = last.value.elts if isinstance(last.value, (ast.Tuple, ast.List)) else [last.value]
    names: list[Any] = [n.id if isinstance(n, ast.Name) else None for n in returned]
    names = names if len(names) == len(tensors) and len(set(names)) == len(names) else [None] * len(tensors)
    if tree.returns is None:
        return names
    notes = tree.returns.elts if isinstance(tree.returns, ast.Tuple) else [tree.returns]
    if len(notes) != len(tensors):
        raise interpreter.error(tree.returns, f"{len(notes)} results are declared, but {len(tensors)} are returned")
    for i, (note, tensor) in enumerate(zip(notes, tensors, strict=True)):
        kind, name = interpreter.annotation(note)
        if kind.to_mlir() != tensor.value.type:
            raise interpreter.error(note, f"result #{i} is declared {kind}, but {tensor.type} is returned")
        names[i] = names[i] if name is _UNNAMED else name
    return names


def _name_values(op: Any, attribute: str, names: Sequence[Any]) -> None:
    if any(name is not None for name in names):
        entries = [{} if name is None else {"relax.name": ir.StringAttr.get(name)} for name in names]
        op.attributes[attribute] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in entries])
