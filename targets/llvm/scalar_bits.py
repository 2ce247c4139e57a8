"""The bits of scalars of bf16, which LLVM's back end for x86 cannot mask.

LLVM 22 ends the process where the sign is masked: `and i16 (bitcast bfloat %x to i16), -32768`. The optimizer makes
scalars of splats, so the bits of all scalars are hidden from the selection of instructions, by an empty piece of
assembly, after the optimizer.
"""

from __future__ import annotations

import re

_BITS = re.compile(r"^(\s*)(%\S+) = (bitcast bfloat \S+ to i16)", re.MULTILINE)


def hide_scalar_bits(text: str) -> str | None:
    """Return optimized LLVM IR for x86 in which the bits of scalars of bf16 are hidden; None if it has none."""
    hidden, count = _BITS.subn(_hidden, text)
    return hidden if count else None


def _hidden(match: re.Match[str]) -> str:
    space, name, bits = match.groups()
    bits_name = '%"' + name.strip('%"') + '.bits"'
    return f'{space}{bits_name} = {bits}\n{space}{name} = call i16 asm "", "=r,0"(i16 {bits_name})'
