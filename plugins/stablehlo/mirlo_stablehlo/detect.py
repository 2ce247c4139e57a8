"""Telling StableHLO's portable bytecode from other bytecode."""

from __future__ import annotations

from mirlo.extend.files import BYTECODE_PREFIX


def is_portable(content: bytes) -> bool:
    """Return whether bytecode is StableHLO's portable artifact, which other versions read."""
    return content.startswith(BYTECODE_PREFIX) and b"StableHLO_v" in content[:64]
