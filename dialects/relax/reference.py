"""The reference of all operators, written from their classes.

python -m mirlo.dialects.relax.reference > docs/operators.md
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

from mirlo.dialects import relax
from mirlo.dialects.core.attributes import REQUIRED, Attribute
from mirlo.dialects.core.dtypes import DType

HEAD = """# Operators of relax

Written by `python -m mirlo.dialects.relax.reference`; do not edit.

An operator takes and makes ranked tensors. `x?` may be left out, `xs...` is any number. After the semicolon come the
attributes: those without a default must be given. Axes may be negative, and then count from the end.

```python
from mirlo.dialects import relax
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context

with make_context(), ir.Location.unknown():
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        x = relax.create.Full.make(shape=("batch", 3, 8, 8), value=1.0, dtype="f32")
        weight = relax.OPS["full"].make(shape=(4, 3, 3, 3), value=0.5, dtype="f32")  # the same class, by name
        y = relax.conv.Conv.make(x, weight, strides=[2, 2])
    print(y.type)  # tensor<?x4x3x3xf32, #relax.dims<["batch", 4, 3, 3]>>
```
"""
MARKS = {"single": "", "optional": "?", "variadic": "..."}


def reference() -> str:
    """The page, as Markdown."""
    families: dict[str, list[Any]] = {}
    for op in relax.OPS.values():
        families.setdefault(op.__module__, []).append(op)
    return "\n".join([HEAD, *(line for module in sorted(families) for line in _family(module, families[module]))])


def _family(module: str, operators: list[Any]) -> Iterator[str]:
    title, *more = (inspect.getdoc(sys.modules[module]) or "").split("\n")
    yield f"## {title.rstrip('.')}\n"
    if text := "\n".join(more).strip():
        yield f"{text}\n"
    by_doc: dict[tuple[str, str], list[str]] = {}
    for op in operators:
        by_doc.setdefault((_signature(op), inspect.getdoc(op) or ""), []).append(op.OPERATION_NAME.partition(".")[2])
    for (signature, doc), names in by_doc.items():
        listed = " ".join(f"`{name}`" for name in names) if len(names) > 1 else ""
        yield f"- `{'OP' if listed else names[0]}{signature}`: {_indented(doc)}"
        if listed:
            yield f"  OP is one of {listed}."
    yield ""


def _indented(doc: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in doc.split("\n")).strip()


def _signature(op: Any) -> str:
    operands = ", ".join(f"{field.name}{MARKS[field.kind]}" for field in op._operand_layout.fields)
    attributes = ", ".join(_attribute(declared) for declared in op._attributes.values())
    inside = "; ".join(part for part in (operands, attributes) if part)
    results = [f"{field.name}{MARKS[field.kind]}" for field in op._result_layout.fields]
    return f"({inside})" + (f" -> {', '.join(results)}" if results not in ([], ["output"]) else "")


def _attribute(declared: Attribute) -> str:
    kind = " | ".join(map(repr, declared.choices)) if declared.choices else type(declared).__name__
    if declared.default is REQUIRED:
        return f"{declared.name}: {kind}"
    default = declared.default.name if isinstance(declared.default, DType) else repr(declared.default)
    return f"{declared.name}: {kind} = {default}"


if __name__ == "__main__":
    print(reference(), end="")
