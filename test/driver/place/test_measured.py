"""A model on several targets: results equal ONNX Runtime's for any placement, the fastest measured one is chosen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from c_compiler import needs_c_compiler
from commands import mirlo as mirlo_command
from onnx import TensorProto, helper, numpy_helper
from optional_targets import needs_target

import mirlo
from mirlo.driver.place.decision import Decision
from mirlo.driver.place.survey import survey
from mirlo.tools.cli import main

onnxruntime = pytest.importorskip("onnxruntime")


needs_onednn = needs_target("onednn")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a residual block, a head with attention-like products, and operators that only some targets have."""
    rng = np.random.default_rng(0)
    shapes = {
        "w1": (8, 4, 3, 3),
        "b1": (8,),
        "w2": (8, 8, 3, 3),
        "p": (8, 16),
        "q": (16, 16),
        "scale": (16,),
        "table": (5, 16),
    }
    weights = {name: (rng.standard_normal(shape) / 4).astype(np.float32) for name, shape in shapes.items()}
    weights["rows"] = np.array([0, 2, 4, 1, 3, 0, 1, 2, 3, 4] * 10, np.int64)
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        make("Relu", ["c1"], ["r1"], name="relu1"),
        make("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
        make("Add", ["c2", "r1"], ["a"], name="add"),
        make("Relu", ["a"], ["r2"], name="relu2"),
        make("CumSum", ["r2", "axis"], ["s"], name="cumsum"),
        make("Reshape", ["s", "to"], ["t"], name="reshape"),
        make("Transpose", ["t"], ["u"], name="transpose", perm=[1, 0]),
        make("MatMul", ["u", "p"], ["m"], name="matmul1"),
        make("Gather", ["table", "rows"], ["g"], name="gather"),
        make("Add", ["m", "g"], ["mg"], name="add2"),
        make("Softmax", ["mg"], ["f"], name="softmax"),
        make("Mul", ["f", "scale"], ["fs"], name="mul"),
        make("MatMul", ["fs", "q"], ["y"], name="matmul2"),
    ]
    weights |= {"axis": np.array(1, np.int64), "to": np.array([8, 100], np.int64)}
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 10, 10])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [100, 16])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    path = tmp_path_factory.mktemp("models") / "block.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def _agrees(model: Path, executable: mirlo.Executable) -> bool:
    x = np.random.default_rng(1).standard_normal((1, 4, 10, 10)).astype(np.float32)
    wanted = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    return np.allclose(executable(x), wanted, rtol=1e-4, atol=1e-4)


@needs_c_compiler
def test_shares_of_a_model(model: Path) -> None:
    found = survey(model, "c,llvm")
    taken, host = found.shares["c"], found.shares["llvm"]
    assert taken.nodes + host.nodes == found.total.nodes == len(found.placement.nodes)
    assert taken.regions >= 1 and taken.tensors >= 2 and taken.copies == 0
    assert taken.bytes_in and taken.bytes_out
    for share in (host, found.total):  # nothing is handed to what compiles the rest
        assert (share.composites, share.regions, share.tensors, share.copies) == (0, 0, 0, 0)
        assert (share.bytes_in, share.bytes_out, share.permutes, share.boundary_permutes) == (0, 0, 0, 0)


@needs_onednn
def test_three_targets_at_once(model: Path, tmp_path: Path) -> None:
    targets = "onednn,onnx,c,llvm"
    found = survey(model, targets)
    kinds = {"relax.conv": "onednn", "relax.matmul": "onnx", "relax.softmax": "c", "relax.multiply": "c"}
    nodes: dict[str, list[int]] = {"onednn": [], "onnx": [], "c": []}
    for node in found.placement.nodes:
        if node.operator in kinds:
            nodes[kinds[node.operator]].append(node.id)
    executable = mirlo.compile(model, targets, placement=nodes, cache=tmp_path)
    assert {external.target for external in executable.artifact.externals} == {"onednn", "onnx", "c"}
    assert _agrees(model, executable)


@pytest.mark.sample(0)
@needs_onednn
@pytest.mark.parametrize("targets", ["onednn,llvm", "onnx,llvm", "onnx,onednn,llvm"])
def test_targets_agree(model: Path, tmp_path: Path, targets: str) -> None:
    assert _agrees(model, mirlo.compile(model, targets, cache=tmp_path))
    flops = survey(model, targets).shares["llvm"].flops
    assert flops is not None and flops < 0.05 * survey(model, targets).total.flops


