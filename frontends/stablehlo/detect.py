"""Telling StableHLO from other IR by the content of a file."""

from __future__ import annotations

import re

BYTECODE = b"ML\xefR"
_OPERATION = re.compile(rb"(?:\s|\")(stablehlo|vhlo|chlo|mhlo)\.")


def is_portable(content: bytes) -> bool:
    """Return whether bytecode is StableHLO's portable artifact, which other versions read."""
    return content.startswith(BYTECODE) and b"StableHLO_v" in content[:64]


def is_stablehlo(content: bytes) -> bool:
    """Return whether the content of a file is StableHLO rather than another stage of a model's way."""
    if content.startswith(BYTECODE):
        return is_portable(content) or b"\0stablehlo\0" in content
    return _OPERATION.search(content) is not None
