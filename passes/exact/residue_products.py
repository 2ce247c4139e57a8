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
_STRIDES = ("left_row", "left_column", "right_row", "right_column")
"""Parameters of functions: elements from one row or column of a factor to the next."""
_Function = Callable[..., None]


def multiply(left: Array, right: Array, plane: Plane) -> Array:
    """Return the products of the matrices of two arrays of residues, (b, i, k) and (b, k, j)."""
    batch, height, depth = left.shape
    width = right.shape[2]
    result = empty_residues((batch, height, width))
    is_along_sums = width > 1 and _step(right, 2) != 1 and _step(right, 1) == 1
    if is_along_sums and _step(left, 2) != 1:
        left = np.ascontiguousarray(left)
    elif not is_along_sums and width > 1 and _step(right, 2) != 1:
        right = np.ascontiguousarray(right)
    function = _function(plane, is_along_sums)
    strides = [_step(each, dim) for each in (left, right) for dim in (1, 2)]
    for to, x, y in zip(result, left, right, strict=True):
        function(to.ctypes.data, x.ctypes.data, y.ctypes.data, height, width, depth, *strides)
    return result


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
    g.each("%height", products.emit_dots if is_along_sums else products.emit_row)
    g.effect("ret void")
    sizes = dict.fromkeys(("height", "width", "depth", *_STRIDES), "i64")
    g.finish_helper("void", to="ptr", left="ptr", right="ptr", **sizes)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * len(sizes))
    function: _Function = kind(helper_address(g.module, g.name))
    return function


class _Products:
    """Emitter of the sums of products of a row of the left factor."""

    def __init__(self, g: FunctionText, plane: Plane):
        self.g, self.plane = g, plane

    def emit_row(self, row: str) -> None:
        """Emit the loop over columns, which are in lanes."""
        g = self.g
        for lanes, first, count in self._spans("%width"):

            def some(number: str, lanes: int | None = lanes, first: str = first) -> None:
                column = g.op(f"add i64 {first}, {g.op(f'mul i64 {number}, {lanes or 1}')}")

                def add(k: str, totals: list[str]) -> Sequence[str]:
                    left, right = self._left(row, k), self._right(k, column)
                    return self._added(totals, halves(g, left, True, lanes), halves(g, right, False, lanes), lanes)

                lows, highs = self._sums("%depth", lanes, add)
                self._store(row, column, lows, highs, lanes)

            g.each(count, some)

    def emit_dots(self, row: str) -> None:
        """Emit the loop over columns, for each of which the products of a sum are in lanes."""
        g = self.g

        def one(column: str) -> None:
            low = high = "0"
            for lanes, first, count in self._spans("%depth"):

                def add(number: str, totals: list[str], lanes: int | None = lanes, first: str = first) -> Sequence[str]:
                    k = g.op(f"add i64 {first}, {g.op(f'mul i64 {number}, {lanes or 1}')}")
                    left, right = self._left(row, k), self._right(k, column)
                    return self._added(totals, halves(g, left, False, lanes), halves(g, right, False, lanes), lanes)

                lows, highs = self._sums(count, lanes, add)
                low, high = (self._total(each, before, lanes) for each, before in ((lows, low), (highs, high)))
            self._store(row, column, [low], [high], None)

        g.each("%width", one)

    def _spans(self, size: str) -> Iterator[tuple[int | None, str, str]]:
        """Yield the lanes of loops over a size, the first index, and the number of iterations."""
        g = self.g
        whole = g.op(f"udiv i64 {size}, {LANES}")
        yield LANES, "0", whole
        first = g.op(f"mul i64 {whole}, {LANES}")
        yield None, first, g.op(f"sub i64 {size}, {first}")

    def _sums(
        self, count: str, lanes: int | None, add: Callable[[str, list[str]], Sequence[str]]
    ) -> tuple[list[str], list[str]]:
        """Emit a loop over products; return the sums of their lower 32 bits, and of those above."""
        parts, half = 1 if lanes is None else 2, half_of(lanes)
        zeros = [self.g.constant(0, 64, half)] * 2 * parts
        totals = self.g.loop(count, [llvm_type("i64", half)] * 2 * parts, zeros, add)
        return totals[:parts], totals[parts:]

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

    def _total(self, parts: list[str], before: str, lanes: int | None) -> str:
        """Return the sum of all lanes of two parts, and a number."""
        g, half = self.g, half_of(lanes)
        total = parts[0]
        if half is not None:
            kind = llvm_type("i64", half)
            both = g.op(f"add {kind} {parts[0]}, {parts[1]}")
            total = g.call("i64", f"llvm.vector.reduce.add.v{half}i64", (kind, both))
        return g.op(f"add i64 {total}, {before}")

    def _left(self, row: str, k: str) -> str:
        return self._address("left", row, k, "%left_row", "%left_column")

    def _right(self, k: str, column: str) -> str:
        return self._address("right", k, column, "%right_row", "%right_column")

    def _address(self, base: str, row: str, column: str, row_step: str, column_step: str) -> str:
        g = self.g
        rows, columns = g.op(f"mul i64 {row}, {row_step}"), g.op(f"mul i64 {column}, {column_step}")
        return g.op(f"getelementptr i32, ptr %{base}, i64 {g.op(f'add i64 {rows}, {columns}')}")

    def _store(self, row: str, column: str, lows: list[str], highs: list[str], lanes: int | None) -> None:
        g, pairs = self.g, zip(lows, highs, strict=True)
        residues = [residue_of_parts(g, *parts, half_of(lanes), self.plane) for parts in pairs]
        store_halves(g, residues, self._address("to", row, column, "%width", "1"), lanes)
