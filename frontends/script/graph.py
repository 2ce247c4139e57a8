"""Graphs of relax operators, written as Python functions: `@R.function`, or `@mirlo.script` on a function."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NoReturn

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core.dim_algebra import symbol
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.script.describe import describe, is_number, kind_of
from mirlo.frontends.script.graph_calls import GraphCalls, Unnamed
from mirlo.frontends.script.graph_values import Callee, GraphTensor, ScriptFunctions
from mirlo.frontends.script.loops import is_docstring
from mirlo.frontends.script.source import Located, ScriptSource
from mirlo.frontends.script.symbols import ScriptName
from mirlo.frontends.script.syntax import called, dims_declared

_BINARY = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "floor_divide", "%": "mod", "**": "power",
    "@": "matmul", "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor", "<<": "shift_left", ">>": "shift_right",
}  # fmt: skip
_COMPARE = {
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal", ast.Eq: "equal",
    ast.NotEq: "not_equal",
}  # fmt: skip
_LOGICAL = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}


class GraphInterpreter(GraphCalls):
    """Reads the body of a graph; each operator is emitted in place."""

    # Values

    def binary(self, node: Located, method: str, symbol: str, left: object, right: object) -> object:
        if not isinstance(left, GraphTensor) and not isinstance(right, GraphTensor):
            return super().binary(node, method, symbol, left, right)
        like = next(x.type for x in (left, right) if isinstance(x, GraphTensor))
        a, b = self.as_tensor(left, node, like), self.as_tensor(right, node, like)
        name = _BINARY[symbol]
        return self.make(node, _LOGICAL.get(name, name) if like.dtype.is_bool else name, [a, b])

    def _value_UnaryOp(self, node: ast.UnaryOp) -> object:
        value = self.value(node.operand)
        if not isinstance(value, GraphTensor):
            return super()._value_UnaryOp(node)
        names: dict[type, str] = {
            ast.USub: "negative",
            ast.Invert: "logical_not" if value.dtype.is_bool else "bitwise_not",
        }
        name = names.get(type(node.op))
        if name is None:
            raise self.error(node, f"operator '{describe(node.op)}' has no meaning for a tensor")
        return self.make(node, name, [value])

    def _value_Compare(self, node: ast.Compare) -> object:
        values = [self.value(item) for item in (node.left, *node.comparators)]
        tensors = [v for v in values if isinstance(v, GraphTensor)]
        if not tensors:
            return super()._value_Compare(node)
        if len(values) != 2 or type(node.ops[0]) not in _COMPARE:
            raise self.error(node, "tensors are compared two at a time, with <, <=, >, >=, == or !=")
        a, b = (self.as_tensor(v, node, tensors[0].type) for v in values)
        return self.make(node, _COMPARE[type(node.ops[0])], [a, b])

    def _value_Attribute(self, node: ast.Attribute) -> object:
        owner = self.value(node.value)
        if isinstance(owner, GraphTensor):
            if node.attr in ("shape", "dtype"):
                return getattr(owner, node.attr)
            raise self.error(node, f"a tensor has 'shape' and 'dtype' here, not '{node.attr}': use operators of R")
        return super()._value_Attribute(node)

    def _value_Subscript(self, node: ast.Subscript) -> object:
        owner = self.value(node.value)
        if isinstance(owner, GraphTensor):
            raise self.error(node, "a tensor cannot be indexed: use R.strided_slice or R.gather")
        if isinstance(owner, ScriptName):
            return self.annotation(node)[0]
        return super()._value_Subscript(node)

    def condition(self, value: object, node: Located) -> NoReturn:
        raise self.error(node, "a tensor has no truth value: use R.where, R.logical_and or R.logical_or")

    # Statements

    def statement(self, node: ast.stmt) -> None:
        symbols = dims_declared(node)
        if symbols:
            self.names.update({name: symbol(name) for name in symbols})
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            self.names.update(self.unpack(node.targets[0], self.value(node.value)))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            self.names[node.target.id] = self._declared(self.value(node.value), node.annotation)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            loaded = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
            self.names[node.target.id] = self.value(ast.copy_location(ast.BinOp(loaded, node.op, node.value), node))
        elif isinstance(node, ast.For):
            self._for(node)
        elif isinstance(node, ast.If):
            self._if(node)
        elif not isinstance(node, ast.Pass) and not is_docstring(node):
            raise self.error(node, f"statement '{describe(node)}' has no meaning in a graph")

    def _declared(self, value: object, note: ast.expr) -> object:
        """Return a value that has the declared type: a tensor's, or a tuple's, `R.Tuple(R.Tensor[...], ...)`."""
        if called(note) == "R.Tuple" and isinstance(note, ast.Call):
            if not isinstance(value, (tuple, list)) or len(value) != len(note.args):
                raise self.error(note, f"declared a tuple of {len(note.args)}, but the value is {kind_of(value)}")
            return tuple(self._declared(each, declared) for each, declared in zip(value, note.args, strict=True))
        declared = self.annotation(note)[0]
        if not isinstance(value, GraphTensor) or value.type != declared:
            actual = value.type if isinstance(value, GraphTensor) else kind_of(value)
            raise self.error(note, f"declared {declared}, but the value is {actual}")
        return value

    def _for(self, node: ast.For) -> None:
        """Repeat the body for numbers or the elements of a tuple."""
        values = self.value(node.iter)
        if not isinstance(values, (range, tuple, list)):
            raise self.error(node.iter, f"a loop of a graph runs over range or a tuple, found {kind_of(values)}")
        for value in values:
            self.names.update(self.unpack(node.target, value))
            for statement in node.body:
                self.statement(statement)

    def _if(self, node: ast.If) -> None:
        test = self.value(node.test)
        if not is_number(test):
            raise self.error(
                node.test, f"'if' needs a condition known when the graph is made, found {kind_of(test)}: use R.where"
            )
        for statement in node.body if test else node.orelse:
            self.statement(statement)


def read_signature(interpreter: GraphInterpreter, tree: ast.FunctionDef) -> list[tuple[str, TensorType, str | None]]:
    """Return each parameter's name in the script, type, and name for users."""
    arguments = tree.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults:
        raise interpreter.error(tree, "a graph takes plain parameters: no defaults, no *, no **")
    result = []
    for argument in arguments.args:
        if argument.annotation is None:
            raise interpreter.error(
                argument, f'parameter \'{argument.arg}\' needs a type: R.Tensor[("batch", 128), "f32"]'
            )
        kind, name = interpreter.annotation(argument.annotation)
        result.append((argument.arg, kind, argument.arg if isinstance(name, Unnamed) else name))
    return result


