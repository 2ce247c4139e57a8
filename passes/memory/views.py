"""Error texts for views whose number of elements differs from that of their operand."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax.shape import VIEW_TEXT
from mirlo.passes.locations import names_of


def view_text(op: ir.Operation | ir.OpView, before: Dim, after: Dim, end: str = "") -> str:
    """Return the text of the error: the view's own text, or the numbers of elements."""
    names = ", ".join(names_of(op.location)) or op.name
    if VIEW_TEXT in op.attributes:
        return f"{names}: {ir.StringAttr(op.attributes[VIEW_TEXT]).value}"
    return f"{names}: a tensor of {before} elements is looked at as one of {after}{end}"
