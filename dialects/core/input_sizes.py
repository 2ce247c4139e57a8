"""Sizes given by dim name, for all inputs of a model at once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.types import TensorType

Tensors = Mapping[str, TensorType]


def sized_shapes(
    model: str, declared: Tensors, requested: Tensors, dims: Mapping[str, int], aliases: Mapping[str, str]
) -> dict[str, Sequence[int | str]]:
    """Return the shapes of inputs in which dims have these sizes; raise ValueError for those that do not fit.

    `declared` are the types that the model declares, `requested` those with the shapes that a user gives; they may name
    a dim anew. `aliases` are other spellings of dims.
    """
    known = sorted({name for kind in declared.values() for dim in kind.shape for name in D.symbols_of(dim)})
    sizes: dict[str, D.Dim] = {}
    for text, size in dims.items():
        name = text if text in known else aliases.get(text, text)
        if name not in known:
            what = f"dims of its inputs: {', '.join(known)}" if known else "its inputs have no dynamic dims"
            near = difflib.get_close_matches(text, known, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise ValueError(f"{model}: it has no dim '{text}', for which a size is given; {what}{hint}")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise ValueError(f"{model}: the size of the dim '{text}' must be a number from 0, found {size!r}")
        sizes[name] = size
    for name, kind in requested.items():  # a shape may have renamed a dim
        for dim, actual in zip(declared[name].shape, kind.shape, strict=True):
            if str(dim) in sizes and D.is_symbol_name(str(actual)):
                sizes[str(actual)] = sizes[str(dim)]
    result: dict[str, Sequence[int | str]] = {}
    for name, kind in requested.items():
        row = [D.substitute(dim, sizes) for dim in kind.shape]
        for axis, (dim, actual) in enumerate(zip(declared[name].shape, row, strict=True)):
            wanted = D.substitute(dim, sizes)
            if isinstance(wanted, int) and actual != wanted:
                raise ValueError(
                    f"{model}: dim {axis} of input '{name}', '{dim}', is {wanted} by the sizes of dims, and "
                    f"{actual} by the shapes that are given"
                )
            if isinstance(actual, int) and actual < 0:
                raise ValueError(f"{model}: dim {axis} of input '{name}', '{dim}', would be {actual}")
        result[name] = [dim if isinstance(dim, int) else str(dim) for dim in row]
    return result


def sizes_of_shapes(
    model: str, declared: Tensors, shapes: Mapping[str, Sequence[int | str] | None]
) -> dict[str, D.Dim]:
    """Return the sizes of dims with which the inputs have these shapes; raise ValueError where there are none."""
    sizes: dict[str, D.Dim] = {}
    rows: list[tuple[str, int, D.Dim, D.Dim]] = []
    for name, shape in shapes.items():
        if name not in declared:
            inputs = f"its inputs are {', '.join(declared)}" if declared else "it has no inputs"
            raise ValueError(f"{model}: it has no input '{name}', for which a shape is given; {inputs}")
        kind = declared[name]
        if shape is None:
            continue
        if len(shape) != kind.rank:
            raise ValueError(f"{model}: input '{name}' is {kind}, it cannot have the shape {list(shape)}")
        for axis, (dim, text) in enumerate(zip(kind.shape, shape, strict=True)):
            wanted = D.parse(text) if isinstance(text, str) else text
            if isinstance(wanted, int) and wanted < 0:
                raise ValueError(f"{model}: dim {axis} of input '{name}' cannot be {wanted}")
            rows.append((name, axis, dim, wanted))
            if isinstance(wanted, int) and D.is_symbol_name(str(dim)):
                sizes.setdefault(str(dim), wanted)
    for name, axis, dim, wanted in rows:
        actual = D.substitute(dim, sizes)
        if actual != wanted and D.substitute(wanted, sizes) != actual:
            which = f"dim {axis} of input '{name}'"
            if isinstance(dim, int) or isinstance(actual, int):
                by = "" if isinstance(dim, int) else f", '{dim}' by the shapes that are given,"
                raise ValueError(f"{model}: {which} is {actual}{by} and cannot be {wanted}")
            raise ValueError(
                f"{model}: {which} is '{dim}', which cannot become '{wanted}': the dims of IR keep their names; give "
                "a number"
            )
    return sizes
