"""No attribute is ignored: a changed one changes what is imported, or is refused, or is known to have no effect.

Each operator's own cases are imported with each attribute of its schema changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import onnx
import pytest
from node_cases import leave_out_slow_cases

from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.frontends.onnx import OnnxImportError, import_model
from mirlo.frontends.onnx.registry import CONVERTERS, load_converters
from mirlo.testing import oracle

CASES_PER_OPERATOR = 12

WITHOUT_EFFECT = {
    "Attention.qk_matmul_output_mode": "which scores to give, where none are asked for",
    "Attention.softmax_precision": "sums are kept in f32 or better",
    "BatchNormalization.momentum": "of training",
    "BatchNormalization.spatial": "of training",
    "Cast.saturate": "of casts to 8-bit floats",
    "Cast.round_mode": "of casts to f8e8m0",
    "CastLike.saturate": "of casts to 8-bit floats",
    "CastLike.round_mode": "of casts to f8e8m0",
    "Constant.value": "the only attribute",
    "Dropout.seed": "of training",
    "LinearAttention.chunk_size": "a hint how to compute",
    "GRU.layout": "0 and 1 are other shapes, which the case does not have",
    "GRU.activation_alpha": "of activations that have one, which those of the cases do not",
    "GRU.activation_beta": "of activations that have one, which those of the cases do not",
    "GroupNormalization.stash_type": "sums are kept in f32 or better",
    "LSTM.activation_alpha": "of activations that have one, which those of the cases do not",
    "LSTM.activation_beta": "of activations that have one, which those of the cases do not",
    "LSTM.input_forget": "0 and 1 are distinguished by the activations",
    "LabelEncoder.default_float": "of values that are floats",
    "LabelEncoder.default_string": "of values that are strings",
    "LayerNormalization.stash_type": "sums are kept in f32 or better",
    "RMSNormalization.stash_type": "sums are kept in f32 or better",
    "MaxPool.storage_order": "of the indices, which the case does not ask for",
    "QuantizeLinear.precision": "the division is in f32 or better",
    "QuantizeLinear.saturate": "of 8-bit floats",
    "RNN.activation_alpha": "of activations that have one, which those of the cases do not",
    "RNN.activation_beta": "of activations that have one, which those of the cases do not",
    "Resize.cubic_coeff_a": "of cubic interpolation",
    "RotaryEmbedding.num_heads": "of inputs of rank 3, whose heads the width tells as well",
    "StringNormalizer.locale": "cases are changed as Unicode says",
    "TfIdfVectorizer.weights": "of the modes IDF and TFIDF",
    "TopK.sorted": "what is not sorted may be in any order, also sorted",
    "TreeEnsemble.nodes_hitrates": "tells how often nodes are visited",
}
"""By `Operator.attribute`, why."""


@cache
def _cases() -> dict[str, list[Any]]:
    load_converters()
    leave_out_slow_cases()
    from onnx.backend.test.case.node import collect_testcases

    known = {operator for _, operator in CONVERTERS.operators()}
    found: dict[str, list[Any]] = {}
    for case in collect_testcases(None):
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].op_type in known and "expanded" not in case.name:
            found.setdefault(nodes[0].op_type, []).append(case.model)
    return {name: models[:: max(1, -(-len(models) // CASES_PER_OPERATOR) - 1)] for name, models in found.items()}


def _changed(declared: Any, present: Any) -> Iterator[Any]:
    """Values that an attribute may be changed to."""
    kind = onnx.AttributeProto.AttributeType
    base = onnx.helper.get_attribute_value(present) if present is not None else None
    if base is None and declared.default_value.type:
        base = onnx.helper.get_attribute_value(declared.default_value)
    match int(declared.type.value):
        case kind.INT:
            yield from (number for number in (0, 1, 2, -1, 3) if number != base)
        case kind.FLOAT:
            yield (base or 0.0) + 0.375
        case kind.STRING:
            yield b"no such choice"
        case kind.INTS if base:
            yield from (list(reversed(base)), [number + 1 for number in base])
        case kind.INTS:
            yield [1]
        case kind.FLOATS:
            yield [number + 0.375 for number in base] if base else [0.375]
        case kind.STRINGS:
            yield [b"no such choice"]
        case _:
            return


def _imported(model: Any) -> str:
    """Return the IR of a model, or its error."""
    try:
        with _context() as context:
            module, store = import_model(model, context=context)
            arrays = [(name, store.get(name).tobytes()) for name in store]
            return f"{module.operation.get_asm()}\n{arrays}"
    except OnnxImportError as error:
        return f"refused: {error}"


@cache
def _context() -> ir.Context:
    return make_context()


@cache
def _importable(operator: str) -> list[tuple[onnx.ModelProto, str]]:
    """Return the importable cases of an operator, with their imported modules."""
    found = [(model, _imported(model)) for model in _cases()[operator]]
    return [(model, text) for model, text in found if not text.startswith("refused")]


def _silent(operator: str, attribute: str, declared: Any) -> bool:
    """Return whether changing an attribute changed nothing in any case in which the operator can be imported."""
    tried = False
    for model, plain in _importable(operator):
        node = model.graph.node[0]
        present = next((a for a in node.attribute if a.name == attribute), None)
        for value in _changed(declared, present):
            tried = True
            if _imported(_with_attribute(model, attribute, value)) != plain:
                return False
    return tried


def _with_attribute(model: onnx.ModelProto, attribute: str, value: Any = None) -> onnx.ModelProto:
    """Return a model of one node with an attribute of this value, or without it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    node = copy.graph.node[0]
    kept = [a for a in node.attribute if a.name != attribute]
    del node.attribute[:]
    node.attribute.extend(kept if value is None else [*kept, onnx.helper.make_attribute(attribute, value)])
    return copy


