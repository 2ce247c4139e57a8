"""Models that come to many more nodes than their files have: refused, or kept as loops, in time that is linear."""

import itertools
import tracemalloc

import numpy as np
import onnx
import onnx.version_converter
import pytest
from commands import mirlo as mirlo_command
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import mirlo
from mirlo.frontends.onnx import functions
from mirlo.frontends.onnx import model as models
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.importer import import_model
from mirlo.frontends.onnx.ops import sequence

MY = helper.make_opsetid("my", 1)
STANDARD = helper.make_opsetid("", 21)


def value(name, shape, element=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element, shape)


def model_of(nodes, initializers=(), local=()):
    graph = helper.make_graph(nodes, "g", [value("x", [4])], [value("y", [4])], initializer=list(initializers))
    return helper.make_model(graph, opset_imports=[STANDARD, MY], functions=list(local), ir_version=10)


def chain_of_functions(depth, calls):
    """Functions each of which calls the one before `calls` times."""
    local = [helper.make_function("my", "f0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [STANDARD])]
    for i in range(1, depth):
        names = ["a", *(f"t{j}" for j in range(calls - 1)), "b"]
        nodes = [helper.make_node(f"f{i - 1}", [names[j]], [names[j + 1]], domain="my") for j in range(calls)]
        local.append(helper.make_function("my", f"f{i}", ["a"], ["b"], nodes, [STANDARD, MY]))
    return model_of([helper.make_node(f"f{depth - 1}", ["x"], ["y"], domain="my")], local=local)


def nested_loops(depth, rounds=2):
    """Loops in loops of constant numbers of rounds, around one addition."""

    def body(level):
        inner = (
            helper.make_node("Loop", ["rounds", "", f"a{level}"], [f"r{level}"], body=body(level - 1))
            if level
            else helper.make_node("Add", ["a0", "one"], ["r0"])
        )
        go_on = helper.make_node("Identity", [f"c{level}"], [f"d{level}"])
        inputs = [value(f"i{level}", [], TensorProto.INT64), value(f"c{level}", [], TensorProto.BOOL)]
        outputs = [value(f"d{level}", [], TensorProto.BOOL), value(f"r{level}", [4])]
        return helper.make_graph([inner, go_on], f"body{level}", [*inputs, value(f"a{level}", [4])], outputs)

    constants = [numpy_helper.from_array(np.array(rounds), "rounds"), numpy_helper.from_array(np.float32(1), "one")]
    return model_of([helper.make_node("Loop", ["rounds", "", "x"], ["y"], body=body(depth - 1))], constants)


def operations(module):
    count = 0

    def visit(op):
        nonlocal count
        for region in op.operation.regions:
            for block in region.blocks:
                for inner in block.operations:
                    count += 1
                    visit(inner)

    visit(module.operation)
    return count


@pytest.mark.parametrize("depth", [18, 25, 31])
def test_functions_that_call_each_other_twice_are_refused_before_they_are_copied(depth, monkeypatch):
    monkeypatch.setattr(functions, "instantiate", lambda *_: pytest.fail("a function was copied"))
    with pytest.raises(OnnxImportError, match=r"functions of the model.* come to \d+ nodes.* a call of 'f\d+' alone"):
        import_model(chain_of_functions(depth, 2))


def inside_of_branches(model):
    """Move the calls of each function of a model into both branches of an If."""
    for function in model.functions:
        for node in [node for node in function.node if node.domain == "my"]:
            call = onnx.NodeProto.FromString(node.SerializeToString())
            branch = helper.make_graph([call], "branch", [], [helper.make_empty_tensor_value_info(node.output[0])])
            flag = helper.make_node("Constant", [], [f"{node.output[0]}_flag"], value_ints=[1])
            node.CopyFrom(helper.make_node("If", flag.output, node.output, then_branch=branch, else_branch=branch))
            function.node.insert(0, flag)
    return model


def recursive(length):
    """Functions each of which calls the next, and the last of which calls the first."""
    model = chain_of_functions(length, 1)
    model.functions[0].node[0].CopyFrom(helper.make_node(f"f{length - 1}", ["a"], ["b"], domain="my"))
    model.functions[0].opset_import.append(MY)
    return model


def of_an_old_opset(model):
    model.opset_import[0].version = 6
    return model


MULTIPLYING = {
    "twice": chain_of_functions(25, 2),
    "often": chain_of_functions(5, 60),
    "deep": chain_of_functions(100, 2),
    "deeper": chain_of_functions(3000, 2),
    "in branches": inside_of_branches(chain_of_functions(14, 2)),
    "recursive": recursive(1),
    "recursive in turn": recursive(5),
    "old": of_an_old_opset(chain_of_functions(40, 2)),
}


@pytest.mark.parametrize("form", MULTIPLYING)
def test_models_that_multiply_are_refused_where_they_are_opened(form, monkeypatch):
    """Whatever asks the `onnx` package about a model, or runs its evaluator, copies functions too."""
    for module, name in ((onnx.shape_inference, "infer_shapes"), (onnx.version_converter, "convert_version")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("ONNX was asked"))
    with pytest.raises(OnnxImportError, match="come to|nested more than 32 deep|which came with operator set 15"):
        models.load(MULTIPLYING[form])


COMMANDS = ("info", "check", "import", "compile", "explain", "explorer", "partition", "bisect", "bench", "tune", "run",
            "quantize", "verify")  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_refuses_models_that_multiply(command, tmp_path):
    onnx.save(MULTIPLYING["twice"], tmp_path / "m.onnx")
    output = ("-o", "out") if command in ("compile", "explorer", "quantize") else ()
    output += ("--target", "onednn,llvm") if command == "partition" else ()
    result = mirlo_command(command, "m.onnx", *output, cwd=tmp_path)
    assert (result.returncode, "come to" in result.stderr) == (1, True), result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]


def test_functions_that_come_to_few_nodes_are_imported():
    module, _ = import_model(chain_of_functions(8, 2))
    assert operations(module) >= 2**7


@pytest.mark.parametrize("depth", [33, 200, 2000])
def test_functions_nested_too_deep_are_refused(depth):
    with pytest.raises(OnnxImportError, match="functions are nested more than 32 deep"):
        import_model(chain_of_functions(depth, 1))


def chain_on_sizes(operators, count, is_shape):
    """Operators in turn on the sizes of the input, each on the last result and on another value or the last result."""
    nodes = [helper.make_node("Shape", ["x"], ["sizes"])]
    nodes += [helper.make_node("Gather", ["sizes", f"i{i}"], [f"n{i}"]) for i in range(3)]
    result = "n0"
    for i in range(count):
        for operator in operators:
            name, _, operand = operator.partition(" ")
            operand = {"": f"n{i % 3}", "same": result}.get(operand, operand)
            nodes.append(helper.make_node(name, [result, operand], [f"{i}{operator}"]))
            result = f"{i}{operator}"
    nodes.append(helper.make_node("ConstantOfShape" if is_shape else "Identity", [result], ["y"]))
    constants = [numpy_helper.from_array(np.array([i]), f"i{i}") for i in range(4)]
    inputs, outputs = [value("x", ["a", "b", "c"])], [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=constants)
    return helper.make_model(graph, opset_imports=[STANDARD], ir_version=10)


ML = "ai.onnx.ml"
TREE = {"nodes_featureids": [0], "nodes_truenodeids": [0], "nodes_falsenodeids": [1], "tree_roots": [0]}
LEAVES = {"nodes_trueleafs": [1], "nodes_falseleafs": [1], "leaf_targetids": [0, 1]}
TENSORS = {"nodes_modes": np.uint8([0]), "nodes_splits": np.float32([0]), "leaf_weights": np.float32([1, 2])}
OLD_TREE = {
    "nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0] * 3, "nodes_values": [0.0] * 3,
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
    "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 1], "target_weights": [1.0, 2.0],
}  # fmt: skip
SVM = {
    "classlabels_ints": list(range(700)), "vectors_per_class": [1] + [0] * 699, "support_vectors": [1.0] * 4,
    "coefficients": [1.0] * 699,
}  # fmt: skip
GRAMS = {
    "min_gram_length": 1, "max_gram_length": 64, "max_skip_count": 0, "mode": "TF", "ngram_indexes": [2**22] * 64,
    "ngram_counts": [i * (i + 1) // 2 for i in range(64)], "pool_int64s": [1] * (64 * 65 // 2),
}  # fmt: skip
LINES = [np.arange(200).reshape([-1 if i == axis else 1 for i in range(5)]) for axis in range(5)]
LARGE = [
    ("Max", {}, LINES),
    ("Where", {}, [LINES[0] > 5, *LINES[1:3]]),
    ("Clip", {}, LINES[:3]),
    ("Split", {"num_outputs": 2**33}, [np.zeros(0, np.int64)]),
    ("Expand", {}, [np.zeros(1), np.ones(5000, np.int64)]),
    ("TreeEnsemble", {**TREE, **LEAVES, **TENSORS, "n_targets": 10**8}, []),
    ("TreeEnsembleRegressor", {**OLD_TREE, "n_targets": 10**8}, []),
    ("SVMClassifier", {**SVM, "rho": [0.0]}, []),
    ("SVMClassifier", {**SVM, "rho": [0.0] * (700 * 699 // 2)}, []),
    ("TfIdfVectorizer", GRAMS, []),
]


@pytest.mark.parametrize(("operator", "attributes", "constants"), LARGE, ids=[case[0] for case in LARGE])
def test_a_few_bytes_do_not_become_many(operator, attributes, constants):
    attributes = {
        name: numpy_helper.from_array(each, name) if isinstance(each, np.ndarray) else each
        for name, each in attributes.items()
    }
    is_text = operator == "TfIdfVectorizer"
    domain = "" if constants or is_text else ML
    names = [f"c{i}" for i in range(len(constants))] or ["i" if is_text else "x"]
    made = helper.make_node(operator, names, ["y"], name="the_node", domain=domain, **attributes)
    inputs = [value("x", [3, 4]), value("i", [100], TensorProto.INT64)]
    initializers = [numpy_helper.from_array(array, f"c{i}") for i, array in enumerate(constants)]
    graph = helper.make_graph([made], "g", inputs, [helper.make_empty_tensor_value_info("y")], initializer=initializers)
    opsets = [STANDARD, helper.make_opsetid(ML, 3 if operator == "TreeEnsembleRegressor" else 5)]
    tracemalloc.start()
    try:
        import_model(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    except OnnxImportError as error:
        assert "node 'the_node'" in str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 48 << 20


def test_a_large_batch_is_not_unrolled():
    """Scan of opset 8 has a batch, each sequence of which may have its own length."""
    names = [("s", "t"), ("e", "f")]
    nodes = [helper.make_node("Identity", [a], [b]) for a, b in names]
    ends = [[value(name, [1]) for name in each] for each in zip(*names, strict=True)]
    body = helper.make_graph(nodes, "body", *ends)
    made = helper.make_node("Scan", ["", "i", "x"], ["y", "z"], body=body, num_scan_inputs=1)
    inputs = [value("i", [2**33, 1]), value("x", [2**33, 2, 1])]
    graph = helper.make_graph([made], "g", inputs, [value("z", [2**33, 2, 1])])
    module, _ = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3))
    assert "scf.while" in str(module)


def test_a_mixture_of_too_many_experts_is_refused():
    made = helper.make_node("MoE", ["x", "r", "a", "", "b"], ["y"], name="the_node", domain="com.microsoft", k=1)
    shapes = {"x": [3, 4], "r": [3, 10**5], "a": [10**5, 8, 4], "b": [10**5, 4, 8]}
    graph = helper.make_graph([made], "g", [value(*each) for each in shapes.items()], [value("y", [3, 4])])
    opsets = [STANDARD, helper.make_opsetid("com.microsoft", 1)]
    with pytest.raises(OnnxImportError, match="node 'the_node' .* a mixture of 100000 experts is not supported"):
        import_model(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def test_many_attributes_and_long_sequences_take_linear_time(monkeypatch):
    made = helper.make_node("Relu", ["x"], ["y"])
    made.attribute.extend(helper.make_attribute(f"a{i}", 1) for i in range(10_000))
    with pytest.raises(OnnxImportError, match="no attribute 'a0'"):
        import_model(model_of([made]))
    monkeypatch.setattr(sequence, "MAX_ITEMS", 16)
    nodes = [helper.make_node("SequenceEmpty", [], ["s0"])]
    nodes += [helper.make_node("SequenceInsert", [f"s{i}", "x"], [f"s{i + 1}"]) for i in range(40)]
    nodes.append(helper.make_node("SequenceAt", ["s40", "i"], ["y"]))
    module, _ = import_model(model_of(nodes, [numpy_helper.from_array(np.array(7), "i")]))
    assert str(module).count("mirlo.sequence.insert") == 40 - 16


OPERATORS = ("Add", "Add same", "Mul", "Mul same", "Max", "Min", "Div", "Div i3", "Mod", "Mod i3")
PAIRS = list(itertools.permutations(OPERATORS, 2))


@pytest.mark.sample(45)
@pytest.mark.parametrize("is_shape", [True, False])
@pytest.mark.parametrize("operators", PAIRS, ids="+".join)
def test_chains_of_operators_on_sizes_are_imported(operators, is_shape):
    """Expressions of sizes double with each operator, or are operations in each other: the call computes those."""
    import_model(chain_on_sizes(operators, 200, is_shape))


@pytest.mark.sample(0)
def test_chains_on_sizes_compute_the_same():
    model = chain_on_sizes(("Max", "Add", "Div i3", "Add same"), 10, is_shape=False)
    x = np.zeros((3, 5, 9), np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(mirlo.compile(model, cache=False, jobs=1).run({"x": x})["y"], expected)


@pytest.mark.sample(0)
@pytest.mark.parametrize("depth", [20])
def test_nested_loops_are_unrolled_within_a_budget(depth):
    module, _ = import_model(nested_loops(depth))
    assert 2**6 < operations(module) < 2**16
    assert "scf.while" in str(module)


@pytest.mark.sample(0)
def test_loops_beyond_the_budget_compute_the_same():
    executable = mirlo.compile(nested_loops(4, 12), cache=False, jobs=1)
    start = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(executable.run({"x": start})["y"], start + 12**4)


@pytest.mark.parametrize(("operator", "domain"), [("CausalConvWithState", ""), ("LinearAttention", "com.microsoft")])
def test_functions_of_newer_opsets_name_what_to_install(operator, domain, monkeypatch):
    """An older `onnx` package does not define the function of an operator."""
    monkeypatch.setattr(functions, "schema_of", lambda *_: None)
    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: 23)
    made = helper.make_node(operator, ["x", "x", "x"], ["y"], domain=domain)
    graph = helper.make_graph([made], "g", [value("x", [2, 3, 5])], [value("y", [2, 3, 5])])
    opsets = [helper.make_opsetid("", 27), helper.make_opsetid("com.microsoft", 1)]
    with pytest.raises(OnnxImportError, match=rf"{operator}.* function of ONNX's opset 27.* up to 23: pip install"):
        import_model(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def counted_loop(rounds, flag="Identity"):
    """Return a model with a loop around an addition, which its trip count ends, or data."""
    one = numpy_helper.from_array(np.float32(1), "one")
    conditions = {
        "Identity": [helper.make_node("Identity", ["c"], ["d"])],
        "Constant": [helper.make_node("Constant", [], ["d"], value=numpy_helper.from_array(np.array(True)))],
        "data": [
            helper.make_node("ReduceMax", ["r"], ["m"], keepdims=0),
            helper.make_node("Less", ["m", "three"], ["d"]),
        ],
    }
    work = [helper.make_node("Add", ["a", "one"], ["r"]), *conditions[flag]]
    inputs = [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("a", [4])]
    body = helper.make_graph(work, "body", inputs, [value("d", [], TensorProto.BOOL), value("r", [4])])
    count = "" if rounds is None else "rounds"
    constants = [one, numpy_helper.from_array(np.float32(3), "three")]
    if rounds is not None:
        constants.append(numpy_helper.from_array(np.array(rounds), "rounds"))
    nodes = [helper.make_node("Loop", [count, "", "x"], ["y"], body=body, name="rounds_of_the_file")]
    return model_of(nodes, constants)


@pytest.mark.parametrize("flag", ["Identity", "Constant"])
@pytest.mark.parametrize("rounds", [(1 << 31) + 1, 1 << 40, 1 << 62, (1 << 63) - 1])
def test_trip_counts_that_no_call_computes_are_refused(rounds, flag):
    with pytest.raises(OnnxImportError, match=f"rounds_of_the_file.*has {rounds} iterations.* at most 2147483648"):
        import_model(counted_loop(rounds, flag))


@pytest.mark.parametrize("flag", ["Identity", "Constant"])
def test_loops_without_an_end_are_refused(flag):
    with pytest.raises(OnnxImportError, match="rounds_of_the_file.*the loop never ends"):
        import_model(counted_loop(None, flag))


@pytest.mark.parametrize("rounds", [2000, 1 << 31, 1 << 62, (1 << 63) - 1, None])
def test_loops_that_data_end_are_computed(rounds):
    model = counted_loop(rounds, "data")
    assert mirlo.compile(model, cache=False)(np.zeros(4, np.float32)).tolist() == [3] * 4


@pytest.mark.parametrize("rounds", [-(1 << 62), 0, 1, 2000])
def test_few_iterations_are_computed(rounds):
    assert mirlo.compile(counted_loop(rounds), cache=False)(np.zeros(4, np.float32)).tolist() == [max(rounds, 0)] * 4
    import_model(counted_loop(1 << 31))


LOOPS_INSIDE = [
    (3, 2000, True), (4, 1 << 10, False), (2, 1 << 15, False), (2, 1 << 16, True), (8, 1100, True), (2, 0, False),
]  # fmt: skip


@pytest.mark.parametrize(("depth", "rounds", "is_refused"), LOOPS_INSIDE)
def test_iterations_of_loops_inside_are_multiplied(depth, rounds, is_refused):
    """Those that are unrolled are limited by their nodes."""
    model = nested_loops(depth, rounds)
    if is_refused:
        with pytest.raises(OnnxImportError, match="iterations inside, and its condition is always true"):
            import_model(model)
    else:
        import_model(model)
