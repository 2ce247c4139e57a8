"""Operators: classes, shape inference, ONNX converters, definitions of result elements."""

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context, register_dialect
from mirlo.dialects.core.attributes import Bool, Dims, ElementType, Float, Floats, Int, Ints, Str, Strs, Symbol
from mirlo.dialects.core.conditions import (
    require_at_most,
    require_elements,
    require_equal,
    require_multiple,
    require_part,
)
from mirlo.dialects.core.op import DialectOp, OpError, operand, operands, optional, result, results
from mirlo.dialects.core.traits import AxisAttributes, OnnxName, Precision, Trait
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.core.walk import diagnostics_to, walk
from mirlo.dialects.tir import compute
from mirlo.dialects.tir.own_intrinsics import define_intrinsic
from mirlo.frontends.onnx.check import check_model
from mirlo.frontends.onnx.node import NodeTrait
from mirlo.frontends.onnx.registry import converter
from mirlo.passes.legalize.helpers import elementwise
from mirlo.runtime.extenders import record_extenders

__all__ = [
    "AxisAttributes",
    "Bool",
    "DialectOp",
    "Dims",
    "ElementType",
    "Float",
    "Floats",
    "Int",
    "Ints",
    "NodeTrait",
    "OnnxName",
    "OpError",
    "Precision",
    "Str",
    "Strs",
    "Symbol",
    "TensorType",
    "Trait",
    "check_model",
    "compute",
    "converter",
    "define_intrinsic",
    "diagnostics_to",
    "elementwise",
    "ir",
    "make_context",
    "operand",
    "operands",
    "optional",
    "register_dialect",
    "require_at_most",
    "require_elements",
    "require_equal",
    "require_multiple",
    "require_part",
    "result",
    "results",
    "walk",
]

record_extenders(__name__)
