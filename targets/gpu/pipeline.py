"""The pass pipeline of GPU targets."""

from __future__ import annotations

from mirlo.targets.pipelines import FOLD_ALL, FUSE, SIMPLIFY


def compile_pipeline(
    target: str,
    planning: str = "",
    intrinsics: str = "",
    kernels: str = "",
    functions: str = "",
    shuffles: bool = False,
    alignment: int | None = None,
) -> str:
    """Return the passes from relax to buffers and kernels, which emitters take.

    `planning` replaces the passes that schedule, `intrinsics` is a pass that lowers some intrinsics first, `kernels`
    runs on kernel bodies, `functions` finds the C functions that they call. Threads of a warp exchange values by
    `shuffles` where the target has warps. Offsets of buffers are multiples of `alignment`, if it is given.
    """
    passes = [
        *SIMPLIFY,
        FOLD_ALL,
        "cse",
        "remove-dead",
        f"legalize{{target={target}}}",
        *FUSE,
        "remove-dead",
        planning or f"schedule{{target={target}}}",
        f"map-threads{{target={target}{' shuffles=true' if shuffles else ''}}}",
        "lower-loops",
        *([intrinsics] if intrinsics else []),
        f"lower-intrinsics{{target={target}}}",
        "verify-bounds{guard=true}",
        *([functions] if functions else []),
        "outline-kernels",
        *([kernels] if kernels else []),
        "plan-memory" if alignment is None else f"plan-memory{{alignment={alignment}}}",
    ]
    return f"builtin.module({','.join(passes)})"
