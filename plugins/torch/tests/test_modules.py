"""`mirlo.compile` of PyTorch modules: results, names, dynamic dims, shared weights, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

from mirlo_torch.frozen import StaleWeightsError  # noqa: E402

import mirlo  # noqa: E402
from mirlo.extend.frontend import FrontendError  # noqa: E402
from mirlo.testing import cached_compilations  # noqa: E402

DYNAMIC = torch.export.Dim.DYNAMIC


class Net(torch.nn.Module):
    """A module whose result has a structure, a constant and a None."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(64, 128)
        self.norm = torch.nn.BatchNorm1d(128)

    def forward(self, image: Any, scale: int = 2, mask: Any = None) -> Any:
        y = self.norm(self.dense(image)).relu() * scale
        if mask is not None:
            y = y * mask
        return y, {"sum": y.sum(1)}, None, scale


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return Net().eval()


def test_result_has_the_structure_of_forward(net: Any) -> None:
    compiled = mirlo.compile(net, args=(torch.randn(4, 64),), dynamic_shapes={"image": {0: DYNAMIC}}, cache=False)
    assert [spec.name for spec in compiled.inputs] == ["image"]
    for rows in (2, 7):
        x = torch.randn(rows, 64)
        found, expected = compiled.torch(x), net(x)
        torch.testing.assert_close(found[0], expected[0].detach(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found[1]["sum"], expected[1]["sum"].detach(), rtol=1e-5, atol=1e-4)
        assert found[2:] == (None, 2)
        np.testing.assert_array_equal(compiled(x.numpy())[0], found[0].numpy())
        np.testing.assert_array_equal(compiled.run({"image": x})[compiled.outputs[0].name], found[0])


def test_keyword_arguments_and_constants_are_checked(net: Any) -> None:
    x, mask = torch.randn(4, 64), torch.ones(4, 128)
    compiled = mirlo.compile(net, args=(x,), kwargs={"scale": 3, "mask": mask}, cache=False)
    torch.testing.assert_close(
        compiled.torch(x, scale=3, mask=mask)[0], net(x, 3, mask)[0].detach(), rtol=1e-5, atol=1e-5
    )
    with pytest.raises(FrontendError, match="compiled with 3, found 4"):
        compiled.torch(x, scale=4, mask=mask)
    with pytest.raises(FrontendError, match="another structure"):
        compiled.torch(x)


@pytest.mark.parametrize("change", ["in place", "state dict", "data"])
def test_changed_weights_are_refused(net: Any, change: str) -> None:
    x = torch.randn(4, 64)
    compiled = mirlo.compile(net, args=(x,), cache=False)
    compiled.torch(x)
    with torch.no_grad():
        if change == "in place":
            net.dense.weight.mul_(2)
        elif change == "state dict":
            net.load_state_dict({name: value * 2 for name, value in net.state_dict().items()})
        else:
            net.dense.weight.data = net.dense.weight.data * 2
    for call in (lambda: compiled.torch(x), lambda: compiled(x.numpy()), lambda: compiled.run({"image": x.numpy()})):
        with pytest.raises(StaleWeightsError, match="call mirlo.compile again"):
            call()


def test_weights_are_shared() -> None:
    """An embedding is read in place: its rows are views of the module's tensor."""
    table = torch.nn.Embedding(20_000, 64).eval()
    compiled = mirlo.compile(table, args=(torch.tensor([1, 2]),), cache=False)
    held = [compiled.weight(spec.name) for spec in compiled.artifact.params]
    assert any(array.ctypes.data == table.weight.data_ptr() for array in held)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_low_precision_tensors_pass_without_copies(dtype: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.GELU()).eval().to(getattr(torch, dtype))
    x = torch.randn(4, 64).to(getattr(torch, dtype))
    found = mirlo.compile(net, args=(x,), cache=False).torch(x)
    assert found.dtype == x.dtype
    torch.testing.assert_close(found.float(), net(x).detach().float(), rtol=2e-2, atol=2e-2)


def test_exported_and_converted_programs(net: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs it")
    x = torch.randn(4, 64)
    program = torch.export.export(net, (x,))
    expected = net(x)[0].detach()
    compiled = mirlo.compile(program, cache=False)
    torch.testing.assert_close(compiled.torch(x)[0], expected, rtol=1e-5, atol=1e-5)
    simple = torch.nn.Sequential(net.dense, net.norm).eval()
    converted = torch.onnx.export(simple, (x,), dynamo=True, verbose=False)
    found = mirlo.compile(converted, cache=False)
    torch.testing.assert_close(found.torch(x), simple(x).detach(), rtol=1e-5, atol=1e-5)
    found.save(tmp_path / "net.mirlo")
    np.testing.assert_array_equal(mirlo.load(tmp_path / "net.mirlo")(x.numpy()), found(x.numpy()))
    with pytest.raises(FrontendError, match="has its own"):
        mirlo.compile(program, args=(x,))


def test_a_module_is_cached_by_its_graph_and_weights(net: Any, tmp_path: Path) -> None:
    with cached_compilations() as compiled:
        _compile_changed_weights(net, tmp_path, compiled)


def _compile_changed_weights(net: Any, tmp_path: Path, compiled: list[str]) -> None:
    x = torch.randn(4, 64)
    first = mirlo.compile(net, args=(x,), cache=tmp_path).torch(x)[0]
    torch.testing.assert_close(mirlo.compile(net, args=(x,), cache=tmp_path).torch(x)[0], first, rtol=0, atol=0)
    assert len(compiled) == 1
    with torch.no_grad():
        net.dense.weight.mul_(2)
    changed = mirlo.compile(net, args=(x,), cache=tmp_path).torch(x)[0]
    assert len(compiled) == 2
    torch.testing.assert_close(changed, net(x)[0].detach(), rtol=1e-5, atol=1e-5)


class _Branches(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


class _Unsupported(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.eigvals(x @ x.T)


@pytest.mark.parametrize(
    "module, message",
    [
        (_Branches(), "torch.export cannot trace _Branches"),
        (_Unsupported(), "aten.linalg_eig.*in forward: return torch.linalg.eigvals"),
    ],
)
def test_what_cannot_be_compiled_is_named(module: Any, message: str) -> None:
    with pytest.raises(FrontendError, match=f"(?s){message}"):
        mirlo.compile(module.eval(), args=(torch.randn(4, 4),), cache=False)


def test_missing_examples_and_training_mode_are_refused() -> None:
    net = torch.nn.Linear(4, 4)
    with pytest.raises(FrontendError, match=r"needs example inputs: mirlo.compile\(module, args="):
        mirlo.compile(net)
    with pytest.raises(FrontendError, match=r"call module.eval\(\)"):
        mirlo.compile(net, args=(torch.ones(1, 4),))
    with pytest.raises(FrontendError, match="expected a tuple"):
        mirlo.compile(net.eval(), args=[torch.ones(1, 4)])  # type: ignore[arg-type]


def test_frames() -> None:
    """Few frames are slices, many are gathered; along any axis, of any size in the call, including none."""

    def cut(x: Any) -> Any:
        return [
            x.unfold(1, size, step) for size, step in ((1, 1), (4, 3), (5, 1), (9, 4), (9, 20), (0, 2))
        ] + [x.unfold(0, 2, 1), x.unfold(-1, 6, 2).unfold(1, 7, 3), (x > 0).unfold(1, 6, 2)]  # fmt: skip

    class Frames(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return cut(x)

    for shapes in (None, {"x": {1: DYNAMIC}}):
        made = mirlo.compile(Frames().eval(), args=(torch.randn(3, 12, 8),), dynamic_shapes=shapes, cache=False)
        for size in (12,) if shapes is None else (12, 17):
            x = torch.randn(3, size, 8)
            torch.testing.assert_close(made.torch(x), cut(x), rtol=0, atol=0)
