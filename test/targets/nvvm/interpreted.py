"""Modules compiled for target nvvm, and executed by the interpreter of kernels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from fragments import KINDS
from simt import dtype_of, run_kernel
from warpgroups import TensorMap

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.lower.calls import find
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.passes.targets import find_target
from mirlo.targets.gpu.program import ARENA, Launch, Range
from mirlo.targets.gpu.reader import read_program


def run_on_interpreter(
    text: str, arrays: list[np.ndarray], options: str = "chip=sm_80", result_type: Any = None
) -> tuple[np.ndarray, str]:
    """The one result of a module, of this type or that of its first input, and the schedules of its prim functions."""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        pipeline: Any = find_target("nvvm").pipeline
        Pipeline(pipeline(SimpleNamespace(target_options=options))).run(module, Session(), [])
        (main,) = (op.operation for op in module.body.operations if "relax.inputs" in op.operation.attributes)
        program = read_program(module, main)
        kernels = {
            f"{kernel.parent.attributes['sym_name'].value}::{kernel.attributes['sym_name'].value}": kernel
            for kernel in find(module, "gpu.func")
        }
        schedules = "; ".join(
            str(op.operation.attributes["tir.schedule"]) for op in module.body.operations
            if "tir.schedule" in op.operation.attributes
        )  # fmt: skip
        kind = ir.TypeAttr(main.attributes["function_type"]).value.inputs[len(arrays)]
        result = np.zeros(kind.shape, result_type or arrays[0].dtype)
        memories = [*arrays, result]
        arena = np.zeros(program.arena, np.uint8)
        for step in program.steps:
            assert isinstance(step, Launch)
            kernel = kernels[step.kernel]
            parameters = kernel.regions[0].blocks[0].arguments
            given = [
                _given(argument, parameter, memories, arena)
                for argument, parameter in zip(step.arguments, parameters, strict=True)
            ]
            run_kernel(kernel, step.grid, step.block[0], given)
    return result, schedules


def _given(argument: Any, parameter: Any, memories: list[np.ndarray], arena: np.ndarray) -> Any:
    """What a kernel is given: memory, or a tensor map of it."""
    where = argument if isinstance(argument, Range) else argument.range
    memory = memories[where.index].reshape(-1) if where.space != ARENA else None
    if memory is None:
        kind = dtype_of(parameter.type) if where is argument else np.dtype(KINDS[argument.format])
        memory = arena[where.offset : where.offset + where.size].view(kind)
    if where is argument:
        return memory
    return TensorMap(memory, argument.dims, argument.strides, argument.box, argument.format)
