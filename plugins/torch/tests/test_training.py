"""Training through `torch.compile(model, backend="mirlo")`: each step is the one that eager PyTorch makes."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from mirlo.extend.runtime import keep_freed_memory

torch = pytest.importorskip("torch")

from mirlo_torch.backend import backend, stages  # noqa: E402
from mirlo_torch.backend import graph as graphs  # noqa: E402
from mirlo_torch.backend.partition import partition  # noqa: E402
from mirlo_torch.draws import is_random  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

STRICT = {"strict": True, "cache": False}
WORDS, ROWS, LENGTH = 50, 4, 9
BATCHES = torch.randint(0, WORDS, (6, ROWS, LENGTH), generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the graphs that the test compiles."""
    made: list[Any] = []
    compile_graph = graphs._compile_graph
    monkeypatch.setattr(graphs, "_compile_graph", lambda *given: made.append(compile_graph(*given)) or made[-1])
    return made


class Block(torch.nn.Module):  # type: ignore[misc]
    """A layer of a transformer that drops elements."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.before, self.between = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: Any) -> Any:
        rows, length, width = x.shape
        parts = self.qkv(self.before(x)).chunk(3, -1)
        query, key, value = (part.view(rows, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + F.dropout(self.out(mixed.transpose(1, 2).reshape(rows, length, width)), 0.1, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.between(x)))), 0.1, self.training)


class Decoder(torch.nn.Module):  # type: ignore[misc]
    """Two layers, which may keep nothing for their gradients."""

    def __init__(self, checkpoints: bool = False) -> None:
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(WORDS, 32), torch.nn.Linear(32, WORDS)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.checkpoints = checkpoints

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        return self.head(x)


class Recurrent(torch.nn.Module):  # type: ignore[misc]
    """An LSTM, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(WORDS, 16), torch.nn.Linear(32, WORDS)
        self.cell = torch.nn.LSTMCell(16, 32)

    def forward(self, tokens: Any) -> Any:
        hidden = state = torch.zeros(tokens.shape[0], 32)
        rows = []
        for step in range(tokens.shape[1]):
            hidden, state = self.cell(self.embedding(tokens[:, step]), (hidden, state))
            rows.append(self.head(hidden))
        return torch.stack(rows, 1)


