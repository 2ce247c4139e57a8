"""The page about ONNX import, with the supported operators.

python -m mirlo.frontends.onnx.reference > docs/onnx.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import onnx

from mirlo.frontends.onnx import functions
from mirlo.frontends.onnx.errors import domain_name
from mirlo.frontends.onnx.reading import NEWEST_OPSET, OLDEST_OPSET
from mirlo.frontends.onnx.registry import CONVERTERS, load_converters
from mirlo.frontends.onnx.schema_table import schema_of

KNOWN_FAILURES = Path(__file__).parents[2] / "test" / "conformance" / "onnx_known_failures.txt"

HEAD = """# ONNX models

Written by `python -m mirlo.frontends.onnx.reference`; do not edit.

```python
import onnx
from onnx import helper
from mirlo.frontends.onnx import import_model

node = helper.make_node("Softmax", ["x"], ["y"], name="last")
x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 10]) for name in "xy")
model = helper.make_model(helper.make_graph([node], "net", [x], [y]), opset_imports=[helper.make_opsetid("", 18)])

module, params = import_model(model, shapes={"x": [4, 10]})  # also a path, or bytes
print(module.body.operations[0].type)  # (tensor<4x10xf32>) -> tensor<4x10xf32>
```

- **Function.** The module has one function, `@main`; `relax.name` holds the model's name of each argument and result.
- **Weights** stay in the file: the arrays of `params` are views of the mapped file (or of the bytes), under the names
  of the initializers. Constants of up to 16 elements are part of the IR. IR that was saved without weights uses the
  model itself as its parameter file. External data is read from files in the model's folder only.
- **Shapes.** A dim that the model names is a symbol, shared by all inputs that name it; an unnamed dim gets a symbol of
  its own. `shapes` fixes dims. Whatever a model computes from shapes (`Shape`, `Gather`, `Concat`, `Reshape` and so on)
  is folded at import.
- **Inputs with a default value**, an initializer of the same name, are constants. Those that `shapes` names are inputs:
  `{"scale": None}` keeps the shape that the model declares.
