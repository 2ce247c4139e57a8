"""Models for Cortex-M: on this machine by plain C, and on emulated boards where the tools are installed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mirlo_cortex_m import FLAGS
from mirlo_cortex_m.board import missing_tools
from mirlo_cortex_m.measure import measure

import mirlo
from mirlo.benchmarks.models import tiny

needs_board = pytest.mark.skipif(bool(missing_tools()), reason=f"install {', '.join(missing_tools())}")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name in ("wake_word", "ds_cnn"):
        (folder / f"{name}.onnx").write_bytes(tiny.quantized(name).SerializeToString())
    return folder


def test_rules_take_products_and_depthwise_convolutions(models: Path, tmp_path: Path) -> None:
    words = ["compile", models / "ds_cnn.onnx", "--target", "c{cpu=cortex-m4}", "--emit", "source", "-o", tmp_path]
    subprocess.run([sys.executable, "-m", "mirlo.tools.cli", *map(str, words)], check=True)
    text = (tmp_path / "ds_cnn.c").read_text()
    kernels = text[text.index("/* kernel") :]
    assert "mirlo_dot(" in kernels and "mirlo_taps(" in kernels


@pytest.mark.parametrize("name", ["wake_word", "ds_cnn"])
def test_this_machine_computes_the_same(models: Path, name: str) -> None:
    x = tiny.samples(name, 1, seed=1)
    found = mirlo.compile(models / f"{name}.onnx", "cortex-m4", cache=False)(x)
    np.testing.assert_array_equal(found, mirlo.compile(models / f"{name}.onnx", cache=False)(x))


@needs_board
@pytest.mark.parametrize("processor", FLAGS)
def test_boards_compute_the_same(models: Path, processor: str) -> None:
    found = measure(models / "wake_word.onnx", processor)
    assert found.is_equal
    assert found.products == 25 * 20 * 8 * 80 + 4000 * 4
    assert found.arena <= 1.1 * found.bound
    assert found.run.ram == found.arena
    assert found.run.flash - found.weights < 20_000


@needs_board
@pytest.mark.parametrize(("processor", "most"), [("cortex-m4", 4.5), ("cortex-m33", 4.5), ("cortex-m55", 3)])
def test_instructions_multiply_several_int8(models: Path, processor: str, most: float) -> None:
    found = measure(models / "wake_word.onnx", processor)
    assert found.run.instructions < most * found.products


@needs_board
def test_the_table(models: Path) -> None:
    command = [sys.executable, "-m", "mirlo_cortex_m.measure", "--cpu", "cortex-m4", str(models / "wake_word.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *_, row = done.stdout.splitlines()
    assert row.startswith("| wake_word | cortex-m4 | 336,000 |") and row.endswith("| yes |")


@needs_board
def test_the_page(models: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text()
    blocks = re.findall(r"^```sh\n# run\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    (tmp_path / "wake_word.onnx").write_bytes((models / "wake_word.onnx").read_bytes())
    commands = {"mirlo": [sys.executable, "-m", "mirlo.tools.cli"], "python": [sys.executable]}
    for line in "".join(blocks).splitlines():
        program, *words = shlex.split(line)
        done = subprocess.run(
            [*commands.get(program, [program]), *words], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert "| yes |" in done.stdout
