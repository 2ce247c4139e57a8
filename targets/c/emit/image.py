"""Resizing with source indices computed at compile time and stored in the source as small tables."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dtypes import dtype
from mirlo.dialects.core.types import TensorType
from mirlo.passes.byoc.view import ExternalNode
from mirlo.passes.legalize.interpolation import AxisTable, axis_table, is_affordable
from mirlo.passes.rules import Decline, decline
from mirlo.targets.c.emit import emits
from mirlo.targets.c.types import literal
from mirlo.targets.c.writer import Writer, element_type


def _has_sizes(op: ir.OpView) -> bool | Decline:
    x, output = (TensorType.from_mlir(value.type) for value in (op.x, op.output))
    if x is None or output is None or not (x.is_static and output.is_static) or 0 in (*x.shape, *output.shape):
        return decline("the sizes of a resize must be numbers", types=f"{x}, {output}")
    if not is_affordable(op, output.static_shape):
        return decline("its tables are larger than what may be computed while compiling", to=str(output))
    return True


@emits("resize", check=_has_sizes)
def resize(w: Writer, node: ExternalNode) -> None:
    x, out = node["x"], node.output
    sizes, counts = x.type.static_shape, out.type.static_shape
    attributes = SimpleNamespace(**node.attributes)
    tables = {axis: axis_table(attributes, axis, sizes[axis], counts[axis]) for axis in range(len(sizes))}
    tables = {axis: table for axis, table in tables.items() if not table.is_identity}
    for axis, table in tables.items():
        _write_table(w, axis, table)
    real = element_type(out) if out.type.dtype.is_float else "float"
    several = [axis for axis, table in tables.items() if table.taps > 1]
    with w.each(out) as index:
        at = list(index)
        w.line(f"{real} sum = 0;")
        with ExitStack() as taps:
            for axis, table in tables.items():
                tap = taps.enter_context(w.loop(f"k{axis}", str(table.taps))) if table.taps > 1 else "0"
                at[axis] = _source_index(axis, table, index[axis], tap)
            weights = [f"weight{axis}[{_entry(tables[axis], index[axis], f'k{axis}')}]" for axis in several]
            w.line(f"sum += {' * '.join([w.at(x, at), *weights])};")
        outside = [f"outside{axis}[{index[axis]}]" for axis, table in tables.items() if table.outside.any()]
        made = f"({element_type(out)})sum"
        if outside:
            value = literal(node["extrapolation"], out.type.dtype)
            made = f"{' || '.join(outside)} ? {value} : {made}"
        w.line(f"{w.at(out, index)} = {made};")


def _entry(table: AxisTable, index: str, tap: str) -> str:
    return index if table.taps == 1 else f"{index} * {table.taps} + {tap}"


def _source_index(axis: int, table: AxisTable, index: str, tap: str) -> str:
    """Return the source index of an axis: an affine expression or a table entry."""
    if table.affine is None:
        return f"place{axis}[{_entry(table, index, tap)}]"
    factor, offset, divisor = table.affine
    text = index if factor == 1 else f"{index} * {factor}"
    text = f"{text} + {offset}" if offset else text
    return text if divisor == 1 else f"({text}) / {divisor}"


def _write_table(w: Writer, axis: int, table: AxisTable) -> None:
    if table.affine is None:
        w.line(f"static const int32_t place{axis}[] = {{{', '.join(map(str, table.indices.reshape(-1).tolist()))}}};")
    if table.taps > 1:
        numbers = ", ".join(literal(number, dtype("f32")) for number in table.weights.reshape(-1).tolist())
        w.line(f"static const float weight{axis}[] = {{{numbers}}};")
    if table.outside.any():
        w.line(f"static const bool outside{axis}[] = {{{', '.join(str(int(o)) for o in table.outside)}}};")
