"""Routers: the experts of each token, and the weights of their results."""

from __future__ import annotations

from mirlo.extend.frontend import Tensor, where
from mirlo_llm.generate.checkpoints.architectures import ExpertOptions
from mirlo_llm.generate.checkpoints.graph import HIDDEN, CheckpointGraph


def route(graph: CheckpointGraph, name: str, rows: Tensor, experts: ExpertOptions) -> tuple[Tensor, Tensor]:
    """Return the indices of the experts of each row and their weights, both [rows, chosen]."""
    products = graph.product(f"{name}.gate", rows, experts.count)
    scores = products.sigmoid() if experts.scores == "sigmoid" else products.softmax(-1)
    compared = scores
    if experts.is_corrected:
        compared = compared + graph.weight(f"{name}.gate", experts.count, part="e_score_correction_bias")
    if experts.groups > 1:
        compared = _of_best_groups(compared, experts)
    chosen = _order(compared).slice(1, 0, experts.chosen)
    factors = scores.gather_elements(chosen, 1)
    if experts.is_normalized:
        factors = factors / factors.sum(1, keepdims=True)
    return chosen, factors * experts.weight_scale


def _of_best_groups(scores: Tensor, experts: ExpertOptions) -> Tensor:
    """Keep the scores of experts in the best groups; lower all others so that they are not chosen."""
    rows, size = scores.shape[0], experts.count // experts.groups
    members = scores.reshape((rows * experts.groups, size))
    best = members.gather_elements(_order(members).slice(1, 0, experts.group_members), 1).sum(1)
    ranks = _order(_order(best.reshape((rows, experts.groups))), descending=False)
    is_best = (ranks < experts.chosen_groups).expand_dims(2)
    grouped = scores.reshape((rows, experts.groups, size))
    return where(is_best, grouped, grouped.like(HIDDEN)).reshape((rows, experts.count))


def _order(x: Tensor, descending: bool = True) -> Tensor:
    """Return the indices that sort each row."""
    return x.builder.emit("argsort", x, axis=1, descending=descending)
