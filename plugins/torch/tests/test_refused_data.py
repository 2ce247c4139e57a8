"""Data that PyTorch refuses: positions outside of an axis, integers divided by zero, singular matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

from module_cases import Calls  # noqa: E402

import mirlo  # noqa: E402
from mirlo.extend.frontend import FrontendError  # noqa: E402
from mirlo.extend.runtime import InputError  # noqa: E402

F = torch.nn.functional
X = torch.arange(12.0).reshape(3, 4)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


AXIS_0, AXIS_1 = 3, 4
POSITIONS: dict[str, tuple[Callable[..., Any], int, bool]] = {
    "embedding": (lambda x, i: F.embedding(i, x), AXIS_0, False),
    "embedding_bag": (lambda x, i: F.embedding_bag(i[None], x), AXIS_0, False),
    "index_select": (lambda x, i: x.index_select(1, i), AXIS_1, False),
    "gather": (lambda x, i: x.gather(0, i[:, None].expand(2, 4)), AXIS_0, False),
    "take": (lambda x, i: x.take(i), 12, True),
    "index": (lambda x, i: x[:, i], AXIS_1, True),
    "index of two": (lambda x, i: x[torch.tensor([0, 1]), i], AXIS_1, True),
    "index_put": (lambda x, i: x.index_put((i,), torch.tensor(7.0)), AXIS_0, True),
    "index_put accumulate": (lambda x, i: x.index_put((i * 0, i), torch.tensor(7.0), True), AXIS_1, True),
    "index_add": (lambda x, i: x.index_add(0, i, x[:2]), AXIS_0, False),
    "index_copy": (lambda x, i: x.index_copy(0, i, x[:2]), AXIS_0, False),
    "index_fill": (lambda x, i: x.index_fill(1, i, 5.0), AXIS_1, True),
    "index_reduce": (lambda x, i: x.index_reduce(0, i, x[1:], "amax"), AXIS_0, False),
    "scatter": (lambda x, i: x.scatter(0, i[None], 5.0), AXIS_0, False),
    "scatter_add": (lambda x, i: x.scatter_add(1, i[None], x), AXIS_1, False),
    "scatter_reduce": (lambda x, i: x.scatter_reduce(1, i[None], x, "mean"), AXIS_1, False),
    "nll_loss": (lambda x, i: F.nll_loss(x[:2], i), AXIS_1, False),
    "one_hot": (lambda x, i: F.one_hot(i, 3) + x[:2, :3], AXIS_0, False),
    "cross_entropy": (lambda x, i: F.cross_entropy(x[1:], i), AXIS_1, False),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_outside_of_an_axis(name: str) -> None:
    function, size, wraps = POSITIONS[name]
    inside = torch.tensor([0, -size if wraps else size - 1])
    outside = [torch.tensor([0, size]), torch.tensor([-size - 1 if wraps else -1, 0]), torch.tensor([0, 1 << 40])]
    module, run = Calls(function), torch.compile(function, backend="mirlo", options={"strict": True, "cache": False})
    made = mirlo.compile(module.eval(), args=(X, inside), cache=False)
    with torch.no_grad():
        for call in (run, made.torch):
            torch.testing.assert_close(call(X, inside), function(X, inside))
            for given in outside:
                _require_refusal(function, call, X, given)


def _require_refusal(function: Callable[..., Any], call: Callable[..., Any], *given: Any) -> None:
    """Check that a call raises an error, as PyTorch's does."""
    with pytest.raises((IndexError, RuntimeError)) as expected:
        function(*given)
    with pytest.raises((InputError, expected.type)):
        call(*given)


