"""Building blocks of schedules: loops, buffers, loads, and bodies of blocks emitted as scalars or vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import le, lt
from typing import Protocol

from mirlo.dialects.bindings import ir, scf
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.surgery import enclosing
from mirlo.dialects.core.value import Value, compare, index
from mirlo.dialects.tir.buffers import PARALLEL as PARALLEL
from mirlo.dialects.tir.compute.emit import create
from mirlo.dialects.tir.sizes import buffer_indices
from mirlo.runtime.records import dataclass

LOOP_ANNOTATION = "llvm.loop_annotation"
"""Attribute of an `scf.for`, which upstream passes move to the branch at its end."""
ROLLED = "tir.rolled"
"""Attribute of a function with loops that have an annotation."""


def for_loop(
    lower: Dim | ir.Value,
    upper: ir.Value | Dim,
    step: int | ir.Value,
    body: Callable[..., Sequence[ir.Value] | None],
    carried: Sequence[ir.Value] = (),
    parallel: bool = False,
    rolled: bool = False,
) -> list[ir.Value]:
    """Emit an `scf.for`; `body(i, *carried)` returns the next carried values, if any are. Return the final ones.

    LLVM does not unroll a loop that is to stay `rolled`.
    """
    low = index(lower) if isinstance(lower, (int, SymbolicDim)) else lower
    high = index(upper) if isinstance(upper, (int, SymbolicDim)) else upper
    loop = scf.ForOp(low, high, index(step) if isinstance(step, int) else step, list(carried))
    if parallel:
        loop.operation.attributes[PARALLEL] = ir.UnitAttr.get()
    if rolled:
        keep_rolled(loop.operation)
    with ir.InsertionPoint(loop.body):
        following = body(Value(loop.induction_variable), *map(Value, loop.inner_iter_args))
        scf.YieldOp(list(following or ()) if carried else [])
    return list(loop.results)


def if_any(
    lower: Dim | ir.Value,
    upper: ir.Value | Dim,
    body: Callable[..., Sequence[ir.Value] | None],
    carried: Sequence[ir.Value] = (),
) -> list[ir.Value]:
    """Emit the one iteration that a loop has at most as an `scf.if`, which LLVM compiles faster than a loop."""
    low = index(lower) if isinstance(lower, (int, SymbolicDim)) else lower
    high = index(upper) if isinstance(upper, (int, SymbolicDim)) else upper
    any_left = compare("lt", low, high)
    if carried:
        return either(any_left, lambda: body(low, *carried), lambda: carried, [value.type for value in carried])
    when(any_left, lambda: body(low))
    return []


def loop_over_tiles(
    start: Dim,
    stop: Dim,
    size: int,
    body: Callable[..., Sequence[ir.Value] | None],
    carried: Sequence[ir.Value] = (),
    parallel: bool = False,
) -> list[ir.Value]:
    """Loop over tiles of a size: `body(i, *carried)` with the loop's index, or an integer for a single tile."""
    if D.is_certain(lambda: 0 < stop - start <= size):
        return list(body(start if isinstance(start, int) else index(start), *carried) or ())
    if not parallel and D.is_certain(lambda: stop - start <= size):
        return if_any(start, stop, body, carried)
    return for_loop(start, stop, size, body, carried, parallel=parallel, rolled=not parallel)


def loop_with_tail(
    parts: Sequence[range], body: Callable[[int | ir.Value, int], None], parallel: bool, apart: bool = False
) -> None:
    """Loop over the tiles of some ranges, of which the second may be a smaller last tile: `body(i, which range)`.

    Threads divide them as one loop, so that no thread has the smaller tiles for itself, unless they are kept `apart`.
    """
    if not parallel or apart or len(parts) != 2 or len(parts[1]) != 1:
        for part, each in enumerate(parts):
            loop_over_tiles(each.start, each.stop, each.step, partial(_call_with, body, part), parallel=parallel)
        return
    main, rest = parts

    def tile(i: ir.Value) -> None:
        either(compare("lt", i, index(main.stop)), lambda: body(i, 0), lambda: body(rest.start, 1))

    loop_over_tiles(main.start, rest.start + main.step, main.step, tile, parallel=True)


def _call_with(body: Callable[[int | ir.Value, int], None], part: int, i: int | ir.Value) -> None:
    body(i, part)


def when(condition: ir.Value | None, body: Callable[[], object]) -> None:
    """Emit `body` under a condition; None is always true."""
    if condition is None:
        body()
        return
    branch = scf.IfOp(condition)
    with ir.InsertionPoint(branch.then_block):
        body()
        scf.YieldOp([])


