"""Order in memory of images that the forward graph saves for the backward graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirlo_torch.backend.partition import base_of
from mirlo_torch.graph import target_name

if TYPE_CHECKING:
    import torch

CONVOLUTIONS = ("aten.convolution.default",)
KEEPING = (
    "_operator.getitem", "aten._native_batch_norm_legit_functional.default", "aten.max_pool2d_with_indices.default",
    "aten.avg_pool2d.default", "aten.detach.default", "aten.alias.default",
)  # fmt: skip
"""Operators, besides elementwise ones, whose results have the memory order of their first operand."""
VECTOR = 16
"""Multiple of channels that fills vectors on all processors; other convolutions keep PyTorch's order."""


def save_channels_last(forward: torch.fx.Graph, backward: torch.fx.Graph, num_fwd_outputs: int) -> None:
    """Record that saved images have their channels last in memory, as compiled convolutions compute and read them.

    Only the two graphs see saved values. A value that the caller sees, too, keeps its order, and so does one of which
    backward takes a view, which may need the order.
    """
    import torch

    # Gradients of an image with channels last have them last, too: PyTorch may have to copy what it takes a view of.
    for node in (each for graph in (forward, backward) for each in graph.nodes):
        if node.op == "call_function" and node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default
    (output,) = forward.find_nodes(op="output")
    visible = set(output.args[0][:num_fwd_outputs])
    readers = {node.name: node for node in backward.find_nodes(op="placeholder")}  # named as what is saved
    images = _images(forward)
    for node in output.args[0][num_fwd_outputs:]:
        if node not in images or node in visible or base_of(node) is not None or node.name not in readers:
            continue
        reader = readers[node.name]
        if any(_needs_order(user) for graph_node in (node, reader) for user in graph_node.users):
            continue
        for each in (node, reader):
            each.meta["val"] = _in_channels_last(each.meta["val"])


def _images(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Return the results of convolutions with enough channels, and of elementwise operators on them."""
    import torch

    images: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        name, tags = target_name(node.target), getattr(node.target, "tags", ())
        keeps = name in KEEPING or torch.Tag.pointwise in tags
        if name in CONVOLUTIONS or (keeps and any(each in images for each in node.all_input_nodes)):
            images.add(node)
    return {node for node in images if _is_image(node.meta.get("val"))}


def _is_image(value: object) -> bool:
    import torch

    if not isinstance(value, torch.Tensor) or value.ndim < 4 or value.dtype.is_complex:
        return False
    channels = value.shape[1]
    return isinstance(channels, int) and channels % VECTOR == 0 and value.is_contiguous()


def _needs_order(reader: torch.fx.Node) -> bool:
    """Return whether a reader is a view, whose strides PyTorch has derived, other than of the whole value."""
    return base_of(reader) is not None and target_name(reader.target) not in KEEPING


def _in_channels_last(value: torch.Tensor) -> torch.Tensor:
    """Return the traced tensor of an image with its channels last in memory."""
    order = [0, *range(2, value.ndim), 1]
    moved = value.new_empty([value.shape[axis] for axis in order])
    return moved.permute([order.index(axis) for axis in range(value.ndim)])
