"""Counts of n-grams, and the weights of mel filters."""

from __future__ import annotations

import operator
from functools import reduce

import numpy as np

from mirlo.dialects.core.budget import FOLDED_BYTES, require_table
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.dtypes import DType
from mirlo.frontends.builder import sizes_if
from mirlo.frontends.onnx.declared import required
from mirlo.frontends.onnx.dtypes import onnx_dtype
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.string import shape_of_strings
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor, maximum, minimum, stack, where
from mirlo.runtime.kinds import Kind


@converter("TfIdfVectorizer", since=9)
def tf_idf(node: Node) -> Converted:
    if node.is_string(0):
        rows, pool = _numbered(node)
        x = rows.type
    else:
        x, pool = node.type(0), _pool_of_numbers(node)
        rows = node[0]
    if x.rank not in (1, 2):
        raise NodeError(f"expected one sequence or a batch of them, got {x}")
    rows = rows if x.rank == 2 else rows.reshape((1, x.shape[0]))
    counts = ngram_weights(node, rows, pool)
    return counts if x.rank == 2 else counts.squeeze(0)


def _pool_of_numbers(node: Node) -> np.ndarray:
    pool = node.attr.ints("pool_int64s", None)
    if pool is None:
        raise NodeError("attribute 'pool_strings' is of no use for numbers: attribute 'pool_int64s' is missing")
    return np.array(pool, np.int64)


def _numbered(node: Node) -> tuple[Tensor, np.ndarray]:
    """Return strings and n-grams as numbers: each string of the pool has a number, all others are -1."""
    pool = node.attr.strs("pool_strings", None)
    if pool is None:
        raise NodeError("attribute 'pool_int64s' is of no use for strings: attribute 'pool_strings' is missing")
    words = {word: number for number, word in enumerate(dict.fromkeys(pool))}
    kind = Kind("i64", shape_of_strings(node, 0))
    (numbers,) = node.host("mirlo.string.lookup", node.object(0), results=[kind], keys=list(words), default=-1)
    return node.ssa(numbers), np.array([words[word] for word in pool], np.int64)


def ngram_weights(node: Node, rows: Tensor, pool: np.ndarray) -> Tensor:
    """Return the output of a TfIdfVectorizer for rows of integers; `pool` are its n-grams."""
    mode = node.attr.choice("mode", None, ("TF", "IDF", "TFIDF"))
    columns = np.array(node.attr.ints("ngram_indexes"), np.int64)
    groups = _ngrams(node, pool)
    if sum(len(group) for group in groups) != len(columns) or columns.min(initial=0) < 0:
        count = sum(len(group) for group in groups)
        raise NodeError(f"attribute 'ngram_indexes' must have {count} columns, one per n-gram, got {list(columns)[:8]}")
    size = int(columns.max(initial=-1)) + 1
    require_table("the columns of the n-grams", size)
    require_table("the columns of the n-grams", len(columns), size, most=FOLDED_BYTES)
    skips, kind = node.attr.int("max_skip_count", 0), rows.type
    shortest, longest = node.attr.int("min_gram_length"), node.attr.int("max_gram_length")
    total = node.emit("full", shape=(kind.shape[0], size), value=0, dtype="i64")
    start = 0
    for group in groups:
        own = columns[start : start + len(group)]
        start += len(group)
        if not shortest <= group.shape[1] <= longest or not len(group) or _is_short(kind.shape[1], group.shape[1]):
            continue
        grams = node.constant(group, kind)
        counted = node.emit("count_ngrams", rows, grams, skips=skips)
        require_table("the columns of the n-grams", len(group), size)
        # A matrix of zeros and ones: the column in which each n-gram is counted.
        indices = np.zeros((len(group), size), np.int64)
        indices[np.arange(len(group)), own] = 1
        total = total + (counted @ node.constant(indices))
    return _weighted(node, total.cast("f32"), mode, columns, size)


def _is_short(length: Dim, gram: int) -> bool:
    return isinstance(length, int) and length < gram


def _ngrams(node: Node, pool: np.ndarray) -> list[np.ndarray]:
    """Return the n-grams of the pool by length: one matrix per length."""
    starts = [*node.attr.ints("ngram_counts"), len(pool)]
    ngrams = []
    for i, (begin, end) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        if not 0 <= begin <= end or (end - begin) % (i + 1):
            raise NodeError(f"attribute 'ngram_counts' is {starts[:-1]}, which does not fit a pool of {len(pool)}")
        ngrams.append(pool[begin:end].reshape(-1, i + 1))
    return ngrams


def _weighted(node: Node, counts: Tensor, mode: str, columns: np.ndarray, size: int) -> Tensor:
    declared_weights = node.attr.floats("weights", None)
    if mode == "TF":
        return counts
    weights = np.ones(size, np.float32)
    if declared_weights is not None:
        if len(declared_weights) != len(columns):
            raise NodeError(
                f"attribute 'weights' must have {len(columns)} numbers, one per n-gram, got {len(declared_weights)}"
            )
        weights[columns] = declared_weights
    if mode == "IDF":
        counts = minimum(counts, node.constant(1, "f32"))
    return counts * node.constant(weights)


