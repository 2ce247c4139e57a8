"""Families of operators, compiled: special functions, prefixes, bags, norms, branches, layers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

from mirlo_torch.declared_names import load_converters  # noqa: E402
from mirlo_torch.registry import REFUSED, has_converter  # noqa: E402
from module_cases import DYNAMIC, Calls, F, compiled, require_close  # noqa: E402

from mirlo.extend.runtime import InputError  # noqa: E402


def _counts(indices: Any) -> Any:
    return torch.stack([(indices == value).sum() for value in range(3)]).tolist()


TABLE = torch.arange(40.0).reshape(10, 4)
SPECIAL = torch.tensor([0.0, -0.0, -1.0, 1.0, -2.5, float("inf"), -float("inf"), float("nan")])
FIELDS = torch.tensor([0.0, -0.0, 1, -1, 0.5, 3e-42, -1e-45, 1e38, float("inf"), -float("inf"), 123.456, float("nan")])
TIES = torch.tensor([[3.0, 1, 3, float("nan"), 2], [1, 1, -1, 1, 5], [2, 2, 2, 2, 2]])
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "gamma": (
        lambda x: (torch.lgamma(x), torch.digamma(x), torch.erfinv(x)),
        (torch.cat([torch.linspace(-3.3, 4, 50), SPECIAL]),),
    ),
    "Bessel functions": (
        lambda x: (
            torch.i0(x),
            *(getattr(torch.special, name)(x) for name in ("i0e", "i1", "i1e", "bessel_j0", "bessel_j1")),
        ),
        (torch.linspace(-20, 20, 81),),
    ),
    "derivatives of digamma": (
        lambda x: [torch.polygamma(n, x) for n in range(5)],
        (torch.cat([torch.linspace(-3.3, 9, 50), torch.tensor([0.0, -1.0, 1e-3, 40, 0.5])]).double(),),
    ),
    "derivatives of digamma at poles": (
        lambda x: [torch.polygamma(n, x) for n in range(3)],
        (torch.arange(-3, 3),),
    ),
    "functions of normal variables": (
        lambda x, p: (torch.special.erfcx(x), torch.special.log_ndtr(x), torch.special.ndtri(p)),
        (torch.cat([torch.linspace(-9, 9, 50), SPECIAL[:6]]), torch.cat([torch.linspace(0, 1, 41), SPECIAL])),
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
    "windows of different sizes": (
        lambda x: (
            F.adaptive_max_pool1d(x, 2, return_indices=True),
            F.adaptive_max_pool2d(x, (2, 3), return_indices=True),
            F.avg_pool2d(x.nan_to_num(0), (2, 3), (2, 2), (1, 1), ceil_mode=True, divisor_override=3),
        ),
        (torch.arange(84.0).reshape(3, 4, 7).sin().masked_fill(torch.arange(84).reshape(3, 4, 7) % 9 == 0, torch.nan),),
    ),
    "crops and paddings": (
        lambda x: [
            F.pad(x, pads, mode=mode)
            for mode, pads in (
                ("replicate", (-1, 2)),
                ("replicate", (2, -1, -1, 1)),
                ("circular", (-1, 2)),
                ("reflect", (1, -2)),
            )
        ],
        (torch.randn(3, 8, 7),),
    ),
    "smooth resizing": (
        lambda x: [
            F.interpolate(x, mode="bilinear", antialias=True, scale_factor=0.6),
            *(F.interpolate(x, (3, 9), mode=mode, antialias=True) for mode in ("bilinear", "bicubic")),
        ],
        (torch.randn(1, 2, 8, 7),),
    ),
    "fields of floats": (
        lambda x, y: (torch.frexp(x), torch.frexp(x.double() * 1e-300)[0], torch.nextafter(y[:, None], y)),
        (FIELDS[:-1], FIELDS),
    ),
    "positions": (
        lambda x, at, new: [
            x.put(at, new),
            x.put(at, new, accumulate=True),
            torch.as_strided_scatter(x, new[:2], (2,), (5,), 1),
            *(
                x.index_reduce(0, at % 3, x[at], kind, include_self=flag)
                for kind in ("prod", "mean", "amax", "amin")
                for flag in (True, False)
            ),
        ],
        (torch.randn(6, 4), torch.tensor([0, -1, 5]), torch.randn(3)),
    ),
    "repeats": (
        lambda x, counts: (
            torch.repeat_interleave(x, counts, dim=0),
            torch.repeat_interleave(counts),
            torch.repeat_interleave(x, 2, dim=-1, output_size=6),
            torch.repeat_interleave(x, 3),
        ),
        (torch.randn(4, 3), torch.tensor([1, 2, 0, 1])),
    ),
    "products of nothing": (
        lambda x: (torch.linalg.vecdot(x, x), torch.dot(x[0], x[0]), x @ x[0]),
        (torch.randn(3, 0),),
    ),
    "the most frequent": (
        lambda x: (x.mode(0), x.mode(1, keepdim=True), torch.mode(x[0, 0])),
        (torch.randint(0, 3, (5, 9)),),
    ),
    "positions in a scalar": (lambda x: x.nonzero(), (torch.tensor(3.0),)),
    "divisors": (torch.gcd, (torch.tensor([12, 0, -8, 0, 7]), torch.tensor([18, 5, 12, 0, -7]))),
    "multiples": (torch.lcm, (torch.tensor([12, 0, -8, 0, 7]), torch.tensor([[18], [5]]))),
    "few positions": (lambda x: torch.nonzero_static(x, size=3), (torch.tensor([[0, 1, 2], [3, 0, 4]]),)),
    "more rows than positions": (
        lambda x: torch.nonzero_static(x, size=6, fill_value=9),
        (torch.tensor([[0, 1], [3, 0]]),),
    ),
    "no positions in a scalar": (lambda x: x.nonzero(), (torch.tensor(0.0),)),
}


LEFT_TO_PYTORCH = (
    "addcdiv", "addcmul", "adjoint", "atleast_3d", "broadcast_to", "deg2rad", "diagonal_copy", "flipud", "frac",
    "hardshrink", "instance_norm", "lerp", "log_sigmoid", "mH", "mT", "movedim", "msort", "narrow", "rad2deg", "selu",
    "softshrink", "square", "swapaxes", "threshold", "view_as",
)  # fmt: skip
"""Operators that have no converter, as PyTorch decomposes them into others with the same operations."""


def _left_to_pytorch(x: Any, y: Any) -> list[Any]:
    return [
        torch.addcdiv(x, y, y + 3, value=0.5), torch.addcmul(x, x, y, value=2), x.adjoint(), torch.atleast_3d(x[0]),
        x[0].broadcast_to(x.shape), x.deg2rad(), torch.diagonal_copy(x, 1), x.flipud(), (3 * x).frac(),
        F.hardshrink(x), F.instance_norm(x[None]), torch.lerp(x, y, 0.3), F.logsigmoid(x), x.mH, x.mT,
        x[None].movedim((0, 1), (2, 0)), x.msort(), x.narrow(1, 1, 2), x.rad2deg(), F.selu(x), F.softshrink(x),
        x.square(), x.swapaxes(0, 1), F.threshold(x, 0.1, 20), x.reshape(-1).view_as(x),
    ]  # fmt: skip


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_what_is_left_to_pytorch(dtype: Any, is_dynamic: bool) -> None:
    load_converters()
    assert [name for name in LEFT_TO_PYTORCH if has_converter(f"aten.{name}.default")] == []
    x, y = torch.randn(3, 5).to(dtype), torch.rand(3, 5).to(dtype)
    shapes = {"x": {0: DYNAMIC}, "rest": ({0: DYNAMIC},)} if is_dynamic else None
    made = compiled(Calls(_left_to_pytorch), x, y, dynamic_shapes=shapes)
    tolerance = 1e-5 if dtype is torch.float32 else 4e-3
    torch.testing.assert_close(made.torch(x, y), _left_to_pytorch(x, y), rtol=tolerance, atol=tolerance)


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, args = FUNCTIONS[name]
    require_close(compiled(Calls(function), *args).torch(*args), function(*args))


@pytest.mark.sample(3)
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


@pytest.mark.sample(4)
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


@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_elements_are_repeated_as_by_pytorch(is_open: bool) -> None:
    """PyTorch multiplies by f32(before / after): element 55 of 110 is the first of 2, not the second."""

    def repeated(x: Any) -> tuple[Any, ...]:
        sizes = tuple(F.interpolate(x, size) for size in (82, 94, 110, 122, 123))
        return sizes if is_open else (*sizes, *(F.interpolate(x, scale_factor=factor) for factor in (1.1, 2.2, 0.3)))

    shapes = {"x": {2: DYNAMIC}} if is_open else None
    made = compiled(Calls(repeated), torch.zeros(1, 1, 58), dynamic_shapes=shapes)
    for before in (2, 3, 13, 50, 58) if is_open else (58,):
        x = torch.arange(before, dtype=torch.float32).reshape(1, 1, before)
        for result, expected in zip(made.torch(x), repeated(x), strict=True):
            torch.testing.assert_close(result, expected, rtol=0, atol=0)


IN_TRAINING = ("backward", "native_batch_norm_legit")
RANDOM = ("aten.rand.default", "aten.randn.default", "aten.randperm.default")
OF_TRACES = ("aten.sym_is_contiguous.default", "aten.sym_storage_offset.default", "aten.sym_stride.int")
"""Operators that tracing replaces by numbers."""
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


def test_distinct_elements_and_counts() -> None:
    """Results have sizes that data determine; a dynamic number of elements as well."""

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            *torch.unique(x, return_inverse=True, return_counts=True), torch.unique(y), torch.unique(y > 0),
            *torch.unique_consecutive(x, return_inverse=True), torch.bincount(x), torch.bincount(x, y.reshape(-1), 20),
        )  # fmt: skip

    x, y = torch.tensor([3, 1, 3, 2, 2, 2]), torch.tensor([[1.5, -2.0, 1.5], [0.0, 7.0, -2.0]])
    require_close(compiled(Calls(function), x, y).torch(x, y), function(x, y))
    made = compiled(Calls(torch.unique), x, dynamic_shapes={"x": {0: DYNAMIC}})
    require_close(made.torch(x[:4]), torch.unique(x[:4]))
    with pytest.raises(InputError, match="numbers to count that are not negative"):
        compiled(Calls(torch.bincount), x).torch(-x)
