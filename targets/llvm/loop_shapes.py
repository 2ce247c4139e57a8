"""Which LLVM IR profits from LLVM's whole pipeline, by what its innermost loops compute."""

from __future__ import annotations

import re

_LABEL = re.compile(r"([\w.$-]+):")
_BRANCH = re.compile(r"label %([\w.$-]+)")
_VECTOR = re.compile(r"<(?:vscale x )?\d+ x ")
_COSTLY = re.compile(r"\bcall\b.*@(?!llvm\.(?!masked\.))|= shufflevector (?!.* zeroinitializer$)")
"""Calls of functions, loads and stores of some lanes, and shuffles other than of one lane to all."""


def needs_whole_pipeline(text: str) -> bool:
    """Return whether LLVM's other passes make an innermost loop of LLVM IR faster.

    They do so for loops that compute with scalars only, call functions, branch inside, shuffle lanes, or load and
    store some lanes. Without them, such kernels take up to a third longer.

    The text is what MLIR's translation prints: blocks are in order, and a branch to one above it ends a loop.
    """
    labels: dict[str, int] = {}
    last_vector = last_costly = last_end = -1
    condition = last_condition = -1
    for number, line in enumerate(text.splitlines()):
        if line.startswith("define "):
            labels.clear()
        elif label := _LABEL.match(line):
            labels[label.group(1)] = number
        elif "label %" in line:
            if "br i1 " in line:
                condition, last_condition = last_condition, number
            begin = max((labels[target] for target in _BRANCH.findall(line) if target in labels), default=-1)
            # A loop around one that has ended is not innermost.
            if begin > last_end and (last_vector < begin or max(last_costly, condition) > begin):
                return True
            if begin >= 0:
                last_end = number
        elif _COSTLY.search(line):
            last_costly = number
        elif _VECTOR.search(line):
            last_vector = number
    return False
