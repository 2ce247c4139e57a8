"""Reductions, arg-extremes, cumulative operators and softmax."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mirlo.dialects.core.dtypes import DType
from mirlo.passes.byoc.view import ExternalNode, ExternalValue
from mirlo.targets.c.emit import emits
from mirlo.targets.c.types import c_type, max_value, min_value, product
from mirlo.targets.c.writer import Writer, dims, element_type

# operator: initial value; update of `acc` by element `e`; final value of `acc` ({n} elements)
REDUCTIONS = {
    "reduce_sum": ("0", "acc += e;", "acc"),
    "reduce_mean": ("0", "acc += e;", "acc / {n}"),
    "reduce_prod": ("1", "acc *= e;", "acc"),
    "reduce_max": ("{least}", "if (e > acc || e != e) acc = e;", "acc"),
    "reduce_min": ("{most}", "if (e < acc || e != e) acc = e;", "acc"),
    "reduce_l1": ("0", "acc += e < 0 ? -e : e;", "acc"),
    "reduce_l2": ("0", "acc += e * e;", "sqrt(acc)"),
    "reduce_sum_square": ("0", "acc += e * e;", "acc"),
    "reduce_log_sum": ("0", "acc += e;", "log(acc)"),
    "reduce_any": ("false", "acc = acc || e;", "acc"),
    "reduce_all": ("true", "acc = acc && e;", "acc"),
}


def sum_type(kind: DType) -> str:
    """Return the type in which elements are accumulated."""
    return "double" if kind.is_float else c_type(kind)


def axes_of(axes: Any, rank: int) -> list[int]:
    return list(range(rank)) if axes is None else sorted(axis % rank for axis in axes)


@contextmanager
def rows(w: Writer, x: ExternalValue, axes: list[int], keepdims: bool) -> Iterator[tuple[list[str], list[str]]]:
    """Emit loops over the axes that are not reduced.

    Yield the index of the result and that of x, with `r0`... for reduced axes.
    """
    extents = dims(x)
    kept = [axis for axis in range(len(extents)) if axis not in axes]
    with w.loops([extents[axis] for axis in kept]) as index:
        names = dict(zip(kept, index, strict=True))
        for number, axis in enumerate(axes):
            names[axis] = "0" if extents[axis] == "1" else f"r{number}"
        whole = [names[axis] for axis in range(len(extents))]
        yield ["0" if axis in axes else names[axis] for axis in range(len(extents))] if keepdims else index, whole


@contextmanager
def along(w: Writer, x: ExternalValue, axes: list[int]) -> Iterator[None]:
    """Emit loops over the reduced axes."""
    extents = dims(x)
    with w.loops([extents[axis] for axis in axes], "r"):
        yield


@emits(*REDUCTIONS)
def reduce(w: Writer, node: ExternalNode) -> None:
    x, out = node["x"], node.output
    kind, axes = x.type.dtype, axes_of(node["axes"], x.type.rank)
    start, step, end = REDUCTIONS[node.op.removeprefix("relax.")]
    extents = dims(x)
    sums = "acc *" in step or "acc +" in step
    with rows(w, x, axes, node["keepdims"]) as (index, whole):
        accumulator = sum_type(kind) if sums else c_type(kind)
        w.line(f"{accumulator} acc = {start.format(least=min_value(kind), most=max_value(kind))};")
        with along(w, x, axes):
            w.line(f"const {accumulator} e = {w.at(x, whole)};")
            w.line(step)
        size = product([extents[axis] for axis in axes])
        if not kind.is_float:  # the mean of zero integers is 0
            size = f"({size} > 0 ? {size} : 1)"
        w.line(f"{w.at(out, index)} = ({element_type(out)})({end.format(n=f'({accumulator})({size})')});")


@emits("reduce_log_sum_exp")
def reduce_log_sum_exp(w: Writer, node: ExternalNode) -> None:
    """Emit a log-sum-exp; the largest element is subtracted first so that exp does not overflow."""
    x, axes = node["x"], axes_of(node["axes"], node["x"].type.rank)
    with rows(w, x, axes, node["keepdims"]) as (index, whole):
        w.line("double peak = -INFINITY, sum = 0;")
        with along(w, x, axes):
            w.line(f"if ({w.at(x, whole)} > peak) peak = {w.at(x, whole)};")
        w.line("if (isinf(peak)) peak = 0;")
        with along(w, x, axes):
            w.line(f"sum += exp({w.at(x, whole)} - peak);")
        w.line(f"{w.at(node.output, index)} = ({element_type(x)})(log(sum) + peak);")


@emits("argmax", "argmin")
def arg_extreme(w: Writer, node: ExternalNode) -> None:
    x, axis = node["x"], node["axis"] % node["x"].type.rank
    sign = (">" if node.op.endswith("max") else "<") + ("=" if node["select_last"] else "")
    with rows(w, x, [axis], node["keepdims"]) as (index, whole):
        first = [*whole[:axis], "0", *whole[axis + 1 :]]
        w.line(f"{element_type(x)} best = {dims(x)[axis]} > 0 ? {w.at(x, first)} : 0;")
        w.line("int64_t place = 0;")
        with along(w, x, [axis]):
            w.line(f"const {element_type(x)} e = {w.at(x, whole)};")
            w.line(f"if (e {sign} best || (e != e && best == best)) {{ best = e; place = {whole[axis]}; }}")
        w.line(f"{w.at(node.output, index)} = place;")


@emits("cumsum", "cumprod")
def cumulative(w: Writer, node: ExternalNode) -> None:
    x, axis = node["x"], node["axis"] % node["x"].type.rank
    start, sign = ("0", "+") if node.op.endswith("sum") else ("1", "*")
    with rows(w, x, [axis], True) as (_, whole):
        w.line(f"{sum_type(x.type.dtype)} acc = {start};")
        with along(w, x, [axis]):
            place = whole[axis]
            if node["reverse"]:
                place = f"({dims(x)[axis]} - 1 - {place})"
            at = [*whole[:axis], place, *whole[axis + 1 :]]
            # Read the element before it may be overwritten: source and target may alias.
            w.line(f"const {element_type(x)} e = {w.at(x, at)};")
            step, store = f"acc {sign}= e;", f"{w.at(node.output, at)} = ({element_type(x)})acc;"
            for line in (store, step) if node["exclusive"] else (step, store):
                w.line(line)


@emits("softmax", "log_softmax")
def softmax(w: Writer, node: ExternalNode) -> None:
    x, out, axis = node["x"], node.output, node["axis"] % node["x"].type.rank
    kind = element_type(x)
    f = "f" if kind == "float" else ""
    with rows(w, x, [axis], True) as (_, whole):
        w.line(f"{kind} peak = {min_value(x.type.dtype)};")
        with along(w, x, [axis]):
            w.line(f"if (!({w.at(x, whole)} <= peak)) peak = {w.at(x, whole)};")
        w.line("double sum = 0;")
        log = node.op == "relax.log_softmax"
        with along(w, x, [axis]):
            value = f"exp{f}({w.at(x, whole)} - peak)"
            w.line(f"sum += {value};" if log else f"sum += {w.at(out, whole)} = {value};")
        with along(w, x, [axis]):
            made = f"{w.at(x, whole)} - peak - ({kind})log(sum)" if log else f"{w.at(out, whole)} / ({kind})sum"
            w.line(f"{w.at(out, whole)} = {made};")


@emits("hardmax")
def hardmax(w: Writer, node: ExternalNode) -> None:
    x, axis = node["x"], node["axis"] % node["x"].type.rank
    with rows(w, x, [axis], True) as (_, whole):
        w.line("int64_t place = 0;")
        with along(w, x, [axis]):
            best = [*whole[:axis], "place", *whole[axis + 1 :]]
            if whole[axis] != "0":
                w.line(f"if ({w.at(x, whole)} > {w.at(x, best)}) place = {whole[axis]};")
        with along(w, x, [axis]):
            w.line(f"{w.at(node.output, whole)} = {whole[axis]} == place;")
