"""The commands and the program of the README run unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model, needs_webgpu
from onnx.helper import make_node as node

from mirlo.extend.command import main as command

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, with the model of the page."""
    monkeypatch.chdir(tmp_path)
    weights = {"w": np.random.default_rng(0).standard_normal((784, 10), np.float32)}
    onnx.save(
        model([node("MatMul", ["pixels", "w"], ["scores"])], {"pixels": ("f32", (1, 784))}, {"scores": "f32"}, weights),
        "mnist.onnx",
    )
    return tmp_path


@needs_webgpu()
def test_commands(folder: Path) -> None:
    lines = [line.partition("#")[0].split() for block in blocks("sh") for line in block.splitlines()]
    commands = [words[1:] for words in lines if words[0] == "mirlo"]
    assert len(commands) == 4
    for words in commands:
        command(words)
    assert (folder / "mnist.mirlo").exists() and list((folder / "kernels").glob("*.wgsl"))
    assert {path.name for path in (folder / "mnist").iterdir()} == {"index.js", "model.json", "model.weights"}


@needs_webgpu()
def test_program(folder: Path) -> None:
    (program,) = blocks("python")
    names: dict[str, object] = {"images": np.ones((1, 784), np.float32)}
    exec(program, names)
    results = names["results"]
    assert isinstance(results, dict) and results["scores"].shape == (1, 10)
