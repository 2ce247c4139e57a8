"""Mistakes of callers, plug-ins and models end in errors that name them, never in exceptions from inside."""

import contextlib
import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.dialects.relax.activation import Relu
from mirlo.frontends.onnx.errors import ConverterError
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.passes.pipeline import Pipeline, PipelineError
from mirlo.passes.pipeline_parser import MAX_NESTING, Nested
from mirlo.runtime.dtypes import MAX_RANK
from mirlo.runtime.errors import ArtifactError, InputError, MirloError
from mirlo.tools.cli import main

HERE = Path(__file__).name
X = np.ones(4, np.float32)


class Unexpected(Exception):
    """An exception that nothing in Mirlo knows."""


RAISED = [
    KeyError("k"),
    IndexError(3),
    TypeError("t"),
    ValueError("v"),
    ZeroDivisionError(),
    RuntimeError("r"),
    RecursionError("deep"),
    AttributeError("a"),
    AssertionError(),
    NotImplementedError(),
    OSError(2, "o"),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "u"),
    StopIteration(),
    Unexpected("u"),
]


def model(operator="Relu", domain="", shape=(4,), out=None):
    node = helper.make_node(operator, ["x"], ["y"], name="the_node", domain=domain)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def raising(error):
    def raise_it(*_, **__):
        raise error

    return raise_it


@pytest.fixture
def own_operator():
    def register(infer):
        mirlo.onnx_operator("my", "Own", packed="test.named_errors", infer=infer)

    yield register
    CONVERTERS.users._table.pop(("my", "Own"), None)


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_a_shape_function_that_raises_is_named_with_its_node(error, own_operator):
    own_operator(raising(error))
    text = rf"node 'the_node' \(Own\): .*{type(error).__name__}.*{HERE}:\d+"
    with pytest.raises(ConverterError, match=text) as found:
        mirlo.compile(model("Own", "my"), cache=False, jobs=1)
    assert found.value.__cause__ is not None


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_infer_of_an_operator_that_raises_is_named_with_its_node(error, monkeypatch):
    monkeypatch.setattr(Relu, "infer", staticmethod(raising(error)))
    with pytest.raises(ConverterError, match=rf"node 'the_node' \(Relu\): .*{type(error).__name__}.*{HERE}:\d+"):
        mirlo.compile(model(), cache=False, jobs=1)


@pytest.mark.parametrize("found", [None, 3, "f32", [None], ()], ids=repr)
def test_infer_that_returns_no_types_is_named_with_its_node(found, monkeypatch):
    monkeypatch.setattr(Relu, "infer", staticmethod(lambda *_, **__: found))
    with pytest.raises(MirloError, match="node 'the_node'"):
        mirlo.compile(model(), cache=False, jobs=1)


@pytest.mark.parametrize(
    "inputs",
    [None, [X], (X,), 5, "x", X, {X.tobytes(): X}, {None: X}, {1: X, "x": X}, [("x", X)], object(), {"x": None}, {}],
    ids=lambda value: type(value).__name__,
)
def test_run_says_what_inputs_it_wants(inputs):
    with pytest.raises(InputError, match="input"):
        mirlo.compile(model(), jobs=1).run(inputs)


@pytest.mark.sample(4)
@pytest.mark.parametrize("where", ["__dlpack__", "__dlpack_device__", "__array__", "__array_interface__", "property"])
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_methods_of_arrays_that_raise_are_named_with_the_input(error, where):
    members = {"__dlpack__": lambda _, **__: X.__dlpack__(), "__dlpack_device__": lambda _: (1, 0)}
    if where == "property":
        members = {"__dlpack__": property(raising(error))}
    elif where.startswith("__array"):
        members = {where: property(raising(error)) if where == "__array_interface__" else raising(error)}
    else:
        members[where] = raising(error)
    value = types.new_class("Foreign", (), {}, lambda body: body.update(members))()
    with pytest.raises(InputError, match="input 'x'.*Foreign"):
        mirlo.compile(model(), jobs=1)(value)


