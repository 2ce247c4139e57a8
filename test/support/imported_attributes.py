"""What the import makes of each attribute that a converter reads, with another value, as checksums.

A converter that reads an attribute with a default says what the default is: an attribute that a case does not have is
given, one that it has is left out, then changed. The result differs, or the value is refused.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import onnx
from imported_nodes import cases
from imported_programs import Importer, recorded_models
from onnx import helper

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.frontends.onnx import import_model
from mirlo.frontends.onnx.node import Attributes
from mirlo.runtime.params import ParameterStore
from mirlo.testing.snapshots import checksum, outcome_of

MODELS = 3
"""Models of an operator whose attributes are changed."""
Read = dict[str, Any]
"""The attributes that a node's converter has read, and their defaults."""


@contextmanager
def _reads() -> Iterator[Mapping[frozenset[str], Read]]:
    """Record the attributes that are read, by the names of those that the node has."""
    reads: dict[frozenset[str], Read] = defaultdict(dict)
    get = Attributes._get

    def recorded(self: Attributes, name: str, kind: Any, default: Any) -> Any:
        reads[frozenset(self.by_name)].setdefault(name, (kind, default))
        return get(self, name, kind, default)

    Attributes._get = recorded  # type: ignore[assignment, method-assign]
    try:
        yield reads
    finally:
        Attributes._get = get  # type: ignore[method-assign]


def _others(kind: str, value: Any) -> Iterator[Any]:
    """Yield values that stand for another one of this kind; nothing for graphs, tensors and types."""
    if kind == "INT":
        yield int(value or 0) + 1
    elif kind == "FLOAT":
        yield float(value) * 2 if value else 0.5
    elif kind == "STRING":
        yield "other"
    elif kind == "INTS":
        yield [*map(int, value), 1] if value else [1]
    elif kind == "FLOATS":
        yield [*map(float, value), 1.0] if value else [1.0]
    elif kind == "STRINGS":
        yield ["other"]


def _outcome(importer: Importer, model: onnx.ModelProto) -> str:
    """Return the imported module with the numbers of its constants to four digits, or the error."""
    stores: list[ParameterStore] = []

    def recorded(model: object) -> tuple[ir.Module, ParameterStore]:
        module, store = importer(model)
        stores.append(store)
        return module, store

    text = outcome_of(recorded, model)
    arrays = [store.get(name) for store in stores for name in store]
    return text + "".join(map(_numbers, arrays))


def _numbers(array: np.ndarray) -> str:
    if array.dtype.kind not in "biuf":
        return str(array.astype(np.float32).tolist() if array.dtype.kind == "V" else array.tolist())
    return str((np.round(array.astype(np.float64), 4) + 0.0).tolist())


def _models() -> Iterator[tuple[Importer, onnx.ModelProto]]:
    for case in cases():
        yield import_model, case.model
    for _, recorded in recorded_models():
        yield from ((importer, model) for importer, model in recorded if isinstance(model, onnx.ModelProto))


def attributes() -> Iterator[str]:
    """Yield a line for each operator: its attributes, each with the outcome of another value."""
    lines: dict[str, dict[str, str]] = defaultdict(dict)
    counts: dict[str, int] = defaultdict(int)
    with make_context() as context:
        for importer, model in _models():
            if len(model.graph.node) != 1:
                continue
            (node,) = model.graph.node
            operator = f"{node.domain} {node.op_type}".strip()
            counts[operator] += 1
            if counts[operator] <= MODELS:
                _change(partial(importer, context=context), model, lines[operator])
    for operator, outcomes in sorted(lines.items()):
        if outcomes:
            yield f"{operator}: {', '.join(f'{name} {outcome}' for name, outcome in sorted(outcomes.items()))}"


def _change(importer: Importer, model: onnx.ModelProto, outcomes: dict[str, str]) -> None:
    """Add the outcomes of other values of attributes that no model before had."""
    attributes = {each.name: each for each in model.graph.node[0].attribute}
    with _reads() as reads:
        outcome = _outcome(importer, model)
    if not outcome.startswith("module"):
        return
    for name, (kind, default) in reads[frozenset(attributes)].items():
        if name in outcomes:
            continue
        value = helper.get_attribute_value(attributes[name]) if name in attributes else default
        others = [
            *([None] if name in attributes else []),
            *_others(onnx.AttributeProto.AttributeType.Name(kind), value),
        ]
        results = []
        for other in others:
            changed = copy.deepcopy(model)
            own = changed.graph.node[0].attribute
            if name in attributes:
                own.remove(attributes[name])
            if other is not None:
                own.append(helper.make_attribute(name, other))
            result = _outcome(importer, changed)
            results.append("same" if result == outcome else checksum(result))
        outcomes[name] = " ".join(results)


SNAPSHOTS: dict[str, Callable[[], Iterable[str]]] = {"frontends/onnx/attributes.txt": attributes}
"""The table, below `test`."""
