"""The definition of a kernel: each block of a prim function in tensor form, translated as its loop nest.

No code of schedules takes part. One spatial axis is computed in lanes, of which the last ones may be computed twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import dims_of
from mirlo.dialects.tir.view import BlockView, OperandView, PrimView
from mirlo.passes.exact.arithmetic import Arithmetic
from mirlo.passes.exact.function_calls import FunctionCalls
from mirlo.passes.exact.ir_text import ModuleText
from mirlo.passes.exact.outside import OutsideError
from mirlo.passes.exact.translate_arith import affine
from mirlo.passes.exact.translator import Argument, KernelTranslator
from mirlo.passes.exact.values import BufferRef, IntValue, Number, bits_of, element_of, is_float
from mirlo.runtime.records import dataclass

LANES, LEAST_LANES = 16, 4


@dataclass(frozen=True)
class Stage:
    """Consecutive blocks of a definition, which are run at once."""

    blocks: Sequence[BlockView]
    inputs: Sequence[ir.Value]
    outputs: Sequence[ir.Value]
    """What is read afterwards."""


def stages_of(view: PrimView, is_alone: Callable[[BlockView], bool]) -> list[Stage]:
    """Return the blocks of a function as stages; those that are alone are stages of their own."""
    if view.others:
        raise OutsideError(f"the operation '{view.others[0].operation.name}' between blocks")
    if len({*view.arguments, *view.returned}) < len(view.arguments) + len(view.returned):
        raise OutsideError("a result that is an argument, or another result")
    if not any(is_alone(block) for block in view.blocks):
        return [Stage(view.blocks, view.arguments, view.returned)]
    groups: list[list[BlockView]] = []
    for i, block in enumerate(view.blocks):
        if i == 0 or is_alone(block) or is_alone(view.blocks[i - 1]):
            groups.append([])
        groups[-1].append(block)
    reads = [{operand.value: None for block in group for operand in block.inputs} for group in groups]
    writes = [{output.value: None for block in group for output in block.outputs} for group in groups]
    return [
        Stage(
            group,
            [value for value in reads[i] if value not in writes[i]],
            [value for value in writes[i] if value in view.returned or any(value in each for each in reads[i + 1 :])],
        )
        for i, group in enumerate(groups)
    ]


def translate_stage(
    stage: Stage, arithmetic: Arithmetic, module: ModuleText, name: str, with_exponents: Collection[ir.Value],
    calls: FunctionCalls | None = None,
) -> list[Argument]:  # fmt: skip
    """Append a function of this name to a module; return its arguments: inputs, outputs, intermediate buffers.

    Of values that are not `with_exponents`, only the first plane is written. For a function, a random one stands where
    `calls` says.
    """
    translation = _Definition(arithmetic, module, name, with_exponents)
    translation.t.calls = calls
    for value in stage.inputs:
        translation.take(value, "in")
    for value in stage.outputs:
        translation.take(value, "out")
    for block in stage.blocks:
        for output in block.outputs:
            if output.value not in translation.t.values:
                translation.take(output.value, "scratch")
    for block in stage.blocks:
        _Nest(translation, block).emit()
    translation.t.f.finish(has_dead_code=arithmetic.planes > 1)
    return translation.t.arguments


class _Definition:
    """The translator of a definition, with the values of its dims."""

    def __init__(self, arithmetic: Arithmetic, module: ModuleText, name: str, with_exponents: Collection[ir.Value]):
        self.t = KernelTranslator(arithmetic, module, name)
        self._with_exponents = with_exponents

    def take(self, value: ir.Value, role: str) -> None:
        """Make a tensor a buffer argument."""
        element, dims = element_of(value.type), dims_of(value.type)
        kind = "f" if is_float(element) else "i"
        argument = Argument(role, kind, 0 if kind == "f" else bits_of(element), dims)
        shape = [self.t.dim(dim) for dim in dims]
        buffer = self.t.buffer_argument(argument, shape)
        if value not in self._with_exponents:
            self.t.in_one_plane.add(buffer.roots)
        self.t.values[value] = BufferRef(
            buffer.kind, buffer.bits, buffer.roots, buffer.room, buffer.shape, self._strides(dims)
        )

    def _strides(self, dims: Sequence[Dim]) -> tuple[int | IntValue, ...]:
        strides: list[int | IntValue] = []
        total: Dim = 1
        for dim in reversed(dims):
            strides.append(self.t.dim(total))
            total = total * dim
        return tuple(reversed(strides))

    def index(self, dim: Dim) -> IntValue:
        size = self.t.dim(dim)
        return size if isinstance(size, IntValue) else self.t.index(size)


class _Nest:
    """The loops of one block, and one point of them, or a vector of points along `lane_axis`."""

    def __init__(self, definition: _Definition, block: BlockView):
        self.definition, self.t, self.block = definition, definition.t, block
        wide = [i for i in block.spatial if block.domain[i] != 1]
        self.lane_axis = wide[-1] if wide else None
        self.extent: Dim = 1 if self.lane_axis is None else block.domain[self.lane_axis]
        self.lanes: int | None = None
        self.at: dict[int, IntValue] = {}
        """The index of each axis: a vector along the axis of lanes."""
        self.first = self.t.index(0)
        """The index of the first lane."""

    def emit(self) -> None:
        if 0 in self.block.domain and 0 in [self.block.domain[i] for i in self.block.spatial]:
            return
        outer = [i for i in self.block.spatial if i != self.lane_axis]
        if self.block.is_reduction:  # columns of weights stay in the cache for all rows
            self._lanes(lambda: self._loops(outer, self._point))
        else:
            self._loops(outer, lambda: self._lanes(self._point))

    def _loops(self, axes: Sequence[int], body: Callable[[], None]) -> None:
        if not axes:
            body()
            return

        def inner(index: IntValue, carried: list[Number]) -> Sequence[Number]:
            self.at[axes[0]] = index
            self._loops(axes[1:], body)
            return []

        t = self.t
        t.loop(t.index(0), self.definition.index(self.block.domain[axes[0]]), t.index(1), [], inner)

    def _lanes(self, body: Callable[[], None]) -> None:
        if self.lane_axis is None:
            body()
        elif isinstance(self.extent, int):
            self._chunks(self._fitting(min(LANES, self.extent)), body)
        else:  # whole vectors where there is one, else one point after the other
            t, size = self.t, self.definition.index(self.extent)
            enough = t.compare("sge", size, t.index(LANES))
            t.branch(enough, lambda: self._chunks(LANES, body), lambda: self._chunks(1, body))

    def _fitting(self, lanes: int) -> int:
        """Return the number of lanes, reduced if need be, with which a vector is contiguous in each packed panel."""
        axis = self.lane_axis
        assert axis is not None
        maps = [operand.map for operand in (*self.block.inputs, *self.block.outputs) if not operand.is_opaque]
        widths = [width for map_ in maps for each in map_.results for width in _divisors(each, axis)]
        fitting = math.gcd(lanes, *widths)
        return fitting if fitting >= LEAST_LANES and self.extent % fitting == 0 else lanes

    def _chunks(self, lanes: int, body: Callable[[], None]) -> list[Number]:
        """Emit a loop over vectors of points; the last one begins earlier, so that it ends at the end."""
        t, axis = self.t, self.lane_axis
        assert axis is not None
        self.lanes = lanes
        size = self.definition.index(self.extent)
        last = t.arith("sub", size, t.index(lanes))

        def chunk(index: IntValue, carried: list[Number]) -> Sequence[Number]:
            self.first = IntValue(t.f.extreme("smin", index.name, last.name), 64)
            self.at[axis] = t.arith("add", t.splat_ints(self.first, lanes), t.steps(lanes))
            body()
            return []

        t.loop(t.index(0), size, t.index(lanes), [], chunk)
        return []

    def _point(self) -> None:
        t, block = self.t, self.block
        if not block.is_reduction:
            results = self._body([])
        else:
            pairs = zip(block.init, block.outputs, strict=True)
            elements = [
                (attribute, element_of(output.value.type)) for attribute, output in pairs if attribute is not None
            ]
            start = [t.splat(t.scalar_constant(a, element, None), self.lanes) for a, element in elements]
            results = self._reduced(list(block.reduce), start)
        for output, value in zip(block.outputs, results, strict=True):
            self._write(output, t.splat(value, self.lanes))

    def _reduced(self, axes: Sequence[int], carried: Sequence[Number]) -> list[Number]:
        if not axes:
            return [self.t.splat(v, self.lanes) for v in self._body(carried)]

        def body(index: IntValue, inner: list[Number]) -> Sequence[Number]:
            self.at[axes[0]] = index
            return self._reduced(axes[1:], inner)

        t = self.t
        size = self.definition.index(self.block.domain[axes[0]])
        return t.loop(t.index(0), size, t.index(1), carried, body)

    # ------------------------------------------------------------------------------------------------- one point

    def _body(self, carried: Sequence[Number]) -> list[Number]:
        t, block = self.t, self.block
        for axis, argument in enumerate(block.index_arguments):
            if axis in self.at:
                t.values[argument] = self.at[axis]
        for argument, operand in zip(block.input_arguments, block.inputs, strict=True):
            if operand.is_opaque:
                t.values[argument] = t.values[operand.value]
            elif any(True for _ in argument.uses):
                t.values[argument] = self._read(operand)
        for argument, v in zip(block.accumulators, carried, strict=True):
            t.values[argument] = v
        self._operations()
        return [t.number(v) for v in block.yielded]

    def _operations(self) -> None:
        """Emit the body, with a sum and a product of its own as one operation: equal in a field, and faster."""
        t, block = self.t, self.block
        ops = block.body_ops
        fused = {} if not t.arithmetic.fuses else dict(_multiply_adds(block, ops))
        products = {id(ops[k]) for k, _ in fused.values()}
        for i, op in enumerate(ops):
            if id(op) in products:
                continue
            if i not in fused:
                t.emit(op)
                continue
            k, addend = fused[i]
            a, b, c = t.splat_floats(*(t.floats(v) for v in (*ops[k].operands, op.operands[addend])))
            t.set(op, t.arithmetic.fma(t.f, a, b, c))

    def _indices(self, map_: Any, at: dict[int, IntValue]) -> list[IntValue]:
        dims = [at.get(axis, self.t.index(0)) for axis in range(map_.n_dims)]
        return [affine(self.t, expression, dims) for expression in map_.results]

    def _is_contiguous(self, map_: Any) -> bool:
        """Return whether a vector of points is at consecutive elements."""
        expressions = list(map_.results)
        if self.lane_axis is None or not expressions or any(self._step(each) != 0 for each in expressions[:-1]):
            return False
        return self._step(expressions[-1]) == 1

    def _step(self, expression: ir.AffineExpr) -> int | None:
        """Return the step of an index from lane to lane: 0, 1, or None for anything else.

        Where all vectors begin at multiples of their length, a quotient by a multiple of it is equal in all lanes.
        """
        axis = self.lane_axis
        assert axis is not None
        if not depends(expression, axis):
            return 0
        if isinstance(expression, ir.AffineDimExpr):
            return 1
        if isinstance(expression, ir.AffineAddExpr):
            steps = self._step(expression.lhs), self._step(expression.rhs)
            return None if None in steps else {1: 1, 0: 0}.get(sum(step for step in steps if step is not None))
        if isinstance(expression, ir.AffineMulExpr):
            return 0 if self._step(expression.lhs) == 0 and self._step(expression.rhs) == 0 else None
        (width,) = _divisors(expression, axis) or (0,)
        is_whole = isinstance(self.extent, int) and self.extent % (self.lanes or 1) == 0
        if not is_whole or not width or width % (self.lanes or 1):
            return None
        return 0 if isinstance(expression, ir.AffineFloorDivExpr) else 1

    def _scalar_lanes(self) -> dict[int, IntValue]:
        return self.at if self.lane_axis is None else {**self.at, self.lane_axis: self.first}

    def _read(self, operand: OperandView) -> Number:
        t, buffer = self.t, self.t.buffer(operand.value)
        if operand.outside is None:
            if self._is_contiguous(operand.map):
                return t.load(buffer, t.offset(buffer, self._indices(operand.map, self._scalar_lanes())), self.lanes)
            return t.load(buffer, t.offset(buffer, self._indices(operand.map, self.at)))
        inside: IntValue | None = None
        held = []
        is_row = self._is_row(operand)
        indices = self._indices(operand.map, self._scalar_lanes() if is_row else self.at)
        for dim, (i, size) in enumerate(zip(indices, buffer.shape, strict=True)):
            if is_row and dim == len(indices) - 1:
                held.append(i)
                continue
            ok = t.compare("ult", i, size if isinstance(size, IntValue) else t.index(size))
            clamped = t.select(ok, i, t.index(0))
            assert isinstance(clamped, IntValue)
            held.append(clamped)
            inside = ok if inside is None else t.arith("and", inside, ok)
        value = t.load(buffer, t.offset(buffer, held), self.lanes if is_row else None)
        beyond = t.scalar_constant(operand.outside, element_of(operand.value.type), None)
        return value if inside is None else t.select(inside, value, beyond)

    def _is_row(self, operand: OperandView) -> bool:
        """Return whether a vector of points is at consecutive elements of which all are beyond an edge, or none."""
        axis = self.lane_axis
        if axis is None or not self._is_contiguous(operand.map):
            return False
        last = list(operand.map.results)[-1]
        is_axis = isinstance(last, ir.AffineDimExpr) and last.position == axis
        return bool(is_axis and operand.shape[-1] == self.block.domain[axis])

    def _write(self, output: OperandView, value: Number) -> None:
        t, buffer = self.t, self.t.buffer(output.value)
        at = self._scalar_lanes() if self._is_contiguous(output.map) else self.at
        t.store(value, buffer, t.offset(buffer, self._indices(output.map, at)))


def _multiply_adds(block: BlockView, ops: Sequence[ir.Operation]) -> Any:
    """Yield the sums of an accumulator and a product that nothing else uses: (sum, (product, operand of the sum))."""
    accumulators = list(block.accumulators)
    for i, op in enumerate(ops):
        if op.name != "arith.addf":
            continue
        for mine, other in ((0, 1), (1, 0)):
            product = op.operands[mine].owner
            if isinstance(product, ir.Block) or product.name != "arith.mulf":
                continue
            if sum(1 for _ in op.operands[mine].uses) == 1 and op.operands[other] in accumulators:
                yield i, (next(k for k, each in enumerate(ops) if each == product.operation), other)
                break


def depends(expression: ir.AffineExpr, axis: int) -> bool:
    """Return whether an affine expression reads the index of an axis."""
    if isinstance(expression, ir.AffineDimExpr):
        return bool(expression.position == axis)
    if isinstance(expression, (ir.AffineConstantExpr, ir.AffineSymbolExpr)):
        return False
    return depends(expression.lhs, axis) or depends(expression.rhs, axis)


def _divisors(expression: ir.AffineExpr, axis: int) -> list[int]:
    """Return the numbers that divide the index of an axis: the sizes of panels."""
    if isinstance(expression, (ir.AffineDimExpr, ir.AffineConstantExpr, ir.AffineSymbolExpr)):
        return []
    if isinstance(expression, (ir.AffineFloorDivExpr, ir.AffineModExpr)):
        left, right = expression.lhs, expression.rhs
        is_axis = isinstance(left, ir.AffineDimExpr) and left.position == axis
        return [right.value] if is_axis and isinstance(right, ir.AffineConstantExpr) else []
    return [*_divisors(expression.lhs, axis), *_divisors(expression.rhs, axis)]
