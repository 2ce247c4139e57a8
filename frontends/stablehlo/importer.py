"""Import of a StableHLO program: one function `@main` of relax operators."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.frontends.mlir.importer import Interface, import_program
from mirlo.frontends.stablehlo.body import StablehloImport
from mirlo.frontends.stablehlo.parse import parse
from mirlo.frontends.stablehlo.registry import CONVERTERS
from mirlo.runtime.params import ParameterStore


def import_stablehlo(
    content: bytes | str, name: str = "program", interface: Interface | None = None
) -> tuple[ir.Module, ParameterStore]:
    """Import a program given as text or portable bytecode; `name` is for errors.

    Raises `StablehloImportError`, which names the operation that is not supported.
    """
    CONVERTERS.load()
    with make_context(), ir.Location.file(name, 0, 0):
        return import_program(parse(content, name), name, interface or Interface(), StablehloImport)
