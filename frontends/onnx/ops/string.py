"""String tensors: run-time objects that host functions process."""

from __future__ import annotations

import re

from mirlo.dialects.core.dtypes import DTYPES
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.infer import broadcast_shapes
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.graph import STRING_CODE
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted, tensor_kind, tensor_type
from mirlo.runtime.kinds import STRING, Kind
from mirlo.runtime.regex.automaton import compiled
from mirlo.runtime.regex.syntax import RegexError


def shape_of_strings(node: Node, index: int) -> tuple[int | str, ...]:
    """Return the shape of a string tensor, or at least its rank."""
    value = node.any_value(index)
    if value.kind.shape is None:
        raise NodeError(f"the rank of input '{node.input_name(index)}' must be known, but it depends on data")
    return value.kind.shape


def _broadcast(node: Node) -> tuple[int | str, ...]:
    kinds = [tensor_type(Kind("u8", shape_of_strings(node, i))) for i in range(2)]
    shape = broadcast_shapes(*(kind.shape for kind in kinds if kind is not None))
    return tensor_kind(TensorType(shape, DTYPES["u8"])).shape or ()


@converter("Equal", since=19)
def equal(node: Node) -> Converted:
    if not node.is_string(0):
        return node[0].equals(node[1])
    return node.host("mirlo.string.equal", node.object(0), node.object(1), results=[Kind("bool", _broadcast(node))])


@converter("StringConcat", since=20)
def concat(node: Node) -> Converted:
    return node.host("mirlo.string.concat", node.object(0), node.object(1), results=[Kind(STRING, _broadcast(node))])


@converter("RegexFullMatch", since=20)
def regex_full_match(node: Node) -> Converted:
    """Convert RegexFullMatch, whose patterns are RE2's."""
    pattern = node.attr.str("pattern")
    try:
        compiled(pattern)
    except RegexError as error:
        raise NodeError(f"attribute 'pattern' is not a regular expression: {error}") from None
    kind = Kind("bool", shape_of_strings(node, 0))
    return node.host("mirlo.string.matches", node.object(0), results=[kind], pattern=pattern)


@converter("StringSplit", since=20)
def split(node: Node) -> Converted:
    """Convert StringSplit; the maximum number of parts is data-dependent."""
    shape = shape_of_strings(node, 0)
    options = {"delimiter": node.attr.str("delimiter", ""), "maxsplit": node.attr.int("maxsplit", -1)}
    parts = Kind(STRING, (*shape, "parts_of_" + re.sub(r"\W", "_", "_".join(node.outputs))))
    return node.host("mirlo.string.split", node.object(0), results=[parts, Kind("i64", shape)], **options)


@converter("StringNormalizer", since=10)
def normalize(node: Node) -> Converted:
    node.attr.ignore("locale")  # case follows Unicode, which is the same in all locales except Turkish
    shape = shape_of_strings(node, 0)
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != 1):
        raise NodeError(f"input 'X' must be a row of strings, got {node.any_value(0)}")
    options = {
        "case": node.attr.choice("case_change_action", "NONE", ("UPPER", "LOWER", "NONE")),
        "case_sensitive": node.attr.bool("is_case_sensitive", 0),
        "stopwords": node.attr.strs("stopwords", []),
    }
    kind = Kind(STRING, (*shape[:-1], "kept_of_" + re.sub(r"\W", "_", node.outputs[0])))
    return node.host("mirlo.string.normalize", node.object(0), results=[kind], **options)


@converter("Tokenizer", domain="com.microsoft")
def tokenizer(node: Node) -> Converted:
    """Convert StringSplit; the largest number of tokens is known only at run time."""
    shape = shape_of_strings(node, 0)
    if len(shape) not in (1, 2):
        raise NodeError(f"input 'X' must be strings [C] or [N, C], got {node.any_value(0)}")
    separators, expression = node.attr.strs("separators", None), node.attr.str("tokenexp", "")
    if bool(separators) == bool(expression):
        raise NodeError("exactly one of the attributes 'separators' and 'tokenexp' must be given")
    if expression == ".":  # ONNX Runtime takes it for the other attribute's form: it matches line breaks, too
        separators, expression = [""], ""
    least, is_by_letter = node.attr.int("mincharnum"), separators == [""]
    if least < 1 or (is_by_letter and least > 1):
        raise NodeError(
            f"attribute 'mincharnum' must be {'1 for letters' if is_by_letter else '1 or more'}, got {least}"
        )
    for name, pattern in (("tokenexp", expression), *(("separators", text) for text in separators or ())):
        try:
            compiled(pattern)
        except RegexError as error:
            raise NodeError(f"attribute '{name}' has '{pattern}', no regular expression: {error}") from None
    options = {
        "separators": list(separators or ()),
        "expression": expression,
        "least": least,
        "mark": node.attr.bool("mark"),
        "pad": node.attr.str("pad_value"),
    }
    kind = Kind(STRING, (*shape, "tokens_of_" + re.sub(r"\W", "_", node.outputs[0])))
    return node.host("mirlo.string.tokenize", node.object(0), results=[kind], **options)


def cast_strings(node: Node, code: int) -> Converted:
    """Cast to or from strings."""
    node.attr.ignore("saturate", "round_mode")
    if code == STRING_CODE:
        if node.is_string(0):
            return node.any_value(0)
        return node.host("mirlo.string.format", node[0], results=[Kind(STRING, node.value(0).kind.shape)])
    wanted = onnx_dtype(code, "attribute 'to'").dtype.name
    kind = Kind(wanted, shape_of_strings(node, 0))
    return node.host("mirlo.string.parse", node.object(0), results=[kind], dtype=wanted)
