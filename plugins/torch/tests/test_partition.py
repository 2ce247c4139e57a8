"""Graphs of which a part is left to PyTorch: random numbers, operators without converter, results that share memory."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

from mirlo_torch.backend import draws, rematerialize  # noqa: E402
from mirlo_torch.backend import graph as graphs  # noqa: E402
from mirlo_torch.backend import partition as partitions  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import mirlo  # noqa: E402

F = torch.nn.functional
OPTIONS = {"cache": False}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the stages that the test compiles."""
    made: list[Any] = []
    compile_graph = graphs._compile_graph
    monkeypatch.setattr(graphs, "_compile_graph", lambda *given: made.append(compile_graph(*given)) or made[-1])
    return made


def compiled(function: Callable[..., Any], strict: bool = True, **options: Any) -> Any:
    return torch.compile(function, backend="mirlo", options={**OPTIONS, "strict": strict}, **options)


RANDOM: dict[str, Callable[[Any], Any]] = {
    "rand_like": lambda x: torch.rand_like(x) + x,
    "rand": lambda x: torch.rand(x.shape[0], 3).exp() * 2,
    "randn": lambda x: x + torch.randn(x.shape) * 2,
    "randint": lambda x: x * torch.randint(0, 9, x.shape) + 1,
    "randperm": lambda x: x[torch.randperm(x.shape[0])] * 2,
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid() * 0.5) * x,
    "bernoulli p": lambda x: x.bernoulli(0.9) + x,
    "multinomial": lambda x: torch.multinomial(x.softmax(-1), 2) + 1,
    "normal": lambda x: torch.normal(x, x.abs()) + 1,
    "dropout": lambda x: F.dropout(x * 2, 0.3) + 1,
    "dropout2d": lambda x: F.dropout2d(x[None] * 2, 0.3) + 1,
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.3, True) + 1,
    "rrelu": lambda x: F.rrelu(x, training=True) * 2,
    "exponential": lambda x: x + torch.empty_like(x).exponential_(),
    "gumbel": lambda x: F.gumbel_softmax(x, hard=True) * 2,
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], dropout_p=0.2),
    "two draws": lambda x: (torch.rand_like(x) @ torch.randn(6, 4)).tanh() @ torch.rand(4, 2) + torch.rand(2),
    "draws in steps": lambda x: (torch.bernoulli((x + torch.rand(6)).sigmoid()) * 2 + torch.rand(6)).exp() + 1,
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_those_of_the_generator(name: str) -> None:
    function, x = RANDOM[name], torch.linspace(-1, 1, 30).reshape(5, 6)
    run = compiled(function)
    with torch.no_grad():
        for seed in (3, 4):
            torch.manual_seed(seed)
            found, after = run(x), torch.rand(2)
            torch.manual_seed(seed)
            torch.testing.assert_close(found, function(x), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(after, torch.rand(2))


class Draws(torch.nn.Module):  # type: ignore[misc]
    """Draws random numbers in `forward`."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize("name", ["rand_like", "bernoulli", "dropout", "randn"])
def test_a_compiled_module_does_not_draw(name: str) -> None:
    with pytest.raises(mirlo.MirloError, match="random numbers.*make them an argument, or use torch.compile.*line"):
        mirlo.compile(Draws(RANDOM[name]).eval(), args=(torch.ones(5, 6),), cache=False)


def _with_eigenvalues(x: Any) -> Any:
    y = (x @ x.T).relu() + 1
    values = torch.linalg.eigvals(y).real
    return (values.exp() + y.sum(0)).log(), y


def test_the_rest_of_a_graph_is_compiled(built: list[Any]) -> None:
    x = torch.rand(4, 4)
    message = r"mirlo: 1 of \d+ operators run eagerly.*linalg_eig.*eigvals"
    with torch.no_grad(), pytest.warns(UserWarning, match=message) as found:
        run = compiled(_with_eigenvalues, strict=False)
        torch.testing.assert_close(run(x), _with_eigenvalues(x), rtol=1e-3, atol=1e-4)
    assert len([each for each in found if "mirlo" in str(each.message)]) == 1
    assert len(built) == 2


STEPS: dict[str, Callable[[Any], Any]] = {
    "a constant": lambda x: x * torch.tensor(1.25) + torch.tensor([[0.5]]),
    "a slice": lambda x: x[:, : x.shape[1] - 1] * 2,
    "positions": lambda x: x + torch.arange(x.shape[1]) / x.shape[1],
    "a shape": lambda x: x.reshape(x.shape[1], x.shape[0]).sin().reshape(x.shape) + x,
    "rows": lambda x: x + x.mean(0, keepdim=True).expand(x.shape[0], x.shape[1]),
    "a product of sizes": lambda x: x + x.new_full((x.shape[0] * x.shape[1],), 0.5).view_as(x),
    "a convolution": lambda x: F.conv1d(x[:, None], torch.tensor([[[0.25, 0.5, 0.25]]]), padding=1)[:, 0] + x,
    "a draw": lambda x: x * (torch.bernoulli(x.sigmoid()) + 1),
    "more columns": lambda x: torch.cat([x, x.new_ones(x.shape[0], 2) * x.shape[0]], 1).tanh(),
}
"""Parts of graphs: each reads sizes, or has a constant, or divides the graph, or its gradient's."""


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(6))
def test_sizes_are_known_in_each_stage(seed: int) -> None:
    """Graphs with random steps are compiled with any size, wherever a size is first used."""
    names = random.Random(seed).sample(list(STEPS), 4)

    def function(x: Any) -> Any:
        for name in names:
            x = STEPS[name](x)
        return x

    def run(function: Callable[[Any], Any]) -> list[Any]:
        results = []
        for rows, columns in ((4, 7), (3, 9)):
            torch.manual_seed(2)
            x = torch.rand(rows, columns, requires_grad=True)
            result = function(x)
            result.square().sum().backward()
            results += [result, x.grad]
        return results

    torch.testing.assert_close(run(compiled(function, dynamic=True)), run(function), rtol=1e-4, atol=1e-5, msg=names)


