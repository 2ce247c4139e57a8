"""Conversion of LLVM IR text for older LLVM versions: floating-point literals as bits.

MLIR's LLVM writes `f0x402DF854`, `+inf`, `-qnan`, `+nan(0x1234)`, and short decimals that are not exact. Every
version reads the bits: of a double for `float` and `double`, after `0xH` for `half` and `0xR` for `bfloat`.
"""

from __future__ import annotations

import re
import struct
import sys
from functools import lru_cache

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class _Format:
    fraction: int
    exponent: int
    dtype: DTypeLike

    @property
    def sign(self) -> int:
        return 1 << (self.fraction + self.exponent)

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def quiet(self) -> int:
        return 1 << (self.fraction - 1)


_FORMATS = {
    "half": _Format(10, 5, np.float16), "bfloat": _Format(7, 8, ml_dtypes.bfloat16),
    "float": _Format(23, 8, np.float32), "double": _Format(52, 11, np.float64),
}  # fmt: skip
_TOKEN = re.compile(
    r"""(?P<text>c?"[^"]*")|(?P<comment>;.*)|(?P<name>[%@!#][\w.$-]+)|(?P<type>\b(?:half|bfloat|float|double)\b)
    |(?P<number>(?<![\w.%@])(?:f0x[0-9A-Fa-f]+|[+-](?:inf|qnan|s?nan\(0x[0-9A-Fa-f]+\))|[-+]?\d+\.\d+(?:e[+-]?\d+)?)
    (?![\w.]))""",
    re.VERBOSE,
)


_MAYBE = tuple(map(re.compile, (r"f0x", r"\.(?<=\d\.)\d", r"inf(?<=[+-]inf)", r"nan(?<=[+-]nan|qnan|snan)")))
"""Match in lines with such a literal, which few are. That each begins with a fixed text makes the search fast."""


def readable_by_older(text: str) -> str:
    """Return the module text with every floating-point literal as its bits."""
    parts, end = [], 0
    for start in sorted({text.rfind("\n", 0, match.start()) + 1 for each in _MAYBE for match in each.finditer(text)}):
        parts.append(text[end:start])
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        parts.append(_line(text[start:end]))
    return "".join([*parts, text[end:]])


def _line(line: str) -> str:
    kind: str | None = None

    def replaced(match: re.Match[str]) -> str:
        nonlocal kind
        if match.lastgroup == "type":
            kind = match.group()
        elif match.lastgroup == "number" and kind is not None:
            return _written(kind, match.group())
        return match.group()

    return _TOKEN.sub(replaced, line)


def _bits(form: _Format, number: str) -> int:
    if number.startswith("f0x"):
        return int(number[3:], 16)
    sign = form.sign if number[0] == "-" else 0
    word = number[1:]
    if word == "inf":
        return sign | form.infinity
    if word == "qnan":
        return sign | form.infinity | form.quiet
    if word.startswith(("nan(", "snan(")):
        payload = int(word[word.index("(") + 1 : -1], 16)
        return sign | form.infinity | payload | (0 if word.startswith("s") else form.quiet)
    return int.from_bytes(np.array(float(number), form.dtype).tobytes(), sys.byteorder)


@lru_cache(1 << 14)
def _written(kind: str, number: str) -> str:
    """Return a literal of a type as its bits; kernels have the same ones in all lanes, and in many lines."""
    bits = _bits(_FORMATS[kind], number)
    if kind == "half":
        return f"0xH{bits:04X}"
    if kind == "bfloat":
        return f"0xR{bits:04X}"
    if kind == "double":
        return f"0x{bits:016X}"
    return f"0x{_as_double(bits):016X}"


def _as_double(bits: int) -> int:
    """Return the bits of a float as a double; NaN keeps its payload."""
    sign, exponent, fraction = bits >> 31, bits >> 23 & 255, bits & 0x7FFFFF
    if exponent == 255:
        return sign << 63 | 0x7FF << 52 | fraction << 29
    number = struct.unpack("<f", struct.pack("<I", bits))[0]
    return int(struct.unpack("<Q", struct.pack("<d", number))[0])
