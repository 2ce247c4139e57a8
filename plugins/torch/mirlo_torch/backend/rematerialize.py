"""Division of a joint graph into forward and backward, which computes again what is cheap.

PyTorch's partitioner keeps what a product of the backward graph reads, such as the results of GELU and of layer norms,
since it must be stored there, too. But backward needs their operands in any case. Where these are kept, the results
are computed from them once more: one pass over memory each, in place of memory from forward to backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo_torch.backend.partition import base_of, is_size, operator_of
from mirlo_torch.backend.saved_images import save_channels_last
from mirlo_torch.graph import target_name

if TYPE_CHECKING:
    import torch

NORMS = ("aten.native_layer_norm.default", "aten._fused_rms_norm.default")
"""Operators on rows that take one pass if a row fits in the L1 cache."""


def partition_joint(
    joint: torch.fx.GraphModule,
    inputs: object,
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: list[int] | None = None,
) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """Divide a joint graph into forward and backward so that fewer values are kept in between."""
    from functorch.compile import min_cut_rematerialization_partition
    from torch.utils.checkpoint import CheckpointPolicy

    for node in recomputed(joint.graph, num_fwd_outputs):
        node.meta.setdefault("recompute", CheckpointPolicy.PREFER_RECOMPUTE)
    graphs: tuple[torch.fx.GraphModule, torch.fx.GraphModule] = min_cut_rematerialization_partition(
        joint,
        inputs,
        num_fwd_outputs=num_fwd_outputs,
        static_lifetime_input_indices=static_lifetime_input_indices,
    )
    save_channels_last(graphs[0].graph, graphs[1].graph, num_fwd_outputs)
    return graphs


def recomputed(joint: torch.fx.Graph, num_fwd_outputs: int) -> list[torch.fx.Node]:
    """Return the nodes to recompute: backward reads them, and needs their operands in any case."""
    forward = _forward(joint, num_fwd_outputs)
    is_there: dict[torch.fx.Node, bool] = {}
    nodes: dict[torch.fx.Node, None] = {}
    for node in (node for node in joint.nodes if node in forward):
        is_read = _is_read(node, forward)
        has_operands = all(is_there[each] for each in node.all_input_nodes)
        is_there[node] = node.op != "call_function" or is_read or is_size(node)
        if node.op != "call_function" or not has_operands:
            continue
        is_there[node] = is_there[node] or _is_cheap(operator_of(node)) or base_of(node) is not None
        if is_read and _is_cheap(operator_of(node)):
            nodes.update(dict.fromkeys((operator_of(node), node)))
    return list(nodes)


def _forward(joint: torch.fx.Graph, num_fwd_outputs: int) -> set[torch.fx.Node]:
    """Return the nodes that the first results depend on, and all placeholders."""
    (output,) = joint.find_nodes(op="output")
    waiting = [each for each in output.args[0][:num_fwd_outputs] if hasattr(each, "all_input_nodes")]
    nodes = set(joint.find_nodes(op="placeholder"))
    while waiting:
        node = waiting.pop()
        if node not in nodes:
            nodes.add(node)
            waiting.extend(node.all_input_nodes)
    return nodes


def _is_read(node: torch.fx.Node, forward: set[torch.fx.Node]) -> bool:
    """Return whether the backward graph reads a node or a view of it."""
    users = (user for user in node.users if user.op != "output")
    return any(user not in forward or (base_of(user) is not None and _is_read(user, forward)) for user in users)


def _is_cheap(node: torch.fx.Node) -> bool:
    """Return whether an operator takes little more time than reading its operands and writing its results."""
    import torch

    if target_name(node.target) in NORMS:
        return True
    tags: Sequence[torch.Tag] = getattr(node.target, "tags", ())
    return torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags
