"""The loop builder: prim functions in buffer form, written as loops, loads and stores.

    f = LoopFunction("running_sum", [TensorType.of((8, 128), "f32")], [TensorType.of((8, 128), "f32")], loc)

    def body(loops, x, y):
        for i in loops.range(8):
            total = loops.variable(0.0, "f32")
            for j in loops.range(128):
                total.set(total.get() + x[i, j])
                y[i, j] = total.get()

    f.build(body)

For computations that are not structured blocks: sorting, scattering, running sums. Scalars are expressions of the
compute builder. A buffer is read where the read expression is, arithmetic is emitted at its use (`loops.let` emits it
at once). The Python loops run once: they open an `scf.for`, and close it at their end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mirlo.dialects.bindings import func, ir, memref, scf
from mirlo.dialects.core.dims import Dim, minimum, product
from mirlo.dialects.core.dtypes import DType, dtype, dtype_of_mlir
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.value import index
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.block import CallExtern
from mirlo.dialects.tir.buffers import (
    ALIGNMENT,
    INPLACE,
    PARALLEL,
    STACK_LIMIT,
    START,
    UNBOUNDED,
    WORKSPACE,
    aligned,
    buffer_bytes,
    buffer_type,
    tensor_bytes,
    workspace_attribute,
    workspace_type,
)
from mirlo.dialects.tir.compute.builder import PRIM_FUNC
from mirlo.dialects.tir.compute.expr import BOOL, INDEX, Expr, ExprLike, constant, lift
from mirlo.dialects.tir.compute.narrow import as_expr, emit, from_storage, to_storage
from mirlo.dialects.tir.own_intrinsics import OWN, emit_own
from mirlo.dialects.tir.sizes import bind_symbols, buffer_indices

Body = Callable[..., None]


class Buffer:
    """A buffer: `buffer[i, j]` reads an element, `buffer[i, j] = value` writes one."""

    def __init__(self, value: ir.Value, shape: Sequence[Dim], element: DType):
        self.value = value
        self.shape: tuple[Dim, ...] = tuple(shape)
        self.dtype = element

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __getitem__(self, indices: ExprLike | Sequence[ExprLike]) -> Expr:
        loaded = memref.LoadOp(self.value, self._indices(indices)).result
        return as_expr(from_storage(loaded, self.dtype), self.dtype)

    def __setitem__(self, indices: ExprLike | Sequence[ExprLike], value: ExprLike) -> None:
        scalar = lift(value, self.dtype)
        if scalar.dtype is not self.dtype:
            raise TypeError(f"a buffer of {self.dtype} cannot hold {scalar.dtype}: cast the value")
        memref.StoreOp(to_storage(emit(scalar), self.dtype), self.value, self._indices(indices))

    def _indices(self, indices: ExprLike | Sequence[ExprLike]) -> list[ir.Value]:
        listed = list(indices) if isinstance(indices, Sequence) else [indices]
        if len(listed) != self.rank:
            raise TypeError(f"a buffer of rank {self.rank} takes {self.rank} indices, got {len(listed)}")
        return buffer_indices(self.shape, [emit(lift(i, INDEX).cast(INDEX)) for i in listed])


class Variable:
    """A mutable scalar."""

    def __init__(self, buffer: Buffer):
        self._buffer = buffer

    def get(self) -> Expr:
        """Return the current value."""
        return self._buffer[()]

    def set(self, value: ExprLike) -> None:
        self._buffer[()] = value


class LoopBuilder:
    """The interface that the body of a `LoopFunction` builds with."""

    def __init__(self, function: LoopFunction | None):
        """Make the builder of a function, which owns scratch memory; None for a builder without any."""
        self._owner = function
        self._last_if: ir.Operation | None = None

    @property
    def _function(self) -> LoopFunction:
        if self._owner is None:
            raise TypeError("memory cannot be allocated here: list it where the statements begin (scratch=)")
        return self._owner

    def range(
        self, lower: ExprLike, upper: ExprLike | None = None, step: ExprLike = 1, parallel: bool = False
    ) -> Iterator[Expr]:
        """Emit a loop: `for i in loops.range(n)`, `range(low, high)`, `range(low, high, step)` with a positive step.

        `parallel` is as for `nest`.
        """
        low, high = (constant(0, INDEX), lower) if upper is None else (lower, upper)
        bounds = [emit(lift(bound, INDEX).cast(INDEX)) for bound in (low, high, step)]
        loop = scf.ForOp(*bounds, [])
        if parallel:
            loop.operation.attributes[PARALLEL] = ir.UnitAttr.get()
        with ir.InsertionPoint(loop.body):
            yield as_expr(loop.induction_variable, INDEX)
            scf.YieldOp([])

    def nest(self, extents: Sequence[Dim], parallel: bool = False) -> Iterator[list[Expr]]:
        """Emit nested loops, the last dim innermost: `for at in loops.nest(shape)`.

        With `parallel`, iterations may run at the same time, each with its own scratch memory and variables: no
        iteration reads what another one writes, and each writes scratch memory and variables before it reads them.
        """
        if not extents:
            yield []
            return
        # No iterations around a loop that has none: the extent may be 2^60.
        inner = [minimum(1, extent) for extent in dict.fromkeys(extents[1:]) if not isinstance(extent, int)]
        for i in self.range(product([extents[0], *inner]), parallel=parallel):
            for rest in self.nest(extents[1:], parallel):
                yield [i, *rest]

    @contextmanager
    def if_(self, condition: Expr) -> Iterator[None]:
        """Emit the body only where the condition holds."""
        branch = scf.IfOp(emit(condition), [], has_else=True)
        with ir.InsertionPoint(branch.else_block):
            otherwise = scf.YieldOp([])
        with ir.InsertionPoint(branch.then_block):
            yield
            scf.YieldOp([])
        self._last_if = otherwise.operation

    @contextmanager
    def else_(self) -> Iterator[None]:
        """Emit the body where the condition of the preceding `if_` does not hold."""
        if self._last_if is None:
            raise TypeError("else_ must follow an if_")
        with ir.InsertionPoint(self._last_if):
            self._last_if = None
            yield

    def while_(self, condition: Callable[[], Expr]) -> Iterator[None]:
        """Emit a loop that runs while the condition holds: `for _ in loops.while_(lambda: low.get() < high.get())`."""
        loop = scf.WhileOp([], [])
        before, after = loop.before.blocks.append(), loop.after.blocks.append()
        with ir.InsertionPoint(before):
            scf.ConditionOp(emit(condition()), [])
        with ir.InsertionPoint(after):
            yield
            scf.YieldOp([])

    def let(self, expr: Expr) -> Expr:
        """Compute the expression here, once, and return its value."""
        return as_expr(emit(expr), expr.dtype)

    def variable(self, start: ExprLike, element: str | DType) -> Variable:
        """Return a mutable scalar."""
        result = Variable(self._function.scratch((), dtype(element)))
        result.set(start)
        return result

    def scratch(self, shape: Sequence[Dim], element: str | DType) -> Buffer:
        """Return uninitialized memory that is private to this function."""
        return self._function.scratch(tuple(shape), dtype(element))

    def alloca(self, shape: Sequence[int], element: str | DType, scope: str = "local") -> Buffer:
        """Allocate memory per thread ("local"), on the stack, or per thread block ("shared")."""
        return self._function.alloca(tuple(shape), dtype(element), scope)

    def call_extern(
        self, function: str, *arguments: Buffer | ExprLike, returns: str | DType | None = None
    ) -> Expr | None:
        """Call a C function with scalars and buffers (as pointers to their first elements); it may return a scalar."""
        values = [a.value if isinstance(a, Buffer) else emit(_scalar(a)) for a in arguments]
        if returns is None:
            CallExtern.build(values, result_types=[], function=function)
            return None
        kind = dtype(returns)
        result = CallExtern.make(values, result_types=[ir.Type.parse(kind.storage)], function=function)
        return as_expr(from_storage(result, kind), kind)

    def call(self, name: str, *arguments: Buffer | ExprLike | ir.Value) -> Expr | ir.Value | None:
        """Call an intrinsic of a plug-in: with scalars, buffers, and handles that others returned."""
        row = OWN.get(name)
        if row is None:
            known = ", ".join(sorted(OWN)) or "none"
            raise ValueError(f"no plug-in declares the intrinsic '{name}'; there are: {known}")
        values = [
            a.value if isinstance(a, Buffer) else a if isinstance(a, ir.Value) else emit(_scalar(a)) for a in arguments
        ]
        results = emit_own(name, *values).results
        if not len(results):
            return None
        element = element_of_scalar(results[0].type)
        return results[0] if element is None else as_expr(from_storage(results[0], element), element)

    def copy(self, source: Buffer, target: Buffer) -> ir.Operation:
        """Copy all elements between buffers of the same shape and type; return the operation."""
        if target.value.type.shape != [UNBOUNDED]:
            return memref.CopyOp(source.value, target.value).operation
        loop = scf.ForOp(index(0), index(product(source.shape)), index(1), [])
        loop.operation.attributes[PARALLEL] = ir.UnitAttr.get()
        with ir.InsertionPoint(loop.body):
            position = [loop.induction_variable]
            memref.StoreOp(memref.LoadOp(source.value, position).result, target.value, position)
            scf.YieldOp([])
        return loop.operation

    def start_from(self, source: Buffer, target: Buffer, axis: int = 0) -> None:
        """Initialize the target, the only output, with an input that is not read after this.

        The target may have more rows along the axis: they are zero. A memory plan may let both alias if they have one
        shape: then the function works in place and copies nothing.
        """
        is_whole = source.shape == target.shape
        start = self.copy(source, target) if is_whole else self._copy_rows(source, target, axis)
        start.attributes[START] = ir.UnitAttr.get()
        self._function.overwritten.append(source)

    def _copy_rows(self, source: Buffer, target: Buffer, axis: int) -> ir.Operation:
        """Copy the rows of the source along an axis, and fill up with zeros; return the operation."""
        inner = target.shape[axis + 1 :]
        loop = scf.ForOp(index(0), index(product(target.shape[: axis + 1])), index(1), [])
        loop.operation.attributes[PARALLEL] = ir.UnitAttr.get()
        with ir.InsertionPoint(loop.body):
            left = as_expr(loop.induction_variable, INDEX)
            row: list[Expr] = []
            for extent in reversed(target.shape[: axis + 1]):
                row.insert(0, self.let(left % extent))
                left = self.let(left // extent)
            with self.if_(row[axis] < source.shape[axis]):
                for at in self.nest(inner):
                    target[[*row, *at]] = source[[*row, *at]]
            with self.else_():
                for at in self.nest(inner):
                    target[[*row, *at]] = 0
            scf.YieldOp([])
        return loop.operation


def stack_buffer(shape: Sequence[int], element: str | DType) -> Buffer:
    """Return memory on the stack, allocated at the insertion point."""
    kind = dtype(element)
    alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ALIGNMENT)
    memory = ir.MemRefType.get(list(shape), ir.Type.parse(kind.storage))
    if buffer_bytes(memory) > STACK_LIMIT:
        raise ValueError(f"scratch memory of {buffer_bytes(memory)} bytes: at most {STACK_LIMIT} are on the stack")
    return Buffer(memref.AllocaOp(memory, [], [], alignment=alignment).result, shape, kind)


def element_of_scalar(mlir_type: ir.Type) -> DType | None:
    """Return the element type of a scalar; None for a handle."""
    if isinstance(mlir_type, ir.IntegerType) and mlir_type.width == 1:
        return BOOL
    return dtype_of_mlir(mlir_type)


def _make_serial(function: ir.Operation) -> None:
    def visit(op: ir.Operation) -> ir.WalkResult:
        if PARALLEL in op.attributes:
            del op.attributes[PARALLEL]
        return ir.WalkResult.ADVANCE

    walk(function, visit)


def _scalar(value: ExprLike) -> Expr:
    """Return a Python number as a constant: a float as C's `double`, an integer as a machine word."""
    return lift(value, dtype("f64") if isinstance(value, float) else INDEX)


