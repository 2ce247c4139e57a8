"""The regions of a model, each as a model of its own that can be compiled and timed."""

from __future__ import annotations

from collections.abc import Collection

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import ENTRY_NAME, mark_entry, rename_symbol
from mirlo.driver.models import OpenedModel
from mirlo.passes.byoc.inline import all_operations
from mirlo.passes.byoc.outline import EXTERNAL, callee_of, functions_of
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session


def region_modules(opened: OpenedModel, targets: Targets, before: str, wanted: Collection[str]) -> dict[str, ir.Module]:
    """Return a module for each region, by name, whose `@main` is its graph; the opened model is changed."""
    with opened.module.context, ir.Location.unknown():
        Pipeline(targets.dividing(before=before)).run(opened.module, opened.session)
        functions = functions_of(opened.module.operation)
        return {name: _region_module(functions[name], functions, opened.session) for name in wanted}


def _region_module(region: ir.Operation, functions: dict[str, ir.Operation], session: Session) -> ir.Module:
    result = ir.Module.create()
    with ir.InsertionPoint(result.body):
        main = region.clone()
        for name in dict.fromkeys(callee_of(op) for op in all_operations(region)):
            if name in functions:
                functions[name].clone()
    rename_symbol(main, ENTRY_NAME)
    mark_entry(main)
    for fact in (EXTERNAL, "sym_visibility"):
        if fact in main.attributes:
            del main.attributes[fact]
    Pipeline("inline-external").run(result, session)
    return result
