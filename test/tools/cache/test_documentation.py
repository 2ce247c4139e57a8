"""docs/cache.md: its Python runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import ROOT, output_of, python
from onnx import TensorProto, helper, save


@pytest.mark.sample(0)
def test_the_examples_run(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", values[:1], values[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx")
    text = (ROOT / "docs" / "cache.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    # However quickly the model is compiled, it is stored as a whole, and the last call finds it.
    at_once = "from mirlo.driver import build\nbuild.MIN_COMPILE_SECONDS = 0.0\n"
    out = output_of(python("-c", at_once + code, cwd=tmp_path))
    assert re.fullmatch(r"Counts\(hits=[1-9], misses=0, stored=0, damaged=0\) None", out.splitlines()[-1])
    assert (tmp_path / "build" / "cache" / "objects").is_dir()
