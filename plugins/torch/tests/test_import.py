"""Import of exported programs without ONNX: results, dynamic dims, branches, locations, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

import module_cases  # noqa: E402
from mirlo_torch.declared_names import load_converters  # noqa: E402
from mirlo_torch.decompose import decomposed  # noqa: E402
from mirlo_torch.importer import import_exported  # noqa: E402
from mirlo_torch.registry import CONVERTERS  # noqa: E402
from module_cases import DYNAMIC, Calls, F, compiled, require_close  # noqa: E402

import mirlo  # noqa: E402
from mirlo.extend.frontend import FrontendError  # noqa: E402
from mirlo.extend.inspect import find_source_position, node_of  # noqa: E402

DYNAMIC_FUNCTIONS = {
    "reshape": lambda x: x.reshape(x.shape[0] * 2, -1) * x.shape[0],
    "flatten": lambda x: x.flatten() + x.numel(),
    "slices": lambda x: (x[1:], x[-2:], x[: x.shape[0] // 2], x[::2]),
    "cat": lambda x: torch.cat([x, x[1:], torch.ones(2, 8)]),
    "expand": lambda x: x[:, None].expand(-1, 3, -1).sum(1),
    "arange": lambda x: torch.arange(x.shape[0]) * 2 + torch.full((x.shape[0],), x.shape[0]),
    "softmax": lambda x: F.softmax(x @ x.T, 0),
    "causal": lambda x: torch.ones(x.shape[0], x.shape[0]).tril() @ x,
    "var": lambda x: (x.var(0), x.std(), x.mean(0, keepdim=True)),
    "pad": lambda x: F.pad(x, (1, 2, 3, 0), value=2.0),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], is_causal=True),
    "roll": lambda x: x.roll(3, 0),
    "repeat": lambda x: x.repeat(2, 3),
    "split": lambda x: torch.split(x, [3, 5], 1),
    "index": lambda x: (x[:, [0, 2]], x[torch.tensor([1, 0, -1])], x[torch.arange(2), torch.tensor([3, 4])]),
    "sort": lambda x: x.sort(0),
    "conv": lambda x: F.conv1d(x[None].transpose(1, 2), torch.ones(2, 8, 3), padding=1),
    "norm": lambda x: F.layer_norm(x, (8,)),
    "cumsum": lambda x: x.cumsum(0),
    "unbind": lambda x: torch.stack(x.unbind(1), 0),
}


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", DYNAMIC_FUNCTIONS)
def test_one_program_serves_all_sizes(name: str) -> None:
    torch.manual_seed(0)
    function = DYNAMIC_FUNCTIONS[name]
    made = compiled(Calls(function), torch.randn(6, 8), dynamic_shapes={"x": {0: DYNAMIC}})
    for rows in (6, 9, 4):
        x = torch.randn(rows, 8)
        require_close(made.torch(x), function(x))


DATA_FUNCTIONS = {
    "nonzero": lambda x: x.nonzero(),
    "masked select": lambda x: x[x > 0] * 2,
    "index put": lambda x: x.index_put((x > 0,), torch.tensor(0.0)),
    "write": lambda x: x.clone().masked_fill_(x < 0, 1.0).add_(2),
    "slice write": lambda x: _written(x),
}


def _written(x: Any) -> Any:
    y = x * 2
    y[1:3, ::2] = 0
    y[:, 1] += x[:, 0]
    return y


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", DATA_FUNCTIONS)
def test_data_and_writes(name: str) -> None:
    torch.manual_seed(0)
    function = DATA_FUNCTIONS[name]
    made = compiled(Calls(function), torch.randn(6, 8))
    for _ in range(2):
        x = torch.randn(6, 8)
        require_close(made.torch(x), function(x))


def test_sizes_outside_of_their_range_are_errors() -> None:
    rows = torch.export.Dim("rows", min=4, max=16)
    made = compiled(Calls(lambda x: x * 2), torch.randn(6, 8), dynamic_shapes={"x": {0: rows}})
    for count in (4, 16):
        assert made.torch(torch.ones(count, 8)).shape[0] == count
    with pytest.raises(mirlo.MirloError, match="a size of at least 4"):
        made.torch(torch.ones(3, 8))
    with pytest.raises(mirlo.MirloError, match="a size of at most 16"):
        made.torch(torch.ones(17, 8))


def _count(x: Any) -> Any:
    count = x.int()[0].item()
    torch._check(count >= 0)
    torch._check(count != 3)
    return torch.arange(count) + x.sum(), x.new_zeros(count + 1, 2), x * count


def test_a_size_that_the_program_reads_from_its_data() -> None:
    exe = compiled(Calls(_count), torch.tensor([5.0, 1.0]))
    for count in (0.0, 2.0, 4.0, 5.0):
        require_close(exe.torch(torch.tensor([count, 1.0])), _count(torch.tensor([count, 1.0])))
    with pytest.raises(mirlo.MirloError, match="3"):
        exe.torch(torch.tensor([3.0, 1.0]))
    with pytest.raises(mirlo.MirloError, match="-2"):
        exe.torch(torch.tensor([-2.0, 1.0]))


def test_a_number_that_the_program_reads_from_its_data() -> None:
    def scaled(x: Any) -> Any:
        number = x.int()[1].item()
        return x * x[0].item() - (2 * number + 1), x * min(number, 4)

    exe = compiled(Calls(scaled), torch.tensor([5.0, 1.0]))
    for first, second in ((-2.5, -3.0), (0.0, 7.0)):
        x = torch.tensor([first, second])
        require_close(exe.torch(x), scaled(x))


def test_operations_have_the_names_and_lines_of_the_module() -> None:
    program = torch.export.export(Calls(lambda x: F.gelu(x)), (torch.ones(4),))
    module, _ = import_exported(decomposed(program))
    (op,) = [op for op in module.body.operations[0].body.blocks[0].operations if op.operation.name == "relax.gelu"]
    assert node_of(op.location) == "gelu"
    position = find_source_position(op.location)
    assert position is not None and position.file == module_cases.__file__ and position.line > 0


def test_what_has_no_converter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the operator and the user's line, and precedes any tracing."""
    load_converters()
    calls: list[int] = []
    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", lambda *args, **words: calls.append(1))
    for name in ("aten.gelu.default", "aten.topk.default"):  # the first of these can be decomposed
        monkeypatch.delitem(CONVERTERS, name)
    with pytest.raises(FrontendError, match=r"operator 'aten.topk.default' .*has no converter.*in forward"):
        mirlo.compile(Calls(lambda x: torch.topk(F.gelu(x), 2).values).eval(), args=(torch.randn(4),), cache=False)
    assert not calls


