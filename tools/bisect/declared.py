"""Operators for onnx's reference evaluator: those of plug-ins, as their classes say, and those that it gets wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mirlo.dialects.context import graph_operations

if TYPE_CHECKING:
    from mirlo.tools.bisect.compare import Tolerance


def declared_operators() -> list[Any]:
    """Return the classes with a meaning and a name in a domain that is not ONNX's own."""
    found = graph_operations().values()
    return [cls for cls in found if cls.ONNX is not None and cls.ONNX.domain and cls.meaning is not None]


def evaluated_operators() -> list[Any]:
    """Return their implementations for `ReferenceEvaluator(new_ops=...)`."""
    from onnx.reference.op_run import OpRun

    return [_endless_loop(), *(_evaluated(cls, OpRun) for cls in declared_operators())]


def _endless_loop() -> Any:
    """Return `Loop` without a condition as ONNX defines it, always true; onnx 1.23's runs no iteration."""
    from onnx.reference.ops.op_loop import Loop

    def run(self: Any, limit: Any, condition: Any, *carried: Any, **context: Any) -> Any:
        return Loop._run(self, limit, np.array(True) if condition is None else condition, *carried, **context)

    return type("Loop", (Loop,), {"op_domain": "", "_run": run})


def _evaluated(cls: Any, base: Any) -> Any:
    names = {onnx: own for own, onnx in cls.ONNX.attributes}
    defaults = {name: declared.default for name, declared in cls._attributes.items()}

    def run(self: Tolerance, *inputs: Any, **attributes: Any) -> tuple[np.ndarray, ...]:
        given = {names.get(name, name): value for name, value in attributes.items()}
        given = {name: cls._attributes[name].normalize(value) for name, value in given.items()}
        rest, operands = list(inputs), list[Any]()
        for field in cls._operand_layout.fields:
            operands.append(rest if field.kind == "variadic" else rest.pop(0) if rest else None)
        made = cls.meaning(*operands, **{**defaults, **given})
        results = made if isinstance(made, tuple) else (made,)
        kind = inputs[0].dtype if inputs else None
        return tuple(
            r.astype(kind) if kind is not None and r.dtype.kind == "f" else r for r in map(np.asarray, results)
        )

    return type(cls.ONNX.operator, (base,), {"op_domain": cls.ONNX.domain, "_run": run})
