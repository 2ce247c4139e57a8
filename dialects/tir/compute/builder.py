"""The compute builder: prim functions from Python lambdas over index variables.

    p = PrimBuilder(module, "softmax")
    x = p.input(TensorType.of((128, 64), "f32"))
    peak = p.reduce("max", (128,), (64,), lambda i, j: x[i, j])
    e = p.compute((128, 64), lambda i, j: exp(x[i, j] - peak[i]))
    p.finish(e)

Each `compute` or `reduce` becomes one `tir.block`. An access whose indices are affine in the axes becomes a mapped
operand of the block; any other access (a gather) passes the whole tensor to the body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from operator import ge
from typing import Any

import numpy as np

from mirlo.dialects.bindings import func, ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, is_certain
from mirlo.dialects.core.dtypes import DTYPES, DType, dtype
from mirlo.dialects.core.types import TensorType, ranked_tensor
from mirlo.dialects.tir.block import REDUCE, SPATIAL, Block, Yield
from mirlo.dialects.tir.compute.emit import BodyEmitter, create
from mirlo.dialects.tir.compute.expr import (
    BOOL,
    INDEX,
    Axis,
    Expr,
    ExprLike,
    all_of,
    clamp,
    constant,
    lift,
    maximum,
    minimum,
    select,
)
from mirlo.dialects.tir.compute.limits import ListedPosition, is_limited
from mirlo.dialects.tir.compute.narrow import from_storage, number_attribute, to_storage
from mirlo.dialects.tir.view import PRIM_FUNC
from mirlo.runtime.records import dataclass


def from_end(index: Expr, size: Dim) -> Expr:
    """Return the position of an index, which counts from the end if it is negative; it may still be outside."""
    position = index.cast(INDEX)
    return position if index.dtype.is_unsigned else select(position < 0, position + size, position)


def within(index: Expr, size: Dim) -> Expr:
    """Return the position in an axis of this size, which is not empty, that is nearest to an index."""
    return clamp(index.cast(INDEX), 0, lift(size, INDEX) - 1)


def at_most_last(index: Expr, size: Dim | Expr) -> Expr:
    """Return an index that is less than a size, or the last position: also for an index that is negative.

    It costs one instruction, and is 0 where the size is 0. Use it for an index that is inside by construction, such as
    one of a permutation.
    """
    least_one = maximum(size, 1) if isinstance(size, Expr) else constant(D.maximum(size, 1), INDEX)
    return minimum(index.cast("u64"), (least_one - 1).cast("u64")).cast(INDEX)


def wrapped(index: Expr, size: Dim) -> Expr:
    """Return the remainder of an index by a size; 0 if that is 0."""
    divisor = constant(max(size, 1), INDEX) if isinstance(size, int) else maximum(constant(size, INDEX), 1)
    return index.cast(INDEX) % divisor


def is_within(position: Sequence[Expr], shape: Sequence[Dim]) -> Expr:
    """Return whether a position is inside of the first axes of a shape, for what is written there only then."""
    pairs = zip(position, shape, strict=False)
    return all_of([test for index, size in pairs for test in (index >= 0, index < size)])


Combine = Callable[[list[Expr], list[Expr]], Sequence[Expr]]
"""Combines accumulators with new values."""


class UnlimitedIndex(ValueError):
    """Raised for an access by a value that comes from data, and that nothing limits."""


class TensorExpr:
    """A tensor inside a prim function: a parameter or the output of a block. Indexing it reads an element."""

    def __init__(self, value: ir.Value, tensor_type: TensorType):
        self.value = value
        self.type = tensor_type

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Return the shape: integers, and symbolic dims that support the same arithmetic."""
        return self.type.shape

    @property
    def rank(self) -> int:
        return self.type.rank

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Expr:
        return self.at(*(indices if isinstance(indices, tuple) else (indices,)))

    def at(self, *indices: ExprLike, outside: float | int | None = None) -> Expr:
        """Return the element at these indices; `outside` is the value beyond the edges (padding).

        An index that comes from data must be limited, by a function of `positions`, or in the same manner.
        """
        for position, index in enumerate(indices):
            if isinstance(index, Expr) and outside is None and not is_limited(index):
                raise UnlimitedIndex(
                    f"index {position} of an element of {self.type} comes from data, and nothing limits it: pass it "
                    "through compute.within(i, n), at_most_last or wrapped, or select another where is_within is false"
                )
        return self.element(indices, outside)

    def listed(self, *indices: ExprLike) -> Expr:
        """Return a position that this table holds, which the rule has computed and passes as a constant.

        Its use as an index is proven by `verify-bounds`, which reads the constant, or ends the compilation.
        """
        load = self.at(*indices)
        return ListedPosition(load.op, load.args, load.dtype, load.data)

    def element(self, indices: Sequence[ExprLike], outside: float | int | None = None) -> Expr:
        """Return the element at the indices of a script, whose line `verify-bounds` reports."""
        if len(indices) != self.rank:
            raise TypeError(f"a tensor of rank {self.rank} takes {self.rank} indices, got {len(indices)}")
        lifted = tuple(lift(i, INDEX).cast(INDEX) for i in indices)
        if outside is not None and any(affine(i) is None for i in lifted):
            return self._inside(lifted, outside)
        return Expr("load", lifted, self.dtype, (self, outside))

    def _inside(self, indices: Sequence[Expr], outside: float | int) -> Expr:
        """Return the element if the indices are inside, tested per point: no affine map expresses it."""
        inside = is_within(indices, self.shape)
        return select(inside, self.nearest(indices, inside), lift(outside, self.dtype))

    def nearest(self, indices: Sequence[Expr], inside: Expr) -> Expr:
        """Return the element at indices that may be outside: some other element if they are.

        `inside` is whether they are inside. If an axis may be empty, that element is the first one, so that no element
        after the memory of an empty tensor is read.
        """
        pairs = zip(indices, self.shape, strict=True)
        if all(is_certain(partial(ge, dim, 1)) for dim in self.shape):
            return self.element([within(index, dim) for index, dim in pairs])
        return self.element([select(inside, index, 0) for index in indices])


