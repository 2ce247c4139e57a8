"""The examples of docs/byoc.md run unchanged in one file; its table lists the passes."""

from __future__ import annotations

import re
from pathlib import Path

from commands import ROOT, output_of, run_script

from mirlo.passes.registry import find_pass

TEXT = (ROOT / "docs" / "byoc.md").read_text(encoding="utf-8")


def test_examples(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    (tmp_path / "page.py").write_text("\n".join(blocks), encoding="utf-8")
    printed = output_of(run_script(tmp_path / "page.py", cwd=tmp_path))
    first, second = printed.split("module {")[1:]
    assert "callee = @unit::@unit_0" in first and 'relax.composite = "unit.gate"' in first
    assert "relax.conv → unit\n" in first and "relax.log → no pattern of unit has the operator relax.log" in first
    assert (
        'data_layout = "N*C", kernel_layout = "O*I"' in second
        and '{param = "constant.permute"} : () -> tensor<4x3x3x3xf32>' in second
    )
    assert "LayoutRecord(target='unit', at_start=2, hoisted=" in second and "left=2, at_boundary=1)" in second


def test_passes_of_the_table_exist() -> None:
    names = re.findall(r"^\| `([a-z-]+)[{`]", TEXT, re.MULTILINE)
    assert len(names) >= 8
    assert all(find_pass(name) for name in names)
