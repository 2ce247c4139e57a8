"""The page *bring up an accelerator* is one session: all of its blocks run, in order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from mirlo_systolic import simulator

PAGE = Path(__file__).parents[3] / "docs" / "bring-up-an-accelerator.md"
pytestmark = [
    pytest.mark.skipif(
        bool(simulator.missing_tools()), reason=f"install {', '.join(simulator.missing_tools())}"
    ),
    pytest.mark.skipif(not PAGE.exists(), reason="the page is in Mirlo's repository"),
]  # fmt: skip


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {"__name__": "page"}
    commands = 0
    for number, (language, text) in enumerate(blocks):
        if language == "python":
            path = tmp_path / f"block_{number}.py"  # prim functions are parsed from their file
            path.write_text(text, encoding="utf-8")
            exec(compile(text, str(path), "exec"), names)
        elif text.startswith("# run\n"):
            for line in text.splitlines()[1:]:
                _, *words = shlex.split(line)
                done = subprocess.run(
                    [sys.executable, "-m", "mirlo.tools.cli", *words], capture_output=True, text=True, check=False,
                    env={**os.environ, "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))},
                )  # fmt: skip
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
                commands += 1
    assert commands == 5