@dataclass(frozen=True)
class BlockAccess:
    """A mapped or opaque operand of a block."""

    tensor: TensorExpr
    map: ir.AffineMap | None
    outside: float | int | None


def storage_type(tensor_type: TensorType) -> ir.Type:
    """Return the tensor type of a prim function's parameter for this relax tensor."""
    return ranked_tensor(tensor_type.shape, ir.Type.parse(tensor_type.dtype.storage))


REDUCTIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda acc, x: acc + x,
    "mul": lambda acc, x: acc * x,
    "max": maximum,
    "min": minimum,
    "and": lambda acc, x: acc & x,
    "or": lambda acc, x: acc | x,
}


def identity_of(kind: str, element: DType) -> float | int | bool:
    """Return the identity element of a reduction of this kind."""
    if kind in ("add", "or"):
        return 0
    if kind == "mul":
        return 1
    if kind == "and":
        return True if element is BOOL else -1
    if element.is_float:
        return -_largest(element) if kind == "max" else _largest(element)
    low = 0 if element.is_unsigned else -(1 << (element.bits - 1))
    high = (1 << (element.bits - (0 if element.is_unsigned else 1))) - 1
    return low if kind == "max" else high


@cache
def _largest(element: DType) -> float:
    """Return infinity, or the largest number of a type without one."""
    import ml_dtypes

    kind = element.to_numpy()
    if np.isinf(np.array(np.inf).astype(kind)):
        return float("inf")
    limits: Any = ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]
    return float(limits.max)


