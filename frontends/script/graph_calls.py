"""Calls in graphs: operators, prim functions, packed functions, constants."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.attributes import REQUIRED, Dims, Ints, dense_attribute
from mirlo.dialects.core.dim_algebra import SymbolicDim
from mirlo.dialects.core.dims import UNKNOWN, Dim, symbols_of
from mirlo.dialects.core.dtypes import dtype_of_numpy
from mirlo.dialects.core.op import DialectOp, OpError
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.calls import CallDpsPacked, CallPacked, CallTir
from mirlo.dialects.relax.create import Constant
from mirlo.dialects.tir.specialize import DimIsBound, substituted
from mirlo.frontends.script.describe import is_number, kind_of
from mirlo.frontends.script.errors import ScriptError
from mirlo.frontends.script.graph_values import (
    Callee,
    GraphResult,
    GraphTensor,
    PendingGraph,
    ScriptFunctions,
    returned,
)
from mirlo.frontends.script.interpreter import Interpreter
from mirlo.frontends.script.prim import PrimFunc
from mirlo.frontends.script.source import Located
from mirlo.frontends.script.symbols import MlirText, ScriptName
from mirlo.frontends.script.tvm_calls import OTHER_MEANING, TvmCall, TvmMistake
from mirlo.frontends.script.tvm_operators import TVM_OPERATORS, call_tvm

if TYPE_CHECKING:
    from mirlo.dialects.core.values import ValueDeclaration


class Unnamed:
    """A placeholder for a name that an annotation does not state."""


UNNAMED = Unnamed()


def _is_own_spelling(cls: type[DialectOp], node: ast.Call) -> bool:
    """Return whether a call has the operands and attributes of an operator of Mirlo, not those of TVM's."""
    fields = [field.name for field in cls._operand_layout.fields]
    named = {str(keyword.arg) for keyword in node.keywords}
    unset = {str(k.arg) for k in node.keywords if isinstance(k.value, ast.Constant) and k.value.value is None}
    required = {name for name, declared in cls._attributes.items() if declared.default is REQUIRED}
    is_complete = required <= named - unset and not unset & {
        name for name, declared in cls._attributes.items() if declared.default is not None
    }
    return is_complete and len(node.args) <= len(fields) and named <= {*fields, *cls._attributes, "out"}


