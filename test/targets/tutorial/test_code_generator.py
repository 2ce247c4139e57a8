"""The tutorial: the code generator of docs/code-generators.md runs unchanged, on a model of the zoo."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from commands import ROOT, benchmark_model, shell_commands

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.frontends.onnx.importer import import_model
from mirlo.passes.byoc.records import Placement
from mirlo.passes.byoc.target_list import Targets
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.registry import load_plugin
from mirlo.passes.session import Session

EXAMPLE = ROOT / "examples" / "code_generator.py"
PAGE = (ROOT / "docs" / "code-generators.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_it_is_short_and_on_the_page() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    assert _blocks("python")[0] == f"# file: code_generator.py\n{text}"


@pytest.fixture(scope="module")
def model() -> Path:
    return benchmark_model("mobilenetv2")


@pytest.fixture(scope="module")
def tutor() -> None:
    load_plugin(str(EXAMPLE))


@pytest.mark.sample(0)
def test_numbers(model: Path, tutor: None) -> None:
    executable = mirlo.compile(str(model), "tutor,llvm")
    (external,) = executable.artifact.externals
    assert len(external.functions) > 20 and len(external.params) > 60
    inputs = executable.random_inputs(3)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, inputs)
    (found,) = executable.run(inputs).values()
    assert np.abs(found - expected).max() <= 1e-3 * np.abs(expected).max()


@pytest.mark.sample(0)
def test_reasons_and_layouts(model: Path, tutor: None) -> None:
    with make_context(), ir.Location.unknown():
        module, store = import_model(str(model))
        session = Session(store)
        steps = Pipeline(Targets.parse("tutor,llvm").steps())
        steps.remove("codegen-external").run(module, session)
        text = str(module)
    (placement,) = [note for note in session.notes if isinstance(note, Placement)]
    reasons = [placement.why_not(node.id, "tutor") for node in placement.nodes if node.operator == "relax.conv"]
    assert reasons.count("") == 35
    assert sum("the accelerator convolves all channels at once (groups=32)" in reason for reason in reasons) == 1
    external, own = text[text.index("module @tutor") :], text[: text.index("module @tutor")]
    assert external.count('kernel_layout = "O*I"') == 35 and "relax.permute" not in external
    assert "kernel_layout" not in own and own.count('"relax.conv"') == 17


@pytest.mark.sample(0)
def test_commands(model: Path, tmp_path: Path) -> None:
    (tmp_path / "mobilenetv2.onnx").symlink_to(model)
    (tmp_path / "code_generator.py").write_text(_blocks("python")[0])
    environment = shell_commands(tmp_path, "mirlo", "mirlo-opt", "python")
    done = subprocess.run(
        ["sh", "-ec", _blocks("sh")[1]], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("latency: ") == 2 and "tutor.tutor_" in done.stdout
