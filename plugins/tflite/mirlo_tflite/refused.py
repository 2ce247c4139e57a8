"""Finds the operator that the conversion to TOSA refuses: the last of the shortest prefix that fails."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from mirlo_tflite.flatbuffer import Table, clear_field, follow, replace_vector
from mirlo_tflite.schema import (
    CODE_BUILTIN,
    CODE_CUSTOM,
    CODE_OLD,
    CUSTOM,
    GRAPH_OPERATORS,
    GRAPH_OUTPUTS,
    GRAPH_TENSORS,
    MODEL_CODES,
    MODEL_GRAPHS,
    MODEL_SIGNATURES,
    OPERATOR_CODE,
    OPERATOR_INPUTS,
    OPERATOR_OUTPUTS,
    OPERATORS,
    TENSOR_NAME,
)


def describe_refused(root: Table, converts: Callable[[bytes], bool]) -> str | None:
    """Return the operator that makes `converts` fail; None if it is not in the main graph."""
    graph = root.tables(MODEL_GRAPHS)[0]
    operators = graph.tables(GRAPH_OPERATORS)
    if not operators or not converts(_beginning(root, graph, 0)):
        return None
    index = bisect_left(range(1, len(operators)), True, key=lambda count: not converts(_beginning(root, graph, count)))
    operator = operators[index]
    outputs = operator.vector(OPERATOR_OUTPUTS, "<i4").tolist()
    tensors = graph.tables(GRAPH_TENSORS)
    names = [tensors[each].text(TENSOR_NAME) for each in outputs if 0 <= each < len(tensors)]
    return f"operator {index} of {len(operators)}, {operator_name(root, operator)}, which makes '{', '.join(names)}'"


def operator_name(root: Table, operator: Table) -> str:
    """Return the name of an operator: that of the schema, or that of a custom one."""
    codes = root.tables(MODEL_CODES)
    index = operator.number(OPERATOR_CODE, "<I")
    if index >= len(codes):
        return f"with the code {index} of {len(codes)}"
    number = builtin_number(codes[index])
    if number == CUSTOM:
        return f"the custom operator '{codes[index].text(CODE_CUSTOM)}'"
    return OPERATORS[number] if 0 <= number < len(OPERATORS) else f"number {number} of a later schema"


def builtin_number(code: Table) -> int:
    """Return the number of an operator, which old files store in a byte."""
    return max(code.number(CODE_BUILTIN, "<i"), code.number(CODE_OLD, "<b"))


def _beginning(root: Table, graph: Table, count: int) -> bytes:
    """Return a file with the first operators of a graph; its results are those that none of them reads."""
    operators, outputs = graph.position(GRAPH_OPERATORS), graph.position(GRAPH_OUTPUTS)
    if operators is None or outputs is None:
        raise ValueError("a graph has no operators or no outputs")
    kept = graph.tables(GRAPH_OPERATORS)[:count]
    read = {each for operator in kept for each in operator.vector(OPERATOR_INPUTS, "<i4").tolist()}
    made = [each for operator in kept for each in operator.vector(OPERATOR_OUTPUTS, "<i4").tolist()]
    written = bytearray(root.content)
    struct.pack_into("<I", written, follow(written, operators), count)
    replace_vector(written, outputs, np.array([each for each in made if each not in read], "<i4"))
    clear_field(written, root, MODEL_SIGNATURES)
    return bytes(written)