class GraphCalls(Interpreter):
    """Emits operators and calls."""

    functions: ScriptFunctions

    def tensor(self, node: Located, like: TensorType | None = None) -> GraphTensor:
        return self.as_tensor(self.value(node), node, like)

    def as_tensor(self, value: object, node: Located, like: TensorType | None = None) -> GraphTensor:
        """Convert a value to a tensor; a number becomes a constant with the element type of the other operand."""
        if isinstance(value, GraphTensor):
            return value
        if is_number(value) and like is not None:
            if isinstance(value, float) and not like.dtype.is_float and not value.is_integer():
                raise self.error(node, f"{value} is not of type {like.dtype}: cast the tensor that it meets")
            return self._constant(value, TensorType((), like.dtype))
        raise self.error(node, f"expected a tensor, found {kind_of(value)}")

    def _constant(self, value: object, kind: TensorType | None) -> GraphTensor:
        array = np.asarray(value, dtype=kind.dtype.to_numpy() if kind is not None else None)
        if kind is None:
            element = dtype_of_numpy(array.dtype)
            if element is None:
                raise TypeError(f"numpy's {array.dtype} is not an element type")
            kind = TensorType(array.shape, element)
        if array.size != 1 and array.shape != kind.static_shape:
            raise ValueError(f"an array of shape {array.shape} does not fit the shape {kind.static_shape}")
        array = np.ascontiguousarray(np.broadcast_to(array, kind.static_shape))
        return GraphTensor.of(
            Constant.make(value=dense_attribute(array.reshape(kind.static_shape), kind), result_types=[kind])
        )

    def _value_Call(self, node: ast.Call) -> object:
        function = self.value(node.func)
        if isinstance(function, ScriptName) and function.language == "R":
            special = getattr(self, f"_call_{function.name}", None)
            return special(node) if special else self._operator(function.name, node)
        if isinstance(function, PrimFunc):
            raise self.error(node, f"call the prim function with R.call_tir({function.name}, ...)")
        if isinstance(function, PendingGraph):
            function = self.functions.defined(function.symbol)
            if function is None:
                raise self.error(node, "a graph that calls itself, directly or not, must declare what it returns")
        if isinstance(function, Callee):
            return self._call_graph(function, node)
        return super()._value_Call(node)

    def _operator(self, name: str, node: ast.Call) -> GraphResult:
        cls = OPS.get(name)
        is_own = cls is not None and _is_own_spelling(cls, node)
        if name in TVM_OPERATORS and (not is_own or (self.source.is_of_tvm and name in OTHER_MEANING)):
            return self._tvm_operator(name, node)
        self._require_meaning(name, node)
        if cls is None:
            raise self.error(node, f"R.{name} is not an operator")
        fields = {field.name: field for field in cls._operand_layout.fields}
        operand_nodes: dict[str, ast.expr] = {}
        attributes: dict[str, ast.expr] = {}
        names = list(fields)
        if len(node.args) > len(names):
            takes = f"the tensors {', '.join(names)}" if names else "no tensors"
            hint = "attributes are given by name"
            if len(names) == 1 and fields[names[0]].kind == "variadic":
                takes, hint = f"a list, {names[0]}", f"write R.{name}([...], ...)"
            raise self.error(node, f"R.{name} takes {takes}; found {len(node.args)}: {hint}")
        for field, argument in zip(names, node.args, strict=False):
            operand_nodes[field] = argument
        for keyword in node.keywords:
            key = str(keyword.arg)
            if key in fields:
                operand_nodes[key] = keyword.value
            elif key == "out" or key in cls._attributes:
                attributes[key] = keyword.value
            else:
                known = [*(f for f in names if f not in operand_nodes), *cls._attributes]
                near = difflib.get_close_matches(str(keyword.arg), known, n=1)
                hint = f"; did you mean '{near[0]}'?" if near else f"; it has: {', '.join(known) or 'none'}"
                raise self.error(keyword, f"R.{name} has no argument '{keyword.arg}'{hint}")
        out = attributes.pop("out", None)
        values = {key: self.value(value) for key, value in attributes.items()}
        for key, value in values.items():
            if isinstance(value, str) and isinstance(cls._attributes[key], (Dims, Ints)):
                # Strings are sequences too, and would pass for a list.
                wanted = cls._attributes[key].expected
                raise self.error(attributes[key], f"R.{name}: attribute '{key}' must be {wanted}, found text '{value}'")
        return self.make(node, name, self._operands(name, fields, operand_nodes, node), self._types(out), **values)

    def _require_meaning(self, name: str, node: ast.Call) -> None:
        """Raise an error where attributes are left out that have another default in TVM."""
        others = OTHER_MEANING.get(name, ())
        if set(others) <= {keyword.arg for keyword in node.keywords}:
            return
        own = ", ".join(f"{other}={OPS[name]._attributes[other].default}" for other in others)
        raise self.error(
            node, f"R.{name}: give {' and '.join(others)}, whose defaults are not TVM's; the operator's are {own}"
        )

    def _tvm_operator(self, name: str, node: ast.Call) -> GraphResult:
        """Make an operator that is called as in TVM."""
        values = self._value_Tuple(ast.Tuple(elts=node.args))
        named = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        try:
            return call_tvm(name, TvmCall(self, node), values, named)
        except TvmMistake as error:
            raise self.error(node, f"R.{name.replace('nn_', 'nn.')}: {error}") from None

    def _operands(
        self, name: str, fields: dict[str, ValueDeclaration], operand_nodes: dict[str, ast.expr], node: Located
    ) -> list[GraphTensor | list[GraphTensor] | None]:
        read = {key: self.value(argument) for key, argument in operand_nodes.items()}
        flat = [t for value in read.values() for t in self.flat(value)]
        like = next((value.type for value in flat if isinstance(value, GraphTensor)), None)
        operands: list[GraphTensor | list[GraphTensor] | None] = []
        for key, field in fields.items():
            value = read.get(key)
            if field.kind == "variadic":
                operands.append([self.as_tensor(v, operand_nodes.get(key, node), like) for v in self.flat(value or ())])
            elif value is None:
                if field.kind == "single":
                    raise self.error(node, f"R.{name} needs the tensor '{key}'")
                operands.append(None)
            else:
                operands.append(self.as_tensor(value, operand_nodes[key], like))
        return operands

    def make(
        self,
        node: Located,
        name: str,
        operands: Sequence[GraphTensor | list[GraphTensor] | None],
        results: list[TensorType] | None = None,
        **attributes: Any,
    ) -> GraphResult:
        """Make one operator and return its tensor, or a tuple of tensors."""
        values = [[t.value for t in o] if isinstance(o, list) else None if o is None else o.value for o in operands]
        try:
            with self.source.location(node):
                result = OPS[name].build(*values, result_types=results, loc=None, ip=None, **attributes)
        except (OpError, TypeError, ValueError) as error:
            raise self.error(node, f"R.{name}: {error}") from None
        return returned(result)

    def _types(self, node: ast.expr | None) -> list[TensorType] | None:
        """Return the types in `out=R.Tensor[...]`, or in a tuple of them."""
        if node is None:
            return None
        elements = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
        return [self.annotation(element)[0] for element in elements]

    def annotation(self, node: Located) -> tuple[TensorType, str | Unnamed | None]:
        """Return type and name in `R.Tensor[("batch", 128), "f32", "name"]`."""
        callee = self.value(node.value) if isinstance(node, ast.Subscript) else None
        parts = node.slice.elts if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) else []
        if not isinstance(callee, ScriptName) or str(callee) != "R.Tensor" or len(parts) not in (2, 3):
            raise self.error(node, 'expected a type such as R.Tensor[("batch", 128), "f32"]')
        shape = self.value(parts[0])
        listed = list(shape) if isinstance(shape, (tuple, list)) else [shape]
        dims = [dim for dim in listed if isinstance(dim, (int, str, SymbolicDim))]
        try:
            if len(dims) != len(listed):
                raise TypeError
            tensor_type = TensorType.of(dims, self.element_type(parts[1]))
        except (TypeError, ValueError) as error:
            if isinstance(error, ScriptError):
                raise
            raise self.error(parts[0], "a shape is a tuple of integers and of text such as 'batch'") from None
        name = self.value(parts[2]) if len(parts) == 3 else UNNAMED
        if name is not None and not isinstance(name, (str, Unnamed)):
            raise self.error(parts[2], f"the name of a tensor is text in quotes, found {kind_of(name)}")
        return tensor_type, name

    def _call_call_tir(self, node: ast.Call) -> GraphResult:
        """Read `R.call_tir(function, x, y, out=R.Tensor[...], epsilon=1e-5)`.

        `out` is needed if the inputs do not determine it.
        """
        arguments = list(self._value_Tuple(ast.Tuple(elts=node.args)))
        template = arguments.pop(0) if arguments else None
        if not isinstance(template, (PrimFunc, MlirText)):
            raise self.error(node, f"R.call_tir takes a prim function first, found {kind_of(template)}")
        tensors = [self.as_tensor(v, n) for v, n in zip(arguments, node.args[1:], strict=True)]
        out = self._types(self.keyword(node, "out"))
        attributes = {str(k.arg): self.value(k.value) for k in node.keywords if k.arg != "out"}
        with self.source.location(node):
            symbol, types = self._prim_function(template, tensors, out, attributes, node)
            result = CallTir.build([t.value for t in tensors], result_types=types, callee=symbol)
        return returned(result)

    def _prim_function(
        self,
        template: PrimFunc | MlirText,
        tensors: Sequence[GraphTensor],
        out: list[TensorType] | None,
        attributes: dict[str, object],
        node: Located,
    ) -> tuple[str, list[TensorType]]:
        if isinstance(template, MlirText):
            if out is None or attributes:
                raise self.error(node, "a function given as IR has no attributes, and needs out=R.Tensor[...]")
            return self.functions.symbol_of(template), out
        inputs = [t.type for t in tensors]
        if any(dim is UNKNOWN for t in inputs for dim in t.shape):
            raise self.error(node, "a prim function needs tensors whose dims are numbers or symbols")
        try:
            template.bind(inputs, out)
            template.attribute_values(attributes)
        except ScriptError as error:
            raise self.error(node, f"{error.problem} (declared at {error.place})") from None
        return self.functions.call(template, inputs, out, attributes)

    def _call_call_dps_packed(self, node: ast.Call) -> GraphResult:
        return self._packed(node, CallDpsPacked)

    def _call_call_packed(self, node: ast.Call) -> GraphResult:
        return self._packed(node, CallPacked)

    def _packed(self, node: ast.Call, cls: type[DialectOp]) -> GraphResult:
        name, *arguments = self.arguments(node, 1, keywords=("out",))
        if not isinstance(name, str):
            raise self.error(node.args[0], f"the name of a run-time function is text in quotes, found {kind_of(name)}")
        out = self._types(self.keyword(node, "out"))
        if not out:
            raise self.error(node, "the types of the results are not known: out=R.Tensor[...], or a tuple of them")
        tensors = [self.as_tensor(v, n).value for v, n in zip(arguments, node.args[1:], strict=True)]
        with self.source.location(node):
            return returned(cls.build(tensors, result_types=out, function=name))

    def _call_const(self, node: ast.Call) -> GraphTensor:
        """Read `R.const(1.0, "f32")`, `R.const([1, 2], "i64")`, `R.const(0.0, shape=(4,))` or `R.const(array)`."""
        value = self.arguments(node, 1, 2, ("shape", "dtype"))[0]

        element = node.args[1] if len(node.args) == 2 else self.keyword(node, "dtype")
        if element is None and not isinstance(value, (np.ndarray, np.generic)):
            raise self.error(node, "a constant needs an element type: R.const(1.0, 'f32')")
        shape = self.keyword(node, "shape")
        try:
            kind = None
            if element is not None:
                dtype = self.element_type(element)
                dims = self.shape(shape) if shape is not None else np.asarray(value).shape
                kind = TensorType(tuple(dims), dtype)
            with self.source.location(node):
                return self._constant(value, kind)
        except (TypeError, ValueError) as error:
            if isinstance(error, ScriptError):
                raise
            raise self.error(node, f"R.const: {error}") from None

    def _call_param(self, node: ast.Call) -> GraphTensor:
        """Read `R.param("w", (64, 64), "f32")`: an array of the parameter store."""
        self.arguments(node, 3, 3)
        kind = TensorType(self.shape(node.args[1]), self.element_type(node.args[2]))
        with self.source.location(node):
            return GraphTensor.of(Constant.make(param=self.text(node.args[0], "the name"), result_types=[kind]))

    def _with_dims(self, callee: Callee, tensors: Sequence[GraphTensor], node: ast.Call) -> Callee:
        """Return a graph for these inputs: the symbols in its types are dims of its own, which a call determines."""
        declared = [TensorType.from_mlir(wanted) for wanted in callee.inputs]
        dims: dict[str, Dim] = {}
        for wanted, tensor in zip(declared, tensors, strict=True):
            for dim, size in zip(wanted.shape if wanted is not None else (), tensor.shape, strict=False):
                if str(dim) in symbols_of(dim):
                    dims.setdefault(str(dim), size)
        for wanted, tensor in zip(declared, tensors, strict=True):
            if wanted is None or wanted.with_shape(substituted(wanted.shape, dims)) != tensor.type:
                raise self.error(node, f"'{callee.symbol}' takes {wanted}, found {tensor.type}")
        if all(str(size) == name for name, size in dims.items()):
            return callee
        try:
            with self.source.location(node):
                return self.functions.with_dims(callee, dims)
        except DimIsBound as problem:
            raise self.error(node, f"'{callee.symbol}' takes {', '.join(map(str, declared))}: {problem}") from None

    def _call_graph(self, callee: Callee, node: ast.Call) -> GraphResult:
        tensors = [self.as_tensor(v, node) for v in self.arguments(node, len(callee.inputs), len(callee.inputs))]
        callee = self._with_dims(callee, tensors, node)
        with self.source.location(node):
            symbol = ir.FlatSymbolRefAttr.get(callee.symbol)
            return returned(func.CallOp(list(callee.results), symbol, [t.value for t in tensors]))
