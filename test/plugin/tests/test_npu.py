"""The installed target `npu`: placement and results."""

import mirlo_npu.device as device
import numpy as np
import pytest

import mirlo
from mirlo import MirloError
from mirlo.passes.schedule.schedule import declared_points
from mirlo.passes.schedule.tuned import rejected_values
from mirlo.testing import runs_as_numpy, stages_round_trip
from mirlo.tools.cli import main

MODEL = """
func.func @main(%x: tensor<{m}x8xf32> {{relax.name = "x"}}, %w: tensor<8x12xf32> {{relax.name = "w"}})
    -> (tensor<{m}x12xf32> {{relax.name = "y"}}) {{
  %0 = "relax.matmul"(%x, %w) : (tensor<{m}x8xf32>, tensor<8x12xf32>) -> tensor<{m}x12xf32>
  %1 = "relax.relu"(%0) : (tensor<{m}x12xf32>) -> tensor<{m}x12xf32>
  %2 = "relax.exp"(%1) : (tensor<{m}x12xf32>) -> tensor<{m}x12xf32>
  return %2 : tensor<{m}x12xf32>
}}"""


@pytest.mark.parametrize(("rows", "products"), [(16, 1), (3, 0)])
def test_the_unit_takes_what_it_can(rows, products):
    x, w = (np.random.default_rng(0).standard_normal(s, np.float32) for s in ((rows, 8), (8, 12)))
    device.CALLS.clear()
    runs_as_numpy(MODEL.format(m=rows), lambda x, w: np.exp(np.maximum(x @ w, 0)), x, w, target="npu")
    assert device.CALLS["NpuGemm"] == products
    # Vectors may have lanes beyond the end.
    assert rows * 12 <= device.CALLS["NpuExp"] < rows * 12 + 32


def test_explain_tells_who_declined(tmp_path, capsys):
    (tmp_path / "model.mlir").write_text(MODEL.format(m=3))
    assert main(["explain", str(tmp_path / "model.mlir"), "--target", "npu"]) == 0
    out = capsys.readouterr().out
    assert "relax.matmul: matmul [default]" in out
    assert "declined: matmul [npu]: the unit works on whole tiles (tile=4, shapes=[(3, 8), (8, 12)])" in out
    assert "tir.exp on" in out and ": exp [npu]" in out


def test_a_compiled_model_needs_the_loader_only(tmp_path):
    (tmp_path / "model.mlir").write_text(MODEL.format(m=4))
    mirlo.compile(tmp_path / "model.mlir", "npu").save(tmp_path / "model.mirlo")
    exe = mirlo.load(tmp_path / "model.mirlo")
    x, w = np.ones((4, 8), np.float32), np.full((8, 12), 0.125, np.float32)
    np.testing.assert_allclose(exe(x, w), np.full((4, 12), np.e), rtol=1e-6)


SIGN = """
func.func @main(%x: tensor<3x16xf32> {relax.name = "x"}) -> (tensor<3x16xf32> {relax.name = "y"}) {
  %0 = "relax.sign"(%x) : (tensor<3x16xf32>) -> tensor<3x16xf32>
  return %0 : tensor<3x16xf32>
}"""


def test_choices_of_a_schedule_rule(tmp_path, capsys):
    """They are declared once: callers choose them, tuning measures them, explain lists them."""
    (tmp_path / "model.mlir").write_text(SIGN)
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(3, 16)
    choose = {size: {"sign": lambda s, size=size: s.apply_rule("signs", size=size)} for size in (2, 8, 3)}
    for size in (2, 8):
        compiled = mirlo.compile(tmp_path / "model.mlir", "npu", schedules=choose[size], cache=False)
        np.testing.assert_array_equal(compiled(x), np.sign(x))
    with pytest.raises(MirloError, match="size: expected one of 2, 4, 8, found 3"):
        mirlo.compile(tmp_path / "model.mlir", "npu", schedules=choose[3], cache=False)
    assert {"size": 2} in declared_points("npu") and {"size": 8} in declared_points("npu")
    assert "size=16, expected one of 2, 4, 8" in rejected_values({"size": 16}, "npu").values()
    assert main(["explain", "schedule", "--target", "npu"]) == 0
    assert "size: elements of a line (one of 2, 4, 8)" in capsys.readouterr().out


def test_conformance(capsys):
    assert main(["check-target", "npu", "--operator", "relax.matmul", "--operator", "tir.exp"]) == 0
    assert "0 declined, 0 wrong, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize("rows", [16, 3])
def test_all_stages_read_back(rows):
    assert len(stages_round_trip(MODEL.format(m=rows), target="npu")) > 10


def test_a_form_of_code_of_its_own(tmp_path):
    (tmp_path / "model.mlir").write_text(MODEL.format(m=16))
    command = ["compile", str(tmp_path / "model.mlir"), "--target", "npu", "--emit"]
    assert main([*command, "npu-calls", "-o", str(tmp_path / "calls")]) == 0
    calls = "".join(path.read_text() for path in (tmp_path / "calls").iterdir())
    assert "# kernel " in calls and "call void @NpuGemm" in calls and "fadd" not in calls
    assert main([*command, "asm", "-o", str(tmp_path / "asm")]) == 0