class PrimBuilder:
    """Builder of one prim function in tensor form."""

    def __init__(self, name: str, inputs: Sequence[TensorType], loc: ir.Location):
        self.name = name
        self.loc = loc
        self.block_count = 0
        types = [storage_type(t) for t in inputs]
        with loc:
            self.function = func.FuncOp(name, ir.FunctionType.get(types, []), visibility="private", ip=False)
            self.body = self.function.add_entry_block()
        self.inputs = [TensorExpr(v, t) for v, t in zip(self.body.arguments, inputs, strict=True)]
        self.outputs: list[TensorExpr] = []

    def compute(
        self,
        shape: Sequence[Dim],
        element: Callable[..., ExprLike],
        *,
        dtype: str | DType | None = None,
        name: str = "compute",
    ) -> TensorExpr:
        """Return a tensor of this shape, each element computed from its indices."""
        axes = [Axis(i) for i in range(len(shape))]
        value = element(*axes)
        return self._block(name, tuple(shape), (), [self._typed(value, dtype)], None, None)[0]

    def reduce(
        self,
        kind: str,
        shape: Sequence[Dim],
        extents: Sequence[Dim],
        element: Callable[..., ExprLike],
        *,
        dtype: str | DType | None = None,
        init: float | int | None = None,
        name: str | None = None,
    ) -> TensorExpr:
        """Combine elements over the reduction axes by a kind: 'add', 'mul', 'max', 'min', 'and' or 'or'."""
        axes = [Axis(i) for i in range(len(shape) + len(extents))]
        value = self._typed(element(*axes), dtype)
        start = identity_of(kind, value.dtype) if init is None else init
        combine = REDUCTIONS[kind]
        return self._block(
            name or f"reduce_{kind}", tuple(shape), tuple(extents), [value], [start],
            lambda acc, new: [combine(acc[0], new[0])],
        )[0]  # fmt: skip

    def reduce_many(
        self,
        shape: Sequence[Dim],
        extents: Sequence[Dim],
        elements: Callable[..., Sequence[Expr]],
        init: Sequence[float | int],
        combine: Combine,
        *,
        name: str = "reduce",
    ) -> list[TensorExpr]:
        """Reduce several values together, such as a maximum and its position."""
        axes = [Axis(i) for i in range(len(shape) + len(extents))]
        values = list(elements(*axes))
        return self._block(name, tuple(shape), tuple(extents), values, list(init), combine)

    def block(
        self,
        name: str,
        shape: Sequence[Dim],
        extents: Sequence[Dim],
        values: Sequence[Expr],
        init: Sequence[float | int] | None = None,
        reads: Sequence[Expr] = (),
    ) -> list[TensorExpr]:
        """Emit a block whose values are expressions over its axes: `Axis(0)`, `Axis(1)`...

        Over reduction axes, `Expr("acc", (), dtype, i)` is the accumulator of value `i`. `reads` are loads that
        become the first operands, whether they are used or not.
        """
        combine = None if init is None else lambda acc, new: new
        return self._block(
            name, tuple(shape), tuple(extents), list(values), None if init is None else list(init), combine, reads
        )

    def finish(self, *outputs: TensorExpr, attributes: Mapping[str, ir.Attribute] | None = None) -> func.FuncOp:
        """Return these tensors from the function, and return the `func.func`, which is in no module yet."""
        self.outputs = list(outputs)
        values = [output.value for output in outputs]
        with ir.InsertionPoint(self.body), self.loc:
            func.ReturnOp(values)
        ins = [argument.type for argument in self.body.arguments]
        op = self.function.operation
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(ins, [v.type for v in values]))
        op.attributes[PRIM_FUNC] = ir.UnitAttr.get()
        for name, value in (attributes or {}).items():
            op.attributes[name] = value
        return self.function

    def _typed(self, value: ExprLike, wanted: str | DType | None) -> Expr:
        if isinstance(value, Expr):
            return value.cast(wanted) if wanted is not None else value
        if wanted is None:
            raise TypeError("a number needs a dtype: compute(..., dtype='f32')")
        return lift(value, dtype(wanted))

    def _block(
        self,
        name: str,
        shape: tuple[Dim, ...],
        extents: tuple[Dim, ...],
        values: list[Expr],
        init: list[float] | None,
        combine: Combine | None,
        reads: Sequence[Expr] = (),
    ) -> list[TensorExpr]:
        rank, domain = len(shape), shape + extents
        if not extents:
            init = combine = None  # no reduction
        accesses = _collect([*reads, *values], len(domain))
        out_types = [TensorType(shape, INDEX_AS if v.dtype is INDEX else v.dtype) for v in values]
        values = [v.cast(INDEX_AS) if v.dtype is INDEX else v for v in values]
        out_map = ir.AffineMap.get(len(domain), 0, [ir.AffineExpr.get_dim(i) for i in range(rank)])
        unit: ir.Attribute = ir.UnitAttr.get()
        maps = [ir.AffineMapAttr.get(a.map) if a.map is not None else unit for a in accesses]
        maps += [ir.AffineMapAttr.get(out_map)] * len(values)
        starts = [unit] * len(values)
        if init is not None:
            starts = [number_attribute(start, t.dtype) for start, t in zip(init, out_types, strict=True)]
        outside = [unit if a.outside is None else number_attribute(a.outside, a.tensor.dtype) for a in accesses]
        with ir.InsertionPoint(self.body), self.loc:
            block = Block.build(
                [a.tensor.value for a in accesses],
                result_types=[storage_type(t) for t in out_types],
                name=name,
                axes=[SPATIAL] * rank + [REDUCE] * len(extents),
                domain=domain,
                maps=ir.ArrayAttr.get(maps),
                init=ir.ArrayAttr.get(starts),
                outside=ir.ArrayAttr.get(outside) if any(a.outside is not None for a in accesses) else None,
            )
            self._emit_body(block, accesses, values, init is not None, combine, len(domain))
        return [TensorExpr(v, t) for v, t in zip(block.operation.results, out_types, strict=True)]

    def _emit_body(
        self,
        block: ir.OpView,
        accesses: list[BlockAccess],
        values: list[Expr],
        reduces: bool,
        combine: Combine | None,
        rank: int,
    ) -> None:
        body = self._append_body(block, accesses, values if reduces else [], rank)
        arguments: list[ir.Value] = list(body.arguments)
        slots = {(id(a.tensor), str(a.map), repr(a.outside)): arguments[rank + i] for i, a in enumerate(accesses)}
        accumulators = arguments[rank + len(accesses) :]

        def leaf(expr: Expr, emitter: BodyEmitter) -> ir.Value:
            if expr.op == "axis":
                return arguments[int(expr.data)]
            if expr.op == "acc":
                return from_storage(accumulators[expr.data], expr.dtype)
            return from_storage(loaded(expr, emitter), expr.dtype)

        def loaded(expr: Expr, emitter: BodyEmitter) -> ir.Value:
            tensor, outside = expr.data
            map_ = access_map(expr, rank)
            result = slots[(id(tensor), str(map_), repr(outside if map_ is not None else None))]
            if map_ is not None:
                return result
            indices = [emitter.emit(i) for i in expr.args]
            return create("tensor.extract", result.type.element_type, result, *indices)

        def stored(value: Expr, emitter: BodyEmitter) -> ir.Value:
            # An element that is only copied keeps its storage form.
            return loaded(value, emitter) if value.op == "load" else to_storage(emitter.emit(value), value.dtype)

        with ir.InsertionPoint(body), self.loc:
            emitter = BodyEmitter(leaf)
            if combine is not None:
                accumulated = [Expr("acc", (), v.dtype, i) for i, v in enumerate(values)]
                values = list(combine(accumulated, values))
            results = [stored(v, emitter) for v in values]
            ir.Operation.create("tir.yield", operands=results, attributes=_yield_segments(results))

    def _append_body(
        self, block: ir.OpView, accesses: list[BlockAccess], accumulators: list[Expr], rank: int
    ) -> ir.Block:
        """Append the block of a `tir.block`: its arguments are indices, elements or tensors, and accumulators."""
        types: list[ir.Type] = [ir.IndexType.get()] * rank
        types += [a.tensor.value.type if a.map is None else a.tensor.value.type.element_type for a in accesses]
        types += [ir.Type.parse(v.dtype.storage) for v in accumulators]
        result: ir.Block = block.operation.regions[0].blocks.append(*types, arg_locs=[self.loc] * len(types))
        return result


