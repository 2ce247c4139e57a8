"""Sizes that are functions of others: with `dynamic=True` each graph is compiled as a whole, with any size."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

from mirlo_torch.sizes import SizeReader  # noqa: E402

F = torch.nn.functional
CHANNELS = 4
STRICT = {"strict": True, "cache": False, "threads": 1}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="mirlo: ")  # a call that runs eagerly
        yield
    torch._dynamo.reset()


def _rows(x: Any, w: Any) -> Any:
    """Multiply the channels of all positions as the rows of one matrix."""
    rows = x.transpose(1, 2).reshape(x.shape[0] * x.shape[2], CHANNELS)
    return (rows @ w[:, :, 0]).view(x.shape[0], x.shape[2], CHANNELS).transpose(1, 2)


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "largest of pairs": lambda x, w: F.max_pool1d(x, 2),
    "mean of pairs": lambda x, w: F.avg_pool1d(x, 2),
    "twice": lambda x, w: torch.cat([x, x.flip(-1)], -1),
    "with its pairs": lambda x, w: torch.cat([x, F.max_pool1d(x, 2)], -1),
    "longer": lambda x, w: F.pad(x, (0, 1)),
    "steps of 2": lambda x, w: F.conv1d(x, w, stride=2, padding=1),
    "steps of 3": lambda x, w: F.conv1d(x, w, stride=3),
    "transposed": lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1),
    "every other": lambda x, w: x[..., ::2] * 2,
    "first half": lambda x, w: x[..., : x.shape[-1] // 2].exp(),
    "neighbours": lambda x, w: x[..., 1:] + x[..., :-1],
    "rows": _rows,
    "all pairs": lambda x, w: x @ (x.transpose(1, 2) @ x).softmax(-1),
    "size": lambda x, w: x * (x.shape[-1] // 2),
}
"""Steps from x and a weight to another x, each with a length of its own."""


class Chain(torch.nn.Module):  # type: ignore[misc]
    """Does steps one after the other; with `draws`, random numbers divide its graph in the middle."""

    def __init__(self, names: list[str], draws: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.names, self.w = names, torch.nn.Parameter(torch.rand(CHANNELS, CHANNELS, 3))
        self.draws_after = len(names) // 2 if draws else -1

    def forward(self, x: Any) -> Any:
        for number, name in enumerate(self.names):
            x = STEPS[name](x, self.w).sigmoid()
            if number == self.draws_after:
                x = x * (torch.bernoulli(x) + 1)
        return x * self.w.sum()


def _gradients(net: Any, weight: Any) -> list[Any]:
    results = []
    for batch, length in ((5, 22), (6, 27)):
        torch.manual_seed(length)
        x, weight.grad = torch.rand(batch, CHANNELS, length, requires_grad=True), None
        result = net(x).tanh()
        result.square().sum().backward()
        results += [result.detach(), x.grad, weight.grad]
    return results


def _compare(net: Any) -> None:
    compiled = torch.compile(net, backend="mirlo", options=STRICT, dynamic=True)
    expected = _gradients(net, net.w)
    torch.testing.assert_close(_gradients(compiled, net.w), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", STEPS)
def test_each_step(name: str) -> None:
    _compare(Chain([name]))


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_chains_of_steps(seed: int) -> None:
    names = random.Random(seed).sample(list(STEPS), 3)
    _compare(Chain(names, draws=bool(seed % 2)))


def test_conditions_make_sizes_numbers() -> None:
    """A product that fits one length alone makes a quotient of the size a number."""

    class Product(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.rand(11, 2))

        def forward(self, x: Any) -> Any:
            return F.max_pool1d(x, 2)[..., :11].exp() @ self.w if x.shape[2] > 22 else F.max_pool1d(x, 2) @ self.w

    _compare(Product())


@pytest.mark.parametrize("seed", range(40))
def test_sizes_of_inputs_are_determined(seed: int) -> None:
    """Whatever inputs have for sizes, a call can compute what their dims consist of."""
    from torch.fx.experimental.sym_node import SymNode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    rng, env = random.Random(seed), ShapeEnv()
    names = [
        env.create_symbol(hint, source=torch._dynamo.source.ConstantSource(f"s{hint}"), dynamic_dim=DimDynamic.DYNAMIC)
        for hint in (8, 12, 20)
    ]
    symbols = [torch.SymInt(SymNode(name, env, int, hint)) for name, hint in zip(names, (8, 12, 20), strict=True)]

    def size() -> Any:
        first, second = rng.choice(symbols), rng.choice(symbols)
        forms = [first, first // 2, first + 1, 3 * first, first + second, first * second, first // 2 * 3 + 1]
        return rng.choice([*forms, (first + second) // 4 + first, first // 3 * second, 5])

    sizes, reader = [size() for _ in range(rng.randint(0, 5))], SizeReader()
    reader.bind(sizes)
    dims = [dim for dim in reader.dims(sizes) if not isinstance(dim, int)]
    known = {str(dim) for dim in dims if dim.is_symbol}
    waiting = [dim for dim in dims if not dim.is_symbol]
    while waiting:
        unknown = [dim for dim in waiting if len(dim.symbols() - known) > 1]
        known.update(*(dim.symbols() for dim in waiting if dim not in unknown))
        assert len(unknown) < len(waiting), (sizes, dims)
        waiting = unknown
