"""What ties the header of a compiled model to its code: a digest of the header that is stored with the code.

Code reads and writes memory by the sizes that it was compiled for. The checksum of a file says that nothing in it is
damaged; the seal says that the header describes this code, whoever made the checksum right again after a change.
It is no signature: whoever writes machine code can write its seal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

_MAGIC = b"MIRLOABI"
_DIGEST_BYTES = 16
BYTES = len(_MAGIC) + _DIGEST_BYTES


def seal(header: Mapping[str, Any], tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> bytes:
    """Return the seal of a header and of the names and types of its tensors, but not of their places."""
    facts = {name: value for name, value in header.items() if name != "tensors"}
    rows = [[name, dtype, list(shape)] for name, dtype, shape in tensors]
    text = json.dumps([facts, rows], sort_keys=True, separators=(",", ":"))
    return _MAGIC + hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def split(code: bytes) -> tuple[bytes, bytes | None]:
    """Return code, and the seal behind it, if there is one."""
    at = len(code) - BYTES
    return (code[:at], code[at:]) if at >= 0 and code[at : at + len(_MAGIC)] == _MAGIC else (code, None)
