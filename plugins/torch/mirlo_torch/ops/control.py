"""Branches, loops and regions: the higher-order operators of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mirlo.extend.frontend import Tensor, TensorType, UnsupportedOperation
from mirlo.extend.frontend import dims as D
from mirlo.extend.library import row_at, scan_rows
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import converter

if TYPE_CHECKING:
    from torch.fx import GraphModule


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
            _with_bound_dims(op, _as_tensor(op, value), declared_type)
            for value, declared_type in zip(op.builder.graph(graph, operands), types, strict=True)
        ]

    return op.builder.choose(condition, types, (branch(then), branch(otherwise)))


def _with_bound_dims(op: AtenOperation, x: Tensor, declared: TensorType) -> Tensor:
    """Return x with its declared dims, where their symbols are bound."""
    for axis, dim in enumerate(declared.shape):
        if not D.symbols_of(dim) - op.builder.taken:
            x = op.builder.with_dim(x, axis, dim)
    return x


@converter("higher_order.wrap_with_set_grad_enabled")
def set_grad_enabled(op: AtenOperation, enabled: bool, graph: GraphModule, *operands: object) -> list[object]:
    """Convert the operators of `torch.no_grad()` and similar ones, which have no effect here."""
    return op.builder.graph(graph, operands)


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
        (flag,) = op.builder.graph(condition, [*values, *additional])
        return _as_tensor(op, flag).cast("bool").reshape(())

    def step(values: list[Tensor]) -> list[Tensor]:
        return [_as_tensor(op, value) for value in op.builder.graph(body, [*values, *additional])]

    return op.builder.repeat([*carried], goes_on, step)


@converter("higher_order.scan")
def scan(
    op: AtenOperation,
    combine: GraphModule,
    init: Sequence[Tensor],
    xs: Sequence[Tensor],
    additional: Sequence[object] = (),
) -> list[Tensor]:  # fmt: skip
    """Convert `scan`: return the final carried values, and the rows of all steps."""
    if not xs or not all(isinstance(value, Tensor) for value in (*init, *xs)):
        raise UnsupportedOperation("scans nothing, or carries numbers")
    length, count = xs[0].shape[0], len(init)
    rows = [op.type_of(value) for value in op.node.meta["val"][count:]]

    def step(at: Tensor | int, carried: Sequence[Tensor]) -> list[Tensor]:
        slices = [row_at(x, at) for x in xs]
        return [_as_tensor(op, value) for value in op.builder.graph(combine, [*carried, *slices, *additional])]

    return scan_rows(op.builder, step, init, rows, length)


def _as_tensor(op: AtenOperation, value: object) -> Tensor:
    if isinstance(value, Tensor):
        return value
    raise UnsupportedOperation(f"has a graph whose result is {value!r}: expected a tensor")