def read_types(
    tree: ast.FunctionDef, source: ScriptSource, captured: dict[str, object], functions: ScriptFunctions
) -> tuple[tuple[ir.Type, ...], tuple[ir.Type, ...]]:
    """Return the types of the parameters of a graph, and of the results that its annotation declares."""
    interpreter = GraphInterpreter(source, {}, captured)
    interpreter.functions = functions
    assert tree.returns is not None
    notes = tree.returns.elts if isinstance(tree.returns, ast.Tuple) else [tree.returns]
    inputs = tuple(kind.to_mlir() for _, kind, _ in read_signature(interpreter, tree))
    return inputs, tuple(interpreter.annotation(note)[0].to_mlir() for note in notes)


def build_graph(
    tree: ast.FunctionDef,
    source: ScriptSource,
    captured: dict[str, object],
    functions: ScriptFunctions,
    symbol: str,
    private: bool = False,
) -> ir.OpView:
    """Append the `func.func` of a graph to the module and return it."""
    interpreter = GraphInterpreter(source, {}, captured)
    interpreter.functions = functions
    signature = read_signature(interpreter, tree)
    *statements, last = tree.body
    if not isinstance(last, ast.Return) or last.value is None:
        raise interpreter.error(last, "a graph ends with 'return' and the tensors that it computes")
    with source.location(tree):
        kind = ir.FunctionType.get([t.to_mlir() for _, t, _ in signature], [])
        graph = func.FuncOp(symbol, kind, visibility="private" if private else None, ip=False)
        block = graph.add_entry_block()
    functions.module.body.append(graph.operation)
    for (name, _, _), argument in zip(signature, block.arguments, strict=True):
        interpreter.names[name] = GraphTensor.of(argument)
    with ir.InsertionPoint(block):
        for node in statements:
            interpreter.statement(node)
        returned = interpreter.value(last.value)
        values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        tensors = [interpreter.as_tensor(v, last.value) for v in values]
        with source.location(last):
            func.ReturnOp([t.value for t in tensors])
    names = _result_names(interpreter, tree, last, tensors)
    op = graph.operation
    op.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get(list(kind.inputs), [t.value.type for t in tensors])
    )
    _name_values(op, "arg_attrs", [name for _, _, name in signature])
    _name_values(op, "res_attrs", names)
    functions.graphs[symbol] = Callee(symbol, tuple(kind.inputs), tuple(t.value.type for t in tensors))
    return graph


def _result_names(
    interpreter: GraphInterpreter, tree: ast.FunctionDef, last: ast.Return, tensors: Sequence[GraphTensor]
) -> list[str | None]:
    """Return the users' names of the results: from the annotation, or from the returned variables."""
    returned = last.value.elts if isinstance(last.value, (ast.Tuple, ast.List)) else [last.value]
    names: list[str | None] = [n.id if isinstance(n, ast.Name) else None for n in returned]
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
        names[i] = names[i] if isinstance(name, Unnamed) else name
    return names


def _name_values(op: ir.Operation, attribute: str, names: Sequence[str | None]) -> None:
    if any(name is not None for name in names):
        entries = [{} if name is None else {"relax.name": ir.StringAttr.get(name)} for name in names]
        op.attributes[attribute] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in entries])
