"""Copies of functions for some sizes of their symbols."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from mirlo.dialects.bindings import ir
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import DialectOp
from mirlo.dialects.core.types import TensorType, dim_attributes, dims_of_attribute, ranked_tensor
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.sizes import EXTENTS, SYMBOLS, extents_of

Sizes = Mapping[str, Dim]
_BINDING = ("relax.bind_dims", "relax.match_dims")


class DimIsBound(ValueError):
    """A symbol that is to be replaced stands for what data determine."""

    def __init__(self, message: str, location: ir.Location) -> None:
        super().__init__(message)
        self.location = location


def copy_with_dims(function: ir.Operation, dims: Sizes) -> ir.Operation:
    """Return a copy of a function over tensors, in no module, in which symbols are these dims."""
    clone = function.clone(ip=False)
    substitute_dims(clone, dims)
    return clone


def substitute_dims(function: ir.Operation, sizes: Sizes) -> None:
    """Replace symbols by dims in all types and attributes of a function: of a graph, or a prim function."""
    operations: list[ir.Operation] = []

    def note(op: ir.Operation) -> ir.WalkResult:
        operations.append(op)
        return ir.WalkResult.ADVANCE

    walk(function, note, ir.WalkOrder.PRE_ORDER)
    for op in operations:
        for result in op.results:
            _retype(result, sizes)
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    _retype(argument, sizes)
        _fix_attributes(op, sizes)
    for key in ("arg_attrs", "res_attrs"):
        if key in function.attributes:
            entries = [_with_kind(ir.DictAttr(entry), sizes) for entry in ir.ArrayAttr(function.attributes[key])]
            function.attributes[key] = ir.ArrayAttr.get(entries)
    kind = ir.TypeAttr(function.attributes["function_type"]).value
    fixed = ir.FunctionType.get([_fixed(t, sizes) for t in kind.inputs], [_fixed(t, sizes) for t in kind.results])
    function.attributes["function_type"] = ir.TypeAttr.get(fixed)
    if EXTENTS in function.attributes:
        products = [substituted(dims, sizes) for dims in extents_of(function)]
        left = [dim_attributes(dims) for dims in products if not all(isinstance(dim, int) for dim in dims)]
        function.attributes[EXTENTS] = ir.ArrayAttr.get(left)


def rename_dims(op: ir.Operation, names: Mapping[str, str]) -> None:
    """Rename symbols in the types and attributes of an operation without regions, also where it binds them."""
    sizes = {old: D.symbol(new) for old, new in names.items()}
    for result in op.results:
        _retype(result, sizes)
    if op.name in _BINDING:
        bound = [ir.StringAttr.get(names.get(name, name)) for name in op.opview.symbols]
        op.attributes["symbols"] = ir.ArrayAttr.get(bound)
    _fix_attributes(op, sizes)


def _retype(value: ir.Value, sizes: Sizes) -> None:
    fixed = _fixed(value.type, sizes)
    if fixed != value.type:
        value.set_type(fixed)


def _fixed(kind: ir.Type, sizes: Sizes) -> ir.Type:
    tensor = TensorType.from_mlir(kind) if isinstance(kind, ir.RankedTensorType) else None
    if tensor is None or tensor.is_static:
        return kind
    # Of the parameters of prim functions the element types are those in memory.
    fixed = tensor.with_shape(substituted(tensor.shape, sizes))
    return fixed.to_mlir() if tensor.to_mlir() == kind else _with_element(fixed, kind.element_type)


def _with_element(tensor: TensorType, element: ir.Type) -> ir.Type:
    return ranked_tensor(tensor.shape, element)


def substituted(dims: tuple[D.Dim, ...], sizes: Sizes) -> tuple[D.Dim, ...]:
    """Return dims with symbols replaced."""
    return tuple(dim if isinstance(dim, int) else D.substitute(dim, sizes) for dim in dims)


def _fix_attributes(op: ir.Operation, sizes: Sizes) -> None:
    """Substitute the dims in the attributes of an operation."""
    if op.name in _BINDING:
        for name in op.opview.symbols:
            if name in sizes:
                raise DimIsBound(f"the dim '{name}' is bound to data here, it has no size of its own", op.location)
    if op.name == "tir.block":
        domain = dims_of_attribute(op.attributes["domain"])
        op.attributes["domain"] = dim_attributes(substituted(domain, sizes))
    elif op.name == "tir.size":
        op.attributes["dim"] = ir.StringAttr.get(str(D.substitute(D.parse(op.opview.dim), sizes)))
    elif isinstance(op.opview, DialectOp):
        for name in op.opview.dims_attributes():
            if name in op.attributes:
                op.attributes[name] = dim_attributes(substituted(dims_of_attribute(op.attributes[name]), sizes))


def attributes_of_dims(op: ir.Operation) -> Collection[str]:
    """Return the names of the attributes of an operation that are dims."""
    if op.name == "func.func":
        return (EXTENTS, SYMBOLS)
    if op.name == "tir.block":
        return ("domain",)
    if op.name == "tir.size":
        return ("dim",)
    return op.opview.dims_attributes() if isinstance(op.opview, DialectOp) else ()


def _with_kind(entry: ir.DictAttr, sizes: Sizes) -> ir.Attribute:
    """Substitute the dims in `relax.kind`, such as `sequence(f32[n])`."""
    if "relax.kind" not in entry:
        return entry

    def replaced(listed: re.Match[str]) -> str:
        dims = [D.parse(text.strip()) for text in listed[1].split(",") if text.strip()]
        return f"[{', '.join(map(str, substituted(tuple(dims), sizes)))}]"

    attributes = {entry[i].name: entry[i].attr for i in range(len(entry))}
    kind = re.sub(r"\[([^\]]*)\]", replaced, ir.StringAttr(attributes["relax.kind"]).value)
    return ir.DictAttr.get({**attributes, "relax.kind": ir.StringAttr.get(kind)})
