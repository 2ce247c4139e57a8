"""Branches, loops and regions: the higher-order operators of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.builder import UnsupportedOperation
from mirlo.frontends.tensor import Tensor, stack
from mirlo.frontends.torch.operation import AtenOperation
from mirlo.frontends.torch.registry import converter

if TYPE_CHECKING:
    from torch.fx import GraphModule

MAX_UNROLLED_STEPS = 128
"""Most unrolled steps of a scan: a loop is at most a tenth slower, and compiles in the time of one step."""


@converter("higher_order.cond")
def cond(
    op: AtenOperation, flag: Tensor | bool, then: GraphModule, otherwise: GraphModule, operands: Sequence[object] = ()
) -> list[Tensor]:
    if not isinstance(flag, Tensor):
        raise UnsupportedOperation("has a condition on sizes")
    types = [op.type_of(value) for value in op.node.meta["val"]]
    condition = flag.cast("bool").reshape(())

    def branch(graph: GraphModule) -> Callable[[], list[Tensor]]:
        return lambda: [
            _with_bound_dims(op, _as_tensor(op, value), found)
            for value, found in zip(op.body.graph(graph, operands), types, strict=True)
        ]

    return op.body.choose(condition, types, (branch(then), branch(otherwise)))


def _with_bound_dims(op: AtenOperation, x: Tensor, declared: TensorType) -> Tensor:
    """Return x with the dims that are declared, as far as the trace has bound their symbols."""
    for axis, dim in enumerate(declared.shape):
        if not D.symbols_of(dim) - op.body.taken:
            x = op.body.with_dim(x, axis, dim)
    return x


@converter("higher_order.wrap_with_set_grad_enabled")
def set_grad_enabled(op: AtenOperation, enabled: bool, graph: GraphModule, *operands: object) -> list[object]:
    """Convert the operators of `torch.no_grad()` and its like: nothing here has gradients."""
    return op.body.graph(graph, operands)


@converter("higher_order.while_loop")
def while_loop(
    op: AtenOperation,
    condition: GraphModule,
    body: GraphModule,
    carried: Sequence[Tensor],
    additional: Sequence[object] = (),
) -> list[Tensor]:
    if not all(isinstance(value, Tensor) for value in carried):
        raise UnsupportedOperation("carries numbers or sizes: carry tensors")

    def goes_on(values: list[Tensor]) -> Tensor:
        (flag,) = op.body.graph(condition, [*values, *additional])
        return _as_tensor(op, flag).cast("bool").reshape(())

    def step(values: list[Tensor]) -> list[Tensor]:
        return [_as_tensor(op, value) for value in op.body.graph(body, [*values, *additional])]

    return op.body.repeat([*carried], goes_on, step)


@converter("higher_order.scan")
def scan(
    op: AtenOperation,
    combine: GraphModule,
    init: Sequence[Tensor],
    xs: Sequence[Tensor],
    additional: Sequence[object] = (),
) -> list[Tensor]:  # fmt: skip
    """Convert `scan`: what is carried at the end, and the rows of all steps."""
    if not xs or not all(isinstance(value, Tensor) for value in (*init, *xs)):
        raise UnsupportedOperation("scans nothing, or carries numbers")
    length, count = xs[0].shape[0], len(init)
    rows = [op.type_of(value) for value in op.node.meta["val"][count:]]

    def step(at: Tensor | int, carried: Sequence[Tensor]) -> list[Tensor]:
        slices = [row_at(op, x, at) for x in xs]
        return [_as_tensor(op, value) for value in op.body.graph(combine, [*carried, *slices, *additional])]

    return scanned(op, step, list(init), rows, length)


Step = Callable[[Tensor | int, Sequence[Tensor]], list[Tensor]]
"""Takes the position of a step and what is carried; returns what is carried on, then the rows of the step."""


def scanned(op: AtenOperation, step: Step, init: list[Tensor], rows: Sequence[TensorType], length: Dim) -> list[Tensor]:
    """Return what is carried at the end, and the rows of all steps; few steps are unrolled."""
    count = len(init)
    if not isinstance(length, int) or not 0 < length <= MAX_UNROLLED_STEPS:
        return _looped(op, step, init, rows, length)
    carried, collected = list(init), []
    for at in range(length):
        result = step(at, carried)
        carried, outputs = result[:count], result[count:]
        collected.append(outputs)
    stacked = [stack(list(column), 0) for column in zip(*collected, strict=True)]
    return [*carried, *stacked]


def _looped(op: AtenOperation, step: Step, init: list[Tensor], rows: Sequence[TensorType], length: Dim) -> list[Tensor]:
    """Return the results of a scan with a loop over its steps."""
    count = len(init)
    room = [op.constant(0, row.dtype).expand(row.shape) for row in rows]
    index = TensorType.of((), "i64")

    def goes_on(values: list[Tensor]) -> Tensor:
        return values[0] < op.operand(length, "i64")

    def iterate(values: list[Tensor]) -> list[Tensor]:
        at, carried, collected = values[0], values[1 : 1 + count], values[1 + count :]
        result = step(at, carried)
        position = at.reshape((1, 1))
        written = [
            op.emit("scatter_nd", old, position, new.reshape((1, *new.shape)))
            for old, new in zip(collected, result[count:], strict=True)
        ]
        return [at + 1, *result[:count], *written]

    _, *results = op.body.repeat([op.constant(0, index.dtype), *init, *room], goes_on, iterate)
    return results


def row_at(op: AtenOperation, x: Tensor, at: Tensor | int) -> Tensor:
    """Return a row, at a position that is a number or a tensor."""
    if isinstance(at, int):
        return x.slice(0, at, 1).reshape(x.shape[1:])
    return x.gather(at, axis=0)


def _as_tensor(op: AtenOperation, value: object) -> Tensor:
    if isinstance(value, Tensor):
        return value
    raise UnsupportedOperation(f"has a graph whose result is {value!r}: expected a tensor")
