"""The node cases of ONNX's own suite, each changed in one place: what is not valid is told, nothing else happens.

Inputs have a dim more or less, attributes are missing or have other numbers, inputs are missing or too many. One change
of SHARE is tried in a run of the tests; `python test/frontends/onnx/test_onnx_changed_cases.py` tries them all.
"""

from __future__ import annotations

import copy
import warnings
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import onnx
import pytest
from node_cases import leave_out_slow_cases

from mirlo.dialects.context import make_context
from mirlo.frontends.onnx import import_model
from mirlo.runtime.errors import MirloError

SHARE = 40
GROUPS = 8
INT, INTS, FLOATS = (onnx.AttributeProto.AttributeType.Value(name) for name in ("INT", "INTS", "FLOATS"))
Change = tuple[str, onnx.ModelProto]


@cache
def cases() -> tuple[tuple[str, onnx.ModelProto], ...]:
    """One case of each operator, ranks of inputs, and names of attributes."""
    leave_out_slow_cases()
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [case for case in load_model_tests(kind="node") if case.model is not None]
    picked: dict[Any, tuple[str, onnx.ModelProto]] = {}
    for case in found:
        graph = case.model.graph
        operators = tuple(node.op_type for node in graph.node)
        ranks = tuple(len(value.type.tensor_type.shape.dim) for value in graph.input)
        attributes = tuple(attribute.name for node in graph.node for attribute in node.attribute)
        if not case.name.endswith("expanded"):
            picked.setdefault((operators, ranks, attributes), (case.name, case.model))
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
    given: dict[int, tuple[Any, ...]] = {
        INT: (-1, 0, 7, -100),
        INTS: ([*attribute.ints][:-1], [*attribute.ints, 1], [], [-1] * count, [0] * count, [100] * count),
        FLOATS: ([], [*attribute.floats, 1.0]),
    }
    for value in given.get(attribute.type, ()):
        changed = copy.deepcopy(model)
        made = onnx.AttributeProto(name=attribute.name, type=attribute.type)
        if attribute.type == INT:
            made.i = value
        else:
            (made.ints if attribute.type == INTS else made.floats).extend(value)
        changed.graph.node[i].attribute[k].CopyFrom(made)
        yield f"{attribute.name} {value}", changed


def trouble(group: int, groups: int, share: int) -> list[str]:
    """Return the exceptions, in a share of the cases and changes, that are no errors for users."""
    context, found = make_context(), []
    for name, model in cases()[group::groups]:
        for what, changed in changes(model):
            text = f"{name}, {what}"
            if zlib.crc32(text.encode()) % share:
                continue
            try:
                import_model(changed, context=context)
            except MirloError as error:
                if getattr(error, "internal", False):
                    found.append(f"{text}: {error}")
            except Exception as error:
                found.append(f"{text}: {type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_is_not_valid_is_told(group: int) -> None:
    assert trouble(group, GROUPS, SHARE) == []


if __name__ == "__main__":
    for each in range(GROUPS):
        print("\n".join(trouble(each, GROUPS, 1)))