@pytest.mark.parametrize("depth", [MAX_NESTING + 1, 3000, 20000])
@pytest.mark.parametrize("anchor", ["builtin.module", "func.func"])
def test_pipelines_that_are_nested_too_deep_are_refused(depth, anchor):
    texts = [f"{anchor}(" * depth + "cse" + ")" * depth, f"{anchor}(" * depth]
    for text in texts:
        with pytest.raises(PipelineError, match=f"at most {MAX_NESTING} deep"):
            Pipeline(text)
        with pytest.raises(PipelineError, match=f"at most {MAX_NESTING} deep"):
            mirlo.compile(model(), pipeline=text, cache=False)
    listed, nested = "cse", Nested(anchor, ())
    for _ in range(depth):
        listed, nested = [listed], Nested(anchor, (nested,))
    for steps in (listed, nested):
        with pytest.raises(PipelineError, match=f"at most {MAX_NESTING} deep"):
            Pipeline(steps)
    while nested.steps:  # to free it recursively would take as deep a stack
        nested = nested.steps[0]


def test_pipelines_may_be_nested_to_the_limit():
    assert len(Pipeline("builtin.module(" * MAX_NESTING + "cse" + ")" * MAX_NESTING)) == 1


@pytest.mark.parametrize("rank", [MAX_RANK + 1, 100])
def test_results_of_more_dims_than_arrays_have_are_refused(rank):
    node = helper.make_node("Unsqueeze", ["x", "axes"], ["y"], name="the_node")
    made = model()
    made.graph.node[0].CopyFrom(node)
    made.graph.initializer.append(numpy_helper.from_array(np.arange(rank - 1), "axes"))
    with pytest.raises(ArtifactError, match=f"output 'y' has {rank} dims, arrays have at most {MAX_RANK}"):
        mirlo.compile(made, cache=False, jobs=1)
    with pytest.raises(ArtifactError, match=f"input 'x' has {rank} dims, arrays have at most {MAX_RANK}"):
        mirlo.compile(model(shape=[1] * rank), cache=False, jobs=1)


def paths(folder, suffix):
    """Paths that cannot be followed: links in cycles, names and paths that are too long, files as folders."""
    loop = folder / f"loop{suffix}"
    loop.symlink_to(loop)
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")
    (folder / "file").write_bytes(b"")
    return [loop, folder / "a" / f"m{suffix}", folder / f"{'n' * 5000}{suffix}", folder / "file" / f"m{suffix}"] + [
        folder / "/".join(["d" * 100] * 60) / f"m{suffix}"
    ]


COMMANDS = ["run", "compile", "info", "check", "import", "explain", "partition", "bench", "bisect", "tune"]


@pytest.mark.sample(0)
@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need rights")
@pytest.mark.parametrize("suffix", [".onnx", ".mlir", ".mlirbc", ".mirlo", ".py"])
def test_commands_name_paths_that_cannot_be_followed(suffix, tmp_path, capsys):
    for path in paths(tmp_path, suffix):
        for command in COMMANDS:
            try:
                status = main([command, str(path)])
            except SystemExit as error:
                status = error.code
            told = capsys.readouterr().err
            assert status, (command, path)
            assert "internal" not in told and "Traceback" not in told and told.strip(), (command, told)


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need rights")
def test_outputs_and_weights_name_paths_that_cannot_be_followed(tmp_path, capsys):
    source = tmp_path / "good.onnx"
    source.write_bytes(model().SerializeToString())
    for path in paths(tmp_path, ".mirlo"):
        for arguments in (["-o", str(path)], ["--cache", str(path)]):
            with contextlib.suppress(SystemExit):
                main(["compile", str(source), "-o", str(tmp_path / "out.mirlo"), *arguments])
            told = capsys.readouterr().err
            assert "internal" not in told and "Traceback" not in told, (arguments, told)
        made = model("Add")
        made.graph.node[0].input.append("w")
        weight = numpy_helper.from_array(X, "w")
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=os.path.relpath(path, tmp_path))
        made.graph.initializer.append(weight)
        (tmp_path / "outside.onnx").write_bytes(made.SerializeToString())
        with pytest.raises(MirloError, match="'w'"):
            mirlo.compile(tmp_path / "outside.onnx", cache=False, jobs=1)
