"""Each check of an operator's operands and attributes has a case in `relax/*-invalid.mlir` that it refuses."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from mirlo.dialects import relax
from mirlo.dialects.core.errors import OpError
from mirlo.tools import opt

FOLDER = Path(relax.__file__).parent
CASES = Path(__file__).with_name("relax")
HELPERS = ("require_", "_require_", "same_")
"""How functions begin that raise an error unless what they check holds."""


def _checks(path: Path) -> Iterator[ast.stmt]:
    for node in ast.walk(ast.parse(path.read_text())):
        call = node.exc if isinstance(node, ast.Raise) else node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        name = call.func.id
        if name == "OpError" if isinstance(node, ast.Raise) else name.startswith(HELPERS):
            yield node


def test_each_check_refuses_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: set[tuple[str, int]] = set()

    def note_lines(error: OpError, *arguments: object) -> None:
        super(OpError, error).__init__(*arguments)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            raised.add((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back

    monkeypatch.setattr(OpError, "__init__", note_lines)
    for path in sorted(CASES.glob("*-invalid.mlir")):
        assert opt.main([str(path), "--split-input-file", "--verify-diagnostics"]) == 0
    untested = [
        f"{path.name}:{check.lineno}: {ast.unparse(check)}"
        for path in sorted(FOLDER.glob("*.py"))
        for check in _checks(path)
        if not any((str(path), line) in raised for line in range(check.lineno, (check.end_lineno or 0) + 1))
    ]
    assert not untested, "\n".join(["checks that no case of test/dialects/relax/*-invalid.mlir reaches:", *untested])
