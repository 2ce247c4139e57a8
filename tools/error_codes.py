"""The codes of errors: each class of errors declares one, and a remedy, beside its docstring.

python -m mirlo.tools.error_codes > docs/errors.md
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from mirlo.runtime.records import dataclass
from mirlo.tools.cli.errors import FILES, INTERNAL, MEMORY

FOLDERS = ("dialects", "driver", "frontends", "passes", "runtime", "targets", "tools")
"""Folders of the package whose classes are listed."""
CODE, REMEDY = "error_code", "remedy"
GROUPS = {
    "MIR00": "General",
    "MIR01": "Loading and calling models",
    "MIR02": "Dialects",
    "MIR03": "Import of models",
    "MIR04": "Passes, rules and code generators",
    "MIR05": "Targets and devices",
    "MIR06": "Compilation and sessions",
    "MIR07": "Commands",
}


@dataclass(frozen=True)
class ErrorCode:
    """A code, the class of errors that has it, and the remedy."""

    code: str
    name: str
    module: str
    text: str
    remedy: str


OTHERS = (ErrorCode(
    FILES, "OSError", "builtins", "A file or folder cannot be read or written.",
    "Name one that exists, with permission to read or write it, on a disk with space.",
),
ErrorCode(
    MEMORY, "MemoryError", "builtins", "There is not enough memory for the model.",
    "Compile with `jobs=1`, with smaller sizes, or on a machine with more memory.",
),
ErrorCode(
    INTERNAL, "Exception", "builtins", "An internal error: a bug of Mirlo, or of the extension that is named.",
    "Run the command with `--debug`, and report the traceback with the model, or with a part of it.",
))  # fmt: skip
"""Errors that are not Mirlo's."""
HEAD = """# Errors

Written by `python -m mirlo.tools.error_codes`; do not edit.

Each error has a code that stays the same from version to version, whatever its message says. Commands print it,
`mirlo: error[MIR0303]: ...`, and write it to the [results of `--json`](mirlo.md#results-for-programs); in Python it is
`error.error_code`. `mirlo explain MIR0303` prints an entry of this page. Errors of packages have the code of the class
that they derive from.
"""


@cache
def error_codes() -> tuple[ErrorCode, ...]:
    """Return all codes, in order."""
    root = Path(__file__).parents[1]
    codes = list(OTHERS)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if f"{CODE} = " in text:
                module = ".".join(("mirlo", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
                codes += _declared(ast.parse(text), module)
    return tuple(sorted(codes, key=lambda each: each.code))


def _declared(tree: ast.Module, module: str) -> Iterator[ErrorCode]:
    """Yield the codes that classes of a file declare."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        fields = {
            target.id: ast.literal_eval(statement.value)
            for statement in node.body
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        if CODE in fields:
            text = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
            yield ErrorCode(fields[CODE], node.name, module, text, fields.get(REMEDY, ""))


def lines_of(entry: ErrorCode) -> list[str]:
    """Return an entry of the page."""
    place = "" if entry.module == "builtins" else f" of `{entry.module}`"
    return [f"### {entry.code}", "", f"`{entry.name}`{place}: {entry.text}", "", f"What to do: {entry.remedy}", ""]


def page() -> str:
    """Return the page."""
    lines, group = [HEAD], ""
    for entry in error_codes():
        if entry.code[:5] != group:
            group = entry.code[:5]
            lines += [f"## {GROUPS[group]}", ""]
        lines += lines_of(entry)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
