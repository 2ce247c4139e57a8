"""Kernels in both forms: after `lower-loops`, and as their definitions."""

from __future__ import annotations

from collections.abc import Iterator

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.tir.view import prim_functions
from mirlo.passes.exact.calls import called_kernels
from mirlo.passes.exact.compare import KernelPair
from mirlo.passes.exact.keep_definitions import definitions_of, functions_by_name
from mirlo.passes.exact.operator_definition import definition_of
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.passes.targets import CompileOptions, find_target
from mirlo.runtime.params import ParameterStore


def kernel_pairs(text: str, target: str = "llvm", options: str = "") -> Iterator[tuple[ir.Module, KernelPair]]:
    """Yield the kernels of a model in both forms, with the module that they are in."""
    found = find_target(target)
    pipeline = Pipeline(found.pipeline(CompileOptions(target, target_options=options)))
    steps = list(pipeline.insert_before("schedule", "keep-definitions").steps)
    names = [step.name for step in steps]
    module = ir.Module.parse(text)
    session = Session(ParameterStore())
    Pipeline(steps[: names.index("lower-loops") + 1]).run(module, session)
    called = called_kernels(module.operation, session)
    kept = definitions_of(module.operation.opview)
    assert kept is not None
    definitions = functions_by_name(kept)
    for function in prim_functions(module.operation):
        if symbol_name(function) in definitions:
            name = symbol_name(function)
            definition = definition_of(definitions[name], called[name].constants)
            yield module, KernelPair(definition, function.operation, called[name].facts)