class Convolutions(torch.nn.Module):  # type: ignore[misc]
    """Convolutions with norms of the batch, over the embedded words as an image."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(WORDS, 16), torch.nn.Linear(16, WORDS)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
            torch.nn.Conv2d(8, 8, 3, stride=(1, 2), padding=1, groups=2, bias=False),
            torch.nn.BatchNorm2d(8), torch.nn.SiLU(),
            torch.nn.MaxPool2d(3, 1, 1), torch.nn.ConvTranspose2d(8, 1, (1, 2), stride=(1, 2)),
        )  # fmt: skip

    def forward(self, tokens: Any) -> Any:
        return self.head(self.layers(self.embedding(tokens)[:, None])[:, 0])


def _loss(model: Any, tokens: Any) -> Any:
    return F.cross_entropy(model(tokens[:, :-1]).reshape(-1, WORDS), tokens[:, 1:].reshape(-1))


def _step(model: Any, optimizer: Any, number: int) -> float:
    optimizer.zero_grad()
    loss = _loss(model, BATCHES[number % 6])
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def _with_zeros(model: Any, optimizer: Any, number: int) -> float:
    optimizer.zero_grad(set_to_none=False)
    loss = _loss(model, BATCHES[number % 6])
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def _accumulated(model: Any, optimizer: Any, number: int) -> float:
    optimizer.zero_grad()
    losses = []
    for part in range(3):
        losses.append(_loss(model, BATCHES[(number + part) % 6]) / 3)
        losses[-1].backward()
    optimizer.step()
    return float(sum(losses).detach())


def _clipped(model: Any, optimizer: Any, number: int) -> float:
    optimizer.zero_grad()
    loss = _loss(model, BATCHES[number % 6])
    loss.backward()
    torch.nn.utils.clip_grad_norm_([each for group in optimizer.param_groups for each in group["params"]], 0.1)
    optimizer.step()
    return float(loss.detach())


def _mixed(model: Any, optimizer: Any, number: int) -> float:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = _loss(model, BATCHES[number % 6])
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def _of_each_size(model: Any, optimizer: Any, number: int) -> float:
    optimizer.zero_grad()
    loss = _loss(model, BATCHES[number % 6][: 2 + number % 3])
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def _evaluated(model: Any, optimizer: Any, number: int) -> float:
    _step(model, optimizer, number)
    model.eval()
    with torch.no_grad():
        loss = float(_loss(model, BATCHES[0]))
    model.train()
    return loss


@dataclass(frozen=True)
class Way:
    """A mode of training, and the number of graphs that it compiles."""

    model: Callable[[], Any]
    step: Callable[[Any, Any, int], float]
    graphs: int
    tolerance: float = 1e-5
    options: dict[str, Any] = field(default_factory=dict)


WAYS = {
    "a decoder": Way(Decoder, _step, 2),
    "an LSTM": Way(Recurrent, _step, 2),
    "convolutions": Way(Convolutions, _step, 2, 1e-4),
    "gradients set to zero": Way(Decoder, _with_zeros, 2),
    "gradients accumulated": Way(Decoder, _accumulated, 2),
    "gradients clipped": Way(Decoder, _clipped, 2),
    "autocast to bfloat16": Way(Decoder, _mixed, 2, 5e-3),
    "checkpoints": Way(lambda: Decoder(checkpoints=True), _step, 2),
    "batches of any size": Way(Decoder, _of_each_size, 2, options={"dynamic": True}),
    "batches of other sizes": Way(Decoder, _of_each_size, 4),
    "an LSTM of any batch": Way(Recurrent, _of_each_size, 2, options={"dynamic": True}),
    "evaluation in between": Way(Decoder, _evaluated, 5),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", WAYS)
def test_steps_are_those_of_eager(name: str, built: list[Any]) -> None:
    way = WAYS[name]
    expected, buffers = _train(way.model, way.step, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=FutureWarning)
        found, written = _train(way.model, way.step, way.options)
    assert found == pytest.approx(expected, rel=way.tolerance)
    torch.testing.assert_close(written, buffers, rtol=1e-3, atol=1e-4)
    assert len(built) == way.graphs


@pytest.mark.sample(0)
@pytest.mark.parametrize("model", [Decoder, Recurrent, Convolutions])
def test_two_hundred_steps(model: Callable[[], Any]) -> None:
    expected, found = (_train(model, _step, options, 200)[0] for options in (None, {}))
    assert found == pytest.approx(expected, rel=2e-2, abs=2e-3)
    assert expected[-1] < expected[0] / 2


def _train(
    model: Callable[[], Any], step: Callable[[Any, Any, int], float], options: dict[str, Any] | None, steps: int = 8
) -> tuple[list[float], dict[str, Any]]:
    """Return the losses of some steps and the buffers afterwards; without options, those of eager PyTorch."""
    torch.manual_seed(0)
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    compiled = net if options is None else torch.compile(net, backend="mirlo", options=STRICT, **options)
    torch.manual_seed(1)
    return [step(compiled, optimizer, number) for number in range(steps)], dict(net.named_buffers())


DRAWS = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout of all": lambda x: F.dropout(x, 1.0),
    "dropout by channels": lambda x: F.dropout2d(x[None], 0.5),
    "dropout by alpha": lambda x: F.alpha_dropout(x, 0.4, training=True),
    "noise": lambda x: x * torch.rand_like(x) + torch.randn_like(x),
    "bernoulli": lambda x: x * torch.bernoulli(torch.full_like(x, 0.25)),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.2),
    "after a product": lambda x: F.dropout(x @ x.transpose(-2, -1), 0.3) @ x,
}
FORMS = {
    "dense": lambda: torch.randn(3, 6, 8),
    "transposed": lambda: torch.randn(8, 3, 6).permute(1, 2, 0),
    "with gaps": lambda: torch.randn(3, 6, 16)[..., ::2],
    "expanded": lambda: torch.randn(3, 1, 8).expand(3, 6, 8),
}
OF_TRACES = {("dropout by alpha", "transposed"), *(("dropout of all", form) for form in FORMS)}
"""Operators whose traces draw differently in PyTorch itself, for any backend."""


@pytest.mark.sample(4)
@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_eager(name: str, form: str, is_dynamic: bool) -> None:
    """Elements, gradients and the state of the generator after them are equal."""

    def run(function: Callable[[Any], Any]) -> list[Any]:
        torch.manual_seed(5)
        x = FORMS[form]().detach().requires_grad_()
        result = function(torch.sin(x) * 2)
        result.square().sum().backward()
        return [result, x.grad, torch.rand(3)]

    draw = DRAWS[name]
    compiled = torch.compile(lambda x: draw(x), backend="mirlo", dynamic=is_dynamic, options=STRICT)
    expected = torch.compile(draw, backend="aot_eager") if (name, form) in OF_TRACES else draw
    torch.testing.assert_close(run(compiled), run(expected), rtol=1e-4, atol=1e-5)


def test_draws_come_before_what_is_compiled(built: list[Any]) -> None:
    """A model with dropout everywhere is one compiled part, and one for its gradients."""
    _train(Decoder, _step, {}, 1)
    assert len(built) == 2


def test_saved_tensors_are_not_copied(built: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made, given = [], []
    to_tensor, to_input = graphs.to_tensor, graphs.to_input
    monkeypatch.setattr(graphs, "to_tensor", lambda array: made.append(array.ctypes.data) or to_tensor(array))
    monkeypatch.setattr(graphs, "to_input", lambda x: given.append(to_input(x)) or given[-1])
    x = torch.randn(64, 64, requires_grad=True)
    torch.compile(lambda x: (x @ x).sin().exp(), backend="mirlo", options=STRICT)(x).sum().backward()
    assert len(set(made) & {array.ctypes.data for array in given}) >= 2


def test_one_arena_is_kept_between_steps(built: list[Any]) -> None:
    """Forward and backward share an arena; the modules that were compiled are gone."""
    _train(Decoder, _step, {}, 1)
    for graph in built:
        assert graph.executable.artifact.arena_bytes and graph.executable._arenas.idle == 1
        assert graph.executable.code_source is None
    assert len({id(graph.executable._arenas._idle) for graph in built}) == 1


FAULTS = """
import resource, torch
torch.manual_seed(0)
net = torch.nn.Sequential(*(layer for _ in range(4) for layer in (torch.nn.Linear({width}, {width}), torch.nn.Tanh())))
compiled = torch.compile(net, backend="mirlo", options={{"strict": True, "cache": False}})
x = torch.randn(2048, {width})

