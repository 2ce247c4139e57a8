"""Compute in f32 what is written in bf16, where the processor has no instruction that rounds to it."""

from __future__ import annotations

import platform
from typing import Any

from mirlo.dialects.bindings import ir, passmanager

_WIDEN = "builtin.module(arith-emulate-unsupported-floats{source-types=bf16 target-type=f32})"
_EXPAND = "builtin.module(arith-expand{include-bf16=true})"
_CONVERSIONS = ("arith.extf", "arith.truncf")


def rounds_bf16(features: dict[str, bool]) -> bool:
    """Return whether LLVM rounds f32 to bf16 in code, without a call of `__truncsfbf2`, on a host of these features."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    return bool(features.get("avx512bf16") and features.get("avx512vl") or features.get("avxneconvert"))


def expand_bf16(module: Any) -> None:
    """Rewrite arithmetic and conversions of bf16 as f32 arithmetic and integer operations, rounding after each."""
    if not _mentions_bf16(module):
        return
    passmanager.PassManager.parse(_WIDEN).run(module.operation)
    exact = ir.Attribute.parse("#arith.fastmath<none>")

    def visit(operation: Any) -> Any:
        # The pass permits to contract a rounding with the extension that follows it: results would depend on fusion.
        if operation.name in _CONVERSIONS:
            operation.attributes["fastmath"] = exact
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    passmanager.PassManager.parse(_EXPAND).run(module.operation)


def _mentions_bf16(module: Any) -> bool:
    return "bf16" in module.operation.get_asm(assume_verified=True)
