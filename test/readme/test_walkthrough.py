"""The page "A model's way through the code": its code runs, and calls every function that it names."""

from __future__ import annotations

import importlib
import re
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "a-model-through-the-code.md"
TEXT = PAGE.read_text(encoding="utf-8")
NAMES = re.findall(r"`(mirlo(?:\.\w+)+)`", TEXT)


def _code_of(name: str) -> CodeType:
    """Return the code of a function or method, given its dotted name."""
    module, rest = name, []
    while True:
        module, _, last = module.rpartition(".")
        rest.insert(0, last)
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        for part in rest:
            found = getattr(found, part)
        return getattr(found, "__wrapped__", found).__code__


def test_code_of_the_page_runs_and_calls_what_the_page_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[CodeType] = set()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        called.add(frame.f_code)

    monkeypatch.chdir(tmp_path)
    code = compile("\n".join(re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)), str(PAGE), "exec")
    before = sys.getprofile()
    sys.setprofile(profile)
    threading.setprofile(profile)
    try:
        exec(code, {"__name__": "walkthrough"})
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]
    assert len(NAMES) > 25
    assert [name for name in NAMES if _code_of(name) not in called] == []
