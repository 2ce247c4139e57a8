"""Products of small matrices of residues, as combinations of rows and products of two factors are.

Elements are read where they are in memory, once, by a function that is compiled once in a process: matrices of 64-bit
floats would be copies of eight times the work.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np

from mirlo.passes.exact.ir_text import FunctionText, ModuleText
from mirlo.passes.exact.memory import Array
from mirlo.passes.exact.native import helper_address
from mirlo.passes.exact.primes import RESIDUE, Plane
from mirlo.passes.exact.reused_memory import empty_array
from mirlo.passes.exact.sum_functions import half_of, halves, parts_of, residue_of_parts, store_halves
from mirlo.passes.exact.values import llvm_type

LANES = 16
MOST_DIMS = 3
"""The most dims in memory that the rows, or the columns, of a matrix have."""
_WORDS = {
    name: position
    for position, name in enumerate(
        ["height", "left_row"]
        + [f"{name}{i}" for name in ("width", "column", "depth", "row", "left_column") for i in range(MOST_DIMS)]
    )
}
"""Positions in the table of a function: sizes, and elements from one row or column of a factor to the next.

The width of a matrix and the depth of sums are in several dims, as are the columns and the rows of the right factor.
"""
_Function = Callable[..., None]


def multiply(left: Array, right: Array, plane: Plane) -> Array:
    """Return the products of the matrices of two arrays of residues, (b, i, k) and (b, k, j).

    Those of the right one may be in `MOST_DIMS` dims for k, and as many for j (`in_few_dims`).
    """
    if right.ndim == 3:
        right = in_few_dims(right, [(0,), (1,), (2,)])
    batch, height, _ = left.shape
    depths, widths = right.shape[1 : 1 + MOST_DIMS], right.shape[1 + MOST_DIMS :]
    result = empty_residues((batch, height, math.prod(widths)))
    order = sorted(range(MOST_DIMS), key=lambda dim: (depths[dim] > 1, -right.strides[1 + dim]))
    is_along_sums = widths[-1] > 1 and _step(right, -1) != 1 and _step(right, 1 + order[-1]) == 1
    if is_along_sums:
        right = right.transpose([0, *(1 + dim for dim in order), *range(1 + MOST_DIMS, right.ndim)])
        left = left.reshape(batch, height, *depths).transpose([0, 1, *(2 + dim for dim in order)])
        left, depths = np.ascontiguousarray(left).reshape(batch, height, -1), right.shape[1 : 1 + MOST_DIMS]
    elif widths[-1] > 1 and _step(right, -1) != 1:
        right = np.ascontiguousarray(right)
    steps = [_step(left, 2) * math.prod(depths[i + 1 :]) for i in range(MOST_DIMS)]
    columns, rows = ([_step(right, first + i) for i in range(MOST_DIMS)] for first in (1 + MOST_DIMS, 1))
    table = np.array([height, _step(left, 1), *widths, *columns, *depths, *rows, *steps], np.int64)
    function = _function(plane, is_along_sums)
    for to, x, y in zip(result, left, right, strict=True):
        function(to.ctypes.data, x.ctypes.data, y.ctypes.data, table.ctypes.data)
    return result


def in_few_dims(elements: Array, groups: Sequence[Sequence[int]]) -> Array:
    """Return an array whose dims are those of groups: one for the first group, `MOST_DIMS` for each other one.

    It is a view, unless the dims of a group are more in memory.
    """
    shape, strides = [], []
    for i, group in enumerate(groups):
        most = MOST_DIMS if i else 1
        merged = _merged([(elements.shape[dim], elements.strides[dim]) for dim in group])
        if len(merged) > most:
            counts = [math.prod(elements.shape[dim] for dim in each) for each in groups]
            order = [dim for each in groups for dim in each]
            copy = np.ascontiguousarray(elements.transpose(order)).reshape(counts)
            return in_few_dims(copy, [(dim,) for dim in range(len(counts))])
        padded = [(1, 0)] * (most - len(merged)) + merged
        shape += [extent for extent, _ in padded]
        strides += [stride for _, stride in padded]
    return np.lib.stride_tricks.as_strided(elements, shape, strides)


def _merged(dims: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return dims by extent and stride, of which those that are one in memory are one."""
    merged: list[tuple[int, int]] = []
    for extent, stride in dims:
        if merged and merged[-1][1] == extent * stride:
            merged[-1] = merged[-1][0] * extent, stride
        elif extent != 1:
            merged.append((extent, stride))
    return merged


