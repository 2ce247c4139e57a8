"""The target's predictions for choices: which are worth measuring, and how well they were predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mirlo.driver.tune.tasks import TuningTask

PROMISING = 1.3
"""Choices that are expected to take longer than this part of the time without them are not measured."""
MIN_CHOICES_TO_RANK = 12
"""Measured choices from which on it means something how well their order was foreseen."""


def promising(task: TuningTask) -> list[int]:
    """Return the positions of the choices to measure, those expected to be fastest first.

    Choices without a prediction are ranked by the target's order, and are assumed to be as fast as the current best.
    """
    if not task.expected:
        return list(range(len(task.choices)))
    costs = [1.0 if cost is None else cost for cost in task.expected]
    return sorted((i for i, cost in enumerate(costs) if cost <= PROMISING), key=lambda i: costs[i])


def least_expected(task: TuningTask) -> float:
    """Return the least fraction of the time that the target expects of a choice, 1 if that is its own choice."""
    return min([1.0, *(cost for cost in task.expected if cost is not None)])


def order_predicted(task: TuningTask, measured: Mapping[int, float]) -> float | None:
    """Return how well the target predicted the order of choices, given the times of some by their positions."""
    if not task.expected:
        return None
    pairs = [(cost, ratio) for i, ratio in measured.items() if (cost := task.expected[i]) is not None]
    return rank_correlation([cost for cost, _ in pairs], [ratio for _, ratio in pairs])


def rank_correlation(expected: Sequence[float], measured: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation: 1 if the order was predicted, 0 if by chance, -1 if it is reversed."""
    if len(expected) < MIN_CHOICES_TO_RANK:
        return None
    first, second = _ranks(expected), _ranks(measured)
    mean = (len(first) - 1) / 2
    across = sum((a - mean) * (b - mean) for a, b in zip(first, second, strict=True))
    spread = (sum((a - mean) ** 2 for a in first) * sum((b - mean) ** 2 for b in second)) ** 0.5
    return across / spread if spread else None


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal values share the mean of their ranks."""
    result = [0.0] * len(values)
    order = sorted(range(len(values)), key=lambda i: values[i])
    at = 0
    while at < len(order):
        end = at
        while end < len(order) and values[order[end]] == values[order[at]]:
            end += 1
        for i in order[at:end]:
            result[i] = (at + end - 1) / 2
        at = end
    return result
