"""The compilation of a document: reasons, schedules and assembly of the kernels at a position in it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from mirlo.extend.frontend import ImportedModule
from mirlo.extend.inspect import (
    ExplainedKernel,
    Explanation,
    Session,
    explain_model,
    find_source_position,
    is_script,
    load_params,
    text_lines,
)
from mirlo.extend.ops import ir, make_context, walk
from mirlo.extend.runtime import MirloError
from mirlo_editor.mlir_index import parse_ir
from mirlo_editor.script_index import module_of_scripts

TITLES = {"explain": "explanation", "assembly": "assembly", "schedule": "schedule"}
_PARSED = re.compile(r"(?<!\S)-:(?=\d+:\d+)")
"""Prefixes of labels that are locations in text parsed from memory."""


class NothingThere(MirloError):
    """No kernel computes the operation at a position."""


def report_at(what: str, text: str, path: str, target: str, first: int, last: int) -> str:
    """Compile a document; return the report for lines, counted from 0.

    `what` is `explain`, `assembly` or `schedule`; the first line of a function stands for the function. The lines of a
    function that graphs call stand for these calls.
    """
    with make_context(), ir.Location.unknown():
        model = _module(text, path, first)
        places = _places(model.module, first + 1, last + 1)
    explanation = explain_model(model, target, follow=what == "assembly")
    if explanation.failure is not None:
        raise MirloError(f"the compilation failed: {explanation.failure}")
    kernels = [kernel for kernel in explanation.kernels if _is_wanted(kernel, places)]
    nodes = [node for node in explanation.nodes if _place_of(node.name) in places]
    shown = Explanation(target, nodes if what == "explain" else [], kernels, [], [], None)
    if not kernels and not shown.nodes:
        raise NothingThere(
            "no kernel computes these lines: what they compute is known, a view, or used by no graph of this file"
        )
    if what == "schedule":
        shown.stages = {kernel.name: [] for kernel in kernels}  # with words
    lines = _assembly(explanation, kernels) if what == "assembly" else "\n".join(text_lines(shown))
    return _PARSED.sub(f"{os.path.basename(path)}:", lines) + "\n"


def _module(text: str, path: str, line: int) -> ImportedModule:
    session = Session()
    if is_script(path):
        module = module_of_scripts(text, path, line, ir.Context.current)
        if module is None:
            raise NothingThere(
                "no graph of this file uses what is here: schedules are chosen where R.call_tir calls a prim function"
            )
    else:
        module = parse_ir(text)
    load_params(module, os.path.dirname(path), session)
    return ImportedModule(module, session.params)


def _places(module: ir.Module, first: int, last: int) -> set[tuple[int, int]]:
    """Return the positions of operations in a range of lines, and of the calls of prim functions defined there."""
    places: set[tuple[int, int]] = set()
    calls: dict[str, set[tuple[int, int]]] = {}
    functions: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        place = find_source_position(op.location)
        if place is None:
            return ir.WalkResult.ADVANCE
        inside = first <= place.line <= last
        if op.name == "func.func" and inside:
            functions.add(ir.StringAttr(op.attributes["sym_name"]).value)
        if op.name in ("func.call", "relax.call_tir"):
            name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            calls.setdefault(name, set()).add((place.line, place.column))
        if inside:
            places.add((place.line, place.column))
        return ir.WalkResult.ADVANCE

    for function in module.body.operations:
        within = _lines_of(function.operation)
        if within is not None and within[0] <= first and last <= within[1] and "tir.prim_func" in function.attributes:
            functions.add(ir.StringAttr(function.attributes["sym_name"]).value)
        walk(function, visit)
    return places.union(*(calls.get(name, set()) for name in functions))


def _lines_of(function: ir.Operation) -> tuple[int, int] | None:
    """Return the first and the last line of the operations of a function."""
    lines = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        place = find_source_position(op.location)
        if place is not None and place.line:
            lines.append(place.line)
        return ir.WalkResult.ADVANCE

    walk(function, visit)
    return (min(lines), max(lines)) if lines else None


def _is_wanted(kernel: ExplainedKernel, places: Collection[tuple[int, int]]) -> bool:
    return any(_place_of(name) in places for name in kernel.nodes)


def _place_of(label: str) -> tuple[int, int] | None:
    """Return the line and column of a label `file:3:5`."""
    parts = label.rsplit(":", 2)
    return (int(parts[1]), int(parts[2])) if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal() else None


def _assembly(explanation: Explanation, kernels: list[ExplainedKernel]) -> str:
    """Return the final assembly of some kernels."""
    texts = []
    for kernel in kernels:
        stages = explanation.stages.get(kernel.name) or []
        if stages:
            texts.append(f"; {stages[-1].title} of @{kernel.name}: {', '.join(kernel.nodes)}\n{stages[-1].text}")
    return "\n".join(texts)
