"""Modules compiled for target nvvm, and executed: their PTX by the emulator, called as models are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.passes.targets import find_target
from mirlo.runtime.executable import Executable
from mirlo.runtime.params import ParameterStore
from mirlo.targets.nvvm.emit import emit
from mirlo.targets.nvvm.options import parse_options
from mirlo.testing.ptx.driver import emulated


def run_on_emulator(
    text: str, arrays: list[np.ndarray], options: str = "chip=sm_80", result_type: Any = None
) -> tuple[np.ndarray, str]:
    """Return the one result of a module, viewed as this type or its first input's, and the schedules of its functions.

    Races on shared memory are found as well.
    """
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        pipeline: Any = find_target("nvvm").pipeline
        Pipeline(pipeline(SimpleNamespace(target_options=options))).run(module, Session(), [])
        schedules = "; ".join(
            str(op.operation.attributes["tir.schedule"]) for op in module.body.operations
            if "tir.schedule" in op.operation.attributes
        )  # fmt: skip
        chip = parse_options(options).chip
        artifact = emit(module, chip)
    with emulated(chip.name, races=True):
        executable = Executable(artifact, ParameterStore())
        given = [array.view(spec_type(spec)) for array, spec in zip(arrays, artifact.inputs, strict=True)]
        result = executable(*given)
        del executable
    return result.view(result_type or arrays[0].dtype), schedules


def spec_type(spec: Any) -> Any:
    """Return the type of numpy that an input has."""
    from mirlo.runtime.dtypes import numpy_dtype

    return numpy_dtype(spec.dtype)
