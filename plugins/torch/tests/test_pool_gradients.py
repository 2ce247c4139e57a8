"""Gradients of max pooling: windows side by side compare positions, others add to zeros; both equal eager ones."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from mirlo_torch.backend.rematerialize import partition_joint  # noqa: E402
from mirlo_torch.decompose import decompositions_of_training  # noqa: E402
from mirlo_torch.ops.gradients import _position_type  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch.nn import functional as F  # noqa: E402

CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "side by side": ((2, 16, 8, 12), {"kernel_size": 2}),
    "few channels": ((2, 3, 6, 9), {"kernel_size": (2, 3)}),
    "a rest": ((1, 16, 7, 11), {"kernel_size": 3}),
    "one window": ((2, 4, 5, 5), {"kernel_size": 5}),
    "elements": ((2, 4, 3, 3), {"kernel_size": 1}),
    "no images": ((0, 4, 4, 4), {"kernel_size": 2}),
    "without a batch": ((4, 6, 6), {"kernel_size": 2}),
    "volumes": ((1, 5, 4, 6, 6), {"kernel_size": 2}),
    "more positions than bytes": ((1, 2, 40, 30), {"kernel_size": 2}),
    "more than 16 bits": ((1, 1, 200, 200), {"kernel_size": 2}),
    "overlapping": ((2, 16, 9, 9), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "apart": ((2, 4, 9, 9), {"kernel_size": 2, "stride": 3}),
    "dilated": ((2, 4, 9, 9), {"kernel_size": 2, "stride": 2, "dilation": 2}),
    "beyond the end": ((2, 4, 7, 7), {"kernel_size": 2, "ceil_mode": True}),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_pools_equal_eager_ones(name: str, dynamic: bool) -> None:
    shape, words = CASES[name]
    torch._dynamo.reset()
    torch.manual_seed(1)
    pool = F.max_pool3d if len(shape) == 5 else F.max_pool2d

    def function(x: Any) -> Any:
        return pool(torch.relu(x), **words).sin()

    x = torch.randn(shape, requires_grad=True)  # the maximum of many windows is a zero of ReLU, at several positions
    (want,) = torch.autograd.grad(function(x).sum(), x)
    compiled = torch.compile(function, backend="mirlo", dynamic=dynamic, options={"strict": True})
    (got,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("sizes", "kind"), [((16, 16), "uint8"), ((8, 16), "uint8"), ((24, 32), "int16")])
def test_positions_are_saved_in_few_bytes(sizes: tuple[int, int], kind: str) -> None:
    """The backward graph keeps the positions, not a mask of the image that they select."""
    saved: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Any:
        saved.append([node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")])
        return graph.forward

    x = torch.randn(2, 16, *sizes, requires_grad=True)
    backend = aot_autograd(
        fw_compiler=keep, bw_compiler=keep, partition_fn=partition_joint, decompositions=decompositions_of_training()
    )
    torch._dynamo.reset()
    torch.compile(lambda x: F.max_pool2d(torch.relu(x), 2).sum(), backend=backend)(x).backward()
    positions = [each for each in saved[1] if each.dtype == getattr(torch, kind) and each.numel() == x.numel() // 4]
    assert len(positions) == 1
    assert not any(each.dtype == torch.int64 for each in saved[1])


@pytest.mark.parametrize(
    ("sizes", "kind"), [((0, 4), "uint8"), ((16, 16), "uint8"), ((257,), "int16"), ((1 << 15,), "int16"),
                        ((1 << 8, 129), "int32"), ((1 << 31,), "int32"), ((1 << 31, 2), "int64")],
)  # fmt: skip
def test_types_of_positions(sizes: tuple[int, ...], kind: str) -> None:
    found = _position_type(sizes)
    assert found == getattr(torch, kind)
    assert math.prod(sizes) - 1 <= torch.iinfo(found).max
