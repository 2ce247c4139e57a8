"""Scans: what a step carries from one row to the next, and the rows that it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.errors import OpError
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import GraphBuilder
from mirlo.frontends.tensor import Tensor, expected_tensors, number, stack
from mirlo.runtime.callbacks import checked

MAX_UNROLLED_STEPS = 128
"""Most unrolled steps of a scan: a loop compiles in the time of one step, and is 2 % to 18 % slower, the more the
smaller its steps are."""
MAX_UNROLLED_OPERATORS = 512
"""Most operators of all unrolled steps of a scan: each takes about 2.5 ms of processor time to compile."""
Step = Callable[["Tensor | int", Sequence[Tensor]], list[Tensor]]
"""Takes the position of a step and what is carried; returns what is carried on, then the rows of the step."""


def scan(
    builder: GraphBuilder, step: Step, init: Sequence[Tensor], rows: Sequence[TensorType], length: Dim,
    backwards: bool = False,
) -> list[Tensor]:  # fmt: skip
    """Return what is carried at the end, and the rows of all steps, of these types; few small steps are unrolled."""
    count = len(init)
    step = checked(step, expected_tensors(count + len(rows)), "the step of a scan", OpError)
    if length == 0:
        return [*init, *(builder.constant(0, row.dtype).expand(row.shape) for row in rows)]
    if not isinstance(length, int) or not _is_unrolled(builder, step, init, length):
        return _looped(builder, step, init, rows, length, backwards)
    carried, collected = list(init), []
    for at in range(length)[:: -1 if backwards else 1]:
        result = step(at, carried)
        carried, outputs = result[:count], result[count:]
        collected.append(outputs)
    if backwards:
        collected.reverse()
    return [*carried, *(stack(column, 0) for column in zip(*collected, strict=True))]


def _is_unrolled(builder: GraphBuilder, step: Step, init: Sequence[Tensor], length: int) -> bool:
    """Return whether the steps of a scan, and their operators, are few."""
    if length > MAX_UNROLLED_STEPS:
        return False
    return length * builder.count_operators(lambda: step(0, init)) <= MAX_UNROLLED_OPERATORS


def _looped(
    builder: GraphBuilder, step: Step, init: Sequence[Tensor], rows: Sequence[TensorType], length: Dim, backwards: bool
) -> list[Tensor]:
    """Return the results of a scan with a loop over its steps."""
    count, index = len(init), TensorType.of((), "i64").dtype
    room = [builder.constant(0, row.dtype).expand(row.shape) for row in rows]

    def iterate(values: list[Tensor]) -> list[Tensor]:
        done, carried, collected = values[0], values[1 : 1 + count], values[1 + count :]
        at = number(builder, length, index) - 1 - done if backwards else done
        result = step(at, carried)
        written = [
            builder.emit("scatter_nd", old, at.reshape((1, 1)), new.reshape((1, *new.shape)))
            for old, new in zip(collected, result[count:], strict=True)
        ]
        return [done + 1, *result[:count], *written]

    start = number(builder, 0, index)
    _, *results = builder.repeat([start, *init, *room], lambda values: values[0] < length, iterate)
    return results


def row_at(x: Tensor, at: Tensor | int) -> Tensor:
    """Return a row, at a position that is a number or a tensor."""
    return x[at] if isinstance(at, int) else x.gather(at, axis=0)
