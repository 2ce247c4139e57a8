"""Calls of packed functions in a program, on tensors copied to the CPU and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.passes.memory.packed import PACKED, TYPES, WRITTEN
from mirlo.passes.registry import PassError
from mirlo.targets.gpu.host_integers import HostIntegers
from mirlo.targets.gpu.program import HostInstruction, Range

_LEADING = 2
"""Operands of a call before its buffers: the function pointers and the call record."""


def packed_call(
    op: ir.OpView, callee: Any, env: Mapping[ir.Value, Range], numbers: HostIntegers, row: int
) -> HostInstruction:
    """Return the instruction for a call of a declared function."""
    types = [TensorType.from_mlir(ir.TypeAttr(entry).value) for entry in ir.ArrayAttr(callee.attributes[TYPES])]
    operands = list(op.operands)[_LEADING:]
    dims = iter([numbers.of(value) for value in operands[len(types) :]])
    shapes = []
    for tensor in types:
        if tensor is None:
            raise PassError("a function of the run time takes something that is no tensor", op.location)
        shape = [dim if isinstance(dim, int) else next(dims) for dim in tensor.shape]
        shapes.append([tensor.dtype.name, shape])
    fields = {
        "function": ir.StringAttr(ir.ArrayAttr(callee.attributes[PACKED])[0]).value, "types": shapes, "row": row,
        "arguments": [env[value].as_json() for value in operands[: len(types)]],
        "outputs": ir.IntegerAttr(callee.attributes[WRITTEN]).value,
    }  # fmt: skip
    return HostInstruction("call", fields)
