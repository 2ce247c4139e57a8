"""Programs that write their arguments and their buffers."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

from module_cases import Calls, F, compiled, require_close  # noqa: E402

X, MEAN, VARIANCE, Z = torch.randn(4, 3, 5), torch.randn(3), torch.rand(3), torch.randn(3, dtype=torch.complex64)
WRITES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "batch_norm": (lambda x, m, v: F.batch_norm(x, m, v, training=True), (X, MEAN, VARIANCE)),
    "instance_norm": (lambda x, m, v: F.instance_norm(x, m, v), (X, MEAN, VARIANCE)),
    "native_batch_norm": (
        lambda x, m, v: torch.native_batch_norm(x, None, None, m, v, True, 0.1, 1e-5), (X, MEAN, VARIANCE),
    ),
    "in place": (lambda x, m: (x.add_(1).sum(), m[1:].mul_(2), m * 2), (X, MEAN)),
    "complex": (lambda z: (z.mul_(2j), z.abs()), (Z,)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_arguments_are_written(name: str) -> None:
    function, given = WRITES[name]
    made = compiled(Calls(function), *copy.deepcopy(given))
    for _ in range(2):
        mine, theirs = copy.deepcopy(given), copy.deepcopy(given)
        require_close(made.torch(*mine), function(*theirs))
        require_close(mine, theirs)


class Counts(torch.nn.Module):  # type: ignore[misc]
    """A module with statistics, and a buffer that counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dense = torch.nn.BatchNorm1d(3), torch.nn.Linear(5, 5)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        self.steps.add_(1)
        return self.dense(self.norm(x)), self.steps * 2


def test_buffers_are_written_in_each_call() -> None:
    mine, x = Counts(), torch.randn(4, 3, 5)
    theirs = copy.deepcopy(mine)
    made = compiled(torch.export.export(mine, (x,)))
    for _ in range(3):
        x = torch.randn(4, 3, 5)
        with torch.no_grad():
            require_close(made.torch(x), theirs(x))
    require_close(dict(mine.named_buffers()), dict(theirs.named_buffers()))
    assert int(mine.steps) == 3


def test_arrays_of_state_are_inputs_and_outputs() -> None:
    model, x = Counts().eval(), torch.randn(4, 3, 5)
    made = compiled(model, x)
    assert [each.name for each in made.inputs] == ["x", "b_steps"]
    assert [each.name for each in made.outputs][2:] == ["new_steps"]
    with torch.no_grad():
        expected = model(x)[0]
    found = made.run({"x": x, "b_steps": torch.tensor(41)})
    require_close(torch.from_numpy(found["new_steps"]), torch.tensor(42))
    require_close(torch.from_numpy(next(iter(found.values()))), expected)
