"""Random prim functions of several blocks, in tensor form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scheduled import tensor

from mirlo.dialects.tir.compute import Expr, maximum, select

Read = Callable[[Sequence[Expr]], Expr]
"""An element at the axes of the program's shape."""
LARGEST = {1: 80, 2: 24, 3: 10, 4: 7}


@dataclass(frozen=True)
class Operand:
    """An input: for each of its dims the axis that it follows, and how."""

    shape: tuple[int, ...]
    dims: tuple[tuple[str, int, int], ...]

    @staticmethod
    def random(shape: tuple[int, ...], pick: Callable[[int, int], int]) -> Operand:
        axes = list(range(len(shape)))
        if pick(0, 5) < 2:
            axes = [axes.pop(pick(0, len(axes))) for _ in shape]
        kinds = [("same", "same", "same", "one", "shifted", "strided", "reversed")[pick(0, 7)] for _ in axes]
        sizes = {
            "one": lambda size: 1,
            "shifted": lambda size: max(1, size - pick(0, 4)),
            "strided": lambda size: 2 * size - 1,
        }
        own = tuple(sizes.get(kind, lambda size: size)(shape[axis]) for kind, axis in zip(kinds, axes, strict=True))
        return Operand(own, tuple((kind, axis, pick(-2, 3)) for kind, axis in zip(kinds, axes, strict=True)))

    def read(self, x: Any, shape: tuple[int, ...], axes: Sequence[Expr]) -> Expr:
        indices: list[Any] = []
        for kind, axis, distance in self.dims:
            at = axes[axis]
            moved = {"one": 0, "shifted": at + distance, "strided": at * 2, "reversed": at * -1 + (shape[axis] - 1)}
            indices.append(moved.get(kind, at))
        return x.at(*indices, outside=1 if any(kind == "shifted" for kind, _, _ in self.dims) else None)


class Program:
    """Inputs, and a few blocks each of which reads inputs and results of earlier ones."""

    def __init__(self, seed: int):
        generator = np.random.default_rng(seed)

        def pick(low: int, high: int) -> int:
            return int(generator.integers(low, high))

        self.dtype = ("f32", "f32", "f32", "i32", "f64", "i8")[pick(0, 6)]
        rank = pick(1, 5)
        self.shape = tuple(1 if pick(0, 7) == 0 else pick(1, LARGEST[rank]) for _ in range(rank))
        self.operands = [Operand.random(self.shape, pick) for _ in range(pick(1, 4))]
        self.blocks = [(pick(0, 7), pick(0, 10), pick(0, 10), pick(0, rank), pick(0, 3)) for _ in range(pick(1, 5))]
        self.reduces_last = pick(0, 2) == 0
        self.returns_all = pick(0, 5) < 2

    @property
    def inputs(self) -> list[Any]:
        return [tensor(*operand.shape, dtype=self.dtype) for operand in self.operands]

    def build(self, p: Any, *xs: Any) -> tuple[Any, ...]:
        readers: list[Read] = [
            lambda axes, o=operand, x=x: o.read(x, self.shape, axes)  # type: ignore[misc]
            for operand, x in zip(self.operands, xs, strict=True)
        ]
        made = []
        for kind, a, b, axis, which in self.blocks:
            left, right = readers[a % len(readers)], readers[b % len(readers)]
            if kind in (4, 5):
                value, reader = self._reduction(p, left, axis, ("add", "max", "min")[which])
            else:
                value = p.compute(self.shape, self._element(kind, left, right, axis))
                reader = lambda axes, t=value: t.at(*axes)  # noqa: E731
            made.append(value)
            readers.append(reader)
        return tuple(made if self.returns_all else made[-1:])

    def _element(self, kind: int, left: Read, right: Read, axis: int) -> Callable[..., Expr]:
        table: dict[int, Callable[..., Expr]] = {
            0: lambda *axes: left(axes) + right(axes),
            1: lambda *axes: left(axes) * right(axes) - left(axes),
            2: lambda *axes: maximum(left(axes), right(axes)),
            3: lambda *axes: select(axes[axis] < self.shape[axis] // 2, left(axes), right(axes)),
            6: lambda *axes: left(axes) + axes[axis].cast(self.dtype),
        }
        return table[kind]

    def _reduction(self, p: Any, read: Read, axis: int, kind: str) -> tuple[Any, Read]:
        """Over all axes from this one on, or over this one alone."""
        shape = self.shape
        if self.reduces_last:
            value = p.reduce(kind, shape[:axis], shape[axis:], lambda *axes: read(axes))
            return value, lambda axes: value.at(*axes[:axis])
        rows = shape[:axis] + shape[axis + 1 :]
        value = p.reduce(kind, rows, (shape[axis],), lambda *axes: read((*axes[:axis], axes[-1], *axes[axis:-1])))
        return value, lambda axes: value.at(*axes[:axis], *axes[axis + 1 :])
