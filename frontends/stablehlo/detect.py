"""Telling StableHLO's portable bytecode from other bytecode."""

from __future__ import annotations

BYTECODE = b"ML\xefR"
"""What bytecode of MLIR begins with."""


def is_portable(content: bytes) -> bool:
    """Return whether bytecode is StableHLO's portable artifact, which other versions read."""
    return content.startswith(BYTECODE) and b"StableHLO_v" in content[:64]