@oracle.needs_onnx(1, 19)
def test_attributes_that_are_absent_have_the_defaults_of_the_schema(whole: bool) -> None:
    """Of the first cases of each operator; in all cases of the nightly tests."""
    other = []
    for operator, model in (
        (operator, model) for operator, models in sorted(_cases().items()) for model in models[: None if whole else 2]
    ):
        domain = model.graph.node[0].domain
        version = next(entry.version for entry in model.opset_import if entry.domain == domain)
        for name, declared in onnx.defs.get_schema(operator, version, domain).attributes.items():
            if not declared.default_value.type or f"{operator}.{name}" in WITHOUT_EFFECT:
                continue
            default = onnx.helper.get_attribute_value(declared.default_value)
            text = _imported(_with_attribute(model, name))
            if not text.startswith("refused") and text != _imported(_with_attribute(model, name, default)):
                other.append(f"{operator}.{name}")
    assert not other, f"without these attributes, something else is imported than with their defaults: {other}"


@oracle.needs_onnx(1, 19)
@pytest.mark.sample(1)
def test_no_attribute_is_ignored(whole: bool) -> None:
    """Change the attributes of all operators, or of one in 32; `imported.txt` has changed ones of all operators."""
    silent = []
    for operator, models in sorted(_cases().items())[:: 1 if whole else 32]:
        imports = {entry.domain: entry.version for entry in models[0].opset_import}
        domain = models[0].graph.node[0].domain
        schema = onnx.defs.get_schema(operator, imports[domain], domain)
        attributes = ((f"{operator}.{name}", name, declared) for name, declared in schema.attributes.items())
        silent += [
            full for full, name, declared in attributes
            if full not in WITHOUT_EFFECT and _silent(operator, name, declared)
        ]  # fmt: skip
    assert not silent, f"changing these attributes changes nothing: {', '.join(silent)}"


@oracle.needs_onnx(1, 19)
def test_list_of_attributes_without_effect_is_true() -> None:
    """What is listed exists."""
    for entry in WITHOUT_EFFECT:
        operator, attribute = entry.split(".")
        versions = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == operator]
        assert any(attribute in schema.attributes for schema in versions), entry
