"""Printing of prim functions in tensor form: each block as a loop nest."""

from __future__ import annotations

import keyword
import re

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import is_constant
from mirlo.dialects.tir.block import REDUCE, SPATIAL
from mirlo.dialects.tir.view import BlockView, OperandView, PrimView
from mirlo.frontends.script.expressions import EXTREMES, STATIC_CALLS
from mirlo.frontends.script.print_scalar import ATOM, NotPrintable, ScalarPrinter, number_text, quoted, scalar_dtype

INDENT = "    "


def buffer_type(mlir_type: ir.Type) -> str:
    """Return `(4, 5), "f32"` for a tensor or buffer."""
    if not isinstance(mlir_type, (ir.RankedTensorType, ir.MemRefType)):
        raise NotPrintable(f"a parameter of {mlir_type}")
    element = scalar_dtype(mlir_type.element_type)
    dims = list(mlir_type.shape)
    if not mlir_type.has_static_shape:
        raise NotPrintable(f"{mlir_type} has dims that are not numbers")
    return f'{tuple_text([str(d) for d in dims])}, "{element}"'


def tuple_text(items: list[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def index_text(items: list[str]) -> str:
    """Return the text in the brackets of an access."""
    return ", ".join(items) if items else "()"


def print_tensor_form(function: ir.Operation | ir.OpView, name: str) -> list[str]:
    """Return the definition without its decorator."""
    view = PrimView(function)
    if view.others or not view.blocks:
        raise NotPrintable("there are operations outside of blocks")
    made_here = [output.value for block in view.blocks for output in block.outputs]
    if len(set(view.returned)) < len(view.returned) or not set(view.returned) <= set(made_here):
        raise NotPrintable("an output is an input, or is returned twice")
    names = names_in_script(view)
    known = {*view.arguments, *view.returned}
    parameters = [f"{names[v]}: T.Buffer[{buffer_type(v.type)}]" for v in view.arguments]
    parameters += [f"{names[v]}: T.Out[{buffer_type(v.type)}]" for v in view.returned]
    lines = [f"def {name}({', '.join(parameters)}):"]
    for block in view.blocks:
        for output in block.outputs:
            if output.value not in known:
                lines.append(f"{INDENT}{names[output.value]} = T.alloc({buffer_type(output.value.type)})")
        lines += [INDENT + line for line in _block_lines(block, names)]
    return lines


def names_in_script(view: PrimView) -> dict[ir.Value, str]:
    """Return the names of a function's buffers in its script: their own where these are free, else others."""
    own_names, default = view.names, view.default_names
    names: dict[ir.Value, str] = {}
    taken = {"T", "R", "mirlo", "range", "_", *STATIC_CALLS, *EXTREMES}
    for value, name in own_names.items():
        if not (name in taken or keyword.iskeyword(name) or _LOCAL.fullmatch(name)):
            names[value] = name
            taken.add(name)
    for value, name in default.items():
        while value not in names and name in taken:
            name += "_"
        names.setdefault(value, name)
        taken.add(names[value])
    return {value: names[value] for value in default}


_LOCAL = re.compile(r"[ivsr]\d+")
"""The names that the printer gives to loops, axes and scalars."""


def _block_lines(block: BlockView, names: dict[ir.Value, str]) -> list[str]:
    kinds = list(block.axes)
    if kinds != sorted(kinds, key=(SPATIAL, REDUCE).index) or not all(isinstance(d, int) for d in block.domain):
        raise NotPrintable("reduction axes come before spatial ones, or dims are not numbers")
    identity = ir.AffineMap.get(block.rank, 0, [ir.AffineExpr.get_dim(i) for i in block.spatial])
    for output in block.outputs:
        if output.map != identity or output.shape != tuple(block.domain[i] for i in block.spatial):
            raise NotPrintable("a block writes its outputs in another order than that of its axes")
    printer = _BlockPrinter(block, names)
    loops = [f"i{i}" for i in range(block.rank)]
    target = ", ".join(loops) or "_"
    lines = [
        f"for {target} in T.grid({', '.join(map(str, block.domain))}):",
        f"{INDENT}with T.block({quoted(block.name)}):",
    ]
    body = printer.lines()
    if block.rank:
        letters = "".join("S" if kind == SPATIAL else "R" for kind in kinds)
        body.insert(0, f'{", ".join(printer.axes)} = T.axes("{letters}", {", ".join(loops)})')
    return lines + [2 * INDENT + line for line in body]


class _BlockPrinter:
    """Prints the statements of one block."""

    def __init__(self, block: BlockView, names: dict[ir.Value, str]):
        self.block = block
        self.axes = [f"v{i}" for i in range(block.rank)]
        self.point = index_text(self.axes[: len(block.spatial)])
        self.printer = ScalarPrinter(self.leaf)
        self.names = names
        self.printer.names.update(zip(block.index_arguments, self.axes, strict=True))
        self.opaque: dict[ir.Value, str] = {}
        for argument, operand in zip(block.input_arguments, block.inputs, strict=True):
            if operand.is_opaque:
                self.opaque[argument] = names[operand.value]
            else:
                self.printer.names[argument] = self.access(operand)
        for argument, output in zip(block.accumulators, block.outputs, strict=False):
            self.printer.names[argument] = f"{names[output.value]}[{self.point}]"

    def access(self, operand: OperandView) -> str:
        indices = [affine_text(expr, self.axes)[0] for expr in operand.map.results]
        name = self.names[operand.value]
        if operand.outside is None:
            return f"{name}[{index_text(indices)}]"
        return f"{name}.at({', '.join([*indices, f'outside={number_text(operand.outside)}'])})"

    def leaf(self, value: ir.Value) -> str | None:
        op = value.owner if isinstance(value, ir.OpResult) else None
        if op is not None and op.name == "tensor.extract" and op.operands[0] in self.opaque:
            indices = [self.printer.text(v, typed=False) for v in list(op.operands)[1:]]
            return f"{self.opaque[op.operands[0]]}[{index_text(indices)}]"
        return None

    def lines(self) -> list[str]:
        block = self.block
        lines = self._reads()
        if block.is_reduction:
            lines.append("with T.init():")
            for start, output in zip(block.init, block.outputs, strict=True):
                if start is None:
                    raise NotPrintable("a block reduces some outputs and maps others")
                lines.append(f"{INDENT}{self.names[output.value]}[{self.point}] = {number_text(start)}")
        for op in block.body_ops:
            if len(op.results) != 1:
                raise NotPrintable(f"'{op.name}' in a block")
            value = op.results[0]
            if _count_uses(value) > 1 and op.name != "arith.constant":
                name = f"s{len(lines)}"
                lines.append(f"{name} = {self.printer.text(value)}")
                self.printer.names[value] = name
        return lines + self._stores()

    def _reads(self) -> list[str]:
        """Return statements for operands that no expression reads, or not in this order."""
        reads = []
        for argument, operand in zip(self.block.input_arguments, self.block.inputs, strict=True):
            if operand.is_opaque:
                return []
            reads.append(self.printer.names[argument])
        return [f"T.reads({', '.join(reads)})"] if reads and reads != self._order_of_use() else []

    def _order_of_use(self) -> list[str]:
        """Return the operands in the order of their use in expressions, from the stored values down."""
        operands = set(self.block.input_arguments)
        seen: set[ir.Value] = set()
        result: list[str] = []

        def visit(value: ir.Value) -> None:
            if value in seen:
                return
            seen.add(value)
            if value in operands:
                result.append(self.printer.names[value])
            elif isinstance(value, ir.OpResult):
                for operand in value.owner.operands:
                    visit(operand)

        for value in self.block.yielded:
            visit(value)
        return result

    def _stores(self) -> list[str]:
        """Return one store per output; if a later one reads an earlier accumulator, compute the values first."""
        outputs = [f"{self.names[o.value]}[{self.point}]" for o in self.block.outputs]
        texts = [self.printer.text(v, typed=not is_constant(v)) for v in self.block.yielded]
        if len(outputs) == 1 or not self.block.accumulators:
            return [f"{output} = {text}" for output, text in zip(outputs, texts, strict=True)]
        held = [f"r{i} = {self.printer.text(v)}" for i, v in enumerate(self.block.yielded)]
        return held + [f"{output} = r{i}" for i, output in enumerate(outputs)]


def _count_uses(value: ir.Value) -> int:
    return sum(1 for _ in value.uses)


_AFFINE: dict[type[ir.AffineExpr], tuple[str, int]] = {
    ir.AffineAddExpr: ("+", 8),
    ir.AffineMulExpr: ("*", 9),
    ir.AffineFloorDivExpr: ("//", 9),
    ir.AffineModExpr: ("%", 9),
}


def affine_text(expr: ir.AffineExpr, axes: list[str]) -> tuple[str, int]:
    """Return an affine expression and its precedence."""
    if isinstance(expr, ir.AffineDimExpr):
        return axes[expr.position], ATOM
    if isinstance(expr, ir.AffineConstantExpr):
        return str(expr.value), ATOM if expr.value >= 0 else 11
    symbol, strength = _AFFINE.get(type(expr), ("", 0))
    if not symbol:
        raise NotPrintable(f"index {expr}")
    left, right = affine_text(expr.lhs, axes), affine_text(expr.rhs, axes)
    a = left[0] if left[1] >= strength else f"({left[0]})"
    if symbol == "+" and isinstance(expr.rhs, ir.AffineConstantExpr) and expr.rhs.value < 0:
        return f"{a} - {-expr.rhs.value}", 8
    b = right[0] if right[1] > strength else f"({right[0]})"
    return f"{a} {symbol} {b}", strength
