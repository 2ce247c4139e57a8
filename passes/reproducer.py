"""Reproducers: the IR before the failing pass and the remaining pipeline, in one file.

    // configuration: --pass-pipeline='builtin.module(legalize,cse)'

`mirlo-opt --run-reproducer FILE` runs it again, and so does `mlir-opt`, if the passes are MLIR's: the file of a failing
pass ends with the same arguments in LLVM's form, the external resource `mlir_reproducer`, which is read as well. Both
are part of an untrusted file: passes that reach outside of the module, and plug-ins, run only with `--trust-file`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.passes.files import FileError, write_ir
from mirlo.passes.instrumentation import Instrument
from mirlo.passes.pipeline_parser import join_steps
from mirlo.passes.registry import ROOT_ANCHOR
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.pipeline_parser import Step
    from mirlo.passes.registry import Pass
    from mirlo.passes.session import Session
    from mirlo.passes.upstream import UpstreamPass

HEADER = "// configuration: "
RESOURCE = "mlir_reproducer"
"""The external resource in which LLVM's tools write a pipeline."""
_TEXT = r"(?:[^\"\\]|\\.)*"
_ENTRIES = re.compile(r'\s*:\s*\{(?P<entries>(?:"(?:[^"\\]|\\.)*"|[^{}"])*)\}', re.DOTALL)
_ENTRY = re.compile(r'(?P<key>\w+)\s*:\s*(?:"(?P<text>(?:[^"\\]|\\.)*)"|(?P<word>\w+))', re.DOTALL)
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)
TRUST = "--trust-file"
"""Flag of `mirlo` and `mirlo-opt`: the input file may name plug-ins, and passes that are not contained."""


@dataclass
class Reproducer(Instrument):
    """Write `path` before each step of the outermost level, and remove it when all have passed.

    The file remains even if a pass crashes the process.
    """

    path: str
    flags: Sequence[str]
    """Further arguments of `mirlo-opt` that the run needs."""
    session: Session
    written: bool = field(default=False, init=False)

    def begin_stage(self, op: ir.OpView, remaining: Sequence[Step]) -> None:
        write_reproducer(op, self.path, self.session, remaining, self.flags)
        self.written = True

    def end_run(self, op: ir.OpView) -> None:
        if self.written:
            os.remove(self.path)
            self.written = False


def write_reproducer(
    op: ir.Module | ir.OpView, path: str, session: Session, steps: Sequence[Step], flags: Sequence[str]
) -> None:
    """Write a module and the pipeline to run on it, in a form that `mirlo-opt` and `mlir-opt` read."""
    write_ir(
        op, path, session, enable_debug_info=True, header=configuration(steps, flags), footer=resource(steps, flags)
    )


def resource(steps: Sequence[Step], flags: Sequence[str]) -> str:
    """Return the lines with which `mlir-opt --run-reproducer` runs these passes."""
    pipeline = f"{ROOT_ANCHOR}({join_steps(steps)})".replace("\\", "\\\\").replace('"', '\\"')
    verify = str("--no-verify-each" not in flags).lower()
    entries = f'pipeline: "{pipeline}", disable_threading: true, verify_each: {verify}'
    return f"\n{{-# external_resources: {{ {RESOURCE}: {{ {entries} }} }} #-}}\n"


def configuration(remaining: Sequence[Step], flags: Sequence[str] = ()) -> str:
    """Return the line that makes IR a reproducer: the remaining passes and other arguments of `mirlo-opt`."""
    pipeline = shlex.quote(f"{ROOT_ANCHOR}({join_steps(remaining)})")
    return f"{HEADER}{' '.join([f'--pass-pipeline={pipeline}', *flags])}\n"


def arguments_of(text: str) -> list[str] | None:
    """Return the arguments of `mirlo-opt` in a reproducer; None if the text is no reproducer."""
    first = text.split("\n", 1)[0]
    if not first.startswith(HEADER):
        return _arguments_of_resource(text)
    try:
        return shlex.split(first[len(HEADER) :])
    except ValueError as error:
        raise FileError(f"the file's first line, '{HEADER}...', cannot be read: {error}") from None


def _arguments_of_resource(text: str) -> list[str] | None:
    """Return the reproducer that LLVM's tools have written at the end of a file."""
    at = text.rfind(RESOURCE, max(0, text.find("{-#")))
    match = _ENTRIES.match(text, at + len(RESOURCE)) if at >= 0 and "{-#" in text else None
    entries = {entry["key"]: entry for entry in _ENTRY.finditer(match["entries"])} if match else {}
    if "pipeline" not in entries or entries["pipeline"]["text"] is None:
        return None
    arguments = [f"--pass-pipeline={_ESCAPE.sub(_unescaped, entries['pipeline']['text'])}"]
    verifies = "verify_each" not in entries or entries["verify_each"]["word"] != "false"
    return arguments if verifies else [*arguments, "--no-verify-each"]


def _unescaped(match: re.Match[str]) -> str:
    """Return the character that an escape in MLIR's text stands for."""
    code: str = match[1]
    return bytes.fromhex(code).decode("latin-1") if len(code) == 2 else {"n": "\n", "t": "\t"}.get(code, code)


def uncontained(pipeline: Iterable[Pass | UpstreamPass], plugins: Sequence[str] = ()) -> str | None:
    """Return which passes or plug-ins named by a file reach outside of the module; None if none do.

    Text in a file is not authorized by the user: by default only passes run that change nothing but the module.
    """
    if plugins:
        return f"loads the plug-in '{plugins[0]}', which is code"
    for step in pipeline:
        if not step.is_contained():
            return f"runs '{step}', which may touch more than the module: files, other programs"
    return None


def trust_flag(pipeline: Iterable[Pass | UpstreamPass], plugins: Sequence[str] = ()) -> str:
    """Return the flag that a printed command needs, besides `--run-reproducer`, to run these again."""
    return f" {TRUST}" if uncontained(pipeline, plugins) else ""
