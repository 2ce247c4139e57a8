"""ai.onnx.ml: classifiers of decision trees, with the ties, labels and scores of ONNX Runtime.

What the standard leaves open is decided as ONNX Runtime decides it on one thread: weights are added tree by tree, in
f64 where the input is f64 and in f32 elsewhere. Of equal scores the first class wins, and a class for which a row
reaches no weight never wins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirlo.dialects.core.dims import Dim
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.ops.ml import DOMAIN
from mirlo.frontends.onnx.ops.ml_scores import labelled, transformed
from mirlo.frontends.onnx.ops.ml_trees import TRANSFORMS, base_values, columns, numbers_of, old_forest, tree_scores
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted, Output
from mirlo.frontends.tensor import Tensor, concat, where


@converter("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(node: Node) -> Converted:
    words, numbers = node.attr.strs("classlabels_strings", None), node.attr.ints("classlabels_int64s", None)
    labels = words or numbers
    if not labels:
        raise NodeError("attribute 'classlabels_strings' or 'classlabels_int64s' must be given")
    forest = old_forest(node, "class", len(labels), "SUM")
    base_scores = base_values(node, None)
    base = [] if base_scores is None else base_scores.tolist()
    allowed = range(len(labels) + 1) if len(labels) <= 2 else (0, len(labels))
    if len(base) not in allowed:
        expected = " or ".join(map(str, allowed))
        raise NodeError(f"attribute 'base_values' must have {expected} numbers, got {len(base)}")
    transform = node.attr.choice("post_transform", "NONE", TRANSFORMS)
    if len(labels) == 1:
        return _one_class(node, tree_scores(node, forest, "SUM")[0], labels, base, transform)
    if len(labels) > 2:
        return _many_classes(node, *tree_scores(node, forest, "SUM"), labels, base, transform)
    voted = sorted(set(node.attr.ints("class_ids")))
    if len(voted) == 1:
        forest = forest.of_target(voted[0])  # nothing is computed for the other class
    is_positive = not any(weight < 0 for weight in numbers_of(node, "class_weights"))
    pair = _Pair(node, *tree_scores(node, forest, "SUM"), voted, base, is_positive)
    return pair.label(labels), pair.scores(transform)


def _one_class(
    node: Node, scores: Tensor, labels: Sequence[int | str], base: Sequence[float], transform: str
) -> tuple[Output, Tensor]:
    """Return as label whether the score is positive, 1 or 0, whatever number the class has."""
    kind = scores.type
    if base:
        scores = scores + base[0]
    positive = (scores > 0).cast("i64")
    flat = positive.reshape((kind.shape[0],))
    label = labelled(node, flat * 0, labels) if isinstance(labels[0], str) else flat
    result = scores.cast("f32")
    return label, transformed(node, result, "PROBIT") if transform == "PROBIT" else result


def _many_classes(
    node: Node,
    scores: Tensor,
    is_voted: Tensor | None,
    labels: Sequence[int | str],
    base: Sequence[float],
    transform: str,
) -> tuple[Output, Tensor]:
    """Return the first class with the largest score, of those with a weight or a base value."""
    kind = scores.type
    if base:
        scores = scores + node.constant(base, kind.dtype.name)
    # A class for which a row reaches no weight does not win.
    ranked = scores if is_voted is None or base else where(is_voted, scores, -np.inf)
    indices = ranked.argmax(1)
    return labelled(node, indices, labels), transformed(node, scores.cast("f32"), transform)


class _Pair:
    """Two classes: the label depends on one score, that of the second class where a row reaches a weight for it."""

    def __init__(
        self,
        node: Node,
        scores: Tensor,
        is_voted: Tensor | None,
        voted: Sequence[int],
        base: Sequence[float],
        is_positive: bool,
    ):
        self.node = node
        self.kind = scores.type
        self.base = base
        self.is_binary = len(voted) == 1
        self.is_positive = is_positive
        # Of each class: the score, and whether there is a weight, True and False if that holds for all rows.
        self.sums: list[Tensor] = []
        self.has: list[Tensor | bool] = []
        for i in range(2):
            at = voted.index(i) if i in voted else None
            self.sums.append(self._number(0) if at is None else columns(node, scores, at, at + 1))
            some = is_voted is None or columns(node, is_voted, at or 0, (at or 0) + 1)
            self.has.append(at is not None and some)

    def label(self, labels: Sequence[int | str]) -> Output:
        """Return the labels of the rows."""
        decisive = self._choose(self.has[1], self._both()[1], self._first())
        threshold = 0.5 if self.is_binary and self.is_positive else 0.0
        is_second = self._rows(decisive) > self._number(threshold)
        indices = is_second.cast("i64")
        flat = indices.reshape((self._row_count(),))
        return labelled(self.node, flat, labels if self.is_binary or isinstance(labels[0], str) else [0, 1])

    def scores(self, transform: str) -> Tensor:
        """Return the scores of both classes."""
        two = None if self.has[1] is False else self._transformed(self._both(), transform)
        one = None if self.has[1] is True else self._single(transform)
        return self._choose(self.has[1], two, one)

    def _first(self) -> Tensor:
        """Return the score of the first class; 0, without the base value, where there is no weight for it."""
        return self._choose(self.has[0], self._plus(self.sums[0], self.base[0] if self.base else 0), self._number(0))

    def _both(self) -> tuple[Tensor, Tensor]:
        """Return the scores where there is a weight for the second class."""
        if len(self.base) < 2:
            return self._first(), self.sums[1]
        # ONNX Runtime takes both base values for one, and the first sum for that of both classes.
        second = self._plus(self.sums[0], self.base[1])
        return self._choose(self.has[0], -second, self._number(0)), second

    def _single(self, transform: str) -> Tensor:
        """Return the scores where there is no weight for the second class."""
        node, first = self.node, self._first()
        if len(self.base) == 2:
            return self._transformed((first, self._number(0)), transform)
        if transform == "PROBIT":  # ONNX Runtime leaves the second score unwritten
            return self._pair(transformed(node, self._f32(first), "PROBIT"), self._number(0))
        if not self.is_binary and self.base:  # and here
            return self._pair(first, self._number(0))
        if transform == "LOGISTIC":
            return self._transformed((-first, first), transform)
        if self.is_binary and self.is_positive:
            return self._pair(self._number(1) - first, first)
        return self._pair(-first, first)

    def _transformed(self, scores: tuple[Tensor, Tensor], transform: str) -> Tensor:
        return transformed(self.node, self._pair(*scores), transform)

    def _pair(self, first: Tensor, second: Tensor) -> Tensor:
        values = [self._f32(self._rows(value)) for value in (first, second)]
        return concat(values, axis=1)

    def _rows(self, value: Tensor) -> Tensor:
        """Return a value as one per row."""
        if value.type.rank == 2:
            return value
        return value.expand((self._row_count(), 1))

    def _row_count(self) -> Dim:
        return self.kind.shape[0]

    def _number(self, value: float) -> Tensor:
        return self.node.constant(value, self.kind)

    def _plus(self, value: Tensor, base: float) -> Tensor:
        return value + self._number(base) if base else value

    def _f32(self, value: Tensor) -> Tensor:
        return value.cast("f32")

    def _choose(self, condition: Tensor | bool, yes: Tensor | None, no: Tensor | None) -> Tensor:
        if isinstance(condition, bool):
            chosen = yes if condition else no
            assert chosen is not None
            return chosen
        assert yes is not None
        assert no is not None
        return where(condition, yes, no)