def test_refusals_of_a_form_are_left_out_each(built: list[Any]) -> None:
    def function(x: Any, n: Any) -> Any:
        y = F.gelu(x @ x.T)
        first = F.avg_pool1d(n[None] * 2 + 1, 2)[0]
        second = torch.special.bessel_y0(y) * 2 + 1
        return (second + first.sum()).exp(), torch.linalg.eigvals(y @ y.T).real.sort()[0] + 1

    x, n = torch.rand(4, 4), torch.arange(8)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(
            compiled(function, strict=False, dynamic=True)(x, n), function(x, n), rtol=1e-3, atol=1e-4
        )
    assert built


VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: (lambda y: (y, y.view(-1)))(x * 2 + 1),
    "transposed": lambda x: (lambda y: (y.t(), y[1:, ::2]))(x * 2 + 1),
    "chunks": lambda x: (x * 2 + 1).chunk(2, 1),
    "unbound": lambda x: (x * 2 + 1).unbind(0),
    "expanded": lambda x: (lambda y: (y, y.expand(3, 4, 6)[1:], y[0] + 1))(x * 2 + 1),
    "computed with": lambda x: (lambda y: (y.t(), y.t() @ y + 1, y))(x * 2 + 1),
    "of the argument": lambda x: (x.t(), x[1:], x + 1),
    "twice": lambda x: (lambda y: (y, y))(x + 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_results_share_memory_as_those_of_pytorch(name: str) -> None:
    function, x = VIEWS[name], torch.rand(4, 6)
    with torch.no_grad():
        given = x.clone(), x.clone()
        found, expected = compiled(function)(given[0]), function(given[1])
        torch.testing.assert_close(found, expected)
        for results in (found, expected):
            for index, each in enumerate(results):
                each.view(-1)[:1].fill_(float(index + 5)) if each.is_contiguous() else each[..., 0].fill_(index + 5.0)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(*given)


LAYOUTS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "convolution": (lambda x, w: F.conv2d(x, w).relu(), (2, 3, 8, 9)),
    "pooling": (lambda x, w: F.max_pool2d(x, 2) * 2, (2, 3, 8, 9)),
    "sum": (lambda x, w: x + 1, (2, 3, 8, 9)),
    "transposed": (lambda x, w: (x + 1).transpose(1, 3), (2, 3, 8, 9)),
    "permuted": (lambda x, w: (x.softmax(1)).permute(3, 0, 2, 1), (2, 3, 8, 9)),
    "one channel": (lambda x, w: F.conv2d(x, w[:, :1]) * 2, (2, 1, 8, 9)),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_results_have_the_strides_of_pytorch(name: str, dynamic: bool) -> None:
    function, shape = LAYOUTS[name]
    weight = torch.rand(4, 3, 3, 3)
    for layout in (torch.channels_last, torch.contiguous_format):
        x = torch.rand(shape).to(memory_format=layout)
        with torch.no_grad():
            found, expected = compiled(function, dynamic=dynamic)(x, weight), function(x, weight)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert found.stride() == expected.stride()


SPARSE: dict[str, Callable[[Any], Any]] = {
    "expanded": lambda x: (x[:1] + 1).expand(4, 6),
    "columns": lambda x: (x * 2)[:, 1:3],
    "diagonal": lambda x: (x * 2).diagonal(),
    "windows": lambda x: (x * 2).unfold(1, 3, 1),
    "transposed steps": lambda x: (x * 2)[:, ::3].t(),
    "repeated steps": lambda x: torch.as_strided(x + 1, (3, 4, 2), (1, 0, 2), 1),
    "overlapping rows": lambda x: torch.as_strided(x + 1, (3, 4), (2, 3), 1),
    "bfloat16": lambda x: (x.bfloat16() * 2)[1:, 2:],
    "bools": lambda x: (x > 3)[:, 1:3],
    "integers": lambda x: (x.long() + 1).unfold(0, 2, 1),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", SPARSE)
def test_results_with_gaps_or_repeated_elements_have_the_strides_of_pytorch(name: str) -> None:
    """They are views of tensors that are no results."""
    x = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    found, expected = compiled(SPARSE[name])(x), SPARSE[name](x)
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()


def _captured(function: Callable[[Any], Any]) -> Any:
    return make_fx(function, tracing_mode="fake")(torch.rand(4, 6)).graph


def _without_results(x: Any) -> Any:
    return None, None


EMPTY: dict[str, Callable[[Any], Any]] = {
    "no operators": lambda x: (x,),
    "views only": lambda x: (x.t(), x.view(-1)[3:]),
    "None for all results": _without_results,
}
"""Graphs that compute nothing."""


def _nodes(graph: Any) -> list[Any]:
    return [node for node in graph.nodes if node.op == "call_function"]


HELPERS: dict[str, Callable[[Any], object]] = {
    "partition": lambda graph: [len(stage.outputs) for stage in partitions.partition(graph, torch.nn.Module(), ())],
    "base_of": lambda graph: [partitions.base_of(node) for node in _nodes(graph)],
    "is_left": lambda graph: [partitions.is_left(node) for node in graph.nodes],
    "operator_of": lambda graph: [partitions.operator_of(node) for node in _nodes(graph)],
    "without_tokens": partitions.without_tokens,
    "is_size": lambda graph: [partitions.is_size(node) for node in graph.nodes],
    "is_given": lambda graph: [partitions.is_given(node) for node in graph.nodes],
    "compute_late": lambda graph: partitions.compute_late(partitions._levels(graph, ()), ()),
    "most_held": lambda graph: partitions.most_held([], graph.find_nodes(op="placeholder")),
    "divide": lambda graph: partitions.divide(_nodes(graph), graph.find_nodes(op="placeholder")),
    "views_of_results": partitions.views_of_results,
    "draw_first": draws.draw_first,
    "without_states": draws.without_states,
    "recomputed": lambda graph: rematerialize.recomputed(graph, 0),
}
"""The functions that change or divide a graph, each called with a graph."""


def test_all_helpers_are_called() -> None:
    functions = [
        name for name, value in vars(partitions).items() if getattr(value, "__module__", "") == partitions.__name__
    ]
    assert {name for name in functions if name.islower() and not name.startswith("_")} <= set(HELPERS)


@pytest.mark.parametrize("form", EMPTY)
@pytest.mark.parametrize("name", HELPERS)
def test_helpers_take_graphs_that_compute_nothing(name: str, form: str) -> None:
    graph = _captured(EMPTY[form])
    HELPERS[name](graph)
    graph.lint()


def test_a_graph_without_stages_holds_its_inputs() -> None:
    graph = _captured(EMPTY["no operators"])
    assert partitions.most_held([], graph.find_nodes(op="placeholder")) == 4 * 6 * 4


NOTHING_TO_COMPUTE: dict[str, Callable[[Any], Any]] = {
    "a constant is added": lambda x: x + 1,
    "the input": lambda x: x,
    "a view": lambda x: x.view(-1),
    "transposed": lambda x: x.t(),
    "a part": lambda x: x[1:],
    "twice": lambda x: (x, x),
    "chunks": lambda x: x.chunk(2),
    "expanded": lambda x: x.expand(2, 4, 6),
    "None beside": lambda x: (None, x + 1),
    "a number beside": lambda x: (3, x + 1),
    "no gradient": lambda x: (x.detach() * 2, x + 1),
}
"""Functions whose backward graph has no operators, or views only."""


@pytest.mark.sample(6)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", NOTHING_TO_COMPUTE)
def test_gradients_without_operators(name: str, dynamic: bool) -> None:
    def gradient(function: Callable[[Any], Any]) -> Any:
        x = torch.rand(4, 6, requires_grad=True)
        results = function(x)
        tensors = results if isinstance(results, tuple) else (results,)
        sum(each.sum() for each in tensors if getattr(each, "requires_grad", False)).backward()
        return x.grad

    function = NOTHING_TO_COMPUTE[name]
    torch.testing.assert_close(gradient(compiled(function, dynamic=dynamic)), gradient(function))
