"""`mirlo bisect` on a device with Vulkan."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import mirlo
from devices import needs_vulkan
from onnx import save
from onnx_models import F32, make_model, node

pytestmark = needs_vulkan()

WRONG = """
from mirlo.extend.ops import elementwise
from mirlo.extend.rules import legalize

@legalize("relax.tanh", target="spirv")
def wrong(op, b):
    return elementwise(op, b, [op.x], lambda x: x * 0.5)
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_wrong_rule_is_found(is_wrong: bool, tmp_path: Path) -> None:
    nodes = [node("Softmax", "x", "s", name="rows", axis=-1), node("Tanh", "s", "y", name="bent")]
    save(make_model(nodes, {"x": (F32, (4, 8))}, ["y"], output_types={"y": (F32, (4, 8))}), tmp_path / "m.onnx")
    (tmp_path / "plugin.py").write_text(WRONG if is_wrong else "")
    done = mirlo("bisect", "m.onnx", "--target", "spirv", "--plugin", "plugin.py", cwd=tmp_path)
    if not is_wrong:
        assert done.returncode == 0, done.stderr
        return
    assert "first node that departs: 'bent' (Tanh), node 2 of 2" in done.stdout, done.stderr
    assert "relax.tanh: wrong (plugin.py:5)" in done.stdout
