"""The pass pipeline of GPU targets."""

from __future__ import annotations


def compile_pipeline(
    target: str, planning: str = "", intrinsics: str = "", kernels: str = "", functions: str = ""
) -> str:
    """Return the passes from relax to buffers and kernels, which emitters take.

    `planning` replaces the passes that schedule, `intrinsics` is a pass that lowers some intrinsics first, `kernels`
    runs on kernel bodies, `functions` finds the C functions that they call.
    """
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
        planning or f"schedule{{target={target}}}",
        "map-threads",
        "lower-loops",
        *([intrinsics] if intrinsics else []),
        f"lower-intrinsics{{target={target}}}",
        *([functions] if functions else []),
        "outline-kernels",
        *([kernels] if kernels else []),
        "plan-memory",
    ]
    return f"builtin.module({','.join(passes)})"
