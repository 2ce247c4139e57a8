"""The seal of a compiled model: a digest of its header that is stored with the code.

Code reads and writes memory by the sizes that it was compiled for. The checksum of a file detects damage; the seal
checks that the header describes this code, even if the checksum was recomputed after a change. It is not a signature:
an author of machine code can write its seal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

_MAGIC = b"MIRLOABI"
_DIGEST_BYTES = 16
BYTES = len(_MAGIC) + _DIGEST_BYTES


def seal(header: Mapping[str, object], tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> bytes:
    """Return the seal of a header and of the names and types of its tensors, but not of their offsets."""
    facts = {name: value for name, value in header.items() if name != "tensors"}
    rows = [[name, dtype, list(shape)] for name, dtype, shape in tensors]
    text = json.dumps([facts, rows], sort_keys=True, separators=(",", ":"))
    return _MAGIC + hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def split(code: bytes) -> tuple[bytes, bytes | None]:
    """Return the code, and the seal after it, if there is one."""
    at = len(code) - BYTES
    return (code[:at], code[at:]) if at >= 0 and code[at : at + len(_MAGIC)] == _MAGIC else (code, None)
