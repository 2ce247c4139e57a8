"""Order in memory of what the forward graph saves: images of convolutions have their channels last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mirlo_torch.backend.rematerialize import partition_joint  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def convolution(channels: int, after: Callable[[Any], Any]) -> Any:
    """Return a convolution with batch norm, and what is computed of its results."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = torch.nn.Conv2d(3, channels, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(channels)

        def forward(self, x: Any) -> Any:
            return after(self.norm(self.convolution(x)))

    return Net()


def saved_orders(net: Any, x: Any) -> dict[str, bool]:
    """Return by name which saved images have channels last, as both graphs see them."""
    orders: list[dict[str, bool]] = []

    def keep(graph: Any, inputs: Any) -> Any:
        nodes = [*graph.graph.find_nodes(op="placeholder"), *graph.graph.find_nodes(op="output")[0].args[0]]
        images = [node for node in nodes if getattr(node, "meta", {}).get("val") is not None]
        images = [node for node in images if isinstance(node.meta["val"], torch.Tensor) and node.meta["val"].ndim == 4]
        orders.append({node.name: not node.meta["val"].is_contiguous() for node in images})
        return graph.forward

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep, partition_fn=partition_joint)
    expected = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    found = torch.autograd.grad(torch.compile(net, backend=backend)(x).square().sum(), list(net.parameters()))
    torch.testing.assert_close(found, expected)
    forward, backward = orders
    assert all(forward[name] == is_last for name, is_last in backward.items() if name in forward)
    return backward


def test_images_have_channels_last() -> None:
    orders = saved_orders(convolution(16, lambda y: F.max_pool2d(torch.relu(y), 2).sin()), torch.randn(2, 3, 8, 8))
    assert [name for name, is_last in orders.items() if is_last]
    assert not any(is_last for name, is_last in orders.items() if "primals" in name or "tangents" in name)


@pytest.mark.parametrize(
    "channels, after",
    [(12, torch.relu), (16, lambda y: y.reshape(2, -1).exp() * y.reshape(2, -1))],
    ids=["channels that fill no vector", "views"],
)
def test_other_values_keep_their_order(channels: int, after: Callable[[Any], Any]) -> None:
    net = convolution(channels, after)
    orders = saved_orders(net, torch.randn(2, 3, 8, 8))
    last = [name for name, is_last in orders.items() if is_last]
    assert last == [] if channels == 12 else len(last) <= 1  # the convolution's result, which the norm reads


def test_views_of_gradients_are_compiled() -> None:
    """The gradient of a saved image has channels last, too, and that of the pool before it is computed by a view."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    net = torch.nn.Sequential(*layers, torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.ReLU())
    x = torch.randn(2, 16, 8, 8)
    expected = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    compiled = torch.compile(net, backend="mirlo", options={"strict": True})
    found = torch.autograd.grad(compiled(x).square().sum(), list(net.parameters()))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)
