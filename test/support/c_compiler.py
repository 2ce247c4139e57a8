"""Whether there is a C compiler: tests that need one are skipped, with the reason, where there is none."""

from __future__ import annotations

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
