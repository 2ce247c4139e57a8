"""Attention, which computes its scores twice so that they need no memory, and rotary embeddings."""

from __future__ import annotations

from mirlo.passes.byoc.view import ExternalNode
from mirlo.targets.c.emit import emits
from mirlo.targets.c.types import literal
from mirlo.targets.c.writer import Writer, dims, element_type


@emits("attention")
def attention(w: Writer, node: ExternalNode) -> None:
    query, key, value, mask, out = *(node[n] for n in ("query", "key", "value", "mask")), node.output
    kind = element_type(out)
    f = "f" if kind == "float" else ""
    batch, heads, length, size = dims(query)
    keys, depth = dims(key)[2], dims(value)[3]
    past = f" + {keys} - {length}" if node["at_end"] else ""
    scale = f"1 / sqrt{f}({size})" if node["scale"] is None else literal(node["scale"], out.type.dtype)
    with w.loop("b", batch) as b, w.loop("h", heads) as h, w.loop("s", length) as s:
        shared = h if dims(key)[1] == heads else f"{h} / ({heads} / {dims(key)[1]})"
        row = w.at(out, [b, h, s, "0"])
        w.line(f"{kind} *row = &{row};")
        w.line(f"{kind} peak = -INFINITY, sum = 0;")
        with w.loop("d", depth) as d:
            w.line(f"row[{d}] = 0;")
        for second in (False, True):
            with w.loop("t", f"mirlo_min({keys}, {s} + 1{past})" if node["causal"] else keys) as t:
                w.line(f"{kind} score = 0;")
                with w.loop("c", size) as c:
                    w.line(f"score += {w.at(query, [b, h, s, c])} * {w.at(key, [b, shared, t, c])};")
                w.line(f"score *= {scale};")
                if mask is not None:
                    read = w.broadcast(mask, [b, h, s, t])
                    w.line(f"if (!{read}) score = -INFINITY;" if mask.type.dtype.is_bool else f"score += {read};")
                if not second:
                    w.line("if (score > peak) peak = score;")
                    continue
                w.line(f"const {kind} weight = exp{f}(score - peak);")
                w.line("sum += weight;")
                with w.loop("d", depth) as d:
                    w.line(f"row[{d}] += weight * {w.at(value, [b, shared, t, d])};")
        with w.loop("d", depth) as d:
            w.line(f"row[{d}] /= sum;")


@emits("rotary_embedding")
def rotary_embedding(w: Writer, node: ExternalNode) -> None:
    """Rotate pairs of elements by an angle and copy the elements behind them."""
    x, cos, sin, out = node["x"], node["cos"], node["sin"], node.output
    half, kind = dims(cos)[-1], element_type(x)
    batch, heads, length, size = dims(x)
    with w.loop("b", batch) as b, w.loop("h", heads) as h, w.loop("s", length) as s:
        with w.loop("i", half) as i:
            places = (f"{i} * 2", f"{i} * 2 + 1") if node["interleaved"] else (i, f"{i} + {half}")
            for name, place in zip(("left", "right"), places, strict=True):
                w.line(f"const {kind} {name} = {w.at(x, [b, h, s, place])};")
            for name, value in (("c", cos), ("d", sin)):
                w.line(f"const {kind} {name} = {w.broadcast(value, [b, '0', s, i])};")
            w.line(f"{w.at(out, [b, h, s, places[0]])} = left * c - right * d;")
            w.line(f"{w.at(out, [b, h, s, places[1]])} = right * c + left * d;")
        with w.block(f"for (int64_t i = {half} * 2; i < {size}; ++i)"):
            w.line(f"{w.at(out, [b, h, s, 'i'])} = {w.at(x, [b, h, s, 'i'])};")
