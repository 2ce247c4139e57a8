"""Gathers, scatters and quantization."""

from __future__ import annotations

from mirlo.passes.byoc.view import ExternalNode, ExternalValue
from mirlo.targets.c.emit import emits
from mirlo.targets.c.types import c_type, max_value, min_value
from mirlo.targets.c.writer import Writer, dims, element_type


def declare_index(w: Writer, name: str, indices: ExternalValue, at: list[str], extent: str) -> str:
    """Declare a variable for an index, which may count from the end."""
    w.line(f"int64_t {name} = (int64_t){w.at(indices, at)};")
    if not indices.type.dtype.is_unsigned:
        w.line(f"if ({name} < 0) {name} += {extent};")
    return name


@emits("gather")
def gather(w: Writer, node: ExternalNode) -> None:
    x, indices, out = node["x"], node["indices"], node.output
    axis, depth = node["axis"] % x.type.rank, indices.type.rank
    with w.each(out) as index:
        place = declare_index(w, "place", indices, index[axis : axis + depth], dims(x)[axis])
        w.line(f"{w.at(out, index)} = {w.at(x, [*index[:axis], place, *index[axis + depth :]])};")


@emits("gather_elements")
def gather_elements(w: Writer, node: ExternalNode) -> None:
    x, indices, out = node["x"], node["indices"], node.output
    axis = node["axis"] % x.type.rank
    with w.each(out) as index:
        place = declare_index(w, "place", indices, index, dims(x)[axis])
        w.line(f"{w.at(out, index)} = {w.at(x, [*index[:axis], place, *index[axis + 1 :]])};")


@emits("gather_nd")
def gather_nd(w: Writer, node: ExternalNode) -> None:
    x, indices, out = node["x"], node["indices"], node.output
    batch, points = node["batch_dims"], indices.type.rank - 1
    depth = int(indices.type.shape[-1])
    with w.each(out) as index:
        places = [
            declare_index(w, f"place{i}", indices, [*index[:points], str(i) if depth > 1 else "0"], dims(x)[batch + i])
            for i in range(depth)
        ]
        w.line(f"{w.at(out, index)} = {w.at(x, [*index[:batch], *places, *index[points:]])};")


@emits("one_hot")
def one_hot(w: Writer, node: ExternalNode) -> None:
    indices, values, out = node["indices"], node["values"], node.output
    axis = node["axis"] % out.type.rank
    with w.each(out) as index:
        at = [*index[:axis], *index[axis + 1 :]]
        place = declare_index(w, "place", indices, at, str(node["depth"]))
        w.line(f"{w.at(out, index)} = {w.names[values]}[place == {index[axis]}];".replace("place", place))


def _parameter(w: Writer, value: ExternalValue, node: ExternalNode, index: list[str]) -> str:
    """Return the index of the scale or zero point of an element."""
    axis = node["axis"] % max(len(index), 1)
    if node["block"]:
        return w.at(value, [f"{i} / {node['block']}" if n == axis else i for n, i in enumerate(index)])
    return w.at(value, [index[axis]] if value.type.rank else [])


@emits("quantize")
def quantize(w: Writer, node: ExternalNode) -> None:
    x, scale, zero, out = node["x"], node["scale"], node["zero_point"], node.output
    kind, target = element_type(scale), out.type.dtype
    f = "f" if kind == "float" else ""
    with w.each(out) as index:
        quotient = f"({kind}){w.at(x, index)} / {_parameter(w, scale, node, index)}"
        point = f" + {_parameter(w, zero, node, index)}" if zero is not None else ""
        w.line(f"const double q = rint{f}({quotient}){point};")
        low, high = min_value(target), max_value(target)
        w.line(f"{w.at(out, index)} = q < {low} ? {low} : q > {high} ? {high} : ({c_type(target)})q;")


@emits("dequantize")
def dequantize(w: Writer, node: ExternalNode) -> None:
    x, scale, zero, out = node["x"], node["scale"], node["zero_point"], node.output
    kind = element_type(out)
    with w.each(out) as index:
        point = f" - (int64_t){_parameter(w, zero, node, index)}" if zero is not None else ""
        value = f"({kind})((int64_t){w.at(x, index)}{point})"
        w.line(f"{w.at(out, index)} = {value} * {_parameter(w, scale, node, index)};")
