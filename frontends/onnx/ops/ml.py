"""ai.onnx.ml: scalers, encoders and selection of features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.frontends.onnx.declared import assumption, required
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.graph import STRING_CODE
from mirlo.frontends.onnx.node import Node, NodeTrait
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import AnyValue, Converted, ObjectValue, selected_strings
from mirlo.frontends.tensor import Tensor, concat, where
from mirlo.runtime.kinds import Kind

DOMAIN = "ai.onnx.ml"


def as_float(node: Node, index: int = 0) -> Tensor:
    """Return an input as f32, the type in which most of these operators compute."""
    return node[index] if node.type(index).dtype.name == "f32" else node[index].cast("f32")


@converter("ArrayFeatureExtractor", domain=DOMAIN, traits=[NodeTrait.MOVES])
def array_feature_extractor(node: Node) -> Converted:
    x, indices = node.type(0), node.type(1)
    if x.rank == 0 or indices.elements == 0:
        raise NodeError(f"expected a tensor and at least one index, got {x} and {indices}")
    rows = node[0] if x.rank > 1 else node[0].reshape((1, x.shape[0]))
    return rows.gather(node[1].reshape((indices.elements,)), -1)


@converter("Binarizer", domain=DOMAIN)
def binarizer(node: Node) -> Converted:
    x, threshold = node.type(0), node.attr.float("threshold", 0.0)
    return (node[0] > threshold).cast(x.dtype)


@converter("Scaler", domain=DOMAIN)
def scaler(node: Node) -> Converted:
    x = as_float(node)
    shifted = x - _per_feature(node, "offset", node.attr.floats("offset", [0.0]))
    return shifted * _per_feature(node, "scale", node.attr.floats("scale", [1.0]))


def _per_feature(node: Node, what: str, numbers: Sequence[float]) -> Tensor:
    features = node.type(0).shape[-1] if node.type(0).rank else 1
    if len(numbers) not in (1, features):
        raise NodeError(f"attribute '{what}' must have 1 or {features} numbers, got {len(numbers)}")
    return node.constant(numbers, "f32")


@converter("Normalizer", domain=DOMAIN)
def normalizer(node: Node) -> Converted:
    x, norm = as_float(node), node.attr.choice("norm", "MAX", ("MAX", "L1", "L2"))
    name = {"MAX": "reduce_max", "L1": "reduce_l1", "L2": "reduce_l2"}[norm]
    size = node.emit(name, x, axes=[-1], keepdims=True)
    is_zero = size.equals(0)
    return x / where(is_zero, node.constant(1, "f32"), size)


@converter("Imputer", domain=DOMAIN)
def imputer(node: Node) -> Converted:
    x = node.type(0)
    suffix, listed = ("float", "floats") if x.dtype.is_float else ("int64", "int64s")
    other = ("int64", "int64s") if x.dtype.is_float else ("float", "floats")
    node.attr.ignore(f"replaced_value_{other[0]}", f"imputed_value_{other[1]}")
    read = node.attr.float if x.dtype.is_float else node.attr.int
    replaced = read(f"replaced_value_{suffix}", 0)
    values = (node.attr.floats if x.dtype.is_float else node.attr.ints)(f"imputed_value_{listed}")
    features = x.shape[-1] if x.rank else 1
    if len(values) not in (1, features):
        raise NodeError(f"attribute 'imputed_value_{listed}' must have 1 or {features} numbers, got {len(values)}")
    is_nan = isinstance(replaced, float) and replaced != replaced
    is_missing = node[0].isnan() if is_nan else node[0].equals(replaced)
    return where(is_missing, node.constant(values, x), node[0])


@converter("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(node: Node) -> Converted:
    sizes, parts = node.attr.ints("inputdimensions", None), []
    for i in range(len(node)):
        type_, x = node.type(i), as_float(node, i)
        if type_.rank not in (1, 2):
            raise NodeError(f"inputs must have rank 1 or 2, got {type_}")
        parts.append(x if type_.rank == 2 else x.reshape((1, type_.shape[0])))
        if sizes is not None and (i >= len(sizes) or sizes[i] != type_.shape[-1]):
            raise NodeError(f"attribute 'inputdimensions' is {sizes}, but input {i} is {type_}")
    return concat(parts, axis=1)


# Encoders: places among keys, then what stands there.


NO_ZEROS = "which is an error as 'zeros' is 0"


@converter("OneHotEncoder", domain=DOMAIN)
def one_hot_encoder(node: Node) -> Converted:
    zeros = node.attr.bool("zeros", 1)
    problem = "" if zeros else "a value is of no category"
    if node.is_string(0):
        keys = node.attr.strs("cats_strings")
        text = assumption(node, problem, NO_ZEROS) if problem else ""
        indices, count = indices_of_strings(node, keys, text), len(keys)
    else:
        numbers = np.array(node.attr.ints("cats_int64s"), np.int64)
        count = len(numbers)
        indices = indices_of_values(node, node[0].cast("i64"), numbers)
    inside = indices.expand_dims(-1)
    result = inside.equals(node.constant(np.arange(count), "i64")).cast("f32")
    if zeros or node.is_string(0):
        return result
    return required(node, indices < count, problem, result, why=NO_ZEROS)


@converter("CategoryMapper", domain=DOMAIN)
def category_mapper(node: Node) -> Converted:
    words, numbers = node.attr.strs("cats_strings"), node.attr.ints("cats_int64s")
    if len(words) != len(numbers):
        raise NodeError(
            f"attributes 'cats_strings' and 'cats_int64s' must be of one length, got {len(words)}, {len(numbers)}"
        )
    return _translated(node, words, np.array(numbers, np.int64))


@converter("LabelEncoder", domain=DOMAIN)
def label_encoder_of_classes(node: Node) -> Converted:
    """Convert the first version: indices of strings, or strings of indices."""
    words = node.attr.strs("classes_strings")
    return _translated(node, words, np.arange(len(words)))


def _translated(node: Node, words: Sequence[str], numbers: np.ndarray) -> Converted:
    """Return the numbers of strings, or the strings of numbers."""
    if node.is_string(0):
        node.attr.ignore("default_string")
        return select_values(node, indices_of_strings(node, words), numbers, node.attr.int("default_int64", -1))
    node.attr.ignore("default_int64")
    indices = indices_of_values(node, node[0], numbers)
    return select_strings(indices, words, node.attr.str("default_string", "_Unused"))


@converter("LabelEncoder", domain=DOMAIN, since=2)
def label_encoder(node: Node) -> Converted:
    keys, values = _keys_or_values(node, "keys"), _keys_or_values(node, "values")
    if len(keys) != len(values):
        raise NodeError(f"there must be as many keys as values, got {len(keys)} and {len(values)}")
    if node.is_string(0):
        indices = indices_of_strings(node, list(keys))
    else:
        indices = indices_of_values(node, node[0], keys.astype(node.type(0).dtype.to_numpy()))
    if values.dtype == object:
        return select_strings(indices, list(values), str(_default(node, values)))
    return select_values(node, indices, values, _default(node, values))


def _keys_or_values(node: Node, what: str) -> np.ndarray:
    names = [name for name in node.attr.names() if name.startswith(f"{what}_")]
    if len(names) != 1:
        raise NodeError(f"exactly one of the attributes '{what}_...' must be given, got {', '.join(names) or 'none'}")
    match names[0].removeprefix(f"{what}_"):
        case "strings":
            return np.array(node.attr.strs(names[0]), dtype=object)
        case "int64s":
            return np.array(node.attr.ints(names[0]), np.int64)
        case "floats":
            return np.array(node.attr.floats(names[0]), np.float32)
        case "tensor":
            tensor = node.attr.tensor(names[0])
            is_text = tensor.code == STRING_CODE
            return (node.builder.strings(tensor) if is_text else node.builder.array(tensor)).reshape(-1)
        case other:
            raise NodeError(f"attribute '{what}_{other}' is not supported")


def _default(node: Node, values: np.ndarray) -> float | str | np.generic:
    """Return the default for values that are not among the keys; defaults of other types have no effect."""
    node.attr.ignore("default_float", "default_int64", "default_string")
    if "default_tensor" in node.attr:
        tensor = node.attr.tensor("default_tensor")
        is_text = tensor.code == STRING_CODE
        result: str | np.generic
        result = (node.builder.strings(tensor) if is_text else node.builder.array(tensor)).reshape(-1)[0]
        return result
    if values.dtype == object:
        return node.attr.str("default_string", "_Unused")
    return node.attr.int("default_int64", -1) if values.dtype.kind in "iu" else node.attr.float("default_float", -0.0)


def indices_of_strings(node: Node, keys: Sequence[str], message: str = "") -> Tensor:
    """Return the index of each string among the keys; that of others is their number, or an error with a message."""
    kind = Kind("i64", node.any_value(0).kind.shape)
    options = {"keys": list(keys), "default": len(keys), **({"message": message} if message else {})}
    return _ssa(node, node.host("mirlo.string.lookup", node.object(0), results=[kind], **options))


def _ssa(node: Node, values: Sequence[AnyValue]) -> Tensor:
    return node.ssa(values[0])


def indices_of_values(node: Node, x: Tensor, keys: np.ndarray) -> Tensor:
    """Return the last index of each element among the keys, or their number."""
    kept, last = np.unique(keys[::-1], return_index=True)
    result = node.emit("find_sorted", x, node.constant(kept, x.type))
    indices = np.concatenate([len(keys) - 1 - last, [len(keys)]])
    # Place -1 counts from the end, where the number of keys stands.
    return node.constant(indices, "i64").gather(result)


def select_values(node: Node, places: Tensor, values: np.ndarray, default: float | str | np.generic) -> Tensor:
    table = np.concatenate([values, np.array([default], values.dtype)])
    return node.constant(table).gather(places)


def select_strings(places: Tensor, words: Sequence[str], *defaults: str) -> ObjectValue:
    """Return the words at these indices; their number stands for the default."""
    return selected_strings(np.array([*words, *defaults], dtype=object), places)