- **Control flow.** An `If` with a known condition picks a branch; otherwise it becomes an `scf.if` with branches that
  return tensors of the same element type and rank.
  Loops with a known trip count and `Scan` are unrolled up to 1024 iterations, recurrent layers up to 512 operators;
  others become an `scf.while` whose carried tensors keep their element types and ranks; each iteration may change their
  sizes ([dynamic shapes](dynamic-shapes.md#loops-that-change-sizes)).
- **Inputs that determine shapes** (axes, sizes, repeats, bounds of a range) and are known only at run time are accepted
  if the model declares a static result shape; a check at run time ensures that they match it. Most are accepted in any
  case, with results of data-dependent size ([dynamic shapes](dynamic-shapes.md)).
- **Sequences, optional values and strings** that are not known at import exist at run time: such models become
  [programs](programs.md).
- **Integers** divided by zero give 0 with a remainder of 0, as in numpy: the standard leaves it open, and a model must
  not end the process.
- **Random numbers** are those of `numpy.random.RandomState` if the node has a seed.
- **Old models** below opset 7 are converted by ONNX's version converter first.
- **ONNX's backend interface** is `mirlo.onnx_backend`: `prepare(model).run(inputs)`, `run_model`, `run_node`.
- **Locations.** Each operation carries the name of its node, which errors and profiles show.
- **Errors.** Every problem of a model is an `OnnxImportError`. It lists all nodes with unsupported operators at once,
  and all nodes that do not fit their inputs. No attribute is ignored: one that has no effect here is refused if it
  matters.

## Write a converter

```python
from mirlo.extend.ops import converter

@converter("Twice", domain="com.example", since=1)
def twice(node):
    x = node[0]                               # input 0 as a value; node.optional(1), node.all()
    times = node.attr.int("times", 2)         # also float, str, bool, ints, floats, choice
    return x * times                          # or node.emit("multiply", x, node.constant(times, node.type(0)))
```

Values have operators: `(x - 1) * y`, `x // y`, `x < y`, `a & b`, `~a`. A number becomes a constant of the value's
element type. `x.equals(y)` compares elements; `==` compares the values themselves. `node.emit` makes every other
operator of relax.

`node.array(1)`, `node.ints(1)` and `node.scalar(1)` read an input that must be constant, `node.dims(1)` one that holds
a shape; `node.type(0)` is the type of an input. `node.emit_all` makes an operator of several results and returns all of
them. Return the output value or a tuple of values. Your converter is tried before an existing one for the same
operator; return `NotImplemented` to leave the node to that one. Functions of the model need no converter.

`@converter(..., traits=[NodeTrait.MOVES])` declares more of the operator; the traits are also in `mirlo.extend.ops`:

| trait | what the import does with it |
| --- | --- |
| `MOVES`: the outputs consist of elements of the inputs | applies the operator to indices of strings |
| `MEASURES`: only the types of the inputs matter | applies it to strings; folds it on inputs that are not known |
| `SAME_SHAPE`: the output has the shape of the first input | takes the declared shape of the output for the input |
| `SAME_VALUES`: the output has the numbers of the first input | follows dims that a model computes with floats |
"""

DIFFERENCES = """
## Where implementations differ

The standard leaves these cases open, and ONNX Runtime, ONNX's reference evaluator, PyTorch and NumPy disagree. Mirlo
follows the majority:

| case | Mirlo | others |
| --- | --- | --- |
| `MaxPool` of a window with NaN | NaN | PyTorch, NumPy: NaN; ONNX Runtime: depends on the position; reference: ignores it |
| `ArgMax`, `ArgMin` of NaN | the first NaN, or the last | reference, PyTorch, NumPy: the same; ONNX Runtime: ignores it unless it comes first |
| `Pow` by a constant 0.5 of -inf, of -0.0 | NaN, -0.0, as `Sqrt` | reference, PyTorch, NumPy: the same; ONNX Runtime: inf, 0.0 |
| `Pow` by a tensor of exponents, of -inf by 0.5 | inf | PyTorch, ONNX Runtime: inf |
| `GRU`, `LSTM`, `RNN` of length 0 | no outputs; the last state is the initial one | ONNX Runtime: the same for `LSTM` and `RNN`, ends the process for `GRU`; reference: fails |
| `ReduceMean` of no integers | 0 | ONNX Runtime: 0; reference: the smallest integer |
| `ReduceMean` of no floats | NaN | reference, NumPy: NaN; ONNX Runtime: 0 |

Decision trees follow ONNX Runtime on one thread, bit for bit where it only adds:

- A score begins with 0, the weights of the leaves are added tree by tree, and the base value follows. Scores and
  comparisons are in f64 if the input is f64, else in f32.
- Of several classes the first one with the largest score wins. A class for which a row reaches no weight wins only if
  there are base values. A target for which a row reaches no weight is 0, without the base value.
- If only one of two classes has weights, its score is compared with 0.5 if no weight is negative, else with 0. A score
  on the threshold is for the first class. If both have weights, the score of the second class is compared with 0, and
  integer labels are 1 and 0. The label of a single class is 1 or 0, for a score above 0 or not.
- If there are two base values for two classes and a row reaches a weight for the second, the scores are -s and s, where s
  is the sum of the first class and the second base value.
- The scores of a single target or class are transformed by PROBIT only. SOFTMAX_ZERO of zeros is NaN.

Differences: where a row reaches no weight for any of three classes or more, ONNX Runtime stops and Mirlo gives the
first; `post_transform` 1 and 2 of `TreeEnsemble` are SOFTMAX and LOGISTIC as in the standard, and the reverse in ONNX
Runtime; a second score that ONNX Runtime leaves unwritten is 0.

`Resize` with `align_corners` and scales whose products with sizes are no whole numbers places elements as the standard's
reference does, by the scale: element i is at i * (size - 1) / (scale * size - 1). ONNX Runtime divides by the whole size
less 1. Sums of cubic interpolation that an integer type cannot hold are its least or largest value.

Of two classes of a support vector machine, a comparison of exactly 0 is a vote for the second one, and of classes with
as many votes the first wins, as in ONNX Runtime. Whether a comparison that nearly cancels is 0 depends on the rounding
of the matrix product: of 720 rows of an audit with such comparisons, 2 had another label."""  # noqa: E501


def reference() -> str:
    """Return the page as Markdown."""
    load_converters()
    return "\n".join([HEAD, *_operators(), DIFFERENCES, *_conformance()]) + "\n"


def _operators() -> Iterator[str]:
    yield f"## Operators\n\nOpsets {OLDEST_OPSET} to {NEWEST_OPSET}.\n"
    for domain, operators in groupby(CONVERTERS.own_operators(), key=lambda item: item[0]):
        yield f"**{domain_name(domain)}**: {', '.join(name for _, name in operators)}.\n"
    yield f"Through ONNX's own function bodies: {', '.join(sorted(_by_function()))}."


def _conformance() -> Iterator[str]:
    """Yield the totals of ONNX's suite, from the list that its test keeps."""
    lines = KNOWN_FAILURES.read_text(encoding="utf-8").splitlines()
    totals = next(line.removeprefix("# ") for line in lines if re.match(r"# \d+ of \d+", line))
    yield f"\n## Conformance\n\nOf ONNX's own backend suite, {totals}. The others, by reason:\n"
    yield "| cases | reason |\n| ---: | --- |"
    for line in lines:
        match = re.fullmatch(r"## (.*) \((\d+)\)", line)
        if match:
            yield f"| {match[2]} | {match[1]} |"
    yield (
        "\nA case passes if each element that is outside the tolerance is nearer to the result in f64 than the one of "
        "the suite: three cases, on some machines.\nCasts of floats to integers of 2 and 4 bits are compared where the "
        "operand is in their range: the standard defines no other results, and versions of ml_dtypes differ."
    )
    yield "\nA test ensures that the [list of them](../test/conformance/onnx_known_failures.txt) only shrinks."


def _by_function() -> Iterator[str]:
    """Yield operators without a converter whose function body only uses operators that have one."""
    for operator in {
        operator_schema.name for operator_schema in onnx.defs.get_all_schemas() if operator_schema.domain == ""
    }:
        if CONVERTERS.find("", operator, NEWEST_OPSET):
            continue
        operator_schema = schema_of("", operator, NEWEST_OPSET)
        body = (
            functions.static_body(operator_schema, NEWEST_OPSET)
            if operator_schema is not None and not operator_schema.deprecated
            else None
        )
        if body is not None and all(CONVERTERS.find("", node.operator, NEWEST_OPSET) for node in body.nodes):
            yield operator


if __name__ == "__main__":
    print(reference(), end="")
