"""Modules compiled for target nvvm, and assembled with NVIDIA's ptxas."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.passes.targets import find_target
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.emit import emit
from mirlo.targets.nvvm.ptxas import Assembled, find_ptxas, run_ptxas
from mirlo.tools.conformance.programs import TestProgram, module_of


def needs_ptxas() -> pytest.MarkDecorator:
    """Skip the tests of a module, and say so, where nothing assembles PTX."""
    return pytest.mark.skipif(find_ptxas() is None, reason="no ptxas: pip install nvidia-cuda-nvcc, or install CUDA")


def ptx_of(programs: Sequence[TestProgram], chip: str) -> str:
    """Return the PTX of programs; empty if they need no kernel."""
    with make_context(), ir.Location.unknown():
        module, _ = module_of(programs)
        return ptx_of_module(module, chip)


def ptx_of_module(module: Any, chip: str, others: str = "") -> str:
    """Return the PTX of a module, by the chip and other options of the target."""
    run_pipeline(module, chip, others)
    artifact = emit(module, find_chip(chip))
    places = {tuple(kernel["code"]) for kernel in artifact.metadata["kernels"].values()}
    return "".join(artifact.code[at : at + size].decode() for at, size in places)


def run_pipeline(module: Any, chip: str, others: str = "") -> None:
    """Everything up to kernels, in place."""
    pipeline: Any = find_target("nvvm").pipeline
    options = SimpleNamespace(target_options=f"chip={chip} {others}")
    Pipeline(pipeline(options)).run(module, Session(), [])


def assemble(programs: Sequence[TestProgram], chip: str) -> Assembled | None:
    """Return what ptxas makes of programs."""
    ptx = ptx_of(programs, chip)
    return run_ptxas(ptx, find_chip(chip)) if ptx else None
