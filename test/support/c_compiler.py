"""Whether there is a C compiler, and a sanitizer: tests that need one are skipped where there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from mirlo.targets.c.compiler import CompilerError, find_compiler


def _reason() -> str:
    """Return why there is none; empty where there is one."""
    try:
        find_compiler()
    except CompilerError as error:
        return str(error).partition(".")[0]
    return ""


needs_c_compiler = pytest.mark.skipif(bool(_reason()), reason=_reason() or "there is a C compiler")


def with_c(*values: Any) -> Any:
    """Return parameters of a test that needs a C compiler for them."""
    return pytest.param(*values, marks=needs_c_compiler)


def sanitizer_flags(compiler: str, sanitizer: str, folder: Path) -> list[str]:
    """Return the flags of a sanitizer; skip the test where programs with it do not link, or do not run."""
    flags = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    folder.mkdir(exist_ok=True)
    source, program = folder / "probe.c", folder / "probe"
    source.write_text("int main(void) { return 0; }\n")
    for command in ([compiler, *flags, str(source), "-o", str(program)], [str(program)]):
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip(f"{compiler} has no working {flags[0]}")
    return flags
