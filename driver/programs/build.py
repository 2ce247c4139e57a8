"""Compilation of a module on objects to a program, part by part."""

from __future__ import annotations

from collections.abc import Callable

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import TensorType
from mirlo.driver.programs.partition import ProgramError, partition
from mirlo.passes.entry import find_entry
from mirlo.passes.session import Session
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.compiled_program import CompiledProgram, Port
from mirlo.runtime.kinds import Kind, parse_kind

CompileSubgraph = Callable[[ir.Module, int], Artifact]
"""Compiles a module; the number is that of the part."""


def build_program(module: ir.Module, session: Session, target: str, compile_part: CompileSubgraph) -> CompiledProgram:
    """Cut a module into parts, compile them, and put the program together."""
    with module.context, ir.Location.unknown():
        main = find_entry(module).opview
        inputs = _ports(main, "arg_attrs", main.type.inputs)
        outputs = _ports(main, "res_attrs", main.type.results)
        draft = partition(module, session)
    parts = tuple(compile_part(part, i) for i, part in enumerate(draft.parts))
    return CompiledProgram(target, inputs, outputs, draft.body, draft.registers, parts, draft.constants)


def _ports(function: ir.OpView, key: str, types: list[ir.Type]) -> tuple[Port, ...]:
    attributes = function.operation.attributes
    entries = list(attributes[key]) if key in attributes else [None] * len(types)
    return tuple(_port(i, entry, kind) for i, (entry, kind) in enumerate(zip(entries, types, strict=True)))


def _port(index: int, entry: ir.DictAttr | None, mlir_type: ir.Type) -> Port:
    facts = {name: ir.StringAttr(entry[name]).value for name in ("relax.name", "relax.kind") if entry and name in entry}
    name = facts.get("relax.name", str(index))
    tensor_type = TensorType.from_mlir(mlir_type)
    if tensor_type is not None:
        return Port(
            name, Kind(tensor_type.dtype.name, tuple(d if isinstance(d, int) else str(d) for d in tensor_type.shape))
        )
    if "relax.kind" not in facts:
        raise ProgramError(f"'{name}' is an object, but nothing says which: its attribute 'relax.kind' is missing")
    try:
        return Port(name, parse_kind(facts["relax.kind"]))
    except ValueError as problem:
        raise ProgramError(f"attribute 'relax.kind' of '{name}': {problem}") from None
