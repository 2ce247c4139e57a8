"""The page of the package: its programs print the output shown after them, and its picture is that of its command."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from mirlo_tensix import simulator
from mirlo_tensix.instructions import FORMATS
from mirlo_tensix.unit import KEPT, from_bits, to_bits
from model import product_bits
from onnx import helper
from test_models import model_of

from mirlo.extend.command import main

needs_simulator = pytest.mark.skipif(simulator.missing() is not None, reason=f"simulator: {simulator.missing()}")
PAGE = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n((?:(?!```).)*)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("row", re.findall(r"\n\| (\w+) \| \d \| ([\d.e-]+) \| ([\d.e-]+) \| ([\d.e-]+) \|", PAGE))
def test_bits_of_products_have_the_errors_that_the_page_shows(row: tuple[str, str, str, str]) -> None:
    name, *expected = row
    a, b = np.random.default_rng(0).standard_normal((2, 128, 128)).astype(np.float32)
    exact = a.astype(np.float64) @ b
    for phases, error in zip((1, 2, 4), expected, strict=True):
        left, right = (to_bits(x, FORMATS[name], kept) for x, kept in zip((a, b), KEPT[phases], strict=True))
        found = from_bits(product_bits(left, right, phases)) - exact
        assert f"{np.abs(found).max() / np.abs(exact).max():.1e}" == error


@needs_simulator
@pytest.mark.nightly
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_prints_what_the_page_shows(number: int) -> None:
    program, expected = PROGRAMS[number]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, f"README.md, program {number}", "exec"), {})
    assert printed.getvalue() == expected


@needs_simulator
@pytest.mark.nightly
def test_the_command_runs_a_model_and_draws_its_time_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (command,) = (line for line in PAGE.splitlines() if line.startswith("mirlo run ") and "--timeline" in line)
    weight = np.random.default_rng(0).standard_normal((64, 64)) / 8
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="up"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Softmax", ["r"], ["y"], name="softmax"),
    ]
    monkeypatch.chdir(tmp_path)
    onnx.save(model_of("block", nodes, ((32, 64),) * 2, {"w": weight}), "model.onnx")
    assert main(command.replace("'", "").split()[1:]) == 0
    printed = capsys.readouterr().out
    assert "cycles" in printed and "matrix" in printed and "wrote time.svg" in printed
    picture = Path("time.svg").read_text(encoding="utf-8")
    assert all(name in picture for name in ("unpackers", "matrix", "vector", "packers", "relu", "softmax"))