def test_refused_operators_give_their_reason() -> None:
    program = torch.export.export(Calls(lambda x: torch.linalg.eigvals(x)), (torch.eye(3),))
    with pytest.raises(FrontendError, match=r"operator 'aten.linalg_eig.*: computes eigenvalues.*in forward"):
        import_exported(decomposed(program))


def test_tied_weights_are_one_constant() -> None:
    class Tied(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(100, 8)
            self.head = torch.nn.Linear(8, 100, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x: Any) -> Any:
            return self.head(self.table(x))

    program = torch.export.export(Tied().eval(), (torch.tensor([1, 2]),))
    _, params = import_exported(decomposed(program))
    assert len(params) == 1


class Branches(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: self.one(x).relu(), lambda x: self.two(x) - 1, (x,))


class Loops(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        from torch._higher_order_ops.while_loop import while_loop

        def goes_on(count: Any, y: Any) -> Any:
            return (count < 10) & (y.abs().max() < 50)

        return while_loop(goes_on, lambda count, y: (count + 1, y * 1.5 + 1), (torch.tensor(0), x))


class Scans(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(8, 8) * 0.3)

    def forward(self, x: Any) -> Any:
        from torch._higher_order_ops.scan import scan

        weight = self.weight
        return scan(lambda c, y: ((c @ weight + y).tanh(), (c + y).clone()), torch.zeros(8), x, dim=0)


@pytest.mark.sample(2)
@pytest.mark.parametrize("module, rows", [(Branches(), 4), (Loops(), 4), (Scans(), 5), (Scans(), 200)])
def test_higher_order_operators(module: Any, rows: int) -> None:
    torch.manual_seed(0)
    made = compiled(module, torch.randn(rows, 8))
    with torch.no_grad():
        for shift in (-1, 1, 40):
            x = torch.randn(rows, 8) + shift
            require_close(made.torch(x), module(x))


RECURRENT = [
    (torch.nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}, 5),
    (torch.nn.LSTM, {"bias": False}, 140),
    (torch.nn.GRU, {"num_layers": 2, "bidirectional": True}, 5),
    (torch.nn.RNN, {"nonlinearity": "relu"}, 4),
    (torch.nn.RNN, {"bidirectional": True}, 4),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("layer, words, length", RECURRENT)
def test_recurrent_layers(layer: Any, words: dict[str, Any], length: int) -> None:
    torch.manual_seed(0)
    module = layer(6, 8, **words).eval()
    x = torch.randn(3, length, 6) if words.get("batch_first") else torch.randn(length, 3, 6)
    with torch.no_grad():
        require_close(compiled(module, x).torch(x), module(x))


class Quantized(torch.nn.Module):  # type: ignore[misc]
    """A linear layer as torchao writes it, and weights of 4 bits in groups."""

    def __init__(self) -> None:
        import torch.ao.quantization.fx._decomposed  # noqa: F401 (registers the operators)

        super().__init__()
        self.ops = torch.ops.quantized_decomposed
        weight = torch.randn(32, 64)
        self.register_buffer("scales", weight.abs().amax(1) / 127)
        self.register_buffer("zeros", torch.zeros(32, dtype=torch.int64))
        stored = self.ops.quantize_per_channel(weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        self.register_buffer("weight", stored)
        self.register_buffer("small", torch.randint(-8, 8, (32, 64), dtype=torch.int8))
        self.register_buffer("small_scales", torch.rand(32, 4))
        self.register_buffer("small_zeros", torch.zeros(32, 4, dtype=torch.int32))

    def forward(self, x: Any) -> Any:
        ops, i8, u8 = self.ops, torch.int8, torch.uint8
        codes = ops.quantize_per_tensor(x, 0.03125, 3, 0, 255, u8)
        real = ops.dequantize_per_tensor(codes, 0.03125, 3, 0, 255, u8)
        weight = ops.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, i8)
        small = ops.dequantize_per_channel_group(
            self.small, self.small_scales, self.small_zeros, -8, 7, i8, 16, torch.float32
        )
        return F.linear(real, weight), codes, ops.quantize_per_tensor(x, 0.0625, 0, -8, 7, i8), F.linear(x, small)


def test_quantized_programs() -> None:
    torch.manual_seed(0)
    module = Quantized().eval()
    x = torch.randn(4, 64)
    with torch.no_grad():
        require_close(compiled(module, x).torch(x), module(x))


@torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())  # type: ignore[misc]
def grouped_mm_fallback(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """Declare the operator of transformers, which has f32 where PyTorch's takes bf16 alone."""
    raise NotImplementedError


@grouped_mm_fallback.register_fake  # type: ignore[misc]
def _(input: Any, weight: Any, offs: Any) -> Any:
    return input.new_empty(input.shape[0], weight.shape[2])


def test_dims_that_a_guard_says_are_equal() -> None:
    def chunked(x: Any) -> Any:
        count = x.shape[0]
        padding = (8 - count % 8) % 8
        y = F.pad(x, (0, 0, 0, padding)).reshape(-1, 8, 4).cumsum(1).reshape(-1, 4)
        if padding > 0:
            y = y[:count]
        return y * x + x.sum(1, keepdim=True)

    x = torch.randn(40, 4)
    exe = compiled(Calls(chunked), x[:16], dynamic_shapes={"x": {0: DYNAMIC}})
    for count in (8, 24, 40):
        require_close(exe.torch(x[:count]), chunked(x[:count]))
    with pytest.raises(mirlo.MirloError, match=" is "):
        exe.torch(x[:17])


def test_dims_that_are_one_by_a_guard() -> None:
    def offset(x: Any) -> Any:
        table = torch.arange(64.0).reshape(64, 1)
        return x + table[63:][max(0, 1 - x.shape[0]) :] + table[max(0, 64 - x.shape[0]) :]

    x = torch.randn(40, 4)
    exe = compiled(Calls(offset), x[:16], dynamic_shapes={"x": {0: torch.export.Dim("rows", min=2, max=64)}})
    for count in (2, 24, 40):
        require_close(exe.torch(x[:count]), offset(x[:count]))


def test_regions_without_gradients() -> None:
    def angles(x: Any) -> Any:
        with torch.no_grad():
            sines, cosines = x.sin(), x.cos()
        return sines * x, cosines

    x = torch.randn(5, 8)
    exe = compiled(Calls(angles), x, dynamic_shapes={"x": {0: DYNAMIC}})
    require_close(exe.torch(x[:3]), angles(x[:3]))


def test_autocast_regions() -> None:
    def product(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x.T
        return y.float() + x.sum()

    x = torch.randn(5, 8)
    exe = compiled(Calls(product), x)
    torch.testing.assert_close(exe.torch(x), product(x), rtol=2e-2, atol=2e-2)


@pytest.mark.sample(4)
@pytest.mark.parametrize("operator", ["aten._grouped_mm", "transformers.grouped_mm_fallback"])
@pytest.mark.parametrize("ends", [(2, 2, 5, 9), (0, 0, 0, 0), (9, 9, 9, 9), (1, 3, 4, 7)])
def test_products_of_groups_of_rows(operator: str, ends: tuple[int, ...]) -> None:
    kind = torch.bfloat16 if operator.startswith("aten") else torch.float32
    call = torch._grouped_mm if operator.startswith("aten") else torch.ops.transformers.grouped_mm_fallback

    class Grouped(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 16, 24, dtype=kind))

        def forward(self, x: Any, ends: Any) -> Any:
            return call(x, self.weight, ends)

    torch.manual_seed(0)
    module, x = Grouped(), torch.randn(9, 16, dtype=kind)
    given = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    exe = compiled(module, x, given, dynamic_shapes={"x": {0: DYNAMIC}, "ends": None})
    wanted = torch.zeros(9, 24, dtype=torch.float64)
    for number, (begin, end) in enumerate(zip((0, *ends), ends, strict=False)):
        wanted[begin:end] = x[begin:end].double() @ module.weight[number].double()
    found = exe.torch(x, torch.tensor(ends, dtype=torch.int32))
    torch.testing.assert_close(found.double(), wanted, rtol=1e-2 if kind is torch.bfloat16 else 1e-5, atol=1e-4)
    for wrong in ((1, 2, 3, 10), (3, 2, 4, 5)):
        with pytest.raises(mirlo.MirloError, match=operator.split(".")[1] + "|groups end"):
            exe.torch(x, torch.tensor(wrong, dtype=torch.int32))