DIVISIONS: dict[str, Callable[..., Any]] = {
    "floor": lambda x, y: x // y,
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "remainder": lambda x, y: x % y,
    "fmod": lambda x, y: torch.fmod(x, y),
    "of a number": lambda x, y: 7 // y,
    "broadcast": lambda x, y: x[:, None] // y,
}


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("name", DIVISIONS)
def test_integers_divided_by_zero(name: str, kind: str) -> None:
    function, dtype = DIVISIONS[name], getattr(torch, kind)
    x, y, zero = (torch.tensor(each, dtype=dtype) for each in ([7, 9, 8], [3, 2, 9], [3, 0, 9]))
    run = torch.compile(function, backend="mirlo", options={"strict": True, "cache": False})
    torch.testing.assert_close(run(x, y), function(x, y))
    _require_refusal(function, run, x, zero)


BOOLS = torch.tensor([True, True, False, True])
REFUSED: dict[str, tuple[Callable[..., Any], list[Any], list[Any]]] = {
    "offsets of bags": (
        lambda o: F.embedding_bag(torch.tensor([2, 1]), X, o),
        [torch.tensor([0, 1]), torch.tensor([0, 2])],
        [torch.tensor([0, 9]), torch.tensor([1, 2])],
    ),
    "masked_scatter": (
        lambda m: X[0].masked_scatter(m, torch.tensor([5.0, 6.0])),
        [BOOLS[:1].expand(4) & ~BOOLS, BOOLS.roll(2) & BOOLS],
        [BOOLS],
    ),
    "max_unpool1d": (
        lambda i: F.max_unpool1d(X[:, :2], i, 2),
        [torch.tensor([[0, 3], [1, 2], [0, 2]])],
        [torch.tensor([[0, 4], [1, 2], [0, 2]]), torch.tensor([[0, 3], [1, 2], [-1, 2]])],
    ),
    "max_unpool3d": (
        lambda i: F.max_unpool3d(X.reshape(3, 1, 2, 2)[:, :, :1, :1], i, (1, 2, 2)),
        [torch.tensor([3, 1, 2]).reshape(3, 1, 1, 1)],
        [torch.tensor([3, 4, 2]).reshape(3, 1, 1, 1)],
    ),
    "histc": (
        lambda x: torch.histc(x, 4),
        [torch.tensor([1.0, 5.0])],
        [torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("inf")])],
    ),
    "binary_cross_entropy": (
        lambda x: F.binary_cross_entropy(x, BOOLS.float(), BOOLS + 1.5),
        [torch.tensor([0.0, 0.5, 0.25, 1.0])],
        [torch.tensor([0.0, 1.5, 0.25, 1.0]), torch.tensor([-0.1, 0.5, 0.25, 1.0])],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_data_outside_of_a_range(name: str) -> None:
    function, inside, outside = REFUSED[name]
    run = torch.compile(function, backend="mirlo", options={"strict": True, "cache": False})
    made = mirlo.compile(Calls(function).eval(), args=(inside[0],), cache=False)
    with torch.no_grad():
        for call in (run, made.torch):
            for given in inside:
                torch.testing.assert_close(call(given), function(given))
            for given in outside:
                if given.shape == inside[0].shape:
                    _require_refusal(function, call, given)


def test_the_largest_of_no_elements() -> None:
    program = torch.export.export(Calls(lambda x: x.max()), (torch.zeros(0, 3),))
    with pytest.raises(FrontendError, match="aten.max.default of no elements"):
        mirlo.compile(program, cache=False)


def test_floats_divided_by_zero_are_no_errors() -> None:
    run = torch.compile(lambda x, y: x // y, backend="mirlo", options={"strict": True, "cache": False})
    assert run(torch.ones(2), torch.zeros(2)).tolist() == [float("inf")] * 2


@pytest.mark.parametrize("function", [torch.linalg.inv, lambda x: torch.linalg.solve(x, x), torch.linalg.cholesky])
def test_matrices_without_a_solution(function: Callable[..., Any]) -> None:
    run = torch.compile(function, backend="mirlo", options={"strict": True, "cache": False})
    with torch.no_grad():
        torch.testing.assert_close(run(torch.eye(3) * 2), function(torch.eye(3) * 2))
        _require_refusal(function, run, torch.zeros(3, 3))


def test_checks_can_be_left_out() -> None:
    run = torch.compile(F.embedding, backend="mirlo", options={"checks": False, "cache": False})
    torch.testing.assert_close(run(torch.tensor([1, 2]), X), X[1:])
    run(torch.tensor([1, 99]), X)


def test_positions_that_pytorch_wraps() -> None:
    run = torch.compile(torch.take_along_dim, backend="mirlo", options={"strict": True, "cache": False})
    for given in ([0, 3], [0, 4], [-1, 9]):
        indices = torch.tensor([given])
        torch.testing.assert_close(run(X, indices, 1), torch.take_along_dim(X, indices, 1))


def _checked(x: Any) -> Any:
    torch._check_tensor_all(x > 0, lambda: "not positive")
    return x * 2 + 1


def _checked_item(x: Any) -> Any:
    torch._check((x > 0).any().item())
    return x * 2 + 1


@pytest.mark.parametrize("function", [_checked, _checked_item])
@pytest.mark.parametrize("dynamic", [False, True])
def test_conditions_on_data(function: Callable[..., Any], dynamic: bool) -> None:
    shapes = ({0: torch.export.Dim.DYNAMIC},) if dynamic else None
    made = mirlo.compile(Calls(function).eval(), args=(X + 1,), dynamic_shapes=shapes, cache=False)
    torch.testing.assert_close(made.torch(X + 1), function(X + 1))
    _require_refusal(function, made.torch, -X)


@pytest.mark.parametrize("size", [5, None], ids=["static", "dynamic"])
def test_an_element_at_a_number_of_the_data(size: int | None) -> None:
    """The begin of a slice depends on data while the dims are constant: it is checked."""
    module = Calls(lambda x, n: x[n.item()] * 2).eval()
    dynamic = None if size else {"x": {0: torch.export.Dim.DYNAMIC}, "rest": (None,)}
    made = mirlo.compile(module, args=(X.flatten()[:5], torch.tensor(3)), dynamic_shapes=dynamic, cache=False)
    x = X.flatten()[:5] if size else X.flatten()[:7]
    for inside in (0, len(x) - 1, -1, -len(x)):
        torch.testing.assert_close(made.torch(x, torch.tensor(inside)), x[inside] * 2)
    for outside in (len(x), -len(x) - 1, 1 << 40, -(1 << 40)):
        with pytest.raises(InputError):
            made.torch(x, torch.tensor(outside))


SLICES: dict[str, Callable[..., Any]] = {
    "end": lambda x, n: x[: n.item()],
    "begin": lambda x, n: x[n.item() :] * 2,
    "both": lambda x, n: x[-n.item() : n.item() + 1].relu(),
    "steps": lambda x, n: x[1 : n.item() : 2] + 1,
    "reduced": lambda x, n: x[: n.item()].sum(0),
    "of a slice": lambda x, n: x[: n.item()][n.item() - 2 :] - 1,
    "joined": lambda x, n: torch.cat([x[n.item() :], x[: n.item()]]) @ x[0],
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("size", [5, None], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", SLICES)
def test_slices_bounded_by_a_number_of_the_data(name: str, size: int | None) -> None:
    """PyTorch has a separate symbol for such a size, of which only the range is known."""
    x = torch.arange(15.0).reshape(5, 3) if size else torch.arange(21.0).reshape(7, 3)
    dynamic = None if size else {"x": {0: torch.export.Dim.DYNAMIC}, "rest": (None,)}
    module = Calls(SLICES[name]).eval()
    made = mirlo.compile(module, args=(x[:5].clone(), torch.tensor(3)), dynamic_shapes=dynamic, cache=False)
    for number in range(-9, 10):
        n = torch.tensor(number)
        torch.testing.assert_close(made.torch(x, n), SLICES[name](x, n), msg=lambda text, n=n: f"{n}: {text}")
