"""Inputs whose dims are in another order in memory: neither copied nor left to eager PyTorch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mirlo_torch.backend import graph as graphs  # noqa: E402

STRICT = {"strict": True, "cache": False, "threads": 1}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the arrays that compiled graphs are called with."""
    arrays: list[Any] = []
    to_input = graphs.to_input
    monkeypatch.setattr(graphs, "to_input", lambda x: arrays.append(to_input(x)) or arrays[-1])
    return arrays


def _in_order(rng: random.Random) -> tuple[Any, list[int]]:
    """Return a tensor with a random order of its dims in memory, and what permutes it to that order."""
    sizes = [
        rng.choice((0, 1, 1, 2, 3, 5, 5)) if rng.random() < 0.3 else rng.randint(2, 5) for _ in range(rng.randint(1, 5))
    ]
    order = list(range(len(sizes)))
    rng.shuffle(order)
    x = torch.randn([sizes[axis] for axis in order]).permute([order.index(axis) for axis in range(len(order))])
    return x, order


@pytest.mark.parametrize("seed", range(12))
def test_views_of_inputs_in_any_order(seed: int, passed: list[Any]) -> None:
    """A view that PyTorch takes of an input for its strides is compiled, with sizes of any kind."""
    rng = random.Random(seed)
    x, order = _in_order(rng)
    w = torch.randn(x.numel(), requires_grad=True)

    def run(x: Any, w: Any) -> Any:
        return (x.permute(order).view(-1) * w).sum() + x.exp().sum()

    expected = run(x, w)
    (gradient,) = torch.autograd.grad(expected, w)
    compiled = torch.compile(run, backend="mirlo", options=STRICT, dynamic=bool(seed % 2))
    found = compiled(x, w)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, w), (gradient,))
    assert passed and all(array.flags.c_contiguous for array in passed)


def test_sizes_of_transposed_inputs() -> None:
    """A graph that takes sizes as numbers reads them of its inputs, whatever their order in memory."""
    x = torch.randn(8, 3, 6).permute(1, 2, 0)

    def run(x: Any) -> Any:
        return x.new_ones(x.shape[2], x.shape[0]) @ x[:, 0] * float(x.shape[1])

    compiled = torch.compile(run, backend="mirlo", options=STRICT, dynamic=True)
    torch.testing.assert_close(compiled(x), run(x))
    torch.testing.assert_close(compiled(x[:2]), run(x[:2]))


@pytest.mark.parametrize("kind", ["gaps", "repeated", "contiguous", "complex"])
def test_other_strides_are_copied_or_contiguous(kind: str) -> None:
    x = torch.randn(4, 6, dtype=torch.complex64 if kind == "complex" else torch.float32)
    x = {"gaps": x[:, ::2].t(), "repeated": x[:, :1].expand(4, 6).t(), "complex": x.t()}.get(kind, x)
    run = torch.compile(lambda x: x * 2 + 1, backend="mirlo", options=STRICT)
    torch.testing.assert_close(run(x), x * 2 + 1)


def test_channels_last_in_training(passed: list[Any]) -> None:
    """Images and weights with channels last are read as they are, by forward and backward."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 1))
    net, x = net.to(memory_format=torch.channels_last), torch.randn(2, 16, 6, 6).to(memory_format=torch.channels_last)
    net(x).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in net.parameters()]
    net.zero_grad()
    torch.compile(net, backend="mirlo", options=STRICT)(x).square().sum().backward()
    torch.testing.assert_close([parameter.grad for parameter in net.parameters()], expected, rtol=1e-4, atol=1e-3)
    assert all(array.flags.c_contiguous for array in passed)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the tensors that are copied for a call: those whose array is elsewhere, or is not contiguous."""
    made: list[Any] = []
    to_input = graphs.to_input

    def record(x: Any) -> Any:
        array = to_input(x)
        if array.ctypes.data != x.data_ptr() or not array.flags.c_contiguous:
            made.append(x)
        return array

    monkeypatch.setattr(graphs, "to_input", record)
    return made


def _strides(x: Any) -> list[int]:
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size != 1]


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_steps_copy_nothing(seed: int, copies: list[Any]) -> None:
    """Images, weights and gradients in any order in memory are read as they are; results have eager's strides."""
    rng = random.Random(seed)

    def in_order(x: Any) -> Any:
        order = rng.choice([(0, 1, 2, 3), (0, 2, 3, 1), (0, 1, 3, 2), (3, 2, 1, 0)])
        return x.permute(order).contiguous().permute([order.index(axis) for axis in range(4)])

    torch.manual_seed(seed)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(16, 16, 3, rng.choice([1, 2]), 1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 8, 1),
    )  # fmt: skip
    for layer in (net[0], net[3]):
        layer.weight.data = in_order(layer.weight.data)
    x = in_order(torch.randn(2, 16, 6, 8)).requires_grad_()
    change = in_order(torch.randn(net(x).shape))
    rows = []
    for run in (net, torch.compile(net, backend="mirlo", options=STRICT)):
        net.zero_grad()
        x.grad = None
        result = run(x)
        result.backward(change)
        rows.append([result.detach(), x.grad, *(parameter.grad for parameter in net.parameters())])
    torch.testing.assert_close(rows[1], rows[0], rtol=1e-3, atol=1e-3)
    assert [*map(_strides, rows[1])] == [*map(_strides, rows[0])]
    assert not copies


class Weighted(torch.nn.Module):
    """Takes its weights before, between and after its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.u, self.v, self.w = (torch.nn.Parameter(torch.randn(3, 5)) for _ in range(3))

    def forward(self, x: Any, y: Any, order: str) -> Any:
        values = {"u": self.u, "v": self.v, "w": self.w, "x": x, "y": y}
        result = torch.ones(3, 5)
        for name in order:
            result = result * 0.5 + values[name] * values[name].sin()
        return result


@pytest.mark.parametrize("order", ["uxvyw", "xuvwy", "xuyvw", "uvwxy", "xyuvw", "yux", "xy", "uv"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_weights_among_transposed_inputs(order: str, dynamic: bool) -> None:
    """Weights are constants of inference, wherever the graph takes them among its inputs."""
    net, x, y = Weighted(), torch.randn(5, 3).t(), torch.randn(5, 3).t()
    with torch.no_grad():
        found = torch.compile(net, backend="mirlo", options=STRICT, dynamic=dynamic)(x, y, order)
        torch.testing.assert_close(found, net(x, y, order))
