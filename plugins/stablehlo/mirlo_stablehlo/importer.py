"""Import of a StableHLO program: one function `@main` of relax operators."""

from __future__ import annotations

from mirlo.extend.frontend import Interface, ParameterStore, import_program, ir, make_context
from mirlo_stablehlo.body import StablehloImport
from mirlo_stablehlo.parse import parse
from mirlo_stablehlo.registry import CONVERTERS


def import_stablehlo(
    content: bytes | str, name: str = "program", interface: Interface | None = None
) -> tuple[ir.Module, ParameterStore]:
    """Import a program given as text or portable bytecode; `name` is for errors.

    Raises `StablehloImportError`, which names the operation that is not supported.
    """
    CONVERTERS.load()
    with make_context(), ir.Location.file(name, 0, 0):
        return import_program(parse(content, name), name, interface or Interface(), StablehloImport)
