"""Sizes given by dim name, for all inputs of a model at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.types import TensorType
from mirlo.frontends.onnx import model as models
from mirlo.frontends.onnx.errors import OnnxImportError, nearest
from mirlo.frontends.onnx.inputs import Shapes, graph_inputs, identifier, input_types


def shapes_with_dims(
    model: models.Source, shapes: Shapes | None, dims: Mapping[str, int]
) -> dict[str, Sequence[int | str]]:
    """Return input shapes in which these dims have these sizes, in addition to `shapes`."""
    loaded = models.load(model)
    inputs = graph_inputs(loaded.content.graph, shapes)
    declared = _tensors(input_types(inputs, None, loaded.name))
    known = sorted({name for kind in declared.values() for dim in kind.shape for name in D.symbols_of(dim)})
    sizes: dict[str, D.Dim] = {}
    for text, size in dims.items():
        name = text if text in known else identifier(text)
        if name not in known:
            what = f"dims of its inputs: {', '.join(known)}" if known else "its inputs have no dynamic dims"
            hint = f"; {nearest(text, known)}" if known else ""
            raise OnnxImportError(f"{loaded.name}: it has no dim '{text}', for which a size is given; {what}{hint}")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise OnnxImportError(
                f"{loaded.name}: the size of the dim '{text}' must be a number from 0, found {size!r}"
            )
        sizes[name] = size
    result: dict[str, Sequence[int | str]] = {}
    given = _tensors(input_types(inputs, shapes, loaded.name))
    for name, kind in given.items():  # a shape may have renamed a dim
        for dim, found in zip(declared[name].shape, kind.shape, strict=True):
            if str(dim) in sizes and D.is_symbol_name(str(found)):
                sizes[str(found)] = sizes[str(dim)]
    for name, kind in given.items():
        row = [D.substitute(dim, sizes) for dim in kind.shape]
        for axis, (dim, found) in enumerate(zip(declared[name].shape, row, strict=True)):
            wanted = D.substitute(dim, sizes)
            if isinstance(wanted, int) and found != wanted:
                raise OnnxImportError(
                    f"{loaded.name}: dim {axis} of input '{name}', '{dim}', is {wanted} by the sizes of dims, and "
                    f"{found} by the shapes that are given"
                )
            if isinstance(found, int) and found < 0:
                raise OnnxImportError(f"{loaded.name}: dim {axis} of input '{name}', '{dim}', would be {found}")
        result[name] = [dim if isinstance(dim, int) else str(dim) for dim in row]
    return result


def _tensors(types: Mapping[str, object]) -> dict[str, TensorType]:
    return {name: kind for name, kind in types.items() if isinstance(kind, TensorType)}
