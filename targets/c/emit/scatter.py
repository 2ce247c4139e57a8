"""Scatters and top-k."""

from __future__ import annotations

from mirlo.passes.byoc.view import ExternalNode
from mirlo.targets.c.emit import emits
from mirlo.targets.c.emit.index import declare_index
from mirlo.targets.c.emit.movement import copy
from mirlo.targets.c.emit.reduce import along, rows
from mirlo.targets.c.writer import Writer, dims, element_type

COMBINED = {
    "none": "{y} = {e};", "add": "{y} += {e};", "mul": "{y} *= {e};",
    "max": "if ({e} > {y} || {e} != {e}) {y} = {e};", "min": "if ({e} < {y} || {e} != {e}) {y} = {e};",
}  # fmt: skip


@emits("scatter_elements")
def scatter_elements(w: Writer, node: ExternalNode) -> None:
    x, indices, updates, out = node["x"], node["indices"], node["updates"], node.output
    axis = node["axis"] % x.type.rank
    copy(w, x, out)
    with w.each(indices) as index:
        place = declare_index(w, "place", indices, index, dims(x)[axis])
        w.line(f"const {element_type(x)} e = {w.at(updates, index)};")
        target = w.at(out, [*index[:axis], place, *index[axis + 1 :]])
        w.line(COMBINED[node["reduction"]].format(y=target, e="e"))


@emits("scatter_nd")
def scatter_nd(w: Writer, node: ExternalNode) -> None:
    x, indices, updates, out = node["x"], node["indices"], node["updates"], node.output
    points, depth = indices.type.rank - 1, int(indices.type.shape[-1])
    copy(w, x, out)
    with w.each(updates) as index:
        at = [[*index[:points], str(i) if depth > 1 else "0"] for i in range(depth)]
        places = [declare_index(w, f"place{i}", indices, at[i], dims(x)[i]) for i in range(depth)]
        w.line(f"const {element_type(x)} e = {w.at(updates, index)};")
        w.line(COMBINED[node["reduction"]].format(y=w.at(out, [*places, *index[points:]]), e="e"))


@emits("topk")
def topk(w: Writer, node: ExternalNode) -> None:
    """Emit one pass over the row per result: the best element after the previous one, the first among equal ones."""
    x, axis = node["x"], node["axis"] % node["x"].type.rank
    values, indices = node.outputs
    kind, better = element_type(x), ">" if node["largest"] else "<"
    with rows(w, x, [axis], True) as (_, whole):
        w.line(f"{kind} last = 0;")
        w.line("int64_t taken = -1;")
        with w.loop("k", str(node["k"])) as k:
            w.line(f"{kind} best = 0;")
            w.line("int64_t place = -1;")
            with along(w, x, [axis]):
                i = whole[axis]
                w.line(f"const {kind} e = {w.at(x, whole)};")
                after = f"taken < 0 || last {better} e || (last == e && {i} > taken)"
                w.line(f"if (({after}) && (place < 0 || e {better} best)) {{ best = e; place = {i}; }}")
            at = [*whole[:axis], k, *whole[axis + 1 :]]
            w.line(f"{w.at(values, at)} = last = best;")
            w.line(f"{w.at(indices, at)} = taken = place;")
