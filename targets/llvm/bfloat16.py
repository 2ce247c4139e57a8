"""Expansion of bf16 to f32 arithmetic, for processors without an instruction that rounds to bf16.

LLVM otherwise calls a function of its run-time library for each rounding, `__truncsfbf2`, which few processes
define; it rounds even to load single lanes. So code for such a processor contains no bf16 at all: arithmetic is done
in f32, rounding in integers, and loads, moves and stores are of i16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mirlo.dialects.bindings import ir, passmanager
from mirlo.dialects.core.dense import read_dense
from mirlo.dialects.core.types import TensorType

if TYPE_CHECKING:
    import numpy as np

_WIDEN = (
    "builtin.module(math-extend-to-supported-types{extra-types=f16 target-type=f32},"
    "arith-emulate-unsupported-floats{source-types=bf16 target-type=f32})"
)
_EXPAND = "builtin.module(arith-expand{include-bf16=true})"
_CONVERSIONS = ("arith.extf", "arith.truncf")


def uses_bf16(module: ir.Module) -> bool:
    """Return whether any type of the module is bf16."""
    return "bf16" in module.operation.get_asm(assume_verified=True)


def expand_bf16(module: ir.Module) -> None:
    """Rewrite arithmetic and conversions of bf16 as f32 arithmetic and integer operations, rounding after each."""
    _widen_fma(module)
    _split_conversions(module)
    passmanager.PassManager.parse(_WIDEN).run(module.operation)
    exact = ir.Attribute.parse("#arith.fastmath<none>")

    def visit(operation: ir.Operation | ir.OpView) -> Any:
        # The pass may contract a rounding with the following extension: results would depend on fusion.
        if operation.name in _CONVERSIONS:
            operation.attributes["fastmath"] = exact
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    passmanager.PassManager.parse(_EXPAND).run(module.operation)


def _split_conversions(module: ir.Module) -> None:
    """Convert between bf16 and f64 by way of f32: upstream's expansions only know conversions of f32."""
    found = []

    def visit(operation: ir.Operation | ir.OpView) -> Any:
        kinds = [str(value.type) for value in (*operation.operands, *operation.results)]
        if operation.name in _CONVERSIONS and "bf16" in "".join(kinds) and "f64" in "".join(kinds):
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for operation in found:
        narrow = next(v.type for v in (*operation.operands, *operation.results) if "bf16" in str(v.type))
        between = ir.Type.parse(str(narrow).replace("bf16", "f32"))
        with ir.InsertionPoint(operation), operation.location:
            value = ir.Operation.create(operation.name, results=[between], operands=list(operation.operands)).results[0]
            made = ir.Operation.create(operation.name, results=[operation.results[0].type], operands=[value]).results[0]
        operation.results[0].replace_all_uses_with(made)
        operation.erase()


def _widen_fma(module: ir.Module) -> None:
    """Compute `math.fma` of bf16 in f32: upstream's pass treats it as an instruction and leaves it."""
    found = []

    def visit(operation: ir.Operation | ir.OpView) -> Any:
        if operation.name == "math.fma" and "bf16" in str(operation.results[0].type):
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for operation in found:
        narrow = operation.results[0].type
        wide = ir.Type.parse(str(narrow).replace("bf16", "f32"))
        with ir.InsertionPoint(operation), operation.location:
            operands = [
                ir.Operation.create("arith.extf", results=[wide], operands=[value]).results[0]
                for value in operation.operands
            ]
            made = ir.Operation.create("math.fma", results=[wide], operands=operands).results[0]
            rounded = ir.Operation.create("arith.truncf", results=[narrow], operands=[made]).results[0]
        operation.results[0].replace_all_uses_with(rounded)
        operation.erase()


def move_bf16_as_integers(module: ir.Module) -> None:
    """Replace every bf16 of a module in the LLVM dialect, without arithmetic on bf16, by i16."""
    operations: list[Any] = []

    def visit(operation: ir.Operation | ir.OpView) -> Any:
        operations.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for operation in operations:
        for name in list(operation.attributes):
            attribute = operation.attributes[name]
            changed = _integer_attribute(attribute)
            if changed is not None:
                operation.attributes[name] = changed
        for region in operation.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    _retype(argument)
        for result in operation.results:
            _retype(result)


def _retype(value: Any) -> None:
    if "bf16" in str(value.type):
        value.set_type(_integer_type(value.type))


def _integer_type(kind: Any) -> Any:
    # Few types of the LLVM dialect (structures, functions, arrays) have classes in the bindings; their text contains
    # no names.
    return ir.Type.parse(str(kind).replace("bf16", "i16"))


def _integer_attribute(attribute: ir.Attribute) -> Any | None:
    """Return the attribute with i16 in place of bf16; None if it contains none."""
    if isinstance(attribute, ir.TypeAttr):
        return ir.TypeAttr.get(_integer_type(attribute.value)) if "bf16" in str(attribute.value) else None
    i16 = ir.IntegerType.get_signless(16)
    if isinstance(attribute, ir.FloatAttr) and isinstance(attribute.type, ir.BF16Type):
        scalar = ir.DenseElementsAttr.get_splat(ir.VectorType.get([1], attribute.type), attribute)
        return ir.IntegerAttr.get(i16, int(_bits(scalar, [1])[0]))
    if isinstance(attribute, ir.DenseElementsAttr):
        kind = ir.ShapedType(attribute.type)
        if isinstance(kind.element_type, ir.BF16Type):
            return ir.DenseElementsAttr.get(_bits(attribute, kind.shape), type=_integer_type(attribute.type))
    return None


def _bits(elements: Any, shape: Sequence[int]) -> np.ndarray:
    return read_dense(elements, TensorType.of(tuple(shape), "bf16")).view("int16")
