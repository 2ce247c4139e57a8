"""What TorchDynamo captures: numbers that become symbols, operators of PyTorch's own decompositions, dynamic dims."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def require_equal(function: Callable[..., Any], calls: list[tuple[Any, ...]], dynamic: bool | None) -> None:
    """Compare with the results of PyTorch, and check that all is compiled."""
    run = torch.compile(function, backend="mirlo", dynamic=dynamic, options={"strict": True, "cache": False})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message="mirlo")
        for given in calls:
            torch.testing.assert_close(run(*given), function(*given), rtol=1e-4, atol=1e-5)


def _cached(cache: Any, x: Any, start: int) -> Any:
    whole = cache.clone()
    whole[:, start : start + x.shape[1]] = x
    return whole[:, : start + x.shape[1]].softmax(-1)


NUMBERS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "slice": (lambda x, k: (x * k + k / 2)[:, k:], [(torch.rand(2, 8), k) for k in (3, 4, 6)]),
    "range": (lambda x, k: x[:, torch.arange(k, k + 2)] * 2, [(torch.rand(2, 8), k) for k in (3, 5)]),
    "position in a cache": (_cached, [(torch.rand(2, 16, 8), torch.rand(2, 3, 8), k) for k in (3, 5, 9)]),
    "shape": (lambda x, k: x.reshape(k, -1).sum(0), [(torch.rand(24), k) for k in (3, 4, 6)]),
    "two numbers": (lambda x, j, k: x[j:k] + j / k, [(torch.rand(12), 2, 5), (torch.rand(12), 4, 9)]),
    "value": (lambda x, k: x * k**2 + torch.full((2,), k), [(torch.rand(2), k) for k in (3, 7)]),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_symbols(name: str, dynamic: bool | None) -> None:
    require_equal(*NUMBERS[name], dynamic)


@pytest.mark.filterwarnings("ignore:mirlo")
def test_negative_numbers_run_too() -> None:
    def function(x: Any, k: int) -> Any:
        return x * k + x.roll(k, 0)

    run, x = torch.compile(function, backend="mirlo", dynamic=True, options={"cache": False}), torch.rand(9)
    for number in (3, -2, 5, 1, 0):
        torch.testing.assert_close(run(x, number), function(x, number))


def _heads(batch: int, size: int, dim: int = 16) -> tuple[Any, ...]:
    return tuple(torch.rand(batch, heads, size, dim) for heads in (8, 2, 2))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dynamic", [False, None, True])
def test_attention_with_fewer_heads_of_keys(causal: bool, dynamic: bool | None) -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    calls = [_heads(2, 5)] if dynamic is False else [_heads(2, 5), _heads(2, 7), _heads(3, 6)]
    require_equal(function, calls, dynamic)


def _layer(**words: Any) -> Any:
    return torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **words).eval()


MASK = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]]).bool()
CAUSAL = torch.nn.Transformer.generate_square_subsequent_mask(5)


@pytest.mark.parametrize("words", [{}, {"norm_first": True}, {"activation": "gelu"}])
@pytest.mark.parametrize("masks", [{}, {"src_key_padding_mask": MASK}, {"src_mask": CAUSAL, "is_causal": True}])
def test_layers_of_transformers(words: dict[str, Any], masks: dict[str, Any]) -> None:
    layer = _layer(**words)
    require_equal(lambda x: layer(x, **masks), [(torch.rand(3, 5, 16),)], False)


def test_layers_of_transformers_with_both_masks() -> None:
    layer = _layer()
    require_equal(lambda x: layer(x, src_mask=CAUSAL, src_key_padding_mask=MASK), [(torch.rand(3, 5, 16),)], False)


@pytest.mark.parametrize("need_weights", [False, True])
def test_multi_head_attention(need_weights: bool) -> None:
    attention = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval()
    require_equal(
        lambda x: attention(x, x, x, key_padding_mask=MASK, need_weights=need_weights), [(torch.rand(3, 5, 16),)], False
    )


class Volumes(torch.nn.Module):  # type: ignore[misc]
    """A U-Net of three dims and one level."""

    def __init__(self, grow: str) -> None:
        super().__init__()
        conv = torch.nn.Conv3d
        self.first, self.inner, self.last = conv(1, 4, 3, padding=1), conv(4, 4, 3, padding=1), conv(8, 2, 1)
        self.up, self.grow = torch.nn.ConvTranspose3d(4, 4, 2, 2), grow

    def forward(self, x: Any) -> Any:
        wide = self.first(x).relu()
        inner = self.inner(F.max_pool3d(wide, 2)).relu()
        if self.grow == "transposed":
            return self.last(torch.cat([wide, self.up(inner)], 1))
        return self.last(torch.cat([wide, F.interpolate(inner, size=wide.shape[2:], mode=self.grow)], 1))


@pytest.mark.parametrize("grow", ["transposed", "nearest"])
def test_volumes_of_any_size(grow: str) -> None:
    require_equal(Volumes(grow).eval(), [(torch.rand(1, 1, 8, 6, 4),), (torch.rand(1, 1, 12, 8, 6),)], True)


@pytest.mark.parametrize("divisor", [None, 5])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("ceil", [False, True])
def test_average_pooling_of_any_size(divisor: int | None, counted: bool, ceil: bool) -> None:
    def function(x: Any) -> Any:
        return F.avg_pool2d(x, 3, 2, 1, ceil, counted, divisor), F.avg_pool2d(
            x, (2, 3), (3, 2), 0, ceil, counted, divisor
        )

    shapes = [(1, 2, 8, 9), (1, 2, 11, 12), (2, 2, 10, 7), (1, 2, 9, 10)]
    require_equal(function, [(torch.rand(shape),) for shape in shapes], True)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("samples", [-1, 2])
def test_regions_of_torchvision(aligned: bool, samples: int) -> None:
    ops = pytest.importorskip("torchvision.ops", reason="needs torchvision: make test-torch")
    boxes = torch.tensor([[0, 0.0, 0, 10, 10], [1, 3, 4, 20, 20], [1, 5, 5, 5.2, 5.1]])
    require_equal(
        lambda x, b: ops.roi_align(x, b, (7, 5), 0.5, samples, aligned), [(torch.rand(2, 3, 16, 16), boxes)], False
    )
