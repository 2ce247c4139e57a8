"""ai.onnx.ml: dictionaries, from labels to scores and from names of features to values."""

from __future__ import annotations

import re

from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.ml import DOMAIN
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.runtime.kinds import MAP, STRING, Kind, map_of, sequence_of

_CASTS = {"TO_FLOAT": "f32", "TO_INT64": "i64", "TO_STRING": STRING}
_MOST_COLUMNS = 1 << 31
"""Columns of a sparse map, at most: more would take gigabytes for a single row."""


@converter("ZipMap", domain=DOMAIN)
def zip_map(node: Node) -> Converted:
    """Make a dictionary of each row of scores."""
    words, numbers = node.attr.strs("classlabels_strings", None), node.attr.ints("classlabels_int64s", None)
    if bool(words) == bool(numbers):
        raise NodeError("exactly one of the attributes 'classlabels_strings' and 'classlabels_int64s' must be given")
    labels, scores_type = list(words or numbers or ()), node.type(0)
    if scores_type.rank not in (1, 2):
        raise NodeError(f"input 'X' must be the scores of classes, [N, C] or [C], got {scores_type}")
    if isinstance(scores_type.shape[-1], int) and scores_type.shape[-1] != len(labels):
        raise NodeError(f"there are {len(labels)} labels for {scores_type.shape[-1]} scores")
    kind = sequence_of(map_of(STRING if words else "i64", "f32"))
    return node.host("mirlo.map.zip", node[0], results=[kind], labels=labels)


@converter("DictVectorizer", domain=DOMAIN)
def dict_vectorizer(node: Node) -> Converted:
    """Make a row of the values of a dictionary, in the order of the vocabulary."""
    words, numbers = node.attr.strs("string_vocabulary", None), node.attr.ints("int64_vocabulary", None)
    if bool(words) == bool(numbers):
        raise NodeError("exactly one of the attributes 'string_vocabulary' and 'int64_vocabulary' must be given")
    vocabulary, map_kind = list(words or numbers or ()), node.any_value(0).kind
    wanted = STRING if words else "i64"
    if map_kind.name != MAP or map_kind.element is None or map_kind.key != wanted:
        raise NodeError(f"input 'X' must be a map from {wanted}, as the vocabulary is, got {map_kind}")
    element = map_kind.element.name
    kind = Kind(element, (1, len(vocabulary)))
    return node.host("mirlo.map.vector", node.object(0), results=[kind], vocabulary=vocabulary, dtype=element)


@converter("CastMap", domain=DOMAIN)
def cast_map(node: Node) -> Converted:
    """Make a row of the values of a dictionary: all by ascending keys, or each at the place that is its key."""
    kind = node.any_value(0).kind
    if kind.name != MAP or kind.element is None or kind.key != "i64" or kind.element.name not in (STRING, "f32"):
        raise NodeError(f"input 'X' must be a map from i64 to f32 or {STRING}, got {kind}")
    wanted = _CASTS[node.attr.choice("cast_to", "TO_FLOAT", tuple(_CASTS))]
    if node.attr.choice("map_form", "DENSE", ("DENSE", "SPARSE")) == "DENSE":
        node.attr.ignore("max_map")
        length: int | None = None
        columns: int | str = "keys_of_" + re.sub(r"\W", "_", node.outputs[0])
    else:
        length = columns = node.attr.int("max_map", 1)
        if not 0 <= length < _MOST_COLUMNS:
            raise NodeError(f"attribute 'max_map' must be 0 to {_MOST_COLUMNS - 1}, got {length}")
    results = [Kind(wanted, (1, columns))]
    return node.host("mirlo.map.cast", node.object(0), results=results, dtype=wanted, length=length)
