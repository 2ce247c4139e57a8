"""`mirlo bisect` on an emulated NVIDIA GPU: trials are forks, which inherit it."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import save
from onnx_models import F32, make_model, node

from mirlo.extend.ops import elementwise
from mirlo.extend.rules import legalize
from mirlo.testing import temporary_registrations
from mirlo.testing.ptx.driver import emulated
from mirlo.tools.cli import main


@pytest.mark.sample(0)
@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_wrong_rule_is_found(is_wrong: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [node("Softmax", "x", "s", name="rows", axis=-1), node("Tanh", "s", "y", name="bent")]
    save(make_model(nodes, {"x": (F32, (4, 8))}, ["y"], output_types={"y": (F32, (4, 8))}), tmp_path / "m.onnx")
    command = ["bisect", str(tmp_path / "m.onnx"), "--target", "nvvm", "-o", str(tmp_path / "bundle")]
    rule = legalize("relax.tanh", target="nvvm", name="wrong") if is_wrong else lambda function: None
    with temporary_registrations(__name__), emulated():
        rule(lambda op, b: elementwise(op, b, [op.x], lambda x: x * 0.5))
        assert main(command) == int(is_wrong)
    out = capsys.readouterr().out
    if is_wrong:
        assert "first node that departs: 'bent' (Tanh), node 2 of 2" in out
        assert "relax.tanh: wrong (" in out
