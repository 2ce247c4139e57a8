"""The page about ONNX import equals the one generated from the converters, and its examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirlo.frontends.onnx.reference import reference
from mirlo.frontends.onnx.registry import CONVERTERS, Registry
from mirlo.testing import oracle

PAGE = Path(__file__).parents[3] / "docs" / "onnx.md"


@oracle.needs_onnx(1, 19)
def test_page_is_current() -> None:
    assert PAGE.read_text() == reference(), "run: python -m mirlo.frontends.onnx.reference > docs/onnx.md"


def test_examples(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CONVERTERS, "users", Registry())
    usage, own = re.findall(r"```python\n(.*?)```", reference(), re.DOTALL)
    exec(usage, {})
    assert capsys.readouterr().out.strip() == usage.rstrip().rpartition("# ")[2]
    exec(own, {"__name__": "example"})
    assert CONVERTERS.find("com.example", "Twice", 1)
