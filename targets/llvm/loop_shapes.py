"""What LLVM's loop passes would find in LLVM IR: innermost loops over scalars, and calls in loops."""

from __future__ import annotations

import re

_LABEL = re.compile(r"([\w.$-]+):")
_BRANCH = re.compile(r"label %([\w.$-]+)")
_VECTOR = re.compile(r"<(?:vscale x )?\d+ x ")
_CALL = re.compile(r"\bcall\b.*@(?!llvm\.)")


def has_scalar_loops(text: str) -> bool:
    """Return whether an innermost loop of LLVM IR computes with scalars only, or calls a function.

    The text is what MLIR's translation prints: blocks are in order, and a branch to one above it ends a loop.
    """
    labels: dict[str, int] = {}
    last_vector = last_call = last_end = -1
    for number, line in enumerate(text.splitlines()):
        if line.startswith("define "):
            labels.clear()
        elif label := _LABEL.match(line):
            labels[label.group(1)] = number
        elif "label %" in line:
            begin = max((labels[target] for target in _BRANCH.findall(line) if target in labels), default=-1)
            # A loop around one that has ended is not innermost.
            if begin > last_end and (last_vector < begin or last_call > begin):
                return True
            if begin >= 0:
                last_end = number
        elif _CALL.search(line):
            last_call = number
        elif _VECTOR.search(line):
            last_vector = number
    return False
