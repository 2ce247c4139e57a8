"""`torch.compile(backend=BACKEND)`: each test fails with a backend that compiles captured graphs unchanged."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

from mirlo_torch.backend import graph as graphs  # noqa: E402

import mirlo  # noqa: E402
from mirlo.extend.runtime import has_openmp_team, has_thread_pool  # noqa: E402
from mirlo.extend.target import PassError, find_pass  # noqa: E402

STRICT = {"strict": True, "cache": False}
BACKEND: Any = "mirlo"
"""The backend of the tests, which `test_naive_backends_fail` replaces."""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the graphs that the test compiles."""
    made: list[Any] = []
    compile_graph = graphs._compile_graph
    monkeypatch.setattr(graphs, "_compile_graph", lambda *given: made.append(compile_graph(*given)) or made[-1])
    return made


def _net() -> Any:
    return torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.BatchNorm1d(128), torch.nn.ReLU(), torch.nn.Linear(128, 8)
    ).eval()


def test_one_build_serves_all_batches(built: list[Any]) -> None:
    net = _net()
    compiled = torch.compile(net, backend=BACKEND, options=STRICT, dynamic=True)
    with torch.no_grad():
        for rows in (4, 7, 33):
            x = torch.randn(rows, 64)
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
    assert len(built) == 1


def test_compiled_code_runs_on_the_threads_of_eager_kernels() -> None:
    if not torch.backends.openmp.is_available() or not has_thread_pool():
        pytest.skip("this PyTorch has no threads of OpenMP")
    net, x = _net(), torch.randn(512, 64)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch.no_grad():
            torch.testing.assert_close(torch.compile(net, backend=BACKEND, options=STRICT)(x), net(x))
        assert has_openmp_team()
    finally:
        torch.set_num_threads(before)


def test_weights_are_constants(built: list[Any]) -> None:
    net = _net()
    with torch.no_grad():
        torch.compile(net, backend=BACKEND, options=STRICT)(torch.randn(4, 64))
    assert len(built[0].inputs) == 1


def _state(net: Any) -> dict[str, Any]:
    return {name: value * 2 for name, value in net.state_dict().items()}


