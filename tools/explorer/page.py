"""The exploration of a model as one page of HTML."""

from __future__ import annotations

from pathlib import Path

from mirlo.tools.explorer.collect import Exploration
from mirlo.tools.html_page import html_page


def page(found: Exploration) -> str:
    """Return the text of the page."""
    data = {
        "summary": found.summary,
        "nodes": found.nodes,
        "kernels": found.kernels,
        "calls": found.calls,
        "graph": found.graph,
    }
    return html_page(Path(__file__).parent, found.title, data)
