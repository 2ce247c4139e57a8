"""The exploration of a model as one page of HTML."""

from __future__ import annotations

from pathlib import Path

from mirlo.tools.explorer.collect import Exploration
from mirlo.tools.html_page import html_page


def page(exploration: Exploration) -> str:
    """Return the text of the page."""
    data = {
        "summary": exploration.summary,
        "nodes": exploration.nodes,
        "kernels": exploration.kernels,
        "calls": exploration.calls,
        "graph": exploration.graph,
    }
    return html_page(Path(__file__).parent, exploration.title, data)
