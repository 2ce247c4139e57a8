"""The node cases of ONNX's own suite as the import takes them, and each changed in one place, as checksums.

Inputs have a dim more or less, attributes are missing or have other numbers, inputs are missing or too many: what is
not valid is an error for users, nothing else happens. One change of SHARE is tried; as a script, this file tries them
all for exceptions that are no errors for users.
"""

from __future__ import annotations

import copy
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import onnx

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1] / "conformance"))

from node_cases import leave_out_slow_cases

from mirlo.benchmarks.import_outcomes import with_constants, with_dynamic_dims
from mirlo.benchmarks.mutated_cases import mutated_cases
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.frontends.onnx import import_model
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.runtime.errors import MirloError
from mirlo.testing.snapshots import checksum

SHARE = 160
CASES_PER_OPERATOR = 2
MUTATED = 40
"""Cases with changed structure, sizes from data, and dims that are symbols."""
INT, INTS, FLOATS = (onnx.AttributeProto.AttributeType.Value(name) for name in ("INT", "INTS", "FLOATS"))
Change = tuple[str, onnx.ModelProto]


@cache
def cases() -> tuple[Any, ...]:
    """Return one case of each operator, ranks of inputs, and names of attributes."""
    leave_out_slow_cases()
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = [case for case in collect_testcases(None) if case.model is not None]
    picked: dict[object, Any] = {}
    for case in known:
        graph = case.model.graph
        operators = tuple(node.op_type for node in graph.node)
        ranks = tuple(len(value.type.tensor_type.shape.dim) for value in graph.input)
        attributes = tuple(attribute.name for node in graph.node for attribute in node.attribute)
        if not case.name.endswith("expanded"):
            picked.setdefault((operators, ranks, attributes), case)
    return tuple(picked.values())


def changes(model: onnx.ModelProto) -> Iterator[Change]:
    """Return the model with one thing changed, and what that is."""
    for i, value in enumerate(model.graph.input):
        if value.type.HasField("tensor_type"):
            yield from _other_shapes(model, i, [dim.dim_value for dim in value.type.tensor_type.shape.dim])
    for i, node in enumerate(model.graph.node):
        for k, attribute in enumerate(node.attribute):
            yield from _other_attributes(model, i, k, attribute)
        for k in range(len(node.input)):
            changed = copy.deepcopy(model)
            changed.graph.node[i].input[k] = ""
            yield f"without input {k}", changed
        for edit in ("fewer", "more"):
            changed = copy.deepcopy(model)
            inputs = changed.graph.node[i].input
            if edit == "more":
                inputs.append(inputs[0] if inputs else "x")
            elif inputs:
                del inputs[-1]
            yield f"{edit} inputs", changed


def _other_shapes(model: onnx.ModelProto, i: int, dims: list[int]) -> Iterator[Change]:
    longer = [*dims[:-1], dims[-1] + 1] if dims else [3]
    for shape in ([1, *dims], dims[1:], [*dims, 2], [], longer):
        changed = copy.deepcopy(model)
        field = changed.graph.input[i].type.tensor_type.shape.dim
        del field[:]
        for dim in shape:
            field.add().dim_value = dim
        for output in changed.graph.output:
            if output.type.HasField("tensor_type"):
                output.type.tensor_type.ClearField("shape")
        yield f"input {i} of shape {shape}", changed


def _other_attributes(model: onnx.ModelProto, i: int, k: int, attribute: Any) -> Iterator[Change]:
    changed = copy.deepcopy(model)
    del changed.graph.node[i].attribute[k]
    yield f"without {attribute.name}", changed
    count = len(attribute.ints)
    others: dict[int, tuple[Any, ...]] = {
        INT: (-1, 0, 7, -100),
        INTS: ([*attribute.ints][:-1], [*attribute.ints, 1], [], [-1] * count, [0] * count, [100] * count),
        FLOATS: ([], [*attribute.floats, 1.0]),
    }
    for value in others.get(attribute.type, ()):
        changed = copy.deepcopy(model)
        other = onnx.AttributeProto(name=attribute.name, type=attribute.type)
        if attribute.type == INT:
            other.i = value
        else:
            (other.ints if attribute.type == INTS else other.floats).extend(value)
        changed.graph.node[i].attribute[k].CopyFrom(other)
        yield f"{attribute.name} {value}", changed


def trouble(share: int) -> Iterator[str]:
    """Yield the exceptions, in a share of the changes, that are no errors for users."""
    with make_context() as context:
        for case in cases():
            yield from (line for line in _outcomes(case, share, context) if "internal error" in line)


def _outcomes(case: Any, share: int, context: ir.Context) -> Iterator[str]:
    """Yield the imported modules of a share of the changes of a case."""
    for what, changed in changes(case.model):
        text = f"{case.name}, {what}"
        if crc32(text.encode()) % share == 0:
            yield f"{text}: {_outcome(changed, context)}"


def _outcome(model: onnx.ModelProto, context: ir.Context, passes: str = "") -> str:
    """Return the text of an imported model, also after passes, with warnings; or the error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of what other tests left to the garbage collector
        text = _text(model, context, passes)
    return "\n".join([text, *(str(warning.message) for warning in caught)])


def _text(model: onnx.ModelProto, context: ir.Context, passes: str) -> str:
    try:
        module, store = import_model(model, context=context)
        text = str(module)
        if passes:
            with ir.Location.unknown():
                Pipeline(passes).run(module, Session(store), verify_each=False)
            text += str(module)
    except MirloError as error:
        return f"internal error {error}" if getattr(error, "internal", False) else f"refused: {error}"
    except Exception as error:
        return f"internal error {type(error).__name__}: {error}"
    arrays = [(name, store.get(name).dtype, store.get(name).shape) for name in store]
    return f"{text}{arrays}"


def imported() -> Iterator[str]:
    """Yield a line for each operator: how many cases are imported and what they become; and so for changed ones.

    Cases take turns: as they are, with sizes and numbers as constants, with a dynamic first dim.
    """
    lines: dict[str, list[str]] = {}
    with make_context() as context:
        counts: Counter[str] = Counter()
        for number, case in enumerate(cases()):
            operator = " ".join(dict.fromkeys(node.op_type for node in case.model.graph.node))
            counts[operator] += 1
            if counts[operator] > CASES_PER_OPERATOR:
                continue
            variants = (case.model, with_constants(case), with_dynamic_dims(case.model))
            model = variants[number % len(variants)] or case.model
            outcomes = [_outcome(model, context, "simplify"), *_outcomes(case, SHARE, context)]
            name = re.sub(r"[^\w.]+", " ", case.name.removeprefix("test_"))
            lines.setdefault(operator, []).append(f"{name} {' '.join(map(checksum, outcomes))}")
        for operator, own in sorted(lines.items()):
            yield f"{operator}: {', '.join(own)}"
        for name, model in mutated_cases(MUTATED):
            yield f"{name}: {checksum(_outcome(model, context))}"


SNAPSHOTS: dict[str, Callable[[], Iterable[str]]] = {"frontends/onnx/imported.txt": imported}
"""The table, below `test`."""


if __name__ == "__main__":
    print("\n".join(trouble(1)))
