"""The pass `fix-dims`: gives dynamic dims of a module their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import arith, ir, memref
from mirlo.dialects.core import dims as D
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.buffers import UNBOUNDED, buffer_type
from mirlo.dialects.tir.sizes import SYMBOLS
from mirlo.dialects.tir.specialize import DimIsBound, substitute_dims, substituted
from mirlo.passes.byoc.inline import all_operations
from mirlo.passes.byoc.outline import functions_of
from mirlo.passes.byoc.outline_external import external_modules
from mirlo.passes.entry import PLANNED
from mirlo.passes.registry import Pass, PassError, option, register_pass
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session

Sizes = Mapping[str, D.Dim]
_BINDING = ("relax.bind_dims", "relax.match_dims")


@register_pass
@dataclass(frozen=True)
class FixDims(Pass):
    """Give dynamic dims their sizes, in the graph and in the prim functions that it calls.

    `fix-dims{dims=batch=8,length=128}`. A symbol stands for one size in the whole module. Sizes that contradict what
    operators require are errors of the operator.
    """

    name = "fix-dims"
    contained = True
    dims: tuple[str, ...] = option((), "sizes of dims by name, batch=8")

    def run(self, op: ir.OpView, session: Session) -> None:
        fix_dims(op.operation, dict(map(_read_size, self.dims)))


def _read_size(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    if not size.strip().isdecimal():
        raise PassError(f"dims: expected a size such as batch=8, found '{text}'")
    return name.strip(), int(size)


def fix_dims(module: ir.Operation, sizes: Sizes) -> None:
    """Replace symbols by sizes in all types and attributes of a module."""
    for function in functions_of(module).values():
        if PLANNED in function.attributes:
            raise PassError("the memory of the module is planned: its dims are fixed before", function.location)
    for owner in (module, *external_modules(module).values()):
        functions = functions_of(owner)
        buffers = {
            name: _buffer_shapes(functions, name, sizes) for name, f in functions.items() if SYMBOLS in f.attributes
        }
        for function in functions.values():
            with function.location:
                try:
                    substitute_dims(function, sizes)
                except DimIsBound as error:
                    raise PassError(str(error), error.location) from None
        for name, shapes in buffers.items():
            _fix_buffers(functions[name], sizes, shapes)


# ------------------------------------------------------------------------------------------------- functions of buffers


def _buffer_shapes(functions: Mapping[str, ir.Operation], name: str, sizes: Sizes) -> dict[int, list[int]]:
    """Return the shapes of the unbounded parameters of a function that become static, by the types of its calls."""
    for caller in functions.values():
        for op in all_operations(caller):
            if op.name == "relax.call_tir" and op.opview.callee == name:
                return _static_shapes([*op.operands, *op.results], sizes)
    return {}


def _static_shapes(values: list[ir.Value], sizes: Sizes) -> dict[int, list[int]]:
    shapes: dict[int, list[int]] = {}
    for i, value in enumerate(values):
        tensor = TensorType.from_mlir(value.type)
        assert tensor is not None, "calls of prim functions take tensors"
        shape = substituted(tensor.shape, sizes)
        if not tensor.is_static and all(isinstance(dim, int) for dim in shape):
            shapes[i] = [dim for dim in shape if isinstance(dim, int)]
    return shapes


def _fix_buffers(function: ir.Operation, sizes: Sizes, shapes: Mapping[int, list[int]]) -> None:
    """Make the symbols of a function over buffers constants, and buffers of known size parameters of their shape."""
    entry = function.regions[0].blocks[0]
    symbols = [
        D.substitute(D.parse(ir.StringAttr(text).value), sizes) for text in ir.ArrayAttr(function.attributes[SYMBOLS])
    ]
    first = len(entry.arguments) - len(symbols)
    with ir.InsertionPoint.at_block_begin(entry), function.location:
        for argument, symbol in zip(list(entry.arguments)[first:], symbols, strict=True):
            if isinstance(symbol, int):
                argument.replace_all_uses_with(arith.ConstantOp(ir.IndexType.get(), symbol).result)
        for i, shape in shapes.items():
            argument = entry.arguments[i]
            flat = argument.type
            if not isinstance(flat, ir.MemRefType) or list(flat.shape) != [UNBOUNDED]:
                continue
            argument.set_type(buffer_type(shape, flat.element_type))
            view = memref.ReinterpretCastOp(
                flat, argument, [], [], [], static_offsets=[0], static_sizes=[UNBOUNDED], static_strides=[1]
            )
            argument.replace_all_uses_except(view.result, view.operation)
    for i in reversed(range(first, len(entry.arguments))):
        if isinstance(symbols[i - first], int):
            entry.erase_argument(i)
    left = [ir.StringAttr.get(str(symbol)) for symbol in symbols if not isinstance(symbol, int)]
    if left:
        function.attributes[SYMBOLS] = ir.ArrayAttr.get(left)
    else:
        del function.attributes[SYMBOLS]
    kind = ir.FunctionType.get([argument.type for argument in entry.arguments], [])
    function.attributes["function_type"] = ir.TypeAttr.get(kind)
