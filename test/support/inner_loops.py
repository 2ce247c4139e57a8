"""Inner loops of assembly: counts of multiply-adds and spills, on x86-64 and AArch64."""

from __future__ import annotations

import re
from dataclasses import dataclass

PRODUCTS = re.compile(
    r"\s(vfn?m(?:add|sub)\w*p[sd]|vpmaddwd|vpmaddubsw|vpdp\w+|vdpbf16ps|fmla|fmls|[us]?[us]dot|[us]mlal2?|[us]?[us]?mmla)\s"
)
"""Instructions whose work counts: products that are added."""
SPILLED = re.compile(r"%[xyz]mm.*\(%rsp\)|\(%rsp\).*%[xyz]mm|\s(ldr|str|ldp|stp)\s+[qd]\d+.*\[sp")
MOVED = re.compile(r"\smov\s+v\d+\.16b|vmov(ap|dq)\S*\s+%[xyz]mm\d+, %[xyz]mm")
BRANCH = re.compile(r"^\s+(?:j[a-z]+|b\.?[a-z]*|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#\d+,)\s+(\.L\w+)")
JUMP = re.compile(r"^\s+(?:jmp|b)\s+(\.L\w+)")
"""A branch that is always taken."""
LABEL = re.compile(r"^(\.L\w+):")


@dataclass(frozen=True)
class InnerLoop:
    """A loop without loops inside."""

    label: str
    lines: tuple[str, ...]

    @property
    def products(self) -> int:
        """Return how many instructions of the loop multiply and add."""
        return sum(PRODUCTS.search(line) is not None for line in self.lines)

    @property
    def moves(self) -> list[str]:
        """Return the instructions that move vectors between registers."""
        return [line.strip() for line in self.lines if MOVED.search(line)]

    @property
    def spills(self) -> list[str]:
        """Return the instructions that move vectors from or to the stack."""
        return [line.strip() for line in self.lines if SPILLED.search(line)]


def inner_loops(assembly: str) -> list[InnerLoop]:
    """Return the innermost loops of a function in assembly, in their order."""
    lines = [line for line in assembly.splitlines() if line.strip() and not re.match(r"\s+\.", line)]
    labels = {match[1]: i for i, line in enumerate(lines) if (match := LABEL.match(line))}

    def leaves(a: int, b: int) -> bool:
        """Return whether lines go on elsewhere, in a loop inside that LLVM has placed before or after them."""
        return any(not a <= labels.get(jump[1], a) < b for jump in map(JUMP.match, lines[a:b]) if jump)

    spans = []
    for i, line in enumerate(lines):
        branch = BRANCH.match(line)
        if branch and labels.get(branch[1], i) < i:
            spans.append((labels[branch[1]], i + 1, branch[1]))
    inner = [
        (a, b, name)
        for a, b, name in spans
        if not any(a <= c and d <= b and (c, d) != (a, b) for c, d, _ in spans) and not leaves(a, b)
    ]
    return [InnerLoop(name, tuple(line for line in lines[a:b] if not LABEL.match(line))) for a, b, name in inner]
