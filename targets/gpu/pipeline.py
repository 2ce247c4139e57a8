"""The pass pipeline of GPU targets."""

from __future__ import annotations


def compile_pipeline(target: str) -> str:
    """From relax to buffers and kernels: what the emitters take."""
    passes = [
        "simplify",
        "fold-constant",
        "convert-layout",
        "simplify",
        "fold-constant",
        "cse",
        "remove-dead",
        f"legalize{{target={target}}}",
        "annotate-kinds",
        "fuse-ops",
        "fuse-tir",
        "canonicalize",
        "cse",
        "remove-dead",
        f"schedule{{target={target}}}",
        "map-threads",
        "lower-loops",
        f"lower-intrinsics{{target={target}}}",
        "outline-kernels",
        "plan-memory",
    ]
    return f"builtin.module({','.join(passes)})"
