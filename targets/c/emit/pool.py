"""Pooling: one result per window."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mirlo.passes.byoc.view import ExternalNode
from mirlo.targets.c.emit import emits
from mirlo.targets.c.emit.contraction import SpatialWindow
from mirlo.targets.c.types import min_value
from mirlo.targets.c.writer import Writer, dims, element_type, linear


class _Pool:
    """The loops of a pool and the element read in the innermost one."""

    def __init__(self, w: Writer, node: ExternalNode):
        self.w, self.x, self.out = w, node["x"], node.output
        self.window = SpatialWindow(node, self.x, self.out)
        self.kernel = [str(size) for size in node["kernel"]]
        self.kind = element_type(self.out)

    @contextmanager
    def each_result(self) -> Iterator[tuple[list[str], list[str]]]:
        """Emit loops over the results; yields a result's index and its spatial part."""
        w, window, shape = self.w, self.window, dims(self.out)
        with w.loop("n", shape[0]) as n, w.loop("c", window.channels(shape)) as c, w.loops(window.output, "y") as at:
            yield window.place(n, c, at), at

    @contextmanager
    def each_index(self, index: list[str], at: list[str]) -> Iterator[list[str]]:
        """Emit loops over the elements of a window inside the input; yields an element's index."""
        n, c = index[0], index[-1] if self.window.last else index[1]
        with self.w.loops(self.kernel, "k") as k, self.window.inside(self.w, at, k) as source:
            yield self.window.place(n, c, source)

    @contextmanager
    def each_element(self, index: list[str], at: list[str]) -> Iterator[str]:
        """Emit loops over the elements of a window inside the input; yields an element."""
        with self.each_index(index, at) as place:
            yield self.w.at(self.x, place)


@emits("max_pool")
def max_pool(w: Writer, node: ExternalNode) -> None:
    pool = _Pool(w, node)
    with pool.each_result() as (index, at):
        w.line(f"{pool.kind} most = {min_value(node.output.type.dtype)};")
        with pool.each_element(index, at) as element:
            w.line(f"const {pool.kind} e = {element};")
            w.line("if (e > most || e != e) most = e;")
        w.line(f"{w.at(node.output, index)} = most;")


@emits("avg_pool")
def avg_pool(w: Writer, node: ExternalNode) -> None:
    """Emit an average pool. `count_include_pad` counts padding, but not what a window has beyond the padding."""
    pool = _Pool(w, node)
    with pool.each_result() as (index, at):
        w.line(f"{pool.kind} sum = 0;")
        if not node["count_include_pad"]:
            w.line("int64_t count = 0;")
        with pool.each_element(index, at) as element:
            w.line(f"sum += {element};")
            if not node["count_include_pad"]:
                w.line("++count;")
        if node["count_include_pad"]:
            w.line(f"const int64_t count = {_padded_count(pool, at)};")
        w.line(f"{w.at(node.output, index)} = sum / ({pool.kind})count;")


def _padded_count(pool: _Pool, at: list[str]) -> str:
    window, factors = pool.window, []
    for i, place in enumerate(at):
        begin, end = window.pads[i]
        size, dilation = pool.kernel[i], window.dilations[i]
        if not window.rounds_up:
            factors.append(size)
            continue
        room = f"{window.input[i]} + {begin + end} - {place} * {window.strides[i]}"
        factors.append(f"mirlo_min({size}, ({room} + {dilation - 1}) / {dilation})")
    return " * ".join(factors)


@emits("lp_pool")
def lp_pool(w: Writer, node: ExternalNode) -> None:
    pool = _Pool(w, node)
    f, p = "f" if pool.kind == "float" else "", node["p"]
    with pool.each_result() as (index, at):
        w.line(f"{pool.kind} sum = 0;")
        with pool.each_element(index, at) as element:
            w.line(f"sum += {f'fabs{f}({element})' if p == 1 else f'pow{f}(fabs{f}({element}), {p})'};")
        root = "sum" if p == 1 else f"sqrt{f}(sum)" if p == 2 else f"pow{f}(sum, ({pool.kind})1 / {p})"
        w.line(f"{w.at(node.output, index)} = {root};")


@emits("max_pool_with_indices")
def max_pool_with_indices(w: Writer, node: ExternalNode) -> None:
    """Emit a max pool with indices; among equal elements the first in index order is taken."""
    pool, (values, indices) = _Pool(w, node), node.outputs
    extents = dims(node["x"])
    with pool.each_result() as (index, at):
        w.line(f"{pool.kind} most = {min_value(values.type.dtype)};")
        w.line("int64_t place = -1;")
        with pool.each_index(index, at) as source:
            spatial, sizes = source[2:], extents[2:]
            if node["storage_order"]:
                spatial, sizes = spatial[::-1], sizes[::-1]
            w.line(f"const {pool.kind} e = {w.at(node['x'], source)};")
            w.line(f"const int64_t i = {linear([*extents[:2], *sizes], [*source[:2], *spatial])};")
            w.line("if (place < 0 || e > most || (e != e && most == most) || (e == most && i < place)) {")
            w.line("  most = e;")
            w.line("  place = i;")
            w.line("}")
        w.line(f"{w.at(values, index)} = most;")
        w.line(f"{w.at(indices, index)} = place;")
