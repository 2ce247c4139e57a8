"""The pass `outline-kernels`: launches become kernels of their own; what has no launch runs in one thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mirlo.dialects.bindings import gpu, ir, passmanager
from mirlo.dialects.tir.view import is_prim_func, is_tensor_form
from mirlo.passes.lower.calls import find
from mirlo.passes.registry import Pass, PassError, register_pass

VIEWS = ("memref.view", "memref.collapse_shape", "memref.expand_shape", "memref.reinterpret_cast", "memref.cast")
"""Operations of the host: other ways to look at a buffer."""


@register_pass
@dataclass(frozen=True)
class OutlineKernels(Pass):
    """Turn the launches of prim functions into kernels, each in a `gpu.module` of its own.

    A prim function in buffer form without a launch, such as loops written by hand, becomes a kernel of one thread.
    """

    name = "outline-kernels"

    def run(self, op: Any, session: Any) -> None:
        for function in list(op.regions[0].blocks[0].operations):
            if is_prim_func(function) and not is_tensor_form(function) and len(function.operation.regions[0].blocks):
                self._check(function)
                if not find(function, "gpu.launch"):
                    _wrap(function.operation)
        manager = passmanager.PassManager.parse(
            "builtin.module(canonicalize,cse,gpu-launch-sink-index-computations,gpu-kernel-outlining)"
        )
        manager.run(op.operation)

    @staticmethod
    def _check(function: Any) -> None:
        for call in find(function, "func.call"):
            callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
            raise PassError(f"a kernel calls the C function '{callee}', which GPUs do not have", call.location)


def _wrap(function: Any) -> None:
    """The whole body in one thread; views of parameters stay outside."""
    body = function.regions[0].blocks[0]
    operations = [op.operation for op in body.operations]
    returns = operations[-1]
    inside = [op for op in operations[:-1] if op.name not in VIEWS and not _is_index_constant(op)]
    if not inside:
        return
    with ir.InsertionPoint(returns), function.location:
        launch = gpu.LaunchOp((1, 1, 1), (1, 1, 1))
        with ir.InsertionPoint(launch.regions[0].blocks[0]):
            end = gpu.TerminatorOp()
    for op in inside:
        op.move_before(end.operation)


def _is_index_constant(op: Any) -> bool:
    return op.name == "arith.constant" and isinstance(op.results[0].type, ir.IndexType)
