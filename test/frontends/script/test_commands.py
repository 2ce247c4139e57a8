"""Scripts on the command line: written by `mirlo import`, compiled, run, wrong."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from commands import mirlo, output_of, python
from onnx import TensorProto, helper

SCRIPT = """
from mirlo import R, T
import mirlo

print("a script is not executed")

@mirlo.script
class Model:
    @T.prim_func
    def double(x: T.Buffer[(4,), T.f32], y: T.Out[(4,), T.f32]):
        for i in range(4):
            y[i] = x[i] * 2

    @R.function
    def main(x: R.Tensor[(4,), R.f32]):
        y = R.call_tir(double, R.relu(x))
        return y
"""
QUIET = SCRIPT.replace('print("a script is not executed")', "")


def test_import_compile_run(tmp_path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 64]) for name in "xy")
    weight = helper.make_tensor("w", TensorProto.FLOAT, [64, 64], np.eye(64, dtype=np.float32).tobytes(), raw=True)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], [weight]))
    onnx.save(model, tmp_path / "model.onnx")
    output_of(mirlo("import", "model.onnx", "--script", "-o", "model.py", cwd=tmp_path))
    text = (tmp_path / "model.py").read_text()
    assert "R.param(" in text and "R.relu(" in text
    assert output_of(mirlo("import", "model.onnx", "--script", cwd=tmp_path)).startswith("import mirlo\n")
    given = np.random.default_rng(0).standard_normal((2, 64), dtype=np.float32)
    np.save(tmp_path / "x.npy", given)
    output_of(mirlo("run", "model.py", "--input", "x=x.npy", "--output-dir", "out", "--repeat", "1", cwd=tmp_path))
    np.testing.assert_allclose(np.load(tmp_path / "out" / "y.npy"), np.maximum(given, 0), rtol=1e-6)


@pytest.mark.sample(0)
def test_script_is_not_executed(tmp_path) -> None:
    (tmp_path / "model.py").write_text(QUIET)
    assert "func.func private @double" in output_of(
        python("-m", "mirlo.tools.opt", "model.py", "--legalize", cwd=tmp_path)
    )
    (tmp_path / "model.py").write_text(SCRIPT)
    done = python("-m", "mirlo.tools.opt", "model.py", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (
        "mirlo-opt: error: model.py:5:1: error: a module has graphs (@R.function), prim functions (@T.prim_func) and "
        'constants\n  print("a script is not executed")\n  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n'
    )


def test_error_of_a_command(tmp_path) -> None:
    (tmp_path / "model.py").write_text(QUIET.replace("x[i] *", "x *"))
    done = mirlo("compile", "model.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "model.py:12:20: error: " in done.stderr and "Traceback" not in done.stderr
