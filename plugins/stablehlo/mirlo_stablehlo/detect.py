"""Detection of StableHLO's portable bytecode."""

from __future__ import annotations

from mirlo.extend.files import BYTECODE_PREFIX


def is_portable(content: bytes) -> bool:
    """Return whether bytecode is a portable artifact of StableHLO, which is compatible between versions."""
    return content.startswith(BYTECODE_PREFIX) and b"StableHLO_v" in content[:64]
