"""The page about ONNX import, with the supported operators.

python -m mirlo.frontends.onnx.reference > docs/onnx.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from mirlo.frontends.onnx import functions, schema
from mirlo.frontends.onnx.errors import domain_name
from mirlo.frontends.onnx.model import NEWEST_OPSET, OLDEST_OPSET
from mirlo.frontends.onnx.registry import CONVERTERS, load_converters

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
  of the initializers. Constants of up to 16 elements stand in the IR. IR that was saved without weights takes the
  model itself for its parameter file. External data is read from files in the model's folder only.
- **Shapes.** A dim that the model names is a symbol, in all inputs that name it; one without a name gets one.
  `shapes` fixes dims. What a model computes from shapes (`Shape`, `Gather`, `Concat`, `Reshape` and so on) is
  computed at import.
- **Control flow.** `If` whose condition is known picks a branch, else it is an `scf.if` whose branches give tensors
  of the same element type and rank; where their shapes differ, the model becomes a [program](programs.md). Loops whose
  rounds can be counted and `Scan` are unrolled, up to 1024 rounds, recurrent layers up to 128; others, and those over
  an open number of steps, become an `scf.while`, whose carried tensors keep their types.
- **Inputs that decide shapes** (axes, sizes, repeats, bounds of a range) and are known at run time only are taken where
  the model declares the shape of the result as numbers; that they make that shape is checked at run time. Most are
  taken anyhow, and the sizes of results then follow the data ([dynamic shapes](dynamic-shapes.md)).
- **Sequences, optional values and strings** exist at run time, where import time does not know them: such models
  become [programs](programs.md).
- **Integers** divided by zero give 0, with a remainder of 0, as in numpy: the standard leaves it open, and a
  program must not end for it.
- **Random numbers** are those of `numpy.random.RandomState` where the node gives a seed.
- **Old models.** What is older than operator set 7 goes through ONNX's version converter first.
- **ONNX's interface of backends** is `mirlo.onnx_backend`: `prepare(model).run(inputs)`, `run_model`, `run_node`.
- **Locations.** Each operation carries the name of its node, so that errors and profiles can name it.
- **Errors.** Whatever is wrong with a model is an `OnnxImportError`. All nodes whose operators are not supported are
  told at once, and so are all nodes that do not fit their inputs. No attribute is ignored: one that has no effect
  here is refused, if it matters.

## A converter of your own

```python
from mirlo.extend import converter

@converter("Twice", domain="com.example", since=1)
def twice(node):
    x = node[0]                               # input 0 as a value; node.optional(1), node.all()
    times = node.attr.int("times", 2)         # also float, str, bool, ints, floats, choice
    return node.emit("multiply", x, node.constant(times, node.type(0)))
```

`node.array(1)`, `node.ints(1)` and `node.scalar(1)` read an input that must be a constant, `node.dims(1)` one that
holds a shape, `node.type(0)` is the type of an input. Return the value of the output, or a tuple of them. A converter
for an operator that has one comes before it; returning `NotImplemented` leaves the node to it. Functions of the model
need no converter.
"""


def reference() -> str:
    """Return the page as Markdown."""
    load_converters()
    return "\n".join([HEAD, *_operators(), *_conformance()]) + "\n"


def _operators() -> Iterator[str]:
    yield f"## Operators\n\nOf operator sets {OLDEST_OPSET} to {NEWEST_OPSET}.\n"
    for domain, found in groupby(CONVERTERS.built_in.operators(), key=lambda item: item[0]):
        yield f"**{domain_name(domain)}**: {', '.join(name for _, name in found)}.\n"
    yield f"Through the function bodies that ONNX gives for them: {', '.join(sorted(_by_function()))}."


def _conformance() -> Iterator[str]:
    """Yield the totals of ONNX's suite, from the list that its test keeps."""
    lines = KNOWN_FAILURES.read_text(encoding="utf-8").splitlines()
    totals = next(line.removeprefix("# ") for line in lines if re.match(r"# \d+ of \d+", line))
    yield f"\n## Conformance\n\nOf ONNX's own backend suite, {totals}. The others, by reason:\n"
    yield "| cases | reason |\n| ---: | --- |"
    for line in lines:
        found = re.fullmatch(r"## (.*) \((\d+)\)", line)
        if found:
            yield f"| {found[2]} | {found[1]} |"
    yield "\nThe [list of them](../test/conformance/onnx_known_failures.txt) may only shrink, which a test sees to."


def _by_function() -> Iterator[str]:
    """Yield operators without a converter whose function body only uses operators that have one."""
    import onnx

    for operator in {found.name for found in onnx.defs.get_all_schemas() if found.domain == ""}:
        if CONVERTERS.find("", operator, NEWEST_OPSET):
            continue
        found = schema.schema_of("", operator, NEWEST_OPSET)
        body = functions.static_body(found, NEWEST_OPSET) if found is not None and not found.deprecated else None
        if body is not None and all(CONVERTERS.find("", node.op_type, NEWEST_OPSET) for node in body.node):
            yield operator


if __name__ == "__main__":
    print(reference(), end="")
