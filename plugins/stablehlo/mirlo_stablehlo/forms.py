"""The form of files: StableHLO as text or bytecode. The front end is imported when a file is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo.extend.files import FileForm, names_dialect
from mirlo_stablehlo.detect import is_portable

if TYPE_CHECKING:
    from mirlo.extend.frontend import ParameterStore, ir


def _parse(content: bytes, name: str) -> ir.Module:
    from mirlo_stablehlo.parse import parse

    return parse(content, name)


def _open(content: bytes, name: str) -> tuple[ir.Module, ParameterStore]:
    from mirlo_stablehlo.importer import import_stablehlo

    return import_stablehlo(content, name)


_has_operations = names_dialect("stablehlo", "vhlo", "chlo", "mhlo")


def _matches(content: bytes) -> bool:
    return is_portable(content) or _has_operations(content)


STABLEHLO = FileForm("StableHLO", (".mlir", ".mlirbc"), _matches, _parse, _open)
