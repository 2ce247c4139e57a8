"""Normalizations."""

from __future__ import annotations

from mirlo.passes.byoc.view import ExternalNode, ExternalValue
from mirlo.targets.c.emit import emits
from mirlo.targets.c.emit.reduce import along, axes_of, rows
from mirlo.targets.c.types import product
from mirlo.targets.c.writer import Writer, dims, element_type


def _emit_mean_and_scale(
    w: Writer, x: ExternalValue, axes: list[int], whole: list[str], epsilon: float, mean: bool = True
) -> None:
    """Emit `mean` and `factor`, 1 over the deviation, of the elements along axes."""
    size = product([dims(x)[axis] for axis in axes])
    w.line("double mean = 0, square = 0;")
    if mean:
        with along(w, x, axes):
            w.line(f"mean += {w.at(x, whole)};")
        w.line(f"mean /= (double)({size});")
    with along(w, x, axes):
        w.line(f"const double e = {w.at(x, whole)} - mean;")
        w.line("square += e * e;")
    w.line(f"const double factor = 1 / sqrt(square / (double)({size}) + {epsilon!r});")


def _scaled(text: str, scale: str | None, bias: str | None) -> str:
    return f"{text}{f' * {scale}' if scale else ''}{f' + {bias}' if bias else ''}"


@emits("layer_norm", "rms_norm")
def layer_norm(w: Writer, node: ExternalNode) -> None:
    x, scale, bias = node["x"], node["scale"], node.operands.get("bias")
    axes = list(range(node["axis"] % x.type.rank, x.type.rank))
    with rows(w, x, axes, True) as (_, whole):
        _emit_mean_and_scale(w, x, axes, whole, node["epsilon"], mean=node.op == "relax.layer_norm")
        factors = [w.broadcast(v, whole) if isinstance(v, ExternalValue) else None for v in (scale, bias)]
        with along(w, x, axes):
            made = _scaled(f"({w.at(x, whole)} - mean) * factor", *factors)
            w.line(f"{w.at(node.output, whole)} = ({element_type(x)})({made});")


@emits("batch_norm")
def batch_norm(w: Writer, node: ExternalNode) -> None:
    x, channel = node["x"], node["axis"] % node["x"].type.rank
    f = "f" if element_type(x) == "float" else ""
    with w.each(x) as index:
        scale, bias, mean, variance = (w.at(node[n], [index[channel]]) for n in ("scale", "bias", "mean", "variance"))
        epsilon = f"({element_type(x)}){node['epsilon']!r}"
        made = f"({w.at(x, index)} - {mean}) / sqrt{f}({variance} + {epsilon}) * {scale} + {bias}"
        w.line(f"{w.at(node.output, index)} = {made};")


@emits("instance_norm")
def instance_norm(w: Writer, node: ExternalNode) -> None:
    x = node["x"]
    axes = axes_of(range(2, x.type.rank), x.type.rank)
    with rows(w, x, axes, True) as (_, whole):
        _emit_mean_and_scale(w, x, axes, whole, node["epsilon"])
        scale, bias = (w.at(node[name], [whole[1]]) for name in ("scale", "bias"))
        with along(w, x, axes):
            made = _scaled(f"({w.at(x, whole)} - mean) * factor", scale, bias)
            w.line(f"{w.at(node.output, whole)} = ({element_type(x)})({made});")


@emits("group_norm")
def group_norm(w: Writer, node: ExternalNode) -> None:
    x, out, extents = node["x"], node.output, dims(node["x"])
    size = f"({extents[1]} / {node['groups']})"
    spatial = extents[2:]
    kind = element_type(x)
    with w.loop("n", extents[0]) as n, w.loop("g", str(node["groups"])) as g:
        total = product([size, *spatial])
        at = [n, f"({g} * {size} + c)", *(("0" if d == "1" else f"i{i}") for i, d in enumerate(spatial))]

        def over(line: str) -> None:
            with w.block(f"for (int64_t c = 0; c < {size}; ++c)"), w.loops(spatial):
                w.line(line)

        w.line("double mean = 0, square = 0;")
        over(f"mean += {w.at(x, at)};")
        w.line(f"mean /= (double)({total});")
        over(f"square += ({w.at(x, at)} - mean) * ({w.at(x, at)} - mean);")
        w.line(f"const double factor = 1 / sqrt(square / (double)({total}) + {node['epsilon']!r});")
        scale, bias = (w.at(node[name], [at[1]]) for name in ("scale", "bias"))
        over(f"{w.at(out, at)} = ({kind})(({w.at(x, at)} - mean) * factor * {scale} + {bias});")


@emits("lrn")
def lrn(w: Writer, node: ExternalNode) -> None:
    x, size = node["x"], node["size"]
    before = (size - 1) // 2
    channels = dims(x)[1]
    with w.each(x) as index:
        n, c, *rest = index
        w.line("double square = 0;")
        with w.block(f"for (int64_t d = {c} - {before}; d <= {c} + {size - 1 - before}; ++d)"):
            read = w.at(x, [n, "d", *rest])
            w.line(f"if (d >= 0 && d < {channels}) square += (double){read} * {read};")
        divisor = f"pow({node['bias']!r} + {node['alpha']!r} / {size} * square, {node['beta']!r})"
        w.line(f"{w.at(node.output, index)} = ({element_type(x)})({w.at(x, index)} / {divisor});")


@emits("lp_normalize")
def lp_normalize(w: Writer, node: ExternalNode) -> None:
    x, axis = node["x"], node["axis"] % node["x"].type.rank
    with rows(w, x, [axis], True) as (_, whole):
        w.line("double norm = 0;")
        with along(w, x, [axis]):
            read = w.at(x, whole)
            w.line(f"norm += {f'fabs({read})' if node['p'] == 1 else f'(double){read} * {read}'};")
        if node["p"] == 2:
            w.line("norm = sqrt(norm);")
        with along(w, x, [axis]):
            w.line(f"{w.at(node.output, whole)} = ({element_type(x)})({w.at(x, whole)} / norm);")