MAX_WEIGHTS = 1 << 26


@converter("MelWeightMatrix", since=17)
def mel_weights(node: Node) -> Converted:
    """Return triangles over the bins of a spectrum, equidistant on the mel scale."""
    dtype = onnx_dtype(node.attr.int("output_datatype", 1), "attribute 'output_datatype'").dtype
    numbers = [node.value(i) for i in range(5)]
    if all(value.array is not None for value in numbers):
        bins, length, rate, low, high = (node.scalar(i) for i in range(5))
        if bins < 1 or length < 1 or bins * (length // 2 + 1) > MAX_WEIGHTS:
            raise NodeError(f"inputs 'num_mel_bins' and 'dft_length' must be sizes, got {bins} and {length}")
        return node.constant(_mel_matrix(int(bins), int(length), rate, low, high), dtype)
    declared = node.declared(0)
    if declared is not None and len(declared) != 2:
        raise NodeError(f"the result is declared {list(declared)}, but is a matrix")
    result = _mel_of_declared_shape(node, declared or _mel_sizes(node), dtype)
    if declared is None:
        return result
    half = _integer(node, 1) // 2
    pairs = zip((half, _integer(node, 0)), (declared[0] - 1, declared[1]), strict=True)
    holds = reduce(operator.and_, [actual.equals(wanted) for actual, wanted in pairs])
    return required(node, holds, "inputs 'num_mel_bins' and 'dft_length' are others", result)


def _edges(number: np.ndarray, bins: int, low: float, high: float, length: int, rate: int) -> np.ndarray:
    low, high = (2595 * np.log1p(edge / 700) / np.log(10) for edge in (low, high))
    step = (high - low) / (bins + 2)
    hertz = 700 * np.expm1((number * step + low) / 2595 * np.log(10))
    result: np.ndarray = np.floor((length + 1) * hertz / rate)
    return result


def _mel_matrix(bins: int, length: int, rate: int, low: float, high: float) -> np.ndarray:
    edges = _edges(np.arange(bins + 2), bins, low, high, length, rate)
    return _triangles(np.arange(length // 2 + 1)[:, None], edges[None, :-2], edges[None, 1:-1], edges[None, 2:])


def _triangles(row: np.ndarray, left: np.ndarray, center: np.ndarray, right: np.ndarray) -> np.ndarray:
    rising = np.where(center > left, (row - left) / np.maximum(center - left, 1), 1.0)
    falling = np.where(right > center, (right - row) / np.maximum(right - center, 1), 0.0)
    up = (row >= left) & (row <= center)
    down = (row >= center) & (row < right)
    return np.where(down, falling, np.where(up, rising, 0.0))


def _mel_sizes(node: Node) -> tuple[Dim, ...]:
    """Return the shape of the result, [length // 2 + 1, bins], from run-time values."""
    sizes = stack([_integer(node, i) for i in (1, 0)], axis=0)
    fits = sizes >= 1
    what = "inputs 'num_mel_bins' and 'dft_length' must be sizes"
    length, bins = node.bind(sizes_if(fits, sizes), what)
    return length // 2 + 1, bins


def _integer(node: Node, index: int) -> Tensor:
    return node.single(index).cast("i64")


def _mel_of_declared_shape(node: Node, shape: tuple[Dim, ...], dtype: DType) -> Tensor:
    """Compute the weights by operators at run time."""
    rows, bins = shape

    def real(index: int) -> Tensor:
        return node.single(index).cast("f64")

    def count(dim: Dim) -> Tensor:
        return node.size(dim).cast("f64")

    def index(dim: Dim) -> Tensor:
        return node.index_vector(dim).cast("f64")

    def number(value: float) -> Tensor:
        return node.constant(value, "f64")

    def mel(value: Tensor) -> Tensor:
        unit = (value / 700).log1p()
        return unit * 2595 / float(np.log(10))

    length, rate = real(1), real(2)
    low, high = mel(real(3)), mel(real(4))
    step = (high - low) / count(bins + 2)
    position = index(bins + 2) * step + low
    raised = (position / 2595 * np.log(10)).expm1()
    hertz = raised * 700
    scaled = (length + 1) * hertz / rate
    edges = scaled.floor()
    left, center, right = (edges.slice(0, i, bins) for i in range(3))
    row = index(rows).reshape((rows, 1))

    def slope(over: Tensor, under: Tensor, flat: float) -> Tensor:
        ratio = over / maximum(under, number(1))
        return where(under > 0, ratio, number(flat))

    rising = slope(row - left, center - left, 1.0)
    falling = slope(right - row, right - center, 0.0)
    up = (row >= left) & (row <= center)
    down = (row >= center) & (row < right)
    result = where(down, falling, where(up, rising, number(0)))
    return result.cast(dtype)
