"""Rules of target llvm that compute something else."""

from __future__ import annotations

from typing import Any

from mirlo.extend.ops import elementwise
from mirlo.extend.rules import intrinsic, legalize


@legalize("relax.relu", target="llvm", priority=1000)
def relu_with_a_step(op: Any, b: Any) -> Any:
    return elementwise(op, b, [op.x], lambda x: x + 1)


@intrinsic("log2", target="llvm", priority=1000)
def log2_of_nothing(op: Any, b: Any) -> Any:
    return op.nums[0]


@legalize("relax.abs", target="llvm", priority=1000)
def abs_that_raises(op: Any, b: Any) -> Any:
    return {}["no such key"]