def empty_residues(shape: Sequence[int]) -> Array:
    """Return memory for residues, in which others may have been before: new memory takes longer to get."""
    return empty_array(math.prod(shape), RESIDUE).reshape(shape)


def _step(matrices: Array, dim: int) -> int:
    return int(matrices.strides[dim]) // RESIDUE.itemsize


@cache
def _function(plane: Plane, is_along_sums: bool) -> _Function:
    """Return the function of a prime, with lanes along columns of the results, or along the products of a sum."""
    g = FunctionText(ModuleText(is_inline=True), f"exact.{'dots' if is_along_sums else 'rows'}_{plane.index}")
    g.takes_round = False
    products = _Products(g, plane)
    g.each(products.word("height"), products.emit_dots if is_along_sums else products.emit_rows)
    g.effect("ret void")
    g.finish_helper("void", to="ptr", left="ptr", right="ptr", table="ptr")
    function: _Function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(helper_address(g.module, g.name))
    return function


class _Products:
    """Emitter of the sums of products of a row of the left factor."""

    def __init__(self, g: FunctionText, plane: Plane):
        self.g, self.plane = g, plane

    def word(self, name: str) -> str:
        """Return a number of the table."""
        return self.g.at_entry(f"load i64, ptr {self.g.at_entry(f'getelementptr i64, ptr %table, i64 {_WORDS[name]}')}")

    def emit_rows(self, row: str) -> None:
        """Emit the loops over columns, which are in lanes."""
        g = self.g

        def some(right: str, to: str) -> None:
            for lanes, first, count in self._spans(self.word("width2")):

                def block(number: str, lanes: int | None = lanes, first: str = first) -> None:
                    column = g.op(f"add i64 {first}, {g.op(f'mul i64 {number}, {lanes or 1}')}")

                    def add(x: str, y: str, totals: list[str]) -> Sequence[str]:
                        here = g.op(f"getelementptr i32, ptr {y}, i64 {column}")
                        return self._added(totals, halves(g, x, True, lanes), halves(g, here, False, lanes), lanes)

                    left = self._moved("%left", (row, "left_row"))
                    totals = self._over_depths(MOST_DIMS, left, right, *self._zeros(lanes), add)
                    self._store(g.op(f"getelementptr i32, ptr {to}, i64 {column}"), totals, lanes)

                g.each(count, block)

        self._over_columns(row, MOST_DIMS - 1, some)

    def emit_dots(self, row: str) -> None:
        """Emit the loops over columns, for each of which the products of a sum are in lanes."""
        g = self.g

        def one(right: str, to: str) -> None:
            kinds, zeros = (x + y for x, y in zip(self._zeros(LANES), self._zeros(None), strict=True))

            def add(x: str, y: str, totals: list[str]) -> Sequence[str]:
                parts = [totals[:4], totals[4:]]
                for i, (lanes, first, count) in enumerate(self._spans(self.word("depth2"))):

                    def products(
                        number: str, carried: list[str], lanes: int | None = lanes, first: str = first
                    ) -> Sequence[str]:
                        k = g.op(f"add i64 {first}, {g.op(f'mul i64 {number}, {lanes or 1}')}")
                        left, right = (
                            halves(g, g.op(f"getelementptr i32, ptr {each}, i64 {k}"), False, lanes) for each in (x, y)
                        )
                        return self._added(carried, left, right, lanes)

                    parts[i] = g.loop(count, self._zeros(lanes)[0], parts[i], products)
                return [*parts[0], *parts[1]]

            left = self._moved("%left", (row, "left_row"))
            totals = self._over_depths(MOST_DIMS - 1, left, right, kinds, zeros, add)
            low, high = (self._total(totals[i : i + 2], totals[4 + i // 2]) for i in (0, 2))
            self._store(to, [low, high], None)

        self._over_columns(row, MOST_DIMS, one)

    def _over_columns(self, row: str, dims: int, body: Callable[[str, str], None]) -> None:
        """Emit loops over the first dims of columns; `body` gets the addresses of a column and of its result."""
        g, width = self.g, "1"
        for i in range(MOST_DIMS):
            width = g.op(f"mul i64 {width}, {self.word(f'width{i}')}")

        def inner(dim: int, right: str, position: str) -> None:
            if dim == dims:
                for rest in range(dims, MOST_DIMS):
                    position = g.op(f"mul i64 {position}, {self.word(f'width{rest}')}")
                at = g.op(f"add i64 {g.op(f'mul i64 {row}, {width}')}, {position}")
                body(right, g.op(f"getelementptr i32, ptr %to, i64 {at}"))
                return

            def one(index: str) -> None:
                scaled = g.op(f"mul i64 {position}, {self.word(f'width{dim}')}")
                moved = self._moved(right, (index, f"column{dim}"))
                inner(dim + 1, moved, g.op(f"add i64 {scaled}, {index}"))

            g.each(self.word(f"width{dim}"), one)

        inner(0, "%right", "0")

    def _over_depths(
        self, dims: int, left: str, right: str, kinds: list[str], start: list[str],
        body: Callable[[str, str, list[str]], Sequence[str]],
    ) -> list[str]:  # fmt: skip
        """Emit loops over the first dims of sums; `body` gets the addresses of factors, and returns new totals."""

        def inner(dim: int, x: str, y: str, totals: list[str]) -> list[str]:
            if dim == dims:
                return list(body(x, y, totals))

            def one(index: str, carried: list[str]) -> Sequence[str]:
                moved = self._moved(x, (index, f"left_column{dim}")), self._moved(y, (index, f"row{dim}"))
                return inner(dim + 1, *moved, carried)

            return self.g.loop(self.word(f"depth{dim}"), kinds, totals, one)

        return inner(0, left, right, start)

    def _moved(self, address: str, by: tuple[str, str]) -> str:
        index, step = by
        return self.g.op(f"getelementptr i32, ptr {address}, i64 {self.g.op(f'mul i64 {index}, {self.word(step)}')}")

    def _spans(self, size: str) -> Iterator[tuple[int | None, str, str]]:
        """Yield the lanes of loops over a size, the first index, and the number of iterations."""
        g = self.g
        whole = g.op(f"udiv i64 {size}, {LANES}")
        yield LANES, "0", whole
        first = g.op(f"mul i64 {whole}, {LANES}")
        yield None, first, g.op(f"sub i64 {size}, {first}")

    def _zeros(self, lanes: int | None) -> tuple[list[str], list[str]]:
        """Return the types of sums, and zeros: sums of the lower 32 bits of products come first, then those above."""
        count, half = 2 if lanes is None else 4, half_of(lanes)
        return [llvm_type("i64", half)] * count, [self.g.constant(0, 64, half)] * count

    def _added(self, totals: list[str], left: list[str], right: list[str], lanes: int | None) -> list[str]:
        g, half = self.g, half_of(lanes)
        kind, count = llvm_type("i64", half), len(left)
        lows, highs = [], []
        for x, y, low, high in zip(left, right, totals[:count], totals[count:], strict=True):
            total = g.op(f"add {kind} {g.op(f'mul {kind} {x}, {y}')}, {low}")
            rest, above = parts_of(g, total, half)
            lows.append(rest)
            highs.append(g.op(f"add {kind} {above}, {high}"))
        return [*lows, *highs]

    def _total(self, parts: Sequence[str], before: str) -> str:
        """Return the sum of all lanes of two parts, and a number."""
        g, half = self.g, half_of(LANES)
        kind = llvm_type("i64", half)
        both = g.op(f"add {kind} {parts[0]}, {parts[1]}")
        return g.op(f"add i64 {g.call('i64', f'llvm.vector.reduce.add.v{half}i64', (kind, both))}, {before}")

    def _store(self, to: str, totals: Sequence[str], lanes: int | None) -> None:
        g, count = self.g, len(totals) // 2
        pairs = zip(totals[:count], totals[count:], strict=True)
        store_halves(g, [residue_of_parts(g, *parts, half_of(lanes), self.plane) for parts in pairs], to, lanes)
