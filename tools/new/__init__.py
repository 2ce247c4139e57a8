"""`mirlo new`: small packages to start from, each with tests that pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from mirlo.runtime.errors import MirloError
from mirlo.runtime.files import write_regular
from mirlo.tools.new import codegen, operator, passes, target

KINDS: dict[str, Callable[[str], dict[str, str]]] = {
    "target": target.files,
    "codegen": codegen.files,
    "pass": passes.files,
    "operator": operator.files,
}
"""The files of each kind of package, by path, for a name."""


class NewPackageError(MirloError):
    """Raised for a package that cannot be written."""

    error_code = "MIR0708"
    remedy = "Choose a name that is a Python identifier, and a folder that does not exist."


def write_package(kind: str, name: str, parent: Path) -> list[Path]:
    """Write a package into a new folder and return its files."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in ("mirlo", "relax", "tir", "test", "tests"):
        raise NewPackageError(
            f"'{name}' is not a name for a package: expected small letters, digits and '_', such as 'mydsp'"
        )
    folder = parent / name
    if folder.exists():
        raise NewPackageError(f"'{folder}' exists already: choose another name, or another folder with --into")
    written = []
    for relative, text in KINDS[kind](name).items():
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        write_regular(path, text)
        written.append(path)
    return written