def either(
    condition: ir.Value, then: Callable[[], object], otherwise: Callable[[], object], types: Sequence[ir.Type] = ()
) -> list[ir.Value]:
    """Emit one body if a condition holds, the other one if not; with `types` both return values of these types."""
    branch = scf.IfOp(condition, list(types), has_else=True)
    for block, body in ((branch.then_block, then), (branch.else_block, otherwise)):
        with ir.InsertionPoint(block):
            values = body()
            scf.YieldOp(list(values) if types and isinstance(values, Sequence) else [])
    return list(branch.results)


def read_inside(condition: ir.Value, read: Callable[[], ir.Value], outside: ir.Attribute | None) -> ir.Value:
    """Emit the element that `read` loads if it is in bounds, else the value beyond the edges."""
    assert outside is not None
    return either(condition, lambda: [read()], lambda: [attribute_constant(outside)], [outside.type])[0]


def keep_rolled(loop: ir.Operation) -> None:
    """Disable LLVM's unrolling of a loop: its body keeps the processor busy, and copies take time to compile."""
    loop.attributes[LOOP_ANNOTATION] = ir.Attribute.parse("#llvm.loop_annotation<unroll = <disable = true>>")
    enclosing(loop, "func.func").attributes[ROLLED] = ir.UnitAttr.get()


def nest(extents: Sequence[Dim], body: Callable[[list[ir.Value]], None]) -> None:
    """Emit loops over all extents, outermost first, without those of extent 1."""

    def level(done: list[ir.Value]) -> None:
        if len(done) == len(extents):
            body(done)
            return
        extent = extents[len(done)]
        if extent == 1:
            level([*done, index(0)])
            return
        for_loop(0, extent, 1, lambda i: level([*done, i]))

    level([])


def every(
    extents: Sequence[Dim],
    body: Callable[..., Sequence[ir.Value] | None],
    carried: Sequence[ir.Value] = (),
    parallel: bool = False,
    done: Sequence[ir.Value] = (),
) -> list[ir.Value]:
    """Emit loops over all extents, outermost first, of extent 1 too; return the final carried values.

    `body(indices, *carried)` returns the next ones, if any are; its indices begin with `done`.
    """
    if not extents:
        return list(body(list(done), *carried) or ())

    def level(i: ir.Value, *held: ir.Value) -> list[ir.Value]:
        return every(extents[1:], body, held, parallel, [*done, i])

    return for_loop(0, extents[0], 1, level, carried, parallel)


def load(buffer: ir.Value, shape: Sequence[Dim], indices: Sequence[ir.Value]) -> ir.Value:
    """Load an element of a tensor of this shape from its buffer."""
    return create("memref.load", buffer.type.element_type, buffer, *buffer_indices(shape, indices))


def store(value: ir.Value, buffer: ir.Value, shape: Sequence[Dim], indices: Sequence[ir.Value]) -> None:
    ir.Operation.create("memref.store", operands=[value, buffer, *buffer_indices(shape, indices)])


def attribute_constant(attribute: ir.Attribute | None) -> ir.Value:
    """Emit the scalar constant of an attribute such as `0.0 : f32`; None, for a value without one, is an error."""
    assert attribute is not None
    return create("arith.constant", attribute.type, value=attribute)


def all_inside(indices: Sequence[ir.Value], shape: Sequence[Dim], ranges: Sequence[tuple[Dim, Dim]]) -> ir.Value | None:
    """Emit an i1: all indices are in bounds; None if their ranges prove it."""
    i1 = ir.IntegerType.get_signless(1)
    condition = None
    for value, size, (low, high) in zip(indices, shape, ranges, strict=True):
        tests = []
        if not D.is_certain(partial(le, 0, low)):
            tests.append(compare("ge", value, index(0)))
        if not D.is_certain(partial(lt, high, size)):
            tests.append(compare("lt", value, index(size)))
        for test in tests:
            condition = test if condition is None else create("arith.andi", i1, condition, test)
    return condition


class ScalarBody(Protocol):
    """A body: its operations in order, and the values that it yields."""

    @property
    def body_ops(self) -> Sequence[ir.Operation]: ...

    @property
    def yielded(self) -> list[ir.Value]: ...


@dataclass(frozen=True)
class KnownBody:
    """The operations of a body that remain where the values of others are known."""

    body_ops: Sequence[ir.Operation]
    yielded: list[ir.Value]
    selected: Mapping[ir.Value, ir.Value]
    """Results of operations that are one of their operands, and that operand."""