def step():
    net.zero_grad(set_to_none=True)
    compiled(x).square().mean().backward()

for _ in range(4):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 5)
"""


@pytest.mark.skipif(not keep_freed_memory(), reason="the C library is not glibc")
@pytest.mark.parametrize("width", [512, 4])
def test_a_step_uses_the_memory_of_the_last_one(width: int) -> None:
    """Results of 4 MB each, 16 of them in a step, are 16,000 pages; results of 32 KB need no memory of the system."""
    command = [sys.executable, "-c", FAULTS.format(width=width)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 600


def test_what_is_saved_is_freed_while_gradients_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backward graph that reads and computes several megabytes is divided: each part frees what it reads last."""
    runs: list[Any] = []
    staged = stages.compile_stages
    monkeypatch.setattr(backend, "compile_stages", lambda *given: runs.append(staged(*given)) or runs[-1])

    def train(layers: Any, run: Any) -> list[Any]:
        run(torch.linspace(-1, 1, 512 * 256).reshape(512, 256)).square().mean().backward()
        return [parameter.grad.clone() for parameter in layers.parameters()]

    class Wide(torch.nn.Module):  # type: ignore[misc]
        """A layer that is wider inside."""

        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)

        def forward(self, x: Any) -> Any:
            return x + self.down(torch.tanh(self.up(x)))

    torch.manual_seed(0)
    layers = torch.nn.Sequential(Wide(), Wide(), Wide())
    expected = train(layers, layers)
    layers.zero_grad()
    torch.testing.assert_close(train(layers, torch.compile(layers, backend="mirlo", options=STRICT)), expected)
    forward, backward = runs
    parts = [[each for each in run._runs if isinstance(each.run, graphs.CompiledGraph)] for run in (forward, backward)]
    assert len(parts[0]) == 1
    assert len(parts[1]) >= 3
    assert all(each.last_used for each in parts[1])


