"""The examples of pages of the documentation."""

from __future__ import annotations

import re


def code_blocks(page: str, language: str) -> list[str]:
    """Return the code of a language in a page."""
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def code_block(page: str, language: str) -> str:
    """Return the only code of a language in a page."""
    (block,) = code_blocks(page, language)
    return block