CHANGES: dict[str, Callable[[Any], object]] = {
    "in place": lambda net: net[0].weight.mul_(2),
    "state dict": lambda net: net.load_state_dict(_state(net)),
    "assigned state dict": lambda net: net.load_state_dict(_state(net), assign=True),
    "data": lambda net: setattr(net[0].weight, "data", net[0].weight.data * 2),
    "through data": lambda net: net[0].weight.data.mul_(2),
    "a view of data": lambda net: net[0].weight.data[:, 3:40].clamp_(min=0.05),
    "the storage of data": lambda net: net[0].weight.data.set_(net[0].weight.data * 2),
    "an array of its memory": lambda net: net[0].weight.detach().numpy().__imul__(2),
    "another parameter": lambda net: setattr(net[0], "weight", torch.nn.Parameter(net[0].weight * 2)),
    "exchanged tensors": lambda net: torch.utils.swap_tensors(
        net[0].weight, torch.nn.Parameter(net[0].weight.detach() * 2)
    ),
    "another module": lambda net: net.__setitem__(0, torch.nn.Linear(64, net[0].out_features)),
    "to another type and back": lambda net: (net.double().float(), net[0].weight.mul_(2)),
    "a vector": lambda net: torch.nn.utils.vector_to_parameters(
        torch.nn.utils.parameters_to_vector(net.parameters()) * 2, net.parameters()
    ),
    "its storage": lambda net: net[0].weight.untyped_storage().copy_((net[0].weight * 2).untyped_storage()),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_seen(change: str) -> None:
    net, x = _net(), torch.randn(4, 64)
    compiled = torch.compile(net, backend=BACKEND, options=STRICT)
    with torch.no_grad():
        before = compiled(x).clone()
        for _ in range(2):
            CHANGES[change](net)
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
        assert not torch.equal(before, net(x))


def test_weights_that_change_again_become_inputs(built: list[Any]) -> None:
    net = _net()
    compiled, x = torch.compile(net, backend=BACKEND, options=STRICT), torch.randn(4, 64)
    with torch.no_grad():
        for _ in range(6):
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
            net[0].weight.mul_(1.5)
    assert len(built) == 3


def test_writes_of_arguments_reach_the_caller() -> None:
    compiled = torch.compile(lambda x: x.add_(1) * 2, backend=BACKEND, options=STRICT)
    x = torch.zeros(5)
    with torch.no_grad():
        result = compiled(x)
    assert x.tolist() == [1] * 5 and result.tolist() == [2] * 5


def test_norms_in_training_mode_update_their_statistics() -> None:
    """ONNX's exporter would compute the norm of a batch by the running statistics."""
    net, other = torch.nn.BatchNorm1d(8), torch.nn.BatchNorm1d(8)
    compiled = torch.compile(net, backend=BACKEND, options=STRICT)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(16, 8)
            torch.testing.assert_close(compiled(x), other(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.running_mean, other.running_mean)


def test_buffers_that_the_module_writes_are_no_constants() -> None:
    class Counter(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count.add_(1)
            return x + self.count

    net = Counter()
    compiled = torch.compile(net, backend=BACKEND, options=STRICT)
    with torch.no_grad():
        assert [compiled(torch.zeros(2)).tolist() for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]
    assert net.count.item() == 3


def test_gradients_are_those_of_eager(built: list[Any]) -> None:
    net, other = _net(), _net()
    other.load_state_dict(net.state_dict())
    compiled, x = torch.compile(net, backend=BACKEND, options=STRICT), torch.randn(4, 64)
    result = compiled(x)
    assert result.requires_grad and len(built) == 1
    result.sum().backward()
    assert len(built) == 2
    other(x).sum().backward()
    torch.testing.assert_close(net[0].weight.grad, other[0].weight.grad)


def test_sizes_in_arithmetic_and_results() -> None:
    def scaled(x: Any) -> Any:
        return x.reshape(x.shape[0] * 2, 32) * x.shape[0], x.shape[0] + 1

    compiled = torch.compile(scaled, backend=BACKEND, options=STRICT, dynamic=True)
    with torch.no_grad():
        for rows in (4, 7):
            found, expected = compiled(torch.ones(rows, 64)), scaled(torch.ones(rows, 64))
            torch.testing.assert_close(found[0], expected[0])
            assert found[1] == expected[1]


def test_graph_breaks() -> None:
    def broken(x: Any) -> Any:
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    with torch.no_grad():
        assert torch.compile(broken, backend=BACKEND, options=STRICT)(torch.ones(3)).tolist() == [3] * 3


def test_unsupported_operators_run_eagerly_and_are_named() -> None:
    def unsupported(x: Any) -> Any:
        return torch.linalg.eigvals(x @ x.T).real

    x = torch.eye(3)
    with torch.no_grad():
        with pytest.warns(UserWarning, match="a graph runs eagerly: .*aten.linalg_eig.*eigvals"):
            assert torch.compile(unsupported, backend=BACKEND)(x).tolist() == [1] * 3
        torch._dynamo.reset()
        with pytest.raises(Exception, match="linalg_eig"):
            torch.compile(unsupported, backend=BACKEND, options=STRICT)(x)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["plan-memory", "schedule", "no pass"])
def test_graphs_that_a_pass_refuses_run_eagerly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "no pass":
        monkeypatch.setattr(graphs, "compile", _refused)
    else:
        monkeypatch.setattr(find_pass(name), "run", _refused)
    x = torch.ones(3, 5)
    with torch.no_grad():
        with pytest.warns(UserWarning, match="a graph runs eagerly: .*sizes overflow"):
            compiled = torch.compile(lambda x: (x @ x.T).relu(), backend=BACKEND, options={"cache": False})
            torch.testing.assert_close(compiled(x), torch.full((3, 3), 5.0))
        torch._dynamo.reset()
        with pytest.raises(Exception, match="sizes overflow"):
            torch.compile(lambda x: (x @ x.T).relu(), backend=BACKEND, options=STRICT)(x)


def _refused(*_: Any, **ignored: Any) -> Any:
    raise PassError("sizes overflow")


@pytest.mark.parametrize(
    "given, message",
    [
        ({"mode": "max-autotune"}, "mode='max-autotune' is for Inductor"),
        ({"options": {"thread": 1}}, "has no option 'thread'; options: .*; did you mean 'threads'"),
    ],
)
def test_options_that_do_not_apply_are_errors(given: Any, message: str) -> None:
    with pytest.raises(Exception, match=message), torch.no_grad():
        torch.compile(_net(), backend=BACKEND, **given)(torch.randn(4, 64))


def _export(graph: Any, inputs: Any) -> Any:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mirlo.compile(graph.eval(), args=tuple(inputs), cache=False).torch


def _of_a_trace(graph: Any, inputs: Any, **options: Any) -> Any:
    """Compile a graph unchanged: weights are inputs, and writes stay."""
    return _export(graph, inputs)


def _on_copies(graph: Any, inputs: Any, **options: Any) -> Any:
    """Compile a graph, and run it on copies of its inputs."""
    run = _export(graph, inputs)
    return lambda *given: run(*(x.clone() for x in given))


def _with_frozen_weights(graph: Any, inputs: Any, **options: Any) -> Any:
    """Compile a graph with the present weights as constants."""
    graph = copy.deepcopy(graph)
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    kept = [i for i, x in enumerate(inputs) if not isinstance(x, torch.nn.Parameter)]
    for index, (node, value) in enumerate(zip(nodes, inputs, strict=True)):
        if index not in kept:
            graph.register_buffer(f"weight_{index}", value.detach().clone())
            with graph.graph.inserting_before(node):
                node.replace_all_uses_with(graph.graph.get_attr(f"weight_{index}"))
            graph.graph.erase_node(node)
    graph.recompile()
    run = _export(graph, [inputs[i] for i in kept])
    return lambda *given: run(*(given[i] for i in kept))


def _eager_if_refused(graph: Any, inputs: Any, **options: Any) -> Any:
    """Run a graph eagerly, without a warning, if it cannot be compiled."""
    try:
        return _export(graph, inputs)
    except Exception:
        return graph


def _slices(x: Any) -> Any:
    return x[:, ::2] + 1


NAIVE = {
    "weights as inputs": (_of_a_trace, lambda built: test_weights_are_constants(built)),
    "weights changed in place": (_with_frozen_weights, lambda _: test_changed_weights_are_seen("in place")),
    "weights loaded": (_with_frozen_weights, lambda _: test_changed_weights_are_seen("state dict")),
    "weights replaced": (_with_frozen_weights, lambda _: test_changed_weights_are_seen("data")),
    "arguments written": (_on_copies, lambda _: test_writes_of_arguments_reach_the_caller()),
    "statistics": (_on_copies, lambda _: test_norms_in_training_mode_update_their_statistics()),
    "buffers written": (_on_copies, lambda _: test_buffers_that_the_module_writes_are_no_constants()),
    "gradients": (_of_a_trace, lambda built: test_gradients_are_those_of_eager(built)),
    "sizes": (_of_a_trace, lambda _: test_sizes_in_arithmetic_and_results()),
    "batches": (_of_a_trace, lambda built: test_one_build_serves_all_batches(built)),
    "failures": (_eager_if_refused, lambda _: test_unsupported_operators_run_eagerly_and_are_named()),
    "modes": (_of_a_trace, lambda _: test_options_that_do_not_apply_are_errors({"mode": "max-autotune"}, "Inductor")),
    "options": (_of_a_trace, lambda _: test_options_that_do_not_apply_are_errors({"options": {"thread": 1}}, "thread")),
}
"""Faulty backends, and the test that detects each."""


@pytest.mark.sample(7)
@pytest.mark.parametrize("mistake", NAIVE)
def test_naive_backends_fail(mistake: str, built: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    backend, test = NAIVE[mistake]
    monkeypatch.setattr(sys.modules[__name__], "BACKEND", backend)
    with pytest.raises(BaseException) as found:  # noqa: B017, PT011
        test(built)
    assert not isinstance(found.value, (KeyboardInterrupt, NameError, ImportError)), found.value


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_arrays_of_all_types_and_strides(kind: str) -> None:
    compiled = torch.compile(_slices, backend=BACKEND, options=STRICT)
    with torch.no_grad():
        for x in (torch.randn(6, 8), torch.randn(8, 6).T, torch.randn(12, 8)[::2]):
            x = x.to(getattr(torch, kind))
            torch.testing.assert_close(compiled(x), _slices(x))


def test_inputs_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    to_input = graphs.to_input
    monkeypatch.setattr(graphs, "to_input", lambda x: given.append(to_input(x)) or given[-1])
    for kind in (torch.float32, torch.bfloat16):
        compiled, x = torch.compile(lambda x: x + 1, backend=BACKEND, options=STRICT), torch.zeros(64, dtype=kind)
        with torch.no_grad():
            compiled(x)
        assert given[-1].ctypes.data == x.data_ptr()


def test_entry_point_is_listed_without_being_imported() -> None:
    code = (
        "import sys, torch\n"
        "assert 'mirlo' in torch._dynamo.list_backends(exclude_tags=())\n"
        "assert 'mirlo_torch.backend' not in sys.modules\n"
        "with torch.no_grad(): print(torch.compile(lambda x: x + 1, backend='mirlo')(torch.ones(3)))\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "tensor([2., 2., 2.])\n"
