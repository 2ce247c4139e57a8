"""A type checker sees what the lazy names of the package are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT

import mirlo


@pytest.mark.sample(0)
def test_lazy_names_have_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    names = sorted({*mirlo._LAZY, "__version__"})
    file = tmp_path / "names.py"
    file.write_text("import mirlo\n" + "".join(f"reveal_type(mirlo.{name})\n" for name in names))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", str(file)], capture_output=True, text=True, cwd=ROOT
    )
    found = [line.partition("Revealed type is ")[2] for line in done.stdout.splitlines() if "Revealed type" in line]
    assert len(found) == len(names), done.stdout + done.stderr
    assert [name for name, type_ in zip(names, found, strict=True) if type_ == '"Any"'] == []