@pytest.mark.sample(0)
@needs_c_compiler
@needs_onednn
def test_measured_takes_the_fastest(model: Path, tmp_path: Path) -> None:
    # In processes of their own: what is extended, as other tests do here, is not kept.
    flags = ["--targets", "onednn,c,llvm", "--cost", "measured", "--cache-dir", tmp_path, "-v"]
    flags += ["-o", tmp_path / "m.mirlo"]
    first = mirlo_command("compile", model, *flags)
    assert "compile all on llvm" in first.stderr and "measure" in first.stderr, first.stderr
    assert _agrees(model, mirlo.load(tmp_path / "m.mirlo"))
    (entry,) = json.loads((tmp_path / "placement.json").read_text(encoding="utf-8"))["entries"].values()
    decision = Decision.from_json(entry)
    times = {c.name: c.microseconds for c in decision.candidates if c.microseconds is not None}
    assert {"all on llvm", "c, llvm", "onednn, llvm", "by priority"} <= set(times)
    assert times[decision.best] == min(times.values())
    # Each region has all that it needs when it is timed alone, constants that were folded among them.
    assert len(decision.regions) >= 2
    assert all(len(region.microseconds) >= 2 and not region.problem for region in decision.regions)
    again = mirlo_command("compile", model, *flags)
    assert again.returncode == 0 and "measure" not in again.stderr
    assert _agrees(model, mirlo.load(tmp_path / "m.mirlo"))


@pytest.mark.sample(0)
@needs_c_compiler
def test_estimated_from_the_command_line(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--targets", "c,onnx,llvm", "--cost", "estimated", "--cache-dir", str(tmp_path)]
    pinned = str(tmp_path / "p.json")
    assert main(["partition", str(model), *flags, "--report", pinned, "--report", str(tmp_path / "p.html")]) == 0
    out = capsys.readouterr().out
    assert "alternatives, cost estimated, 1 thread:" in out and "all on llvm" in out and "← taken" in out
    assert main(["partition", str(model), *flags, "--expect", pinned]) == 0
    found = json.loads(Path(pinned).read_text(encoding="utf-8"))
    assert found["placement"] == {"by": "estimated", "taken": "all on llvm"}
    assert found["totals"]["targets"]["llvm"]["share_of_flops"] == 1.0
    whys = {node["why_not"]["c"] for node in found["nodes"] if node["operator"] == "relax.conv"}
    assert len(whys) == 2 and all("it costs less elsewhere" in why for why in whys)
    assert main(["compile", str(model), *flags, "-o", str(tmp_path / "m.mirlo")]) == 0
    artifact = mirlo.load(tmp_path / "m.mirlo").artifact
    assert not artifact.externals and artifact.metadata["placement"] == {"by": "estimated", "taken": "all on llvm"}
    capsys.readouterr()
    assert main(["run", str(tmp_path / "m.mirlo"), "--cost", "measured"]) == 1
    assert "is compiled already: --cost is for 'mirlo compile'" in capsys.readouterr().err


@pytest.mark.sample(0)
def test_the_model_that_is_placed_is_the_one_in_lower_precision(model: Path, tmp_path: Path) -> None:
    executable = mirlo.compile(
        model, "onnx,llvm", placement="measured", precision="f16", cache=tmp_path, save_ir=tmp_path / "ir"
    )
    x = np.random.default_rng(1).standard_normal((1, 4, 10, 10)).astype(np.float32)
    assert np.allclose(executable(x), mirlo.compile(model, cache=tmp_path)(x), rtol=2e-2, atol=2e-2)
    assert "f16" in next((tmp_path / "ir").glob("*-to-mixed-precision.mlir")).read_text()


def test_wrong_ways_are_told(model: Path) -> None:
    with pytest.raises(
        ValueError, match="placement: expected priority, estimated, measured, or numbers .*, found 'best'"
    ):
        mirlo.compile(model, "c,llvm", placement="best")
    with pytest.raises(ValueError, match="placement: a pipeline of your own says so itself"):
        mirlo.compile(model, "c,llvm", placement="measured", pipeline="legalize")
