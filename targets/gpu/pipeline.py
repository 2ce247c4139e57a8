"""The pass pipeline of GPU targets."""

from __future__ import annotations


def compile_pipeline(target: str, machine: str = "", intrinsics: str = "", tuned: bool = False) -> str:
    """From relax to buffers and kernels: what the emitters take; schedules are made for the machine of this name.

    `intrinsics` is a pass that lowers some of them in its own way; `tuned`: the target offers choices to `mirlo tune`.
    """
    planned = f"schedule{{target={target} machine={machine}}}" if machine else f"schedule{{target={target}}}"
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
        *([f"apply-tuning{{target={target}}}"] if tuned else []),
        planned,
        "map-threads",
        "lower-loops",
        *([intrinsics] if intrinsics else []),
        f"lower-intrinsics{{target={target}}}",
        "outline-kernels",
        "plan-memory",
    ]
    return f"builtin.module({','.join(passes)})"
