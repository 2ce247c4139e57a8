"""The real cuDNN without a GPU: it has engines for the graphs of attention."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mirlo.testing.nvidia import wheels

FOLDER = Path(__file__).parent / "engines"
PACKAGE = Path(__file__).parents[4]


@pytest.mark.skipif(wheels.find_library("cudnn") is None, reason="no cuDNN: pip install nvidia-cudnn-cu13")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_each_attention_has_engines(tmp_path: Path) -> None:
    command = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(FOLDER / "libcuda.c")]
    subprocess.run(command, check=True)
    folders = os.pathsep.join([str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "PYTHONPATH": folders, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, str(FOLDER / "ask.py")], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert found.pop("heads of 12") == [0, 0], "what is declined has none"
    assert all(min(counts) > 0 for counts in found.values()) and len(found) == 14, found
