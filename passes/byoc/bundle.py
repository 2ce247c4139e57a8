"""Bundles: an external module in a file with which `mirlo-opt --run-reproducer` repeats its code generation."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.symbols import rename_symbol, symbol_name
from mirlo.passes.byoc.view import ExternalModule
from mirlo.passes.files import FileError, write_ir
from mirlo.passes.options import quote
from mirlo.passes.reproducer import HEADER, TRUST
from mirlo.passes.session import Session
from mirlo.passes.targets import plugin_of
from mirlo.runtime.names import shell_word
from mirlo.runtime.records import dataclass


@dataclass(frozen=True)
class Bundle:
    """The file of a bundle; its parameters are stored next to it."""

    path: Path

    @property
    def command(self) -> str:
        """Return the command that runs the bundle."""
        return f"mirlo-opt --run-reproducer {TRUST} {shell_word(str(self.path))}"

    @property
    def params(self) -> Path:
        return self.path.with_name(f"{self.path.name}.params")

    def remove(self) -> None:
        """Remove the files, and the folder if it is then empty."""
        for path in (self.path, self.params):
            path.unlink(missing_ok=True)
        if not any(self.path.parent.iterdir()) and self.path.parent.name.startswith("mirlo-"):
            self.path.parent.rmdir()


def write_bundle(nested: ir.Operation, view: ExternalModule, options: str, folder: str | None) -> Bundle:
    """Write an external module and its constants to a file that repeats its code generation."""
    try:
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
        path = Path(folder or tempfile.mkdtemp(prefix="mirlo-")) / f"{view.target}.mlir"
    except OSError as error:
        raise FileError(f"cannot write to '{folder}': {error.strerror or error}") from error
    # Only the constants that the module needs are written: the weights of a model may be large.
    session = Session()
    inline = getattr(view.constants, "inline", {})
    for name in view.constants:
        if name not in inline:
            session.params.add(name, view.constants[name])
    with nested.context, ir.Location.unknown():
        outer = ir.Module.create()
        copy = nested.clone(ip=ir.InsertionPoint(outer.body))
        rename_symbol(copy, symbol_name(nested))
        write_ir(outer, path.absolute(), session, header=_header(view.target, options), enable_debug_info=True)
    return Bundle(path.absolute())


def _header(target: str, options: str) -> str:
    step = f"codegen-external{{target={quote(target)}{f' options={quote(options)}' if options else ''}}}"
    plugin = plugin_of(target)
    flags = [f"--load-pass-plugin={plugin}"] if plugin else []
    return HEADER + shlex.join([f"--pass-pipeline=builtin.module({step})", *flags]) + "\n"
