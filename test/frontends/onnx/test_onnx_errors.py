"""Every kind of bad model gives one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import BOOL, F32, I64, make_model, node

from mirlo.frontends.onnx import OnnxImportError, import_model
from mirlo.frontends.onnx.errors import ConverterError
from mirlo.frontends.onnx.registry import CONVERTERS

X = {"x": (F32, [2, 3])}


def message(context: Any, model: Any, **options: Any) -> str:
    with pytest.raises(OnnxImportError) as caught:
        import_model(model, context=context, **options)
    return str(caught.value)


def relu_bytes() -> bytes:
    return make_model([node("Relu", "x", "y")], X, ["y"]).SerializeToString()


def test_no_such_file(context: Any, tmp_path: Path) -> None:
    assert message(context, tmp_path / "net.onnx") == (
        f"the model is expected in '{tmp_path / 'net.onnx'}', which does not exist"
    )
    assert "is not a file" in message(context, tmp_path)


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer: run 'git lfs pull'"),
        (b"PK\x03\x04rest", "a zip archive, perhaps a PyTorch checkpoint"),
        (b"<!DOCTYPE html>", "a web page: the download went wrong"),
        (b"hello, this is not a model", "not an ONNX model"),
        (b"\x08\x0a", "it has no graph"),
        (bytes(1000), "not an ONNX model"),
    ],
)
def test_not_a_model(context: Any, tmp_path: Path, data: bytes, part: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    text = message(context, path)
    assert part in text and str(path) in text


def test_not_even_bytes(context: Any) -> None:
    expected = "a path, bytes, an onnx.ModelProto, an MLIR module or a model of PyTorch, JAX or scikit-learn"
    assert message(context, 3) == f"a model is {expected}, got int"
    assert "got the function <lambda>: compile jax.jit(<lambda>)" in message(context, lambda x: x)


@pytest.mark.parametrize(
    ("name", "data", "part"),
    [
        ("a.mlir", b"module {}", "IR: 'mirlo-opt' prints it"),
        ("a.onnx", b"ML\xefR rest", "IR: 'mirlo-opt' prints it"),
        ("a.py", b"print(1)\n", "a file of Python: 'mirlo compile'"),
        ("a.py", b"\x08\x0a", "a file of Python: 'mirlo compile'"),
        ("a.onnx", b"\x1c\0\0\0TFL3" + bytes(40), "pip install mirlo-tflite"),
        ("a.pkl", b"\x80\x04\x95rest", "a Python pickle, which may run any code"),
        ("a.h5", b"\x89HDF\r\n", "a Keras model"),
        ("a.pt", b"PK\x03\x04rest", "a PyTorch checkpoint, which has weights and no graph"),
        ("a.pt2", b"PK\x03\x04rest", "mirlo.compile(torch.export.load('a.pt2'))"),
        ("a.keras", b"PK\x03\x04rest", "KERAS_BACKEND=jax"),
        ("a.gguf", b"GGUF\x03\0\0\0", "'mirlo generate'"),
        ("a.safetensors", b"\x40" + bytes(7) + b'{"weight":', "a safetensors file"),
        ("a.PB", b"hello, this is not a model", "a TensorFlow graph"),
    ],
)
def test_other_files(context: Any, tmp_path: Path, name: str, data: bytes, part: str) -> None:
    (tmp_path / name).write_bytes(data)
    text = message(context, tmp_path / name)
    assert "not an ONNX model but " in text and part in text


def test_truncated(context: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    weights = {"w": np.ones((64, 64), np.float32)}
    onnx.save(make_model([node("MatMul", "x w", "y")], {"x": (F32, [2, 64])}, ["y"], weights), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    text = message(context, path)
    assert "truncated or damaged" in text and "download or export it again" in text


def test_operator_sets(context: Any) -> None:
    old = make_model([node("Scan", "_ x", "y")], X, ["y"], opset=6)
    assert "uses operator set 6, and ONNX's version converter cannot bring it to 7" in message(context, old)
    old.opset_import[0].version = 99
    assert "uses operator set 99" in message(context, old)
    del old.opset_import[:]
    assert "imports no operator set" in message(context, old)


def test_all_unsupported_operators_in_one_error(context: Any) -> None:
    nodes = [
        helper.make_node("Softmx", ["x"], ["a"], name="first"),
        helper.make_node("Softmx", ["a"], ["b"], name="second"),
        helper.make_node("Bar", ["b"], ["c"], domain="com.example"),
        node("Upsample", "c s", "d"),
        node("Relu", "d", "y"),
    ]
    model = make_model(nodes, X, ["y"], {"s": np.ones(2, np.float32)})
    model.opset_import.append(helper.make_opsetid("com.example", 3))
    domains = sorted({domain or "ai.onnx" for domain, _ in CONVERTERS.operators()})  # also those of other tests
    assert {"ai.onnx", "ai.onnx.ml", "com.microsoft"} <= set(domains)
    assert message(context, model).splitlines() == [
        "model 'small': 4 nodes of 3 operators cannot be imported:",
        "  Softmx (domain ai.onnx, opset 18): 'first', 'second'",
        "    supported, and of a similar name: Softmax, LogSoftmax",
        "  Upsample (domain ai.onnx, opset 18): 'Upsample_3'",
        "    not supported in this version of the operator set, but from opset 1 and 9",
        "  Bar (domain com.example, opset 3): 'Bar_2'",
        f"    no operator of this domain is supported; domains that are: {', '.join(domains)}; "
        "define it with mirlo.onnx_operator('com.example', 'Bar', ...), on the command line in a file: "
        "--plugin FILE.py",
        "Rewrite these nodes with supported operators, or give each operator a function body in the model.",
    ]


def test_unsupported_operators_in_branches_and_functions(context: Any) -> None:
    branch = helper.make_graph([node("Foo", "x", "t")], "b", [], [helper.make_tensor_value_info("t", F32, None)])
    body = helper.make_function("my", "F", ["a"], ["c"], [node("Quux", "a", "c")], [helper.make_opsetid("", 18)])
    nodes = [
        node("If", "c", "h", then_branch=branch, else_branch=branch),
        helper.make_node("F", ["h"], ["y"], domain="my", name="call"),
    ]
    text = message(context, make_model(nodes, {**X, "c": (BOOL, [])}, ["y"], functions=[body]))
    assert "'If_0/Foo_0'" in text and "'call/Quux_0'" in text


def test_every_bad_node_is_told(context: Any) -> None:
    nodes = [
        helper.make_node("Add", ["x", "i"], ["a"], name="sum"),
        helper.make_node("MatMul", ["x", "x"], ["b"], name="product"),
        helper.make_node("Relu", ["a"], ["skipped"], name="depends on sum"),
        helper.make_node("Concat", ["b", "skipped", "x"], ["y"], axis=0),
    ]
    text = message(context, make_model(nodes, {**X, "i": (I64, [2, 3])}, ["y"]))
    assert text.splitlines() == [
        "2 nodes cannot be imported:",
        "  model 'small': node 'sum' (Add): inputs 'A' and 'B' must have one element type, got f32[2, 3] and i64[2, 3] "
        "[inputs: 'x' f32[2, 3], 'i' i64[2, 3]]",
        "  model 'small': node 'product' (MatMul): the contracted dims of f32[2, 3] and f32[2, 3] must agree, "
        "got 3 and 2 [inputs: 'x' f32[2, 3], 'x' f32[2, 3]]",
    ]


@pytest.mark.parametrize(
    ("made", "part"),
    [
        (node("Relu", "x", "y", alpha=1.0), "Relu has no attribute 'alpha': there are: none"),
        (node("Softmax", "x", "y", axes=1), "Softmax has no attribute 'axes': did you mean 'axis'?"),
        (node("Softmax", "x", "y", axis=1.5), "attribute 'axis' must be an integer, got a number"),
        (node("Softmax", "x", "y", axis=7), "axis 7 is outside a tensor of rank 2"),
        (node("Concat", "x x", "y"), "Concat needs the attribute 'axis'"),
        (node("Add", "x", "y"), "Add needs at least 2 inputs, got 1"),
        (node("Add", "x x x", "y"), "Add takes at most 2 inputs, got 3"),
        (node("Add", "_ x", "y"), "input 'A' is missing"),
        (node("Relu", "x", "y z"), "Relu has at most 1 output, got 2"),
        (node("Not", "x", "y"), "input 'X' is f32[2, 3]; Not accepts: bool"),
        (node("Cast", "x", "y", to=14), "attribute 'to' has the element type COMPLEX64, which is not supported"),
        (node("Transpose", "x", "y", perm=[0, 0]), "axes must name each of the 2 axes"),
        (
            node("Gelu", "x", "y", approximate="fast"),
            "attribute 'approximate' must be one of 'none', 'tanh', got 'fast'",
        ),
    ],
)
def test_bad_nodes(context: Any, made: Any, part: str) -> None:
    model = make_model([made], {**X, "s": (I64, [2]), "t": (BOOL, [])}, ["y"], opset=20)
    text = message(context, model)
    assert f"node '{made.op_type}_0' ({made.op_type}): " in text and part in text


def test_unknown_names(context: Any) -> None:
    model = make_model([node("Relu", "input", "y")], {"inputs": (F32, [2])}, ["y"])
    assert "node 'Relu_0' (Relu) reads 'input', which nothing defines: did you mean 'inputs'?" in message(
        context, model
    )
    model = make_model([node("Relu", "x", "out")], X, ["ouut"])
    assert "output 'ouut' is made by no node: did you mean 'out'?" in message(context, model)


def test_cycle(context: Any) -> None:
    nodes = [node("Add", "x c", "a"), node("Relu", "a", "b"), node("Tanh", "b", "c")]
    text = message(context, make_model(nodes, X, ["c"]))
    assert "the graph has a cycle: 'Add_0', 'Relu_1', 'Tanh_2' depend on one another" in text


def test_duplicate_names(context: Any) -> None:
    twice = make_model([node("Relu", "x", "y"), node("Tanh", "x", "y")], X, ["y"])
    text = message(context, twice)
    assert (
        "the name 'y' is defined twice: by node 'Tanh_1' (Tanh) and by node 'Relu_0'; names of values must be unique"
        in text
    )
    shadow = make_model([node("Relu", "x", "x")], X, ["x"])
    assert "by node 'Relu_0' (Relu) and by an input or initializer" in message(context, shadow)
    again = make_model([node("Relu", "x", "y")], X, ["y"])
    again.graph.input.append(again.graph.input[0])
    assert "the graph has two inputs of this name" in message(context, again)


def test_input_types(context: Any) -> None:
    model = make_model([node("Identity", "x", "y")], {"x": (onnx.TensorProto.COMPLEX64, [2])}, ["y"])
    assert "input 'x' has the element type COMPLEX64, which is not supported; supported: FLOAT, " in message(
        context, model
    )
    words = helper.make_map_type_proto(onnx.TensorProto.STRING, helper.make_tensor_type_proto(F32, [2]))
    model.graph.input[0].type.CopyFrom(words)
    assert "input 'x' is a map to other values than scalars" in message(context, model)
    model.graph.input[0].type.map_type.key_type = F32
    assert "input 'x' is a map from f32; keys must be string or i64" in message(context, model)
    model.graph.input[0].type.CopyFrom(helper.make_sparse_tensor_type_proto(F32, [2]))
    assert "input 'x' is not a tensor but sparse tensor; tensors, sequences, maps" in message(context, model)
    model.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(F32, None))
    assert "input 'x' has no shape, not even a rank" in message(context, model)


@pytest.mark.parametrize("shape", [[2, 4], [2], [2, 3, 1]])
def test_declared_shape_of_an_output_disagrees(context: Any, shape: list[int]) -> None:
    """ONNX Runtime warns of it, and returns what the nodes compute."""
    model = make_model([node("Relu", "x", "y")], X, ["y"], output_types={"y": (F32, shape)})
    listed = ", ".join(map(str, shape))
    with pytest.warns(UserWarning, match=rf"output 'y' is declared f32\[{listed}\], .* make it f32\[2, 3\], which"):
        import_model(model, context=context)


def test_declared_type_of_an_output_disagrees(context: Any) -> None:
    model = make_model([node("Relu", "x", "y")], X, ["y"], output_types={"y": (BOOL, [2, 3])})
    assert "output 'y' is declared bool[2, 3], but the nodes that compute it make it f32[2, 3]" in message(
        context, model
    )


@pytest.mark.parametrize(
    ("shapes", "part"),
    [
        ({"z": [1]}, "a shape is given for 'z', which is not an input: there are: 'a', 'b'"),
        ({"a": [1, 2]}, "the shape given for input 'a' is [1, 2], but the input is f32[n, 4, n]: expected 3 dims"),
        ({"a": [1, 5, 1]}, "the shape given for input 'a': dim 1 is 5, but the model fixes it to 4"),
        ({"a": [1, 4, 2]}, "dim 2 is 2, but the symbol 'n' is given as 1 already"),
        ({"a": [1, 4, -1]}, "has the dim -1; expected a number or a name"),
    ],
)
def test_bad_shapes(context: Any, shapes: Any, part: str) -> None:
    inputs = {"a": (F32, ["n", 4, "n"]), "b": (F32, ["n"])}
    assert part in message(context, make_model([node("Relu", "a", "y")], inputs, ["y"]), shapes=shapes)


def test_function_that_calls_itself(context: Any) -> None:
    call = helper.make_node("F", ["a"], ["c"], domain="my")
    body = helper.make_function(
        "my", "F", ["a"], ["c"], [call], [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
    )
    outer = helper.make_node("F", ["x"], ["y"], domain="my")
    assert "'F' calls itself?" in message(context, make_model([outer], X, ["y"], functions=[body]))


def test_branches_of_different_types(context: Any) -> None:
    then = helper.make_graph([node("Relu", "x", "t")], "t", [], [helper.make_tensor_value_info("t", F32, None)])
    other = helper.make_graph(
        [node("Cast", "x", "e", to=BOOL)], "e", [], [helper.make_tensor_value_info("e", BOOL, None)]
    )
    model = make_model([node("If", "c", "y", then_branch=then, else_branch=other)], {**X, "c": (BOOL, [])}, ["y"])
    assert "the branches give different types: (f32[2, 3]) and (bool[2, 3])" in message(context, model)


def test_many_problems_are_counted(context: Any) -> None:
    nodes = [node("MatMul", "x x", f"y{i}") for i in range(30)]
    text = message(context, make_model(nodes, X, [f"y{i}" for i in range(30)]))
    assert text.startswith("30 nodes cannot be imported:") and text.endswith("and 10 more")


@pytest.mark.parametrize(
    ("made", "constants", "part"),
    [
        (node("SplitToSequence", "x", "s"), {}, "in parts of 1 has more than 4096 parts"),
        (node("STFT", "signal step _ length", "y"), {"step": np.array(1), "length": np.array(10**6)}, "are too many"),
        (node("DFT", "signal length", "y"), {"length": np.array(10**9)}, "a transform of length 1000000000"),
        (node("Loop", "rounds _ x", "y", body=helper.make_graph([], "b", [], [])), {"rounds": np.array(5)}, "the body"),
    ],
)
def test_nothing_large_is_made(context: Any, made: Any, constants: dict[str, Any], part: str) -> None:
    inputs = {"x": (F32, [10**9]), "signal": (F32, [1, 3 * 10**6, 1])}
    assert part in message(context, make_model([made], inputs, list(made.output), constants, opset=19))


def test_a_node_without_outputs(context: Any) -> None:
    model = make_model([node("Relu", "x", "y")], X, ["y"])
    model.graph.node.add(op_type="Exp", input=["x"])
    module, _ = import_model(model, context=context)
    assert "relax.relu" in str(module) and "relax.exp" not in str(module)


def test_sizes_that_no_memory_holds(context: Any) -> None:
    padded = make_model([node("Pad", "x p", "y")], X, ["y"], {"p": np.array([0, 0, 2**62, 2**62])}, opset=13)
    assert "beyond any memory" in message(context, padded)
    relu = make_model([node("Relu", "x", "y")], {"x": (F32, [2**63 - 1])}, ["y"])
    assert "input 'x': a dim of 9223372036854775807 elements is beyond any memory" in message(context, relu)


def test_groups_that_do_not_divide_a_number_of_channels(context: Any) -> None:
    made = node("GroupNormalization", "x s s", "y", num_groups=2)
    model = make_model([made], {"x": (F32, [1, 33, 4]), "s": (F32, [33])}, ["y"], opset=21)
    assert "'num_groups' is 2, which does not divide the channels of f32[1, 33, 4]" in message(context, model)


WEIGHTS = {"w": np.ones((1, 15, 2), np.float32), "r": np.ones((1, 15, 5), np.float32)}
GRU = {"x": (F32, [1, 3, 2])}
# node, types of its inputs, what is said
INVALID: dict[str, tuple[Any, dict[str, Any], str]] = {
    "sequence": (node("GRU", "x w r", "y", hidden_size=5), {"x": (F32, [1, 1, 3, 2])}, "'X' must have 3 dims"),
    "weights": (node("GRU", "x w r", "y", hidden_size=5), {**GRU, "w": (F32, [])}, "'W' must have 3 dims"),
    "kernel": (
        node("ConvTranspose", "x v", "y", kernel_shape=[3]), {"x": (F32, [1, 1, 3, 3]), "v": (F32, [1, 2, 3, 3])},
        "'kernel_shape' must have 2 numbers",
    ),
    "output shape": (
        node("ConvTranspose", "x v", "y", output_shape=[6]), {"x": (F32, [1, 1, 3, 3]), "v": (F32, [1, 2, 3, 3])},
        "'output_shape' must have 2 numbers, one per spatial dim, got [6]",
    ),
    "bounds": (node("Slice", "x b b", "y"), {"x": (F32, [2]), "b": (I64, [1, 1])}, "lists of numbers"),
    "mask": (
        node("Attention", "q q q m", "y"), {"q": (F32, [1, 2, 3, 4]), "m": (F32, [])},
        "'attn_mask' must have 2 to 4 dims",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_inputs_of_another_rank(context: Any, name: str) -> None:
    made, inputs, part = INVALID[name]
    constants = {key: array for key, array in WEIGHTS.items() if key in made.input and key not in inputs}
    assert part in message(context, make_model([made], inputs, ["y"], constants, opset=23))


def test_a_node_that_a_converter_stumbles_over_is_told_by_what_onnx_has_against_it(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake of ours stays one: it is raised where ONNX has nothing against the node."""

    def stumble(made: Any) -> Any:
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(CONVERTERS, "find", lambda *_: [stumble])
    valid, invalid = (make_model([node("MatMul", "x x", "y")], {"x": (F32, [2, k])}, ["y"]) for k in (2, 3))
    assert "node 'MatMul_0' (MatMul): the node is not valid: Incompatible dimensions" in message(context, invalid)
    text = r"node 'MatMul_0' \(MatMul\): its converter raised IndexError.*errors\.py:"
    with pytest.raises(ConverterError, match=text):
        import_model(valid, context=context)
