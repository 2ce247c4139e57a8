"""Prim functions that are sequences of structured blocks, raised to tensor form.

They are fused and scheduled like those that legalization makes. Other functions raise `NotRegular` with the reason,
and are kept as loops over buffers (`buffer_form.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.dtypes import DType
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.compute import Axis, Expr, PrimBuilder, TensorExpr
from mirlo.frontends.script.buffers import ScriptBuffer
from mirlo.frontends.script.describe import describe, is_number
from mirlo.frontends.script.errors import NotRegular
from mirlo.frontends.script.interpreter import Interpreter
from mirlo.frontends.script.loops import axes_kinds, block_name, call_of, callee_of, header, is_docstring, is_init
from mirlo.frontends.script.source import Located
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.dialects.tir.own_intrinsics import OwnIntrinsic
    from mirlo.frontends.script.symbols import ScriptName


@dataclass(eq=False)
class TensorBuffer(ScriptBuffer):
    """A buffer as a tensor: defined once a block has written it."""

    name: str
    type: TensorType
    tensor: TensorExpr | None = None

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def read(self, indices: Sequence[Expr], outside: float | None = None) -> Expr:
        if self.tensor is None:
            raise NotRegular(f"'{self.name}' is read before a block has written it")
        return self.tensor.element(indices, outside)


@dataclass(frozen=True, eq=False)
class LoopVariable:
    """An index before it is known which axis of a block it is."""

    extent: Dim


@dataclass
class _Block:
    """The block being read."""

    name: str
    spatial: tuple[LoopVariable, ...]
    reduce: tuple[LoopVariable, ...]
    init: dict[TensorBuffer, float]
    current: dict[TensorBuffer, Expr | None]
    reads: list[Expr]


class TensorForm(Interpreter):
    """Reads the body of a function as blocks over tensors."""

    builder: PrimBuilder
    block: _Block | None = None

    def body(self, statements: Sequence[ast.stmt]) -> None:
        for node in statements:
            self.statement(node)

    def _taken(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Replace each `if` whose condition is known when the function is made by the branch that is taken.

        A condition on a name that a statement before it assigns is left: its value is not known yet.
        """
        result: list[ast.stmt] = []
        assigned: set[str] = set()
        for node in statements:
            if isinstance(node, ast.If) and not assigned & _names(node.test, ast.Load):
                condition = self._known_condition(node.test)
                if condition is not None:
                    result += self._taken(node.body if condition else node.orelse)
                    continue
            assigned |= _names(node, ast.Store)
            result.append(node)
        return result

    def statement(self, node: ast.stmt) -> None:
        if self.block is not None:
            self.in_block(node)
        elif isinstance(node, ast.If):
            self.body(self._branch(node, "outside of the loop nests"))
        elif isinstance(node, ast.For):
            self.builder.loc = self.source.location(node)
            self.nest(node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self.names[node.targets[0].id] = self._declared(node.targets[0].id, node.value)
        elif not isinstance(node, ast.Pass) and not is_docstring(node):
            raise NotRegular(f"there is {describe(node)} outside of the loop nests")

    def _known_condition(self, node: ast.expr) -> float | None:
        """Return the value of a condition, None if it depends on a loop or reads an element."""
        values = (self.names.get(name) for name in _names(node, ast.Load))
        if any(isinstance(item, LoopVariable) for value in values for item in self.flat(value)):
            return None
        try:
            value = self.value(node)
        except NotRegular:
            return None
        return value if is_number(value) else None

    def _branch(self, node: ast.If, where: str) -> list[ast.stmt]:
        """Return the branch of an `if` whose condition must be known when the function is made."""
        condition = self.value(node.test)
        if not is_number(condition):
            raise NotRegular(f"there is {describe(node)} {where} whose condition is computed")
        return node.body if condition else node.orelse

    def _declared(self, name: str, node: ast.expr) -> object:
        """Return a constant, or a buffer that a block will write."""
        call = call_of(self, node, "alloc")
        if call is None:
            value = self.value(node)
            if isinstance(value, Expr):
                raise NotRegular(f"the scalar '{name}' is computed outside of the loop nests")
            return value
        if len(call.args) != 2 or call.keywords:
            raise NotRegular(f"buffer '{name}' has a scope")
        return TensorBuffer(name, TensorType(self.shape(call.args[0]), self.element_type(call.args[1])))

    # A loop nest

    def nest(self, node: ast.For) -> None:
        variables, body = self._perfect_nest(node)
        name = block_name(self, body[0]) if len(body) == 1 else None
        if name is not None and isinstance(only := body[0], ast.With):
            self._explicit_block(name or "block", self._taken(only.body), variables)
        elif body:
            self._plain_nest(body, variables)
        else:
            raise NotRegular("a loop nest stores nothing")

    def _perfect_nest(self, node: ast.For) -> tuple[list[LoopVariable], list[ast.stmt]]:
        """Bind the loops that directly contain one another; return their indices, and the body of the innermost."""
        variables = self._loops(node)
        body = self._taken(node.body)
        while len(body) == 1 and isinstance(inner := body[0], ast.For):
            variables += self._loops(inner)
            body = self._taken(inner.body)
        return variables, body

    def _loops(self, node: ast.For) -> list[LoopVariable]:
        """Bind the names of one `for` and return its indices."""
        loop = header(self, node)
        if loop.kind not in ("grid", "serial", "range") or loop.step != 1 or any(low != 0 for low in loop.lower):
            raise NotRegular(f"there is a loop of kind T.{loop.kind} that requires an order or a part")
        loops = [LoopVariable(extent) for extent in loop.upper if isinstance(extent, (int, SymbolicDim))]
        if len(loops) != len(loop.upper):
            raise NotRegular("a bound of a loop is computed")
        self._bind(node.target, tuple(loops) if loop.as_tuple or len(loops) != 1 else loops[0])
        return loops

    def _bind(self, target: ast.expr, value: object) -> None:
        for name, item in self.unpack(target, value):
            self.names[name] = item

    def _explicit_block(self, name: str, body: Sequence[ast.stmt], variables: list[LoopVariable]) -> None:
        spatial: list[LoopVariable] = []
        reduce: list[LoopVariable] = []
        bound: list[tuple[ast.expr, object]] = []
        rest = list(body)
        while (
            rest and isinstance(node := rest[0], ast.Assign) and (axes := call_of(self, node.value, "axes")) is not None
        ):
            rest.pop(0)
            letters, arguments = axes_kinds(self, axes)
            values: list[object] = []
            for letter, argument in zip(letters, arguments, strict=True):
                value = self._loop_variables(argument)
                values.append(value)
                (spatial if letter == "S" else reduce).extend(self._flat_variables(value))
            bound.append((node.targets[0], values[0] if len(values) == 1 else tuple(values)))
        if len({*spatial, *reduce}) != len(variables) or len(spatial) + len(reduce) != len(variables):
            raise NotRegular(f"the axes of block '{name}' are not its loops, each once")
        for target, value in bound:
            self._bind(target, value)
        self._run(name, tuple(spatial), tuple(reduce), rest)

    def _flat_variables(self, value: object) -> list[LoopVariable]:
        return [variable for variable in self.flat(value) if isinstance(variable, LoopVariable)]

    def _loop_variables(self, node: Located) -> object:
        value = self.value(node) if isinstance(node, ast.Name) else None
        if value is None or not all(isinstance(v, LoopVariable) for v in self.flat(value)):
            raise NotRegular("an axis of a block is not a loop variable")
        return value

    def _plain_nest(self, body: Sequence[ast.stmt], variables: list[LoopVariable]) -> None:
        """Read a nest without a block: `out[i, j] = ...`, or an initial value and an inner nest that adds to it."""
        targets = [n.targets[0] for n in body if isinstance(n, ast.Assign)]
        stores = [target for target in targets if isinstance(target, ast.Subscript)]
        if not stores:
            raise NotRegular("a loop nest stores nothing, or not in its innermost loop")
        buffer = self.value(stores[0].value)
        spatial = self._flat_variables(self._stored_at(stores[0].slice))
        if not isinstance(buffer, TensorBuffer) or set(spatial) != set(variables) or len(spatial) != len(variables):
            raise NotRegular("a nest does not store one element for each point")
        last = body[-1]
        if isinstance(last, ast.For):
            self._start_and_nest(buffer, body, last, tuple(spatial))
        else:
            self._run(buffer.name, tuple(spatial), (), body)

    def _stored_at(self, node: Located) -> object:
        if isinstance(node, ast.Tuple):
            return tuple(self._loop_variables(e.value if isinstance(e, ast.Starred) else e) for e in node.elts)
        return self._loop_variables(node)

    def _start_and_nest(
        self, buffer: TensorBuffer, body: Sequence[ast.stmt], node: ast.For, spatial: tuple[LoopVariable, ...]
    ) -> None:
        start = body[0]
        number = self.value(start.value) if len(body) == 2 and isinstance(start, ast.Assign) else None
        if not is_number(number):
            raise NotRegular("a nest does more than to set a start value and to add to it")
        reduce, inner = self._perfect_nest(node)
        self._run(buffer.name, spatial, tuple(reduce), inner, {buffer: number})

    # The point of a block

    def _run(
        self, name: str, spatial: tuple[LoopVariable, ...], reduce: tuple[LoopVariable, ...], body: Sequence[ast.stmt],
        init: dict[TensorBuffer, float] | None = None,
    ) -> None:  # fmt: skip
        axes: dict[LoopVariable, Expr] = {v: Axis(i) for i, v in enumerate((*spatial, *reduce))}
        outer = dict(self.names)
        self.names.update({key: self._with_axes(value, axes) for key, value in self.names.items()})
        self.block = _Block(name, spatial, reduce, dict(init or {}), {}, [])
        for i, buffer in enumerate(self.block.init):
            self.block.current[buffer] = Expr("acc", (), buffer.dtype, i)
        try:
            for node in body:
                self.in_block(node)
            self._finish(self.block)
        finally:
            self.block = None
            self.names = outer

    def _with_axes(self, value: object, axes: dict[LoopVariable, Expr]) -> object:
        if isinstance(value, tuple) and any(isinstance(v, LoopVariable) for v in value):
            return tuple(self._with_axes(v, axes) for v in value)
        return axes.get(value, value) if isinstance(value, LoopVariable) else value

    def in_block(self, node: ast.stmt) -> None:
        """Read a statement at one point of the domain."""
        assert self.block is not None
        if is_docstring(node) or isinstance(node, ast.Pass):
            return
        if isinstance(node, ast.With) and is_init(self, node):
            self._init(node)
        elif isinstance(node, ast.If):
            for statement in self._branch(node, "in a block"):
                self.in_block(statement)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._assign(node, node.targets[0])
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            value = self.value(ast.copy_location(ast.BinOp(_loaded(node.target), node.op, node.value), node))
            self._store(node.target, value, node.value)
        elif isinstance(node, ast.Expr) and callee_of(self, node.value) == "reads":
            call = node.value
            assert isinstance(call, ast.Call)
            self.block.reads += [self.scalar(argument) for argument in call.args]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and callee_of(self, node.value) is None:
            self.value(node.value)  # a helper
        else:
            raise NotRegular(f"there is {describe(node)} in a block")

    def _assign(self, node: ast.Assign, target: ast.expr) -> None:
        if isinstance(target, ast.Subscript):
            self._store(target, self.value(node.value), node.value)
            return
        if callee_of(self, node.value) in ("axes", "alloc"):
            raise NotRegular("a block has axes or buffers after its first statement")
        self._bind(target, self.value(node.value))

    def _init(self, node: ast.With) -> None:
        assert self.block is not None
        for statement in self._taken(node.body):
            if not isinstance(statement, ast.Assign) or not isinstance(target := statement.targets[0], ast.Subscript):
                raise NotRegular("the start of a reduction is more than a number")
            buffer = self._target(target)
            number = self.value(statement.value)
            if not is_number(number):
                if isinstance(number, Expr) and number.op == "const":
                    number = number.data
                else:
                    raise NotRegular("the start of a reduction is more than a number")
            self.lifted(number, buffer.dtype, statement.value)
            self.block.init[buffer] = number
            self.block.current[buffer] = Expr("acc", (), buffer.dtype, len(self.block.init) - 1)

    def _target(self, node: ast.Subscript) -> TensorBuffer:
        """Return the buffer that a store writes, at the point of the block's spatial axes."""
        assert self.block is not None
        buffer = self.value(node.value)
        if not isinstance(buffer, TensorBuffer):
            raise self.error(node, "only elements of buffers can be stored to")
        self._require_point(buffer, self.indices(buffer, node.slice, node))
        if buffer.shape != tuple(v.extent for v in self.block.spatial):
            raise NotRegular(f"a block writes a part of '{buffer.name}'")
        if buffer.tensor is not None:
            raise NotRegular(f"'{buffer.name}' is written twice")
        return buffer

    def _require_point(self, buffer: TensorBuffer, indices: Sequence[Expr]) -> None:
        assert self.block is not None
        if [i.data if i.op == "axis" else None for i in indices] != list(range(len(self.block.spatial))):
            raise NotRegular(f"'{buffer.name}' is written at other places than the block's own")

    def _store(self, target: ast.Subscript, value: object, node: Located) -> None:
        assert self.block is not None
        buffer = self._target(target)
        scalar = self.stored(buffer, value, node)
        if self.block.reduce and buffer not in self.block.init:
            raise NotRegular(f"the reduction to '{buffer.name}' has no T.init")
        self.block.current[buffer] = scalar

    def call_name(self, callee: ScriptName, node: ast.Call) -> object:
        if callee.name == "call_extern":
            raise NotRegular("it calls a C function")
        return super().call_name(callee, node)

    def own_statement(
        self, row: OwnIntrinsic, values: Sequence[object], nodes: Sequence[Located], node: ast.Call
    ) -> object:
        raise NotRegular(f"it calls the intrinsic '{row.name}', which is not a function of scalars")

    def read(self, buffer: ScriptBuffer, node: Located, indices: list[Expr], outside: float | None = None) -> Expr:
        if self.block is None:
            raise NotRegular("an element is read outside of the loop nests")
        if buffer in self.block.current:
            self._require_point(buffer, indices)
            result = self.block.current[buffer]
            assert result is not None
            return result
        return super().read(buffer, node, indices, outside)

    def _finish(self, block: _Block) -> None:
        """Make the block of the stored values."""
        shape = tuple(v.extent for v in block.spatial)
        extents = tuple(v.extent for v in block.reduce)
        buffers = list(block.init) if block.reduce else list(block.current)
        if not buffers or not block.reduce and block.init:
            raise NotRegular("a block stores nothing, or starts a reduction that it has no axis for")
        values = [value for buffer in buffers if (value := block.current[buffer]) is not None]
        try:
            results = self.builder.block(
                block.name, shape, extents, values, [block.init[b] for b in buffers] if extents else None, block.reads
            )
        except TypeError as error:
            raise NotRegular(str(error)) from None
        for buffer, tensor in zip(buffers, results, strict=True):
            buffer.tensor = tensor


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Return the names that a piece of syntax reads (`ast.Load`) or assigns (`ast.Store`)."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def _loaded(target: ast.Subscript) -> ast.Subscript:
    """Return the element that a store updates, as a value."""
    return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
