"""Masked stores of one lane, as stores of a scalar.

For AVX-512, LLVM 22 writes the lane before it was truncated: `masked.store` of `trunc <4 x i32> to <4 x i8>` under a
constant mask with one lane overwrites three bytes behind it. So such stores are replaced after the optimizer, which
may find a mask to be constant; a store of a scalar is right, and as fast, on every processor.
"""

from __future__ import annotations

import re
from itertools import count
from math import gcd

NARROW_STORE = re.compile(r"llvm\.masked\.store\.v\d+i(8|16|32)\.")
"""Matches the names of masked stores of what may have been truncated."""
_STORE = re.compile(
    r"^(?P<space>\s*)(?:tail |notail |musttail )?call void @llvm\.masked\.store\.v\d+i(?P<bits>8|16|32)\.p0\("
    r"<(?P<lanes>\d+) x i\d+> (?P<value>.+), ptr (?:[a-z_()\d]+ )*?align (?P<align>\d+) (?P<pointer>.+), "
    r"<\d+ x i1> <(?P<mask>i1 (?:true|false)(?:, i1 (?:true|false))*)>\).*$",
    re.MULTILINE,
)


def stores_of_single_lanes(text: str) -> str | None:
    """Return LLVM IR in which masked stores of one lane are stores of a scalar; None if it has none."""
    numbers = count()

    def scalar(match: re.Match[str]) -> str:
        is_on = [lane == "i1 true" for lane in match["mask"].split(", ")]
        if sum(is_on) != 1:
            return match[0]
        lane, space, kind, number = is_on.index(True), match["space"], f"i{match['bits']}", next(numbers)
        offset = lane * int(match["bits"]) // 8
        element, address = f'%"lane.{number}"', f'%"lane.{number}.address"'
        return (
            f"{space}{element} = extractelement <{match['lanes']} x {kind}> {match['value']}, i64 {lane}\n"
            f"{space}{address} = getelementptr i8, ptr {match['pointer']}, i64 {offset}\n"
            f"{space}store {kind} {element}, ptr {address}, align {gcd(int(match['align']), offset)}"
        )

    replaced = _STORE.sub(scalar, text)
    return replaced if next(numbers) else None
