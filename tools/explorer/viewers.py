"""The graph of kernels for other viewers: JSON that Model Explorer and Netron open."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any

from mirlo.tools.explain.operations import INPUT, OUTPUT, FollowedOperation
from mirlo.tools.explorer.collect import CallData, Exploration

DOMAIN = "mirlo"


def model_explorer(exploration: Exploration) -> dict[str, Any]:
    """Return the graph as imported and the one of kernels, as Model Explorer reads them."""
    graphs = [
        ("operators", exploration.explanation.imported, {}),
        ("kernels", exploration.explanation.called, _calls_of(exploration)),
    ]
    return {
        "label": exploration.title,
        "graphs": [
            {"id": name, "nodes": [_explorer_node(i, op, calls.get(i), exploration) for i, op in enumerate(operations)]}
            for name, operations, calls in graphs
        ],
    }


def _explorer_node(i: int, op: FollowedOperation, call: CallData | None, exploration: Exploration) -> dict[str, Any]:
    facts = _facts(op, call, exploration)
    return {
        "id": str(i),
        "label": op.title,
        "namespace": "",
        "attrs": [{"key": key, "value": value} for key, value in facts.items()],
        "incomingEdges": [
            {"sourceNodeId": str(source), "sourceNodeOutputId": str(result), "targetNodeInputId": str(operand)}
            for operand, (source, result) in enumerate(op.reads)
        ],
        "outputsMetadata": [
            {"id": str(result), "attrs": [{"key": "type", "value": kind}]} for result, kind in enumerate(op.types)
        ],
    }


def netron(exploration: Exploration) -> dict[str, Any]:
    """Return the graph of kernels as a model of ONNX in the JSON of its messages, which Netron opens."""
    operations = exploration.explanation.called or exploration.explanation.imported
    calls = _calls_of(exploration)
    inputs = [{"name": _value(i, 0)} for i, op in enumerate(operations) if op.name == INPUT]
    outputs = [{"name": _value(*op.reads[0])} for op in operations if op.name == OUTPUT]
    nodes = [
        {
            "name": ", ".join(op.nodes) or op.title,
            "opType": op.title,
            "domain": DOMAIN,
            "input": [_value(*read) for read in op.reads],
            "output": [_value(i, result) for result in range(len(op.types))],
            "attribute": [_attribute(key, value) for key, value in _facts(op, calls.get(i), exploration).items()],
        }
        for i, op in enumerate(operations)
        if op.name not in (INPUT, OUTPUT)
    ]
    return {
        "irVersion": "10",
        "producerName": "mirlo",
        "opsetImport": [{"domain": DOMAIN, "version": "1"}],
        "graph": {"name": exploration.title, "node": nodes, "input": inputs, "output": outputs},
    }


def _value(operation: int, result: int) -> str:
    return f"v{operation}" if result == 0 else f"v{operation}.{result}"


def _attribute(key: str, value: str) -> dict[str, str]:
    return {"name": key.replace(" ", "_"), "type": "STRING", "s": b64encode(value.encode()).decode()}


def _calls_of(exploration: Exploration) -> Mapping[int, CallData]:
    """Return the call of each operation of the graph of kernels, where the last stage makes the same calls."""
    operations = exploration.explanation.called
    called = [(i, op.title) for i, op in enumerate(operations) if op.name == "relax.call_tir"]
    if [title for _, title in called] != [name for name, _ in exploration.explanation.calls]:
        return {}
    return {i: call for (i, _), call in zip(called, exploration.calls, strict=True)}


def _facts(op: FollowedOperation, call: CallData | None, exploration: Exploration) -> dict[str, str]:
    return dict(_fact_rows(op, call, exploration))


def _fact_rows(op: FollowedOperation, call: CallData | None, exploration: Exploration) -> Iterator[tuple[str, str]]:
    yield "operation", op.name
    if op.nodes:
        yield "nodes", ", ".join(op.nodes)
    if call is None:
        return
    schedule = exploration.kernels[call["kernel"]]["schedule"]
    if schedule is not None:
        yield "schedule", schedule["rule"]["name"]
    if call["microseconds"] is not None:
        yield "microseconds", f"{call['microseconds']:.2f}"
    for key in ("flops", "bytes", "live"):
        number = call[key]
        if number is not None:
            yield key, str(number)
