"""Prim functions as loops over buffers: loops with kinds, conditions, variables, scratch memory, C calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir, memref
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.tir.block import CallExtern, For
from mirlo.dialects.tir.buffers import START
from mirlo.dialects.tir.compute import (
    BOOL,
    INDEX,
    Expr,
    LoopBuilder,
    Variable,
    all_of,
    constant,
    lift,
)
from mirlo.dialects.tir.compute.builder import from_storage
from mirlo.dialects.tir.compute.emit import scalar_type
from mirlo.dialects.tir.compute.loops import as_expr, element_of_scalar, emit
from mirlo.dialects.tir.own_intrinsics import OwnIntrinsic, emit_own
from mirlo.frontends.script.assignments import as_value, reassigned_names
from mirlo.frontends.script.describe import describe, is_number, kind_of
from mirlo.frontends.script.inline import InlineFunction
from mirlo.frontends.script.interpreter import Interpreter
from mirlo.frontends.script.loops import (
    RANGES,
    LoopHeader,
    axes_kinds,
    block_name,
    call_of,
    callee_of,
    header,
    is_docstring,
    is_init,
)
from mirlo.frontends.script.memory_buffer import MemoryBuffer
from mirlo.frontends.script.source import Located
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.frontends.script.symbols import ScriptName

SCOPES = ("global", "local", "shared")
_KINDS = {"grid": "serial", "thread_binding": "bound"}


class BufferForm(Interpreter):
    """Reads the body of a function as statements, each emitted in place."""

    builder: LoopBuilder
    init: Expr | None = None
    """The condition that starts a block's reduction, inside of a block with reduction axes."""

    def body(self, statements: Sequence[ast.stmt]) -> None:
        self.mutable = reassigned_names(statements)
        self.written: set[MemoryBuffer] = set()
        for node in statements:
            self.statement(node)

    def statements(self, nodes: Sequence[ast.stmt]) -> None:
        """Read a nested body; names that it defines are local to it."""
        outer = dict(self.names)
        for node in nodes:
            self.statement(node)
        self.names = outer

    def statement(self, node: ast.stmt) -> None:
        with self.source.location(node):
            handler = getattr(self, f"_statement_{type(node).__name__}", None)
            if handler is None:
                raise self.error(
                    node, f"statement '{describe(node)}' has no meaning in a prim function{_instead(node)}"
                )
            handler(node)

    def read_name(self, value: object) -> object:
        return value.get() if isinstance(value, Variable) else value

    # Statements

    def _statement_Pass(self, node: ast.Pass) -> None:
        """Read `pass`."""

    def _statement_Expr(self, node: ast.Expr) -> None:
        if is_docstring(node):
            return
        call = node.value
        if not isinstance(call, ast.Call):
            raise self.error(node, "this value is not used")
        callee = callee_of(self, call)
        if callee == "call_extern":
            self._call_extern(call)
        elif callee == "copy":
            self._copy(call)
        elif callee != "reads":
            self.value(call)

    def _statement_Assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            raise self.error(node, "assign to one target at a time: a = b = c is not supported")
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            self._store(target, self.value(node.value), node.value)
            return
        alloc, axes = (call_of(self, node.value, name) for name in ("alloc", "axes"))
        if alloc is not None:
            if not isinstance(target, ast.Name):
                raise self.error(target, "T.alloc makes one buffer: give it one name")
            self.names[target.id] = self._alloc(target.id, alloc)
            return
        value = self._axes(axes) if axes is not None else self.value(node.value)
        for name, item in self.unpack(target, value):
            self._define(name, item, node)

    def _define(self, name: str, value: object, node: ast.Assign | ast.AugAssign) -> None:
        """Define a name: a variable if it is assigned more than once, otherwise the current value."""
        present = self.names.get(name)
        if isinstance(present, Variable):
            element = present.get().dtype
            scalar = self.lifted(value, element, node.value)
            if scalar.dtype is not element:
                raise self.error(node.value, f"'{name}' holds {element}, found {scalar.dtype}: cast it")
            present.set(scalar)
        elif name in self.mutable and (isinstance(value, Expr) or is_number(value)):
            if not isinstance(value, Expr):
                raise self.error(
                    node, f"'{name}' changes later, so it needs a type: {name} = T.f32({value}), for instance"
                )
            self.names[name] = self.builder.variable(value, value.dtype)
        elif isinstance(value, Expr) and value.op not in ("const", "value"):
            self.names[name] = self.builder.let(value)
        else:
            self.names[name] = value

    def _statement_AugAssign(self, node: ast.AugAssign) -> None:
        loaded = ast.copy_location(as_value(node.target), node.target)
        value = self.value(ast.copy_location(ast.BinOp(loaded, node.op, node.value), node))
        if isinstance(node.target, ast.Subscript):
            self._store(node.target, value, node.value)
        else:
            for name, item in self.unpack(node.target, value):
                if name not in self.names or not isinstance(self.names[name], Variable):
                    raise self.error(node, f"'{name}' is not a variable: give it a value with a type first")
                self._define(name, item, node)

    def _store(self, target: ast.Subscript, value: object, node: Located) -> None:
        buffer = self.value(target.value)
        if not isinstance(buffer, MemoryBuffer):
            raise self.error(target, "only elements of buffers can be stored to")
        indices = self.indices(buffer, target.slice, target)
        self._write(buffer, target)
        buffer.buffer[tuple(indices)] = self.stored(buffer, value, node)

    def _write(self, buffer: MemoryBuffer, node: Located) -> None:
        """Record a store to a buffer; refuse it for an input."""
        if buffer.is_input:
            raise self.error(node, f"'{buffer.name}' is an input: what is stored to is T.Out, or a buffer of T.alloc")
        self.written.add(buffer)

    def _statement_If(self, node: ast.If) -> None:
        condition = self.value(node.test)
        if is_number(condition):
            self.statements(node.body if condition else node.orelse)
            return
        with self.builder.if_(self.condition(condition, node.test)):
            self.statements(node.body)
        if node.orelse:
            with self.builder.else_():
                self.statements(node.orelse)

    def _statement_While(self, node: ast.While) -> None:
        if node.orelse:
            raise self.error(node.orelse[0], "a loop of a prim function has no 'else'")

        def condition() -> Expr:
            value = self.value(node.test)
            if is_number(value):
                raise self.error(node.test, f"this condition is always {bool(value)}: compare what the loop changes")
            return self.condition(value, node.test)

        for _ in self.builder.while_(condition):
            self.statements(node.body)

    def _statement_For(self, node: ast.For) -> None:
        loop = header(self, node)
        outer = dict(self.names)
        with self._opened(loop) as indices:
            value = tuple(indices) if loop.as_tuple or len(indices) != 1 else indices[0]
            for name, item in self.unpack(node.target, value):
                self.names[name] = item
            for statement in node.body:
                self.statement(statement)
        self.names = outer

    @contextmanager
    def _opened(self, loop: LoopHeader) -> Iterator[list[Expr]]:
        """Open the loops of a header and yield their indices."""
        if loop.kind in RANGES:
            is_parallel = loop.kind == "parallel_range"
            for i in self.builder.range(loop.lower[0], loop.upper[0], loop.step, is_parallel):
                yield [i]
            return
        indices: list[Expr] = []
        points = []
        for lower, upper in zip(loop.lower, loop.upper, strict=True):
            bounds = [emit(lift(b, INDEX).cast(INDEX)) for b in (lower, upper)]
            new_loop = For.build(*bounds, result_types=[], kind=_KINDS.get(loop.kind, loop.kind), thread=loop.thread)
            body = new_loop.operation.regions[0].blocks.append(
                ir.IndexType.get(), arg_locs=[new_loop.operation.location]
            )
            points.append(ir.InsertionPoint(body))
            points[-1].__enter__()
            indices.append(as_expr(body.arguments[0], INDEX))
        try:
            yield indices
        finally:
            for point in reversed(points):
                ir.Operation.create("tir.yield", operands=[], attributes=_NO_VALUES())
                point.__exit__(None, None, None)

    def _statement_With(self, node: ast.With) -> None:
        if is_init(self, node):
            if self.init is None:
                raise self.error(node, "T.init is for blocks with a reduction axis, after T.axes")
            with self.builder.if_(self.init):
                self.statements(node.body)
            return
        if block_name(self, node) is None:
            raise self.error(node, "'with' is for T.block(...) and T.init()")
        outer, self.init = self.init, None
        self.statements(node.body)
        self.init = outer

    def _axes(self, call: ast.Call) -> object:
        """Return the indices of a block; the reduction starts where all reduction indices are 0."""
        letters, arguments = axes_kinds(self, call)
        values: list[object] = []
        starts = []
        for letter, argument in zip(letters, arguments, strict=True):
            value = self.value(argument)
            axes = []
            for item in self.flat(value):
                scalar = self.lifted(item, INDEX, argument).cast(INDEX)
                axes.append(scalar if scalar.op in ("const", "value") else self.builder.let(scalar))
            values.append(tuple(axes) if isinstance(value, tuple) else axes[0])
            starts += [index.equals(0) for index in axes if letter == "R"]
        if starts:
            self.init = all_of(starts)
        return values[0] if len(values) == 1 else tuple(values)

    # Memory and calls

    def _alloc(self, name: str, call: ast.Call) -> MemoryBuffer:
        self.arguments(call, 2, 3, ("scope",))
        shape, element = self.shape(call.args[0]), self.element_type(call.args[1])
        scope_node = call.args[2] if len(call.args) == 3 else self.keyword(call, "scope")
        scope = "global" if scope_node is None else self.text(scope_node, "the scope")
        if scope not in SCOPES:
            raise self.error(
                scope_node or call, f"the scope of a buffer is one of {', '.join(SCOPES)}; found '{scope}'"
            )
        if scope == "global":
            return MemoryBuffer(name, self.builder.scratch(shape, element))
        sizes = [dim for dim in shape if isinstance(dim, int)]
        if len(sizes) != len(shape):
            raise self.error(call.args[0], f"memory of scope '{scope}' has a size known when the function is made")
        return MemoryBuffer(name, self.builder.alloca(sizes, element, scope))

    def _copied(self, value: object, argument: ast.expr) -> MemoryBuffer:
        if not isinstance(value, MemoryBuffer):
            raise self.error(argument, f"T.copy takes two buffers, found {kind_of(value)}")
        return value

    def _copy(self, call: ast.Call) -> None:
        values = self.arguments(call, 2, 2, keywords=("start",))
        source, target = (self._copied(value, argument) for value, argument in zip(values, call.args, strict=True))
        if source.shape != target.shape or source.dtype is not target.dtype:
            raise self.error(call, f"T.copy takes buffers of one type, found {source} and {target}")
        if not all(isinstance(dim, int) for dim in source.shape):
            raise self.error(call, "T.copy takes buffers of sizes known when the function is made: write a loop")
        self._write(target, call.args[1])
        copy_op = memref.CopyOp(source.buffer.value, target.buffer.value)
        start = self.keyword(call, "start")
        if start is not None and self.value(start):
            copy_op.operation.attributes[START] = ir.UnitAttr.get()

    def call_inline(self, function: InlineFunction, node: ast.Call) -> object:
        outer, self.mutable = self.mutable, reassigned_names(function.tree.body)
        try:
            return super().call_inline(function, node)
        finally:
            self.mutable = outer

    def call_name(self, callee: ScriptName, node: ast.Call) -> object:
        if callee.name == "call_extern":
            return self._call_extern(node)
        if callee.name == "stride":
            return self._stride(node)
        return super().call_name(callee, node)

    def _call_extern(self, call: ast.Call) -> Expr | None:
        """Read `T.call_extern("name", x, buffer, dtype="f32")`.

        A buffer is passed as a pointer, or as one to an element.
        """
        name, *arguments = self.arguments(call, 1, keywords=("dtype", "pure"))
        if not isinstance(name, str):
            raise self.error(call.args[0], f"the name of a C function must be text in quotes, found {kind_of(name)}")
        operands = self._operands_of_call(arguments, call.args[1:], "T.call_extern")
        returned = self.keyword(call, "dtype")
        element = None if returned is None else self.element_type(returned)
        types = [] if element is None else [scalar_type(element)]
        pure = self.keyword(call, "pure")
        result = CallExtern.build(
            operands, result_types=types, function=name, pure=bool(pure is not None and self.value(pure))
        )
        return None if element is None else as_expr(from_scalar(result.operation.results[0], element), element)

    def _stride(self, call: ast.Call) -> Expr:
        """Read `T.stride(buffer, 0)`: the elements between neighbours in a dim."""
        buffer, dim = self.arguments(call, 2, 2)
        if not isinstance(buffer, MemoryBuffer):
            raise self.error(call.args[0], f"T.stride takes a buffer, found {kind_of(buffer)}")
        if not isinstance(dim, int) or not 0 <= dim < len(buffer.shape):
            raise self.error(call.args[1], f"'{buffer.name}' has dims 0 to {len(buffer.shape) - 1}, found {dim}")
        stride = buffer.strides[dim]
        if not isinstance(stride, int):
            raise self.error(call, f"the stride of dim {dim} of '{buffer.name}' is known at run time only: compute it")
        return constant(stride, INDEX)

    def _operands_of_call(self, values: Sequence[object], nodes: Sequence[Located], callee: str) -> list[ir.Value]:
        operands = []
        for value, argument in zip(values, nodes, strict=True):
            if isinstance(value, MemoryBuffer):
                # The function may write to it.
                self.written.add(value)
                operands.append(value.buffer.value)
            elif isinstance(value, Expr):
                operands.append(emit(value))
            elif isinstance(value, Handle):
                operands.append(value.value)
            else:
                raise self.error(argument, f"{callee} takes buffers and scalars with a type, found {kind_of(value)}")
        return operands

    def own_statement(
        self, row: OwnIntrinsic, values: Sequence[object], nodes: Sequence[Located], node: ast.Call
    ) -> object:
        results = emit_own(row.name, *self._operands_of_call(values, nodes, "T.call_intrin")).results
        if not len(results):
            return None
        element = element_of_scalar(results[0].type)
        return Handle(results[0]) if element is None else as_expr(from_scalar(results[0], element), element)


@dataclass(frozen=True, eq=False)
class Handle:
    """A value of an intrinsic that only other intrinsics take: a channel, an instruction's operand."""

    value: ir.Value


def from_scalar(value: ir.Value, element: DType) -> ir.Value:
    """Convert the result of a C function to the scalar type used for computation."""
    return value if element in (BOOL, INDEX) else from_storage(value, element)


def _NO_VALUES() -> dict[str, ir.Attribute]:
    return {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0, 0, 0])}


def _instead(node: Located) -> str:
    if isinstance(node, ast.Return):
        return ": outputs are the parameters marked T.Out, stored to"
    return ""
