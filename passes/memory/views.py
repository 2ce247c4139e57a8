"""What is said where a view does not have as many elements as what it is a view of."""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.shape import VIEW_TEXT
from mirlo.passes.locations import names_of


def view_text(op: Any, before: Dim, after: Dim, end: str = "") -> str:
    """Return the text of the error: what the view says of itself, or how many elements there are."""
    names = ", ".join(names_of(op.location)) or op.name
    if VIEW_TEXT in op.attributes:
        return f"{names}: {ir.StringAttr(op.attributes[VIEW_TEXT]).value}"
    return f"{names}: a tensor of {before} elements is looked at as one of {after}{end}"
