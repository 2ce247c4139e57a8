"""Models that come to many more nodes than their files have: refused, or kept as loops, in time that is linear."""

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import mirlo
from mirlo.frontends.onnx import functions
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.frontends.onnx.importer import import_model

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


OPERATORS = ("Add", "Add same", "Mul", "Mul same", "Max", "Min", "Div", "Div i3", "Mod", "Mod i3")
PAIRS = list(itertools.permutations(OPERATORS, 2))


@pytest.mark.sample(45)
@pytest.mark.parametrize("is_shape", [True, False])
@pytest.mark.parametrize("operators", PAIRS, ids="+".join)
def test_chains_of_operators_on_sizes_are_imported(operators, is_shape):
    """Expressions of sizes double with each operator, or are operations in each other: the call computes those."""
    import_model(chain_on_sizes(operators, 200, is_shape))


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
    monkeypatch.setattr(functions.schema, "schema_of", lambda *_: None)
    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: 23)
    made = helper.make_node(operator, ["x", "x", "x"], ["y"], domain=domain)
    graph = helper.make_graph([made], "g", [value("x", [2, 3, 5])], [value("y", [2, 3, 5])])
    opsets = [helper.make_opsetid("", 27), helper.make_opsetid("com.microsoft", 1)]
    with pytest.raises(OnnxImportError, match=rf"{operator}.* function of ONNX's opset 27.* up to 23: pip install"):
        import_model(helper.make_model(graph, opset_imports=opsets, ir_version=10))
