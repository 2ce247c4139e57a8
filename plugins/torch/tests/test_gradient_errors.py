"""Gradients of networks with batch norm have the errors of eager PyTorch's, by gradients in f64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

SIZES = ((16, 3, 32, 32), (8, 16, 24, 24), (4, 5, 40, 28))
"""Batch, channels, height and width of the images."""


def _gradients(
    size: tuple[int, ...], kind: torch.dtype, backend: str | None = None, target: str = "llvm"
) -> torch.Tensor:
    """Return all gradients of a step of a smooth network, in which no ReLU changes its side."""
    torch._dynamo.reset()  # sizes are static, whatever other tests have compiled
    torch.manual_seed(0)
    channels = size[1]
    layers: list[torch.nn.Module] = []
    for before, after, stride in ((channels, 16, 1), (16, 32, 2), (32, 32, 1)):
        layers += [torch.nn.Conv2d(before, after, 3, stride, 1), torch.nn.BatchNorm2d(after), torch.nn.Tanh()]
    net = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10))
    x, labels = torch.randn(size), torch.randint(0, 10, size[:1])
    net, x = net.train().to(kind), x.to(kind)
    options = {"strict": True, "threads": 1, **({"target": target} if target != "llvm" else {})}
    run = net if backend is None else torch.compile(net, backend=backend, options=options)
    torch.nn.functional.cross_entropy(run(x), labels).backward()
    biases = {f"{at}.bias" for at in (0, 3, 6)}  # no gradient is left of these but rounding errors: a norm follows
    parts = [p.grad.double().flatten() for name, p in net.named_parameters() if name not in biases]
    return torch.cat(parts)


def _ratio(size: tuple[int, ...], target: str) -> float:
    """Return the error of the gradients, of that of eager PyTorch in f32."""
    exact = _gradients(size, torch.float64)
    eager, compiled = _gradients(size, torch.float32), _gradients(size, torch.float32, "mirlo", target)
    return float((compiled - exact).norm() / (eager - exact).norm())


@pytest.mark.parametrize("size", SIZES)
def test_gradients_are_nearly_as_exact_as_eager_ones(size: tuple[int, ...]) -> None:
    """Winograd's tiles of 4x4 in the backward graph have twice the error of direct convolution."""
    assert _ratio(size, "llvm") <= 3


@pytest.mark.parametrize("size", SIZES[:1])
def test_gradients_of_small_tiles_are_as_exact_as_eager_ones(size: tuple[int, ...]) -> None:
    assert _ratio(size, "llvm{winograd=2}") <= 2
