"""Modules that torchao has quantized, compiled without ONNX and compared with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")
ao = pytest.importorskip("torchao.quantization", reason="needs torchao: make test-torch")

from module_cases import DYNAMIC, Calls, compiled, require_close  # noqa: E402

PREPARED = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e")
X86 = pytest.importorskip("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
INT4 = {"weight_dtype": torch.int4}
CONFIGURATIONS: dict[str, Callable[[], Any]] = {
    "int8 weights": lambda: ao.Int8WeightOnlyConfig(),
    "int8 weights and activations": lambda: ao.Int8DynamicActivationInt8WeightConfig(),
    "int4 weights": lambda: ao.IntxWeightOnlyConfig(**INT4, granularity=ao.PerGroup(32)),
    "int4 weights, int8 activations": lambda: ao.Int8DynamicActivationIntxWeightConfig(
        **INT4, weight_granularity=ao.PerGroup(32)
    ),
}


class Convolutions(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.second = torch.nn.Conv2d(16, 16, 3, stride=2)
        self.last = torch.nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.last(x.mean((2, 3)))


def _layers() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)).eval()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_quantized_layers(name: str) -> None:
    net = _layers()
    plain = net(torch.ones(1, 128))
    ao.quantize_(net, CONFIGURATIONS[name]())
    assert not torch.equal(net(torch.ones(1, 128)), plain)
    made = compiled(net, torch.randn(8, 128), dynamic_shapes=({0: DYNAMIC},))
    for rows in (8, 3):
        x = torch.randn(rows, 128)
        require_close(made.torch(x), net(x).detach())


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("module", [_layers, Convolutions], ids=["layers", "convolutions"])
def test_pt2e(module: Callable[[], Any], is_dynamic: bool) -> None:
    torch.manual_seed(0)
    net = module().eval()
    x = torch.randn((4, 3, 16, 16) if module is Convolutions else (8, 128))
    quantizer = X86.X86InductorQuantizer()
    quantizer.set_global(X86.get_default_x86_inductor_quantization_config(is_dynamic=is_dynamic))
    prepared = PREPARED.prepare_pt2e(torch.export.export(net, (x,)).module(), quantizer)
    prepared(x)
    quantized = PREPARED.convert_pt2e(prepared)
    names = [str(node.target) for node in quantized.graph.nodes]
    assert any("quantized_decomposed.quantize" in name for name in names) or module is Convolutions
    program = torch.export.export(quantized, (x,))
    require_close(compiled(program).torch(x), quantized(x).detach())


ROWS = torch.cat([torch.randn(5, 32) * 3, torch.zeros(1, 32), torch.rand(1, 32) + 1])
OPS = "quantized_decomposed"
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda x: _ops().choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8),
    "symmetric": lambda x: _ops().choose_qparams_symmetric.tensor(x, -127, 127, 1e-5, torch.int8),
    "rows": lambda x: _rows(x, *_ops().choose_qparams_per_token_asymmetric(x, torch.int8)),
    "rows, zeros at 0": lambda x: _rows(x, *_ops().choose_qparams_per_token(x, torch.int8)),
    "groups": lambda x: _ops().quantize_per_channel_group(
        x, torch.full((7, 2), 0.11), torch.full((7, 2), 3, dtype=torch.int32), -8, 7, torch.int8, 16
    ),
}


def _ops() -> Any:
    return getattr(torch.ops, OPS)


def _rows(x: Any, scales: Any, zeros: Any) -> Any:
    codes = _ops().quantize_per_token(x, scales, zeros, -128, 127, torch.int8)
    return codes, _ops().dequantize_per_token(codes, scales, zeros, -128, 127, torch.int8, torch.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_choices_of_scales(name: str) -> None:
    function = FUNCTIONS[name]
    made, expected = compiled(Calls(function), ROWS).torch(ROWS), function(ROWS)
    for one, other in zip(*((each if isinstance(each, tuple) else (each,)) for each in (made, expected)), strict=True):
        torch.testing.assert_close(one.to(other.dtype), other)
