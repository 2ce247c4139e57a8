"""The pass pipelines of target `llvm`."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import passmanager
from mirlo.targets.llvm.bfloat16 import expand_bf16, mentions_bf16, move_bf16_as_integers, rounds_bf16
from mirlo.targets.llvm.machine import host_features

GRAPH = ("canonicalize", "cse")

TO_LLVM = (
    "arith-expand",
    "convert-vector-to-scf{full-unroll=true target-rank=1}",
    "convert-scf-to-cf",
    "expand-strided-metadata",
    "lower-affine",
    "cse",
    "convert-vector-to-llvm{enable-x86=true reassociate-fp-reductions=true}",
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1}",
    # All other dialects at once: one by one, casts between them would outnumber the operations.
    "convert-to-llvm",
    "reconcile-unrealized-casts",
    "canonicalize",
    "cse",
)
"""Upstream passes from loops and vectors to the LLVM dialect."""


def compile_pipeline(options: Any = None) -> str:
    """Return the pipeline from relax to buffers, the input of `emit`."""
    threads = options.threads if options is not None else 1
    passes = [
        "simplify",
        "fold-constant",
        "convert-layout",
        "simplify",
        "fold-constant",
        "cse",
        "remove-dead",
        f"apply-tuning{{target=llvm threads={threads} operators=relax.conv}}",
        "winograd",
        "legalize{target=llvm}",
        "annotate-kinds",
        "fuse-ops",
        "fuse-tir",
        "canonicalize",
        "cse",
        f"apply-tuning{{target=llvm threads={threads}}}",
        "pack-weights",
        "remove-dead",
        f"schedule{{target=llvm threads={threads}}}",
        "lower-loops",
        "lower-intrinsics{target=llvm}",
        "plan-memory",
        f"outline-parallel{{threads={threads}}}",
    ]
    return f"builtin.module({','.join(passes)})"


def lower_pipeline() -> str:
    """Return the pipeline from buffers to the LLVM dialect for hosts with bf16 instructions.

    `lower_to_llvm` serves all hosts.
    """
    return f"builtin.module({','.join(TO_LLVM)})"


def lower_to_llvm(module: Any, verify: bool = True) -> None:
    """Lower a module of buffers, loops and vectors to the LLVM dialect, for the processor of this host."""
    without_bf16 = not rounds_bf16(host_features()) and mentions_bf16(module)
    if without_bf16:
        expand_bf16(module)
    manager = passmanager.PassManager.parse(lower_pipeline())
    manager.enable_verifier(verify)
    manager.run(module.operation)
    if without_bf16:
        move_bf16_as_integers(module)
