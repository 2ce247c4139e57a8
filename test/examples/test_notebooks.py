"""The notebooks of `examples/notebooks` run, each in a separate process, and consist of valid cells."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import ROOT, output_of, run_script

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.py"))


@pytest.mark.sample(0)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    assert output_of(run_script(path, cwd=tmp_path)).strip()
    assert not list(tmp_path.iterdir()), "a notebook leaves no files behind"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_alternate_with_text(path: Path) -> None:
    cells = path.read_text(encoding="utf-8").split("# %%")[1:]
    assert cells[0].startswith(" [markdown]\n# # ") and len(cells) >= 6
    for cell in cells:
        lines = cell.splitlines()[1:]
        if cell.startswith(" [markdown]"):
            assert all(line.startswith("#") or not line for line in lines)
        else:
            assert any(line and not line.startswith("#") for line in lines)
