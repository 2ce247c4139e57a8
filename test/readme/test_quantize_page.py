"""The commands of the page about quantizing a model run unchanged."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT, output_of, run_script, shell_commands

from mirlo.testing.pages import code_block

TEXT = (ROOT / "docs" / "quantize-a-model.md").read_text(encoding="utf-8")


@pytest.mark.sample(0)
def test_page(tmp_path: Path) -> None:
    """The commands get the model and the samples of the Python example."""
    text = (
        code_block(TEXT, "python")
        + "\nimport onnx\nonnx.save(model, 'model.onnx')\nnp.savez('samples.npz', x=samples)\n"
    )
    assert "down" in output_of(run_script("-c", text, cwd=tmp_path))
    done = subprocess.run(
        ["sh", "-ec", code_block(TEXT, "sh")],
        capture_output=True, text=True, cwd=tmp_path, env=shell_commands(tmp_path, "mirlo"), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "samples.npz")["x"].shape == (64, 16)
    assert all((tmp_path / name).stat().st_size for name in ("small.int8.onnx", "model.int8.onnx"))
