"""The exploration of a model as one page of HTML. It needs no network."""

from __future__ import annotations

import re
from pathlib import Path

from mirlo.runtime.names import html, html_json
from mirlo.tools.explorer.collect import Exploration


def page(found: Exploration) -> str:
    """Return the text of the page."""
    data = {
        "title": found.title,
        "summary": found.summary,
        "nodes": found.nodes,
        "kernels": found.kernels,
        "calls": found.calls,
        "graph": found.graph,
    }
    parts = {"title": html(found.title), "style": _own("page.css"), "data": html_json(data), "script": _own("page.js")}
    # In one go: what is put in may hold braces, too.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match.group(1)], _own("page.html"))


def _own(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