@pytest.mark.parametrize("columns, compiled", [(1, 5), (1 << 13, 2)])
def test_stages_are_divided_where_the_graph_needs_most(columns: int, compiled: int) -> None:
    """What a stage saves by its division is worth nothing where a later one holds more in any case."""

    def function(column: Any, *saved: Any) -> Any:
        results = [each.sin() for each in saved]
        drawn = torch.bernoulli(column.sigmoid())
        return *results, drawn.expand(1024, columns).exp() * 2

    saved = [torch.rand(1 << 18) for _ in range(4)]
    graph = make_fx(function, tracing_mode="fake")(torch.rand(1024, 1), *saved)
    _, *freed = graph.graph.find_nodes(op="placeholder")
    stages_of = partition(graph.graph, graph, {node for node in graph.graph.nodes if is_random(node)}, freed)
    assert len(stages_of) == compiled + 1


def test_zeros_do_not_wait_for_the_part_that_fills_them() -> None:
    """Stages that follow others compute what these do not read: memory is not kept meanwhile."""

    def function(x: Any, index: Any, unused: Any) -> Any:
        drawn = torch.bernoulli(x.sigmoid())
        return torch.zeros(64, 64).scatter_add(1, index, drawn).sin() * 2, (x * 2).sum(1) + drawn.sum(1)

    graph = make_fx(function, tracing_mode="fake")(
        torch.rand(64, 32), torch.zeros(64, 32, dtype=torch.int64), torch.rand(3)
    )  # fmt: skip
    kept = {node for node in graph.graph.nodes if is_random(node)}
    first, _, last = partition(graph.graph, graph, kept, graph.graph.find_nodes(op="placeholder"))
    assert [each.meta["val"].shape for each in first.outputs] == [(64, 32), (64,)]
    assert any("zeros" in each for each in last.origins)


def test_cheap_results_are_computed_again(built: list[Any]) -> None:
    """Of a norm and a GELU, the operands are kept for the gradients, not the results that products read, too."""
    net = torch.nn.Sequential(torch.nn.LayerNorm(32), torch.nn.Linear(32, 96), torch.nn.GELU(), torch.nn.Linear(96, 24))
    x = torch.randn(8, 32, requires_grad=True)
    torch.compile(net, backend="mirlo", options=STRICT)(x).sum().backward()
    rows = [spec.shape for spec in built[1].executable.inputs if spec.shape[0] == 8 and spec.shape[-1] > 1]
    assert sorted(rows) == [(8, 24), (8, 32), (8, 96)]  # the first is the gradient of the result
    gradient, x.grad = x.grad, None
    net(x).sum().backward()
    torch.testing.assert_close(gradient, x.grad)


