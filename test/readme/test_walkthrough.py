"""The page "A model's way through the code": its code runs, and calls every function that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import ROOT, output_of, python

PAGE = ROOT / "docs" / "a-model-through-the-code.md"
TEXT = PAGE.read_text(encoding="utf-8")
NAMES = re.findall(r"`(mirlo(?:\.\w+)+)`", TEXT)
CODE = "\n".join(re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
RUNNER = """
import importlib, inspect, sys, threading

def code_of(name):
    module, rest = name, []
    while True:
        module, _, last = module.rpartition(".")
        rest.insert(0, last)
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        for part in rest:
            found = getattr(found, part)
        return inspect.unwrap(found).__code__

called = set()
profile = lambda frame, event, argument: called.add(frame.f_code)
threading.setprofile(profile)
sys.setprofile(profile)
exec(compile(open(sys.argv[1]).read(), "page", "exec"), {"__name__": "walkthrough"})
sys.setprofile(None)
print([name for name in sys.argv[2:] if code_of(name) not in called])
"""
"""Runs the code of a file and prints the functions, of those named, that were not called."""


@pytest.mark.sample(0)
def test_code_of_the_page_runs_and_calls_what_the_page_names(tmp_path: Path) -> None:
    assert len(NAMES) > 25
    page = tmp_path / "page.py"
    page.write_text(CODE, encoding="utf-8")
    # In a process of its own: other tests fill caches of functions.
    assert output_of(python("-c", RUNNER, page, *NAMES, cwd=tmp_path)).splitlines()[-1] == "[]"
    missing = output_of(python("-c", RUNNER, page, "mirlo.driver.build.build", "mirlo.tools.opt.main", cwd=tmp_path))
    assert missing.splitlines()[-1] == "['mirlo.tools.opt.main']"
