"""Pages of HTML made of the files of a folder: `page.html`, `page.css`, `page.js`, and data. They need no network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from mirlo.runtime.names import html, html_json


def html_page(folder: Path, title: str, data: Mapping[str, object]) -> str:
    """Return the text of a page; `data` is the input of its script, with the title."""
    parts = {
        "title": html(title), "style": _read(folder, "page.css"), "data": html_json({"title": title, **data}),
        "script": _read(folder, "page.js"),
    }  # fmt: skip
    # In one go: what is put in may hold braces, too.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match.group(1)], _read(folder, "page.html"))


def _read(folder: Path, name: str) -> str:
    return (folder / name).read_text(encoding="utf-8")
