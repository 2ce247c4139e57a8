"""Operators for onnx's reference evaluator: those of plug-ins, by their classes, and those that it computes wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx.defs import onnx_opset_version
from onnx.reference.op_run import OpRun
from onnx.reference.ops._op_list import load_op
from onnx.reference.ops.op_loop import Loop

from mirlo.dialects.context import graph_operations
from mirlo.dialects.core.op import apply_meaning

if TYPE_CHECKING:
    import onnx

    from mirlo.dialects.core.op import DialectOp


def declared_operators() -> list[type[DialectOp]]:
    """Return the classes with a meaning and a name in a domain that is not ONNX's own."""
    operations = graph_operations().values()
    return [cls for cls in operations if cls.ONNX is not None and cls.ONNX.domain and cls.meaning is not None]


def evaluated_operators() -> list[type]:
    """Return their implementations for `ReferenceEvaluator(new_ops=...)`."""
    return [_endless_loop(), *(_evaluated(cls, OpRun) for cls in declared_operators())]


def later_operators(model: onnx.ModelProto) -> list[type]:
    """Return implementations of a model's operators that the evaluator has for later opsets only, by name.

    A later version of an operator takes what an earlier one takes: onnx 1.23 has `DequantizeLinear` from opset 19 on.
    """
    version = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)
    if version is None:
        return []
    result = []
    for name in sorted(_operator_names(model.graph)):
        for later in range(version, onnx_opset_version() + 1):
            try:
                implementation = load_op("", name, later)
            except Exception:  # of many kinds: there is no such version, or it is a function
                continue
            if later > version and isinstance(implementation, type):
                result.append(type(name, (implementation,), {"op_domain": ""}))
            break
    return result


def _operator_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names of ONNX's own operators in a graph and its subgraphs."""
    names = set()
    for node in graph.node:
        if node.domain in ("", "ai.onnx"):
            names.add(node.op_type)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                names |= _operator_names(inner)
    return names


def _endless_loop() -> type:
    """Return `Loop` without a condition as ONNX defines it, always true; onnx 1.23's runs no iteration."""

    def run(self: Loop, limit: object, condition: object, *carried: object, **context: object) -> Sequence[object]:
        going = np.array(True) if condition is None else condition
        results: Sequence[object] = Loop._run(self, limit, going, *carried, **context)
        return results

    return type("Loop", (Loop,), {"op_domain": "", "_run": run})


def _evaluated(cls: type[DialectOp], base: type) -> type:
    named = cls.ONNX
    assert named is not None
    names = {onnx: own for own, onnx in named.attributes}
    defaults = {name: declared.default for name, declared in cls._attributes.items()}

    def run(self: object, *inputs: np.ndarray, **attributes: Any) -> tuple[np.ndarray, ...]:
        normalized = {names.get(name, name): value for name, value in attributes.items()}
        normalized = {name: cls._attributes[name].normalize(value) for name, value in normalized.items()}
        rest, operands = list(inputs), list[np.ndarray | list[np.ndarray] | None]()
        for field in cls._operand_layout.fields:
            operands.append(rest if field.kind == "variadic" else rest.pop(0) if rest else None)
        results = apply_meaning(cls, operands, {**defaults, **normalized}) or ()
        kind = inputs[0].dtype if inputs else None
        return tuple(
            r.astype(kind) if kind is not None and r.dtype.kind == "f" else r for r in map(np.asarray, results)
        )

    return type(named.operator, (base,), {"op_domain": named.domain, "_run": run})