MASKS = {
    "none": lambda: {},
    "causal": lambda: {"is_causal": True},
    "numbers": lambda: {"attn_mask": torch.randn(7, 9)},
    "flags": lambda: {"attn_mask": torch.rand(7, 9) < 0.6},
    "a row of nothing": lambda: {"attn_mask": torch.arange(7)[:, None] > torch.zeros(9)},
    "scaled": lambda: {"scale": 0.3},
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("mask", MASKS)
def test_gradients_of_attention(mask: str, kind: str, heads: int) -> None:
    given = MASKS[mask]()
    dtype = getattr(torch, kind)
    columns = 7 if mask == "causal" else 9
    given = {
        key: value.to(dtype) if getattr(value, "is_floating_point", bool)() else value for key, value in given.items()
    }

    def run(function: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(2)
        query, key, value = (
            torch.randn(2, number, size, 8).to(dtype).requires_grad_()
            for number, size in ((4, 7), (heads, columns), (heads, columns))
        )
        result = function(query, key, value)
        (result * torch.arange(8)).sum().backward()
        return [result, query.grad, key.grad, value.grad]

    def attend(query: Any, key: Any, value: Any) -> Any:
        return F.scaled_dot_product_attention(query * 2, key, value, enable_gqa=heads != 4, **given)

    tolerance = 1e-1 if kind == "bfloat16" else 1e-4
    compiled = torch.compile(attend, backend="mirlo", options=STRICT)
    torch.testing.assert_close(run(compiled), run(attend), rtol=tolerance, atol=tolerance)


OPERATORS = {
    "average": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "average inside": lambda x: F.avg_pool2d(x, (2, 3), 1, (1, 0), count_include_pad=False),
    "average by a divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "average in 3 dims": lambda x: F.avg_pool3d(x, (1, 2, 2), padding=(0, 1, 1)),
    "average in 1 dim": lambda x: F.avg_pool1d(x.flatten(0, 1), 3, 2),
    "average of parts": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "average of equal parts": lambda x: F.adaptive_avg_pool2d(x, (4, 5)),
    "average of parts in 3 dims": lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)),
    "maxima of parts": lambda x: F.adaptive_max_pool2d(x, (3, 2)),
    "maxima of parts in 3 dims": lambda x: F.adaptive_max_pool3d(x, (2, 3, 4)),
    "maxima in 3 dims": lambda x: F.max_pool3d(x, (1, 3, 2), padding=(0, 1, 1)),
    "elements by a mask": lambda x: torch.zeros(6, 10).masked_scatter(torch.arange(60).reshape(6, 10) % 3 == 0, x),
    "a bilinear layer": lambda x: F.bilinear(x[..., :4], x[..., 5:], torch.arange(60.0).reshape(3, 4, 5).sin()),
    "the most frequent": lambda x: (x * 4).round().add(x * 0).mode(-1).values,
    "edges": lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"),
    "fewer edges": lambda x: F.pad(x, (-1, 2, 1, -3), mode="replicate"),
    "distances": lambda x: torch.cdist(x, x.flip(2)),
    **{f"distances of {p}": lambda x, p=p: torch.cdist(x, x.flip(2), p) for p in (0.0, 0.5, 1.0, 3.0, float("inf"))},
    "pairs": lambda x: F.pdist(x.flatten(0, 2)),
    "a system": lambda x: torch.linalg.solve(x @ x.mT + torch.eye(8), x),
    "a system from the right": lambda x: torch.linalg.solve(x @ x.mT + torch.eye(8), x.mT, left=False),
    "a determinant": lambda x: torch.linalg.det(x @ x.mT + torch.eye(8)),
    "a determinant of a transpose": lambda x: torch.linalg.det((x @ x.flip(3).mT + torch.eye(8)).mT),
    "eigenvalues": lambda x: torch.linalg.eigvalsh(x @ x.mT),
    "eigenvectors": lambda x: torch.linalg.eigh((x @ x.mT) * torch.arange(8))[1].abs(),
    "singular values": torch.linalg.svdvals,
    "orthogonal rows": lambda x: torch.linalg.qr(x.mT)[0],
    "a pseudoinverse": lambda x: torch.linalg.pinv(x),
    "derivatives of logarithms of gamma": lambda x: torch.digamma(x + 0.5) + torch.polygamma(2, x + 0.5),
    "Bessel functions": lambda x: torch.i0(x) + torch.special.i1e(x),
    "logarithms of a normal distribution": lambda x: torch.special.log_ndtr(x - 1),
    "a logarithm of a determinant": lambda x: torch.linalg.slogdet(x @ x.mT + torch.eye(8)).logabsdet,
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_of_operators(name: str) -> None:
    def run(function: Callable[[Any], Any]) -> list[Any]:
        x = torch.rand(2, 3, 8, 10, generator=torch.Generator().manual_seed(4), requires_grad=True)
        result = function(x * 1.5)
        (result * torch.linspace(0.5, 1.5, result.numel()).reshape(result.shape)).sum().backward()
        return [result, x.grad]

    compiled = torch.compile(OPERATORS[name], backend="mirlo", options=STRICT)
    torch.testing.assert_close(run(compiled), run(OPERATORS[name]), rtol=2e-3, atol=2e-3)


def test_an_operator_without_a_converter_is_eager_in_both_directions() -> None:
    def function(x: Any) -> Any:
        return torch.linalg.eigvals(torch.tanh(x * 2)).abs().sum() + (x * x).exp().sum()

    results = []
    for each in (function, torch.compile(function, backend="mirlo", options={"cache": False})):
        x = (torch.arange(9.0).reshape(3, 3) / 12).requires_grad_()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            each(x).backward()
        results.append(x.grad)
    assert any("aten.linalg_eig" in str(warning.message) for warning in said)
    torch.testing.assert_close(*results)