INDEX_AS = DTYPES["i64"]


def _yield_segments(values: list[ir.Value]) -> dict[str, ir.Attribute]:
    _, sizes = Yield._operand_layout.flatten([values], lambda v: v.type, "tir.yield")
    return {"operandSegmentSizes": ir.DenseI32ArrayAttr.get(sizes)} if sizes is not None else {}


def _collect(values: list[Expr], rank: int) -> list[BlockAccess]:
    """Return the distinct accesses of these expressions, in order."""
    accesses: dict[tuple[int, str, str], BlockAccess] = {}
    seen: set[int] = set()
    waiting = values[::-1]
    while waiting:
        expr = waiting.pop()
        if id(expr) in seen:
            continue
        seen.add(id(expr))
        if expr.op == "load":
            tensor, outside = expr.data
            map_ = access_map(expr, rank)
            key = (id(tensor), str(map_), repr(outside))
            accesses.setdefault(key, BlockAccess(tensor, map_, outside))
            if map_ is not None:
                continue
        waiting += expr.args[::-1]
    return list(accesses.values())


def access_map(load: Expr, rank: int) -> ir.AffineMap | None:
    """Return the affine map of a load's indices over the axes, or None if they are not affine."""
    results = _all_affine(load.args)
    return None if results is None else ir.AffineMap.get(rank, 0, results)


def _all_affine(exprs: Sequence[Expr]) -> list[ir.AffineExpr] | None:
    affine_exprs = [expr for each in exprs if (expr := affine(each)) is not None]
    return affine_exprs if len(affine_exprs) == len(exprs) else None


def affine(expr: Expr) -> ir.AffineExpr | None:
    """Return this index expression as an affine expression of the axes, or None."""
    if expr.op == "axis":
        return ir.AffineExpr.get_dim(expr.data)
    if expr.op == "const":
        return ir.AffineExpr.get_constant(expr.data)
    if expr.dtype is not INDEX or expr.op not in ("add", "sub", "mul", "floordiv", "mod", "neg"):
        return None
    parts = _all_affine(expr.args)
    if parts is None:
        return None
    if expr.op == "neg":
        return parts[0] * -1
    left, right = parts
    if expr.op == "add":
        return left + right
    if expr.op == "sub":
        return left + right * -1
    constants = [arg.op == "const" for arg in expr.args]
    if expr.op == "mul":
        return left * right if any(constants) else None
    if not constants[1] or expr.args[1].data <= 0:
        return None
    if expr.op == "floordiv":
        return ir.AffineExpr.get_floor_div(left, right)
    return ir.AffineExpr.get_mod(left, right)
