"""Schedules of products of int8 for Cortex-M: the whole reduction of a few outputs is one call of an inline function.

    mirlo_dot(x, row stride, rows, run, w, stride, count, sums): sums[j] += x[r, i] * w[j, r, i]
    mirlo_taps(x, row stride, column stride, rows, columns, w, stride, sums): sums[j] += x[r, c, j] * w[r, c, j]

The first is for products and convolutions, whose weights the pass `reductions-innermost` stores with the reduction
innermost, the second for depthwise convolutions. `prelude.h` defines both, with the instructions that a processor has.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from math import prod
from typing import Any

import mirlo
from mirlo import T
from mirlo.extend.rules import decline, schedule
from mirlo.extend.schedules import Schedule, ScheduleError, tensor_intrin

MOST_OUTPUTS = 4
"""Outputs per call, limited by registers for accumulators and weight pointers."""


@schedule(target="cortex-m")
def int8_products(kernel: Any, context: Any) -> Any:
    """Schedule a convolution or product of int8 with constant weights by calls for up to four outputs."""
    return _scheduled(kernel, _dot)


@schedule(target="cortex-m")
def int8_taps(kernel: Any, context: Any) -> Any:
    """Schedule a depthwise convolution of int8 by calls for four channels."""
    return _scheduled(kernel, _taps)


def _scheduled(kernel: Any, plan: Any) -> Any:
    blocks = kernel.view.blocks
    at = next((i for i, each in enumerate(blocks) if each.is_reduction), None)
    if at is None or len(blocks) > at + 2 or any(each.is_reduction for each in blocks[at + 1 :]):
        return decline("the kernel is not padding, one reduction and an epilogue", blocks=[b.name for b in blocks])
    block = blocks[at]
    kinds = [str(operand.value.type.element_type) for operand in (*block.inputs, *block.outputs)]
    if kinds != ["i8", "i8", "i32"] or any(operand.outside is not None for operand in block.inputs):
        return decline("the reduction does not add products of int8 to int32", types=kinds)
    s = Schedule(kernel.view)
    try:
        return plan(s, block, s.blocks()[at:], s.blocks()[:at])
    except ScheduleError as error:
        return decline("the primitives do not fit", error=str(error))


def _dot(s: Any, block: Any, names: list[str], pads: list[str]) -> Any:
    x, w = (_terms(operand) for operand in block.inputs)
    (out,) = (_terms(operand) for operand in block.outputs)
    reduced = list(block.reduce)
    lane = next((axis for axis in (out[-1] or {}) if out[-1] == {axis: 1}), None)
    extents = block.domain
    if lane is None or not all(isinstance(extent, int) for extent in extents):
        return decline("sizes are dynamic, or the result is not contiguous along an axis")
    if any(lane in (term or {}) for term in x) or sum(lane in (term or {}) for term in w) != 1:
        return decline("the data depend on the axis of the result: it is no product with weights")
    order = [next(iter(term)) for term in w if term and len(term) == 1 and next(iter(term)) in reduced]
    if order != [axis for axis in order if axis in reduced] or w[0] != {lane: 1}:
        return decline("the weights are not constant: their reduction is not innermost", map=str(block.inputs[1].map))
    inner = [axis for axis in order if extents[axis] > 1]
    if set(axis for axis in reduced if extents[axis] > 1) != set(inner):
        return decline("an axis of the reduction does not index the weights", axes=inner)
    rows, run = _rows(inner, x, extents, block.inputs[0].shape)
    if run is None:
        return decline("the data that are reduced are not contiguous", map=str(block.inputs[0].map))
    count = next(n for n in (MOST_OUTPUTS, 2, 1) if extents[lane] % n == 0)
    loops = s.loops(names[0])
    outer, inside = s.split(loops[lane], (None, count))
    spatial = [loops[axis] for axis in block.spatial if axis != lane]
    s.reorder(
        *spatial, outer, *(loops[axis] for axis in reduced if axis not in inner), inside, *(loops[a] for a in inner)
    )
    _store_at(s, names, outer)
    _pad_rows(s, pads, spatial)
    s.decompose_reduction(
        names[0], inside if all(a in inner for a in reduced) else loops[next(a for a in reduced if a not in inner)]
    )
    s.tensorize(inside, dot_intrinsic(count, tuple(extents[a] for a in rows), tuple(extents[a] for a in run)))
    return s.emit({"rule": "int8_products", "outputs": count})


def _rows(inner: list[int], x: list[Any], extents: Any, shape: Any) -> tuple[list[int], list[int] | None]:
    """Return the axes of rows, and those of the contiguous elements in a row, if any."""
    strides, at = {}, 1
    for term, size in zip(reversed(x), reversed(shape), strict=True):
        for axis, factor in (term or {}).items():
            strides[axis] = factor * at
        at *= size
    run, length = [], 1
    for axis in reversed(inner):
        if strides.get(axis) != length:
            break
        run.insert(0, axis)
        length *= extents[axis]
    rows = inner[: len(inner) - len(run)]
    if len(inner) == 3 and not rows:  # rows that are contiguous, too
        rows, run = inner[:1], inner[1:]
    return rows, run if run and len(rows) <= 1 and len(inner) <= 3 else None


def _taps(s: Any, block: Any, names: list[str], pads: list[str]) -> Any:
    x, w = (_terms(operand) for operand in block.inputs)
    (out,) = (_terms(operand) for operand in block.outputs)
    extents, reduced = block.domain, list(block.reduce)
    if len(reduced) != 2 or not all(isinstance(extent, int) for extent in extents):
        return decline("it does not reduce along two axes of known sizes", axes=reduced)
    lane = next((axis for axis in (out[-1] or {}) if out[-1] == {axis: 1}), None)
    rows, columns = reduced
    if lane is None or x[-1] != {lane: 1} or w[-1] != {lane: 1} or extents[lane] % 4:
        return decline("it has no channels in fours that are contiguous in data, weights and result")
    if [term for term in w if term] != [{rows: 1}, {columns: 1}, {lane: 1}]:
        return decline("the weights are not those of a depthwise convolution", map=str(block.inputs[1].map))
    loops = s.loops(names[0])
    outer, inside = s.split(loops[lane], (None, 4))
    spatial = [loops[axis] for axis in block.spatial if axis != lane]
    s.reorder(*spatial, outer, inside, loops[rows], loops[columns])
    _store_at(s, names, outer)
    _pad_rows(s, pads, spatial)
    s.decompose_reduction(names[0], inside)
    s.tensorize(inside, taps_intrinsic(extents[rows], extents[columns]))
    return s.emit({"rule": "int8_taps"})


def _pad_rows(s: Any, pads: list[str], spatial: list[str]) -> None:
    """Stage the padded rows that a row of the result reads, so that each is copied once per row."""
    for pad in reversed(pads):
        s.compute_at(pad, spatial[-2] if len(spatial) > 1 else spatial[-1])
        with suppress(ScheduleError):  # it has no test that is the same for a whole run of channels
            s.unswitch(s.loops(pad)[-1])


def _store_at(s: Any, names: list[str], loop: str) -> None:
    s.reverse_compute_at(names[1] if len(names) == 2 else s.cache_write(names[0], "local"), loop)


def _terms(operand: Any) -> list[dict[int, int] | None]:
    """Return the factor of each axis in each index of an operand; None for an index that is not affine."""
    result = []
    for expression in operand.map.results:
        terms: dict[int, int] = {}
        result.append(terms if _add_terms(expression, 1, terms) else None)
    return result


def _add_terms(expression: Any, factor: int, terms: dict[int, int]) -> bool:
    kind = type(expression).__name__
    if kind == "AffineDimExpr":
        terms[expression.position] = terms.get(expression.position, 0) + factor
        return True
    if kind == "AffineConstantExpr":
        return bool(expression.value == 0)
    if kind == "AffineAddExpr":
        return _add_terms(expression.lhs, factor, terms) and _add_terms(expression.rhs, factor, terms)
    if kind == "AffineMulExpr" and type(expression.rhs).__name__ == "AffineConstantExpr":
        return _add_terms(expression.lhs, factor * expression.rhs.value, terms)
    return False


@cache
def dot_intrinsic(count: int, rows: tuple[int, ...], run: tuple[int, ...]) -> str:
    """Register and return the intrinsic for a number of outputs and the extents of a reduction."""
    extents = (*rows, *run)
    name = f"cortex-m.dot_{count}_{'x'.join(map(str, rows))}_{'x'.join(map(str, run))}"
    means, does = _DOTS[len(extents)](count, rows[0] if rows else 0, prod(run), *extents)
    tensor_intrin(name, means, does)
    return name


def _dot_1(n: int, rows: int, length: int, k: int) -> tuple[Any, Any]:
    @mirlo.prim_func
    def means(x: T.Buffer[(k,), T.i8], w: T.Buffer[(n, k), T.i8], sums: T.Out[(n,), T.i32]):
        for j, a in T.grid(n, k):
            with T.block("dot"):
                vj, va = T.axes("SR", j, a)
                with T.init():
                    sums[vj] = 0
                sums[vj] += x[va].cast("i32") * w[vj, va].cast("i32")

    @mirlo.prim_func(buffers=True)
    def does(x: T.Buffer[(k,), T.i8], w: T.Buffer[(n, k), T.i8], sums: T.Out[(n,), T.i32]):
        T.call_extern("mirlo_dot", x, T.stride(w, 0), T.i32(1), T.i32(length), w, T.stride(w, 0), T.i32(n), sums)

    return means, does


def _dot_2(n: int, rows: int, length: int, k: int, m: int) -> tuple[Any, Any]:
    @mirlo.prim_func
    def means(x: T.Buffer[(k, m), T.i8], w: T.Buffer[(n, k, m), T.i8], sums: T.Out[(n,), T.i32]):
        for j, a, b in T.grid(n, k, m):
            with T.block("dot"):
                vj, va, vb = T.axes("SRR", j, a, b)
                with T.init():
                    sums[vj] = 0
                sums[vj] += x[va, vb].cast("i32") * w[vj, va, vb].cast("i32")

    if rows:

        @mirlo.prim_func(buffers=True)
        def in_rows(x: T.Buffer[(k, m), T.i8], w: T.Buffer[(n, k, m), T.i8], sums: T.Out[(n,), T.i32]):
            T.call_extern("mirlo_dot", x, T.stride(x, 0), T.i32(k), T.i32(length), w, T.stride(w, 0), T.i32(n), sums)

        return means, in_rows

    @mirlo.prim_func(buffers=True)
    def does(x: T.Buffer[(k, m), T.i8], w: T.Buffer[(n, k, m), T.i8], sums: T.Out[(n,), T.i32]):
        T.call_extern("mirlo_dot", x, T.stride(w, 0), T.i32(1), T.i32(length), w, T.stride(w, 0), T.i32(n), sums)

    return means, does


def _dot_3(n: int, rows: int, length: int, k: int, m: int, c: int) -> tuple[Any, Any]:
    @mirlo.prim_func
    def means(x: T.Buffer[(k, m, c), T.i8], w: T.Buffer[(n, k, m, c), T.i8], sums: T.Out[(n,), T.i32]):
        for j, a, b, i in T.grid(n, k, m, c):
            with T.block("dot"):
                vj, va, vb, vi = T.axes("SRRR", j, a, b, i)
                with T.init():
                    sums[vj] = 0
                sums[vj] += x[va, vb, vi].cast("i32") * w[vj, va, vb, vi].cast("i32")

    @mirlo.prim_func(buffers=True)
    def does(x: T.Buffer[(k, m, c), T.i8], w: T.Buffer[(n, k, m, c), T.i8], sums: T.Out[(n,), T.i32]):
        T.call_extern("mirlo_dot", x, T.stride(x, 0), T.i32(k), T.i32(length), w, T.stride(w, 0), T.i32(n), sums)

    return means, does


_DOTS = {1: _dot_1, 2: _dot_2, 3: _dot_3}
"""Generators of an intrinsic's functions, by number of reduction axes."""


@cache
def taps_intrinsic(rows: int, columns: int) -> str:
    """Register and return the intrinsic for the kernel of a depthwise convolution."""
    name = f"cortex-m.taps_{rows}x{columns}"

    @mirlo.prim_func
    def means(x: T.Buffer[(rows, columns, 4), T.i8], w: T.Buffer[(rows, columns, 4), T.i8], sums: T.Out[(4,), T.i32]):
        for j, a, b in T.grid(4, rows, columns):
            with T.block("taps"):
                vj, va, vb = T.axes("SRR", j, a, b)
                with T.init():
                    sums[vj] = 0
                sums[vj] += x[va, vb, vj].cast("i32") * w[va, vb, vj].cast("i32")

    @mirlo.prim_func(buffers=True)
    def does(x: T.Buffer[(rows, columns, 4), T.i8], w: T.Buffer[(rows, columns, 4), T.i8], sums: T.Out[(4,), T.i32]):
        T.call_extern(
            "mirlo_taps", x, T.stride(x, 0), T.stride(x, 1), T.i32(rows), T.i32(columns), w, T.stride(w, 1), sums
        )

    tensor_intrin(name, means, does)
    return name
