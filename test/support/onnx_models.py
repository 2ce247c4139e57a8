"""Small models made on the spot, and a check that lines of IR follow one another."""

from __future__ import annotations

import re

from mirlo.testing.models import BOOL as BOOL
from mirlo.testing.models import F32 as F32
from mirlo.testing.models import I64 as I64
from mirlo.testing.models import make_model as make_model
from mirlo.testing.models import node as node


def check(text: str, *lines: str) -> None:
    """Each line must occur after the one before; `{{...}}` is a regular expression."""
    at = 0
    for line in lines:
        parts = re.split(r"\{\{(.*?)\}\}", line)
        pattern = "".join(part if i % 2 else re.escape(part) for i, part in enumerate(parts))
        found = re.compile(pattern).search(text, at)
        assert found, f"not found: {line}\nafter position {at} in:\n{text}"
        at = found.end()
