"""Matrix products and convolutions as plain loops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from mirlo.dialects.relax.infer_windows import padding_pairs
from mirlo.dialects.relax.matmul import einsum_terms
from mirlo.passes.byoc.view import ExternalNode, ExternalValue
from mirlo.targets.c.emit import emits
from mirlo.targets.c.types import literal
from mirlo.targets.c.writer import Writer, dims, element_type, linear


@emits("matmul")
def matmul(w: Writer, node: ExternalNode) -> None:
    """Emit a matrix product whose inner loop reads the right operand contiguously."""
    x, y, out = node["lhs"], node["rhs"], node.output
    left = dims(x) if x.type.rank > 1 else ["1", *dims(x)]
    right = dims(y) if y.type.rank > 1 else [*dims(y), "1"]
    swap_x, swap_y = node["transpose_lhs"], node["transpose_rhs"]
    rows, depth = (left[-1], left[-2]) if swap_x else (left[-2], left[-1])
    columns = right[-2] if swap_y else right[-1]
    batch = _broadcast(left[:-2], right[:-2])
    kind = element_type(out)
    with w.loops(batch, "b") as at, w.loop("i", rows) as i:
        row = _offset([*batch, rows], [*at, i], columns)
        w.line(f"{kind} *row = {w.names[out]} + {row};")
        with w.loop("j", columns) as j:
            w.line(f"row[{j}] = 0;")
        with w.loop("k", depth) as k:
            place = [k, i] if swap_x else [i, k]
            w.line(f"const {kind} a = {w.names[x]}[{_batched(left, at, place)}];")
            with w.loop("j", columns) as j:
                place = [j, k] if swap_y else [k, j]
                w.line(f"row[{j}] += a * {w.names[y]}[{_batched(right, at, place)}];")


def _broadcast(left: list[str], right: list[str]) -> list[str]:
    rank = max(len(left), len(right))
    left, right = (["1"] * (rank - len(side)) + side for side in (left, right))
    return [b if a == "1" else a for a, b in zip(left, right, strict=True)]


def _batched(shape: list[str], at: list[str], place: list[str]) -> str:
    own = at[len(at) - len(shape) + 2 :]
    return linear(shape, [*("0" if dim == "1" else i for dim, i in zip(shape[:-2], own, strict=True)), *place])


def _offset(extents: list[str], index: list[str], step: str) -> str:
    return linear([*extents, step], [*index, "0"])


@emits("einsum")
def einsum(w: Writer, node: ExternalNode) -> None:
    """Emit loops over the labels of the result and, inside, over the reduced labels."""
    out = node.output
    inputs, output = einsum_terms(node["equation"], [x.type.rank for x in node["xs"]])
    sizes: dict[str, str] = {}
    for x, labels in zip(node["xs"], inputs, strict=True):
        for label, size in zip(labels, dims(x), strict=True):
            if sizes.get(label, "1") == "1":
                sizes[label] = size
    summed = [label for label in sizes if label not in output]
    with w.loops([sizes[label] for label in output]) as index:
        names = dict(zip(output, index, strict=True))
        w.line(f"{element_type(out)} sum = 0;")
        with w.loops([sizes[label] for label in summed], "r") as inner:
            names.update(zip(summed, inner, strict=True))
            factors = [
                w.at(x, ["0" if size == "1" else names[label] for label, size in zip(labels, dims(x), strict=True)])
                for x, labels in zip(node["xs"], inputs, strict=True)
            ]
            w.line(f"sum += {' * '.join(factors)};")
        w.line(f"{w.at(out, index)} = sum;")


class SpatialWindow:
    """The attributes of a convolution or pool, one value per spatial dim, and its layouts."""

    def __init__(self, node: ExternalNode, x: ExternalValue, output: ExternalValue):
        rank = x.type.rank - 2
        self.last = node.attributes.get("data_layout", "NC*") == "N*C"
        self.strides = node["strides"] or (1,) * rank
        self.dilations = node["dilations"] or (1,) * rank
        self.pads = padding_pairs(node["padding"], rank)
        # Only with ceil_mode may a window extend past an end without padding.
        self.rounds_up = node.attributes.get("ceil_mode", False)
        self.input, self.output = (self.spatial(dims(value)) for value in (x, output))

    def spatial(self, extents: list[str]) -> list[str]:
        return extents[1:-1] if self.last else extents[2:]

    def channels(self, extents: list[str]) -> str:
        return extents[-1] if self.last else extents[1]

    def place(self, n: str, c: str, at: list[str]) -> list[str]:
        """Return the index of an element in a tensor of this layout."""
        return [n, *at, c] if self.last else [n, c, *at]

    @contextmanager
    def inside(self, w: Writer, out: list[str], taps: list[str]) -> Iterator[list[str]]:
        """Emit the code for a window element inside the input; yields its spatial index."""
        names, conditions = [], []
        for i, (o, tap) in enumerate(zip(out, taps, strict=True)):
            place = _position(o, self.strides[i], tap, self.dilations[i], self.pads[i][0])
            name = place
            if not place.isidentifier() and place != "0":
                name = f"s{i}"
                w.line(f"const int64_t {name} = {place};")
            if any(self.pads[i]) or self.rounds_up:
                conditions.append(f"{name} >= 0 && {name} < {self.input[i]}")
            names.append(name)
        with w.block(f"if ({' && '.join(conditions)})") if conditions else nullcontext():
            yield names


def _position(out: str, stride: int, tap: str, dilation: int, begin: int) -> str:
    parts = [_times(out, stride), _times(tap, dilation)]
    text = " + ".join(part for part in parts if part != "0") or "0"
    return f"{text} - {begin}" if begin else text


def _times(name: str, factor: int) -> str:
    return name if factor == 1 or name == "0" else f"{name} * {factor}"


def _kernel(node: ExternalNode, weight: ExternalValue) -> tuple[list[str], str, Any]:
    """Return the window, the input channels per group, and the index of a kernel element."""
    extents, layout = dims(weight), node.attributes.get("kernel_layout", "OI*")
    window = {"OI*": extents[2:], "*IO": extents[:-2], "O*I": extents[1:-1]}[layout]
    channels = {"OI*": extents[1], "*IO": extents[-2], "O*I": extents[-1]}[layout]

    def place(o: str, c: str, taps: list[str]) -> list[str]:
        return {"OI*": [o, c, *taps], "*IO": [*taps, c, o], "O*I": [o, *taps, c]}[layout]

    return window, channels, place


@emits("conv")
def conv(w: Writer, node: ExternalNode) -> None:
    """Emit a convolution: each result element sums over the channels of its group and the window."""
    x, weight, bias, out = node["x"], node["weight"], node["bias"], node.output
    window = SpatialWindow(node, x, out)
    taps, channels, place = _kernel(node, weight)
    shape, kind = dims(out), element_type(out)
    filters = window.channels(shape)
    with (
        w.loop("n", shape[0]) as n,
        w.loop("o", filters) as o,
        w.loops(window.output, "y") as at,
    ):
        w.line(f"{kind} sum = {w.at(bias, [o]) if bias is not None else literal(0, out.type.dtype)};")
        first = f"{o} / ({filters} / {node['groups']}) * {channels} + " if node["groups"] > 1 else ""
        with w.loop("c", channels) as c, w.loops(taps, "k") as k, window.inside(w, at, k) as source:
            read = w.at(x, window.place(n, f"{first}{c}", source))
            w.line(f"sum += ({kind}){read} * {w.at(weight, place(o, c, k))};")
        w.line(f"{w.at(out, window.place(n, o, at))} = sum;")


@emits("conv_transpose")
def conv_transpose(w: Writer, node: ExternalNode) -> None:
    """Emit a transposed convolution: each result element gathers the inputs whose windows cover it."""
    x, weight, bias, out = node["x"], node["weight"], node["bias"], node.output
    window = SpatialWindow(node, x, out)
    extents = dims(weight)
    shape, kind = dims(out), element_type(out)
    groups, filters = node["groups"], window.channels(shape)
    inputs = window.channels(dims(x))
    with w.loop("n", shape[0]) as n, w.loop("o", filters) as o, w.loops(window.output, "y") as at:
        w.line(f"{kind} sum = {w.at(bias, [o]) if bias is not None else literal(0, out.type.dtype)};")
        first = f"{o} / {extents[1]} * ({inputs} / {groups}) + " if groups > 1 else ""
        filter_ = f"{o} % {extents[1]}" if groups > 1 else o
        with w.loop("c", f"({inputs} / {groups})") as c, w.loops(extents[2:], "k") as k:
            source, conditions = [], []
            for i, (y, tap) in enumerate(zip(at, k, strict=True)):
                step = window.strides[i]
                w.line(f"const int64_t t{i} = {y} + {window.pads[i][0]} - {_times(tap, window.dilations[i])};")
                conditions.append(f"t{i} >= 0 && t{i} % {step} == 0 && t{i} / {step} < {window.input[i]}")
                source.append(f"t{i} / {step}")
            read = w.at(x, window.place(n, f"{first}{c}", source))
            with w.block(f"if ({' && '.join(conditions)})"):
                w.line(f"sum += {read} * {w.at(weight, [f'{first}{c}', filter_, *k])};")
        w.line(f"{w.at(out, window.place(n, o, at))} = sum;")
