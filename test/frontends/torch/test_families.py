"""Families of operators, compiled without ONNX: special functions, prefixes, bags, norms, branches, layers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-doors")

from module_cases import DYNAMIC, Calls, F, compiled, require_close  # noqa: E402

from mirlo.frontends.torch.registry import REFUSED, has_converter, load_converters  # noqa: E402


def _counts(indices: Any) -> Any:
    return torch.stack([(indices == value).sum() for value in range(3)]).tolist()


TABLE = torch.arange(40.0).reshape(10, 4)
SPECIAL = torch.tensor([0.0, -0.0, -1.0, 1.0, -2.5, float("inf"), -float("inf"), float("nan")])
TIES = torch.tensor([[3.0, 1, 3, float("nan"), 2], [1, 1, -1, 1, 5], [2, 2, 2, 2, 2]])
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "gamma": (
        lambda x: (torch.lgamma(x), torch.digamma(x), torch.erfinv(x)),
        (torch.cat([torch.linspace(-3.3, 4, 50), SPECIAL]),),
    ),
    "prefixes": (lambda x: (x.cummax(1), x.cummin(0), x[1:].logcumsumexp(1)), (TIES,)),
    "prefixes of integers": (lambda x: (x.cummax(1), x.cummin(0)), (torch.randint(0, 3, (5, 9)),)),
    "bags": (lambda i: F.embedding_bag(i, TABLE, mode="mean"), (torch.randint(0, 10, (3, 5)),)),
    "bags by offsets": (
        lambda i, at: [F.embedding_bag(i, TABLE, at, mode=mode, padding_idx=3) for mode in ("sum", "mean", "max")],
        (torch.tensor([1, 3, 9, 3, 2, 2, 0, 7]), torch.tensor([0, 3, 3, 4, 6])),
    ),
    "weighted bags": (
        lambda i, w: F.embedding_bag(i, TABLE, mode="sum", per_sample_weights=w),
        (torch.randint(0, 10, (3, 5)), torch.randn(3, 5)),
    ),
    "pairs": (lambda x: (F.pdist(x), F.pdist(x, 1.0)), (torch.randn(5, 7),)),
    "norms of the batch": (
        lambda x: (F.batch_norm(x, None, None, training=True), F.instance_norm(x, weight=torch.ones(4) * 2)),
        (torch.randn(3, 4, 5),),
    ),
    "parts of the data": (
        lambda x, i: torch.cat([part * n for n, part in enumerate(x.split(_counts(i)))]),
        (torch.randn(10, 4), torch.tensor([0, 2, 2, 1, 0, 0, 2, 2, 2, 1])),
    ),
    "positions in a scalar": (lambda x: x.nonzero(), (torch.tensor(3.0),)),
    "no positions in a scalar": (lambda x: x.nonzero(), (torch.tensor(0.0),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, args = FUNCTIONS[name]
    require_close(compiled(Calls(function), *args).torch(*args), function(*args))


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.LSTM(8, 16, num_layers=2, proj_size=5, bidirectional=True),
        torch.nn.LSTM(8, 16, proj_size=5, bias=False, batch_first=True),
        torch.nn.BatchNorm1d(2, track_running_stats=False),
        torch.nn.InstanceNorm1d(2),
        torch.nn.InstanceNorm1d(2, affine=True, track_running_stats=True),
    ],
    ids=str,
)
def test_layers(layer: Any) -> None:
    x = torch.randn(6, 2, 8)
    require_close(compiled(layer, x).torch(x), layer.eval()(x))


def test_long_sequences_of_a_projected_lstm_are_a_loop() -> None:
    layer, x = torch.nn.LSTM(4, 6, proj_size=3).eval(), torch.randn(150, 2, 4)
    require_close(compiled(layer, x).torch(x), layer(x))


def test_norms_that_update_their_statistics_are_refused() -> None:
    layer = torch.nn.BatchNorm1d(4)
    with pytest.raises(Exception, match="training"):
        compiled(Calls(lambda x: F.batch_norm(x, layer.running_mean, layer.running_var, training=True)), TABLE)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches_whose_results_differ_in_size(sign: float) -> None:
    def chosen(x: Any) -> Any:
        made = torch.cond(x.sum() > 0, lambda x: x[:2] * 2, lambda x: x[1:] + 1, (x,))
        return made * 3, made.shape[0] + 1

    x = torch.full((5, 3), sign)
    made, count = compiled(Calls(chosen), torch.ones(5, 3)).torch(x)
    expected = chosen(x)
    require_close(made, expected[0])
    assert count == expected[1]


def test_branches_of_dynamic_sizes() -> None:
    def chosen(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x + 1, (x,)) + x

    made = compiled(Calls(chosen), torch.ones(5, 3), dynamic_shapes={"x": {0: DYNAMIC}})
    for x in (torch.ones(4, 3), -torch.ones(7, 3)):
        require_close(made.torch(x), chosen(x))


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("nearest", {"scale_factor": 1.5}), ("nearest", {"scale_factor": 2}), ("bilinear", {"scale_factor": 2}),
        ("bilinear", {"scale_factor": 0.5, "align_corners": True}), ("bicubic", {"scale_factor": 2}),
        ("bilinear", {"size": (11, 7)}), ("nearest", {"size": (11, 7)}),
    ],
)  # fmt: skip
def test_images_of_dynamic_sizes_are_resized(mode: str, words: dict[str, Any]) -> None:
    made = compiled(
        Calls(lambda x: F.interpolate(x, mode=mode, **words)), torch.randn(1, 3, 8, 8),
        dynamic_shapes={"x": {2: DYNAMIC, 3: DYNAMIC}},
    )  # fmt: skip
    for shape in ((1, 3, 8, 8), (1, 3, 10, 7), (1, 3, 5, 13)):
        x = torch.randn(shape)
        require_close(made.torch(x), F.interpolate(x, mode=mode, **words))


IN_TRAINING = ("backward", "native_batch_norm_legit")
RANDOM = ("aten.rand.default", "aten.randn.default", "aten.randperm.default")
OF_TRACES = ("aten.sym_is_contiguous.default", "aten.sym_storage_offset.default", "aten.sym_stride.int")
"""What tracing replaces by numbers."""
WRITES = ("aten.atan2.out", "aten.resize_.default")


def test_core_operators_have_converters() -> None:
    load_converters()
    names = {each.name.partition("::")[2] for each in torch._C._jit_get_all_schemas() if each.name.startswith("aten::")}
    packets = [getattr(torch.ops.aten, name) for name in sorted(names) if hasattr(torch.ops.aten, name)]
    overloads = [getattr(each, name) for each in packets for name in each.overloads()]
    core = [str(each) for each in overloads if torch.Tag.core in each.tags]
    left = [name for name in core if not has_converter(name) and not any(part in name for part in IN_TRAINING)]
    assert len(core) > 180
    assert sorted({*left} - {*RANDOM, *OF_TRACES, *WRITES}) == []
    assert all(REFUSED[name.rpartition(".")[0]] for name in RANDOM)