class LoopFunction:
    """A prim function in buffer form under construction: parameters are inputs, outputs, then scratch memory.

    The locations of parameters carry their names if they are given.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorType],
        outputs: Sequence[TensorType],
        loc: ir.Location,
        names: Sequence[str] = (),
    ):
        self.loc = loc
        self._stack_bytes = 0
        self._workspace_bytes: Dim = 0
        self._workspace: ir.Value | None = None
        types = [_memref(t.shape, t.dtype) for t in (*inputs, *outputs)]
        with loc:
            self.function = func.FuncOp(name, ir.FunctionType.get(types, []), visibility="private", ip=False)
            self.entry = self.function.add_entry_block([ir.Location.name(one, loc) for one in names] or None)
        arguments = zip(self.entry.arguments, (*inputs, *outputs), strict=True)
        self.buffers = [Buffer(value, t.shape, t.dtype) for value, t in arguments]
        self.overwritten: list[Buffer] = []
        """Inputs that may alias the output."""

    def scratch(self, shape: tuple[Dim, ...], element: DType) -> Buffer:
        """Return scratch memory: on the stack if small, otherwise in the workspace."""
        kind = _memref(shape, element)
        size = tensor_bytes(shape, kind.element_type)
        with ir.InsertionPoint.at_block_begin(self.entry), self.loc:
            if isinstance(size, int) and self._stack_bytes + size <= STACK_LIMIT:
                self._stack_bytes += size
                alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ALIGNMENT) if shape else None
                return Buffer(memref.AllocaOp(kind, [], [], alignment=alignment).result, shape, element)
            if self._workspace is None:
                self._workspace = self.entry.add_argument(_bytes(ir.ShapedType.get_dynamic_size()), self.loc)
            offset = index(self._workspace_bytes)
            self._workspace_bytes = self._workspace_bytes + aligned(size)
            return Buffer(memref.ViewOp(kind, self._workspace, offset, []).result, shape, element)

    def alloca(self, shape: tuple[int, ...], element: DType, scope: str) -> Buffer:
        """Allocate memory on the stack, or shared by a thread block."""
        space = ir.Attribute.parse("#gpu.address_space<workgroup>") if scope == "shared" else None
        kind = ir.MemRefType.get(shape, ir.Type.parse(element.storage), memory_space=space)
        self._stack_bytes += buffer_bytes(kind)
        with ir.InsertionPoint.at_block_begin(self.entry), self.loc:
            alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ALIGNMENT) if shape else None
            return Buffer(memref.AllocaOp(kind, [], [], alignment=alignment).result, shape, element)

    def build(self, body: Body) -> func.FuncOp:
        """Run `body(loops, *buffers)` and return the finished `func.func`, which is in no module yet."""
        with ir.InsertionPoint(self.entry), self.loc:
            body(LoopBuilder(self), *self.buffers)
            func.ReturnOp([])
        op = self.function.operation
        if self._workspace is not None:
            _make_serial(op)  # all iterations share one workspace
        if self._workspace is not None:
            self._workspace.set_type(workspace_type(self._workspace_bytes))
            op.attributes[WORKSPACE] = workspace_attribute(self._workspace_bytes)
        bind_symbols(self.function)
        types = [argument.type for argument in self.entry.arguments]
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
        op.attributes[PRIM_FUNC] = ir.UnitAttr.get()
        if self.overwritten:
            positions = [i for i, buffer in enumerate(self.buffers) if any(buffer is each for each in self.overwritten)]
            op.attributes[INPLACE] = ir.DenseI64ArrayAttr.get(positions)
        return self.function


def _memref(shape: Sequence[Dim], element: DType) -> ir.Type:
    result: ir.Type = buffer_type(shape, ir.Type.parse(element.storage))
    return result


def _bytes(size: int) -> ir.Type:
    return ir.MemRefType.get([size], ir.IntegerType.get_signless(8))
