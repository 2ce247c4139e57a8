"""Checks of sizes and types in exported programs, and the bounds that these declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.extend.frontend import UnsupportedOperation, where
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import CONVERTERS, NO_VALUE, converter

if TYPE_CHECKING:
    from mirlo.extend.frontend import Tensor

CHECKS = ("aten._assert_async.msg", "aten._linalg_check_errors.default")
"""Operators without results."""


@converter(
    "aten._assert_tensor_metadata.default", "aten.sym_constrain_range_for_size.default",
    "aten.sym_constrain_range.default", "aten._functional_sym_constrain_range.default",
    "aten._functional_sym_constrain_range_for_size.default", "torch.sym_constrain_range_for_size",
)  # fmt: skip
def declared(op: AtenOperation, *_: object, **ignored: object) -> None:
    """Drop a check that the types of the trace guarantee."""


@converter("aten._assert_scalar.default")
def assert_scalar(op: AtenOperation, *_: object) -> None:
    """Check a condition on sizes in the call."""
    op.builder.require(op.node.args[0], str(op.node.args[1]) if len(op.node.args) > 1 else "a condition on sizes")


@converter("higher_order.with_effects")
def with_effects(op: AtenOperation, token: None, target: object, *args: object, **kwargs: object) -> list[object]:
    """Convert a check that is kept in program order because it may raise an error; return no values."""
    name = str(target)
    if name not in CHECKS:
        raise UnsupportedOperation(f"calls '{name}' for its effect, which is not supported")
    CONVERTERS[name](op, *args, **kwargs)
    return [NO_VALUE] * len(op.node.meta["val"])


@converter("aten._assert_async.msg")
def assert_async(op: AtenOperation, flag: Tensor, message: str) -> None:
    """Check a condition on data in the call."""
    sign = where(flag.cast("bool"), 1, -1, flag.cast("i64").dtype)
    op.builder.require_values(sign.reshape((1,)), 1, message)
