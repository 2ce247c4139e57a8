"""The lit tests of this folder: imported programs as text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lit", reason="needs lit: make test-stablehlo")


def test_programs_as_text() -> None:
    command = [sys.executable, "-m", "lit.main", "-q", "--no-progress-bar", str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
