"""Operators that move elements: each result element is read from one operand element."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import dims_of
from mirlo.passes.byoc.view import ExternalNode, ExternalValue
from mirlo.passes.rules import Decline, decline
from mirlo.targets.c.emit import emits
from mirlo.targets.c.types import literal
from mirlo.targets.c.writer import Writer, count, dims, element_type

VIEWS = ("relax.reshape", "relax.expand_dims", "relax.squeeze")
"""Operators whose result has the operand's elements in the same order: they need no code."""


def copy(w: Writer, source: ExternalValue, target: ExternalValue) -> None:
    """Emit a copy of all elements in order."""
    w.line(f"memcpy({w.names[target]}, {w.names[source]}, ({count(target)}) * sizeof({element_type(target)}));")


@emits("permute")
def permute(w: Writer, node: ExternalNode) -> None:
    x, out = node["x"], node.output
    with w.each(out) as index:
        source = ["0"] * x.type.rank
        for position, axis in enumerate(node["axes"]):
            source[axis % x.type.rank] = index[position]
        w.line(f"{w.at(out, index)} = {w.at(x, source)};")


def _is_decided(op: ir.OpView) -> bool | Decline:
    """Check that it is known statically which dims are 1."""
    source, target = (dims_of(value.type) for value in (op.x, op.output))
    pairs = zip(source, target[len(target) - len(source) :], strict=True)
    if all(dim in (1, wanted) for dim, wanted in pairs):
        return True
    return decline("which dims are 1 is known at run time only", shape=str(source), target=str(target))


@emits("expand", check=_is_decided)
def expand(w: Writer, node: ExternalNode) -> None:
    with w.each(node.output) as index:
        w.line(f"{w.at(node.output, index)} = {w.broadcast(node['x'], index)};")


@emits("tile")
def tile(w: Writer, node: ExternalNode) -> None:
    with w.each(node.output) as index:
        pairs = zip(index, dims(node["x"]), node["repeats"], strict=True)
        source = ["0" if d == "1" else i if times == 1 else f"{i} % {d}" for i, d, times in pairs]
        w.line(f"{w.at(node.output, index)} = {w.at(node['x'], source)};")


@emits("reverse")
def reverse(w: Writer, node: ExternalNode) -> None:
    x = node["x"]
    axes = {axis % x.type.rank for axis in node["axes"]}
    with w.each(node.output) as index:
        source = [f"{d} - 1 - {i}" if n in axes else i for n, (i, d) in enumerate(zip(index, dims(x), strict=True))]
        w.line(f"{w.at(node.output, index)} = {w.at(x, source)};")


@emits("strided_slice")
def strided_slice(w: Writer, node: ExternalNode) -> None:
    x, out = node["x"], node.output
    places: dict[int, tuple[str, int]] = {}
    for number, (axis, begin, end, stride) in enumerate(
        zip(node["axes"], node["begin"], node["end"], node["strides"], strict=True)
    ):
        axis %= x.type.rank
        size = x.type.shape[axis]
        if isinstance(size, int):
            places[axis] = str(slice(begin, end, stride).indices(size)[0]), stride
            continue
        # A begin beyond the tensor is clamped to its edge.
        extent = dims(x)[axis]
        first = str(begin) if begin >= 0 else f"{extent} - {-begin}"
        last = extent if stride > 0 else f"{extent} - 1"
        w.line(f"const int64_t begin{number} = mirlo_min(mirlo_max({first}, {0 if stride > 0 else -1}), {last});")
        places[axis] = f"begin{number}", stride
    with w.each(out) as index:
        source = [_stepped(i, *places[axis]) if axis in places else i for axis, i in enumerate(index)]
        w.line(f"{w.at(out, index)} = {w.at(x, source)};")


def _stepped(index: str, begin: str, stride: int) -> str:
    if index == "0":
        return begin
    step = index if stride == 1 else f"{index} * {stride}"
    return step if begin == "0" else f"{begin} + {step}"


