"""Floats that a program computes from sizes, as a factor of attention is: tensors of f64 without dims."""

from __future__ import annotations

from mirlo.frontends.tensor import Tensor
from mirlo.frontends.torch.operation import AtenOperation, Operand
from mirlo.frontends.torch.registry import converter

_BINARY = {"truediv": "divide", "mul": "multiply", "add": "add", "sub": "subtract", "pow": "power"}
"""Operators of Python by name."""
_UNARY = {"_sym_sqrt": "sqrt", "neg": "negative", "_sym_log2": "log2", "_sym_exp": "exp", "_sym_log": "log"}


@converter("number.sym_float")
def sym_float(op: AtenOperation, x: Operand) -> Tensor:
    return op.operand(x, "f64")


@converter(*(f"number.{name}" for name in _BINARY))
def binary(op: AtenOperation, x: Operand, y: Operand) -> Tensor:
    return op.operand(x, "f64").elementwise(_BINARY[op.name.rpartition(".")[2]], op.operand(y, "f64"))


@converter(*(f"number.{name}" for name in _UNARY))
def unary(op: AtenOperation, x: Operand) -> Tensor:
    return op.operand(x, "f64").elementwise(_UNARY[op.name.rpartition(".")[2]])
