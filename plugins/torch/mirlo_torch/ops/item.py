"""Numbers that a program reads from its data: `Tensor.item`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.extend.frontend import Dim, Tensor, concat, maximum
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import converter

if TYPE_CHECKING:
    import torch


@converter("aten._local_scalar_dense.default", "aten.item.default")
def item(op: AtenOperation, x: Tensor) -> Tensor | Dim:
    """Bind an integer to its symbol in the trace; other numbers are tensors without dims."""
    import torch
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    value = op.node.meta["val"]
    if isinstance(value, (bool, torch.SymBool)):
        return _flag(op, x, value)
    if not isinstance(value, torch.SymInt):
        return x.reshape(())
    if statically_known_true(value >= 0):
        return op.builder.bind_result(op, x)
    # Symbols are not negative: the number is the difference of two, one of which is 0.
    number = x.reshape((1,)).cast("i64")
    signs = concat([number, -number], 0)
    above, below = op.builder.bind(maximum(signs, 0), op.name)
    op.builder.sizes.learn(value, above - below)
    return above - below


def _flag(op: AtenOperation, x: Tensor, value: torch.SymBool | bool) -> Dim:
    """Check in the call that a bool has the value that it had in the trace; bind it if that is a symbol."""
    number = x.reshape((1,)).cast("i64")
    expression = value if isinstance(value, bool) else value.node.expr
    symbols = () if isinstance(expression, bool) else expression.free_symbols
    for symbol in symbols:
        op.builder.taken.add(symbol.name)
        op.builder.bind(number, op.name, names=[symbol.name])
    if not symbols:
        missed = number - 1 if bool(expression) else -number
        op.builder.require_values(
            missed, 1, f"{op.name}: a condition on data, which was {bool(expression)} when tracing"
        )
    return 0