@emits("concat", "stack")
def concat(w: Writer, node: ExternalNode) -> None:
    out = node.output
    axis = node["axis"] % out.type.rank
    first: list[str] = []
    for number, x in enumerate(node["xs"]):
        offset = " + ".join(first) or "0"
        stacked = node.op == "relax.stack"
        extents = dims(x)
        with w.loops(extents) as index:
            if stacked:
                place = [*index[:axis], str(number), *index[axis:]]
            else:
                moved = index[axis] if offset == "0" else f"{index[axis]} + {offset}"
                place = [*index[:axis], moved, *index[axis + 1 :]]
            w.line(f"{w.at(out, place)} = {w.at(x, index)};")
        if not stacked:
            first.append(extents[axis])


@emits("split")
def split(w: Writer, node: ExternalNode) -> None:
    x = node["x"]
    axis = node["axis"] % x.type.rank
    first: list[str] = []
    for out in node.outputs:
        offset = " + ".join(first) or "0"
        with w.each(out) as index:
            moved = index[axis] if offset == "0" else f"{index[axis]} + {offset}"
            w.line(f"{w.at(out, index)} = {w.at(x, [*index[:axis], moved, *index[axis + 1 :]])};")
        first.append(dims(out)[axis])


@emits("pad")
def pad(w: Writer, node: ExternalNode) -> None:
    x, out, rank = node["x"], node.output, node["x"].type.rank
    begins, ends = node["pads"][:rank], node["pads"][rank:]
    with w.each(out) as index:
        source, conditions = [], []
        for axis, (i, extent) in enumerate(zip(index, dims(x), strict=True)):
            if not begins[axis] and not ends[axis]:
                source.append(i)
                continue
            place = f"p{axis}"
            shifted = f"{i} - {begins[axis]}"
            if node["mode"] == "constant":
                conditions.append(f"{place} >= 0 && {place} < {extent}")
            else:
                shifted = f"mirlo_{node['mode']}({shifted}, {extent})"
            w.line(f"const int64_t {place} = {shifted};")
            source.append(place)
        read = w.at(x, source)
        if conditions:
            read = f"{' && '.join(conditions)} ? {read} : {literal(node['value'], x.type.dtype)}"
        w.line(f"{w.at(out, index)} = {read};")


@emits("depth_to_space")
def depth_to_space(w: Writer, node: ExternalNode) -> None:
    x, out, block = node["x"], node.output, node["block"]
    with w.each(out) as (n, c, h, v):
        row, column = f"{h} % {block}", f"{v} % {block}"
        if node["mode"] == "DCR":
            depth = f"(({row}) * {block} + {column}) * {dims(out)[1]} + {c}"
        else:
            depth = f"({c} * {block} + {row}) * {block} + {column}"
        w.line(f"{w.at(out, [n, c, h, v])} = {w.at(x, [n, depth, f'{h} / {block}', f'{v} / {block}'])};")


@emits("space_to_depth")
def space_to_depth(w: Writer, node: ExternalNode) -> None:
    x, out, block = node["x"], node.output, node["block"]
    channels = dims(x)[1]
    with w.each(out) as (n, d, h, v):
        row = f"({h} * {block} + {d} / {channels} / {block})"
        column = f"({v} * {block} + {d} / {channels} % {block})"
        w.line(f"{w.at(out, [n, d, h, v])} = {w.at(x, [n, f'{d} % {channels}', row, column])};")


@emits("tri")
def tri(w: Writer, node: ExternalNode) -> None:
    x, out = node["x"], node.output
    sign = ">=" if node["upper"] else "<="
    with w.each(out) as index:
        inside = f"{index[-1]} - {index[-2]} {sign} {node['k']}"
        w.line(f"{w.at(out, index)} = {inside} ? {w.at(x, index)} : {literal(0, x.type.dtype)};")
