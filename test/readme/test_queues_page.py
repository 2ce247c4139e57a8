"""docs/accelerators-with-queues.md: its programs print what the page shows."""

from __future__ import annotations

from pathlib import Path

from commands import ROOT, output_of, run_script

from mirlo.testing.pages import code_blocks


def test_the_page(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "accelerators-with-queues.md").read_text(encoding="utf-8")
    script = tmp_path / "page.py"
    script.write_text("\n".join(code_blocks(text, "python")))
    *lines, size = output_of(run_script(script, cwd=tmp_path)).splitlines()
    assert lines == [line for block in code_blocks(text, "text") for line in block.splitlines()]
    count, unit = size.split()
    assert unit == "bytes" and 20 < int(count) < 200
