"""Models on Ethos-U: placement, TOSA's reference model compared with this machine, Vela for all accelerators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mirlo_ethos_u import generator, tools
from mirlo_ethos_u.generator import EthosU
from mirlo_ethos_u.measure import measure
from mirlo_ethos_u.tools import ToolError, compile_region, missing_tools, serialize
from mirlo_ethos_u.tosa import fixed_point
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.benchmarks.models import tiny
from mirlo.extend.command import main
from mirlo.testing import placement_of

needs_tools = pytest.mark.skipif(bool(missing_tools()), reason=f"pip install {' '.join(missing_tools())}")
TARGETS = ["ethos-u", "llvm"]
PROGRAM = Path(__file__).parent / "integers.mlir"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tiny.QuantizedFiles:
    return tiny.QuantizedFiles(tmp_path_factory.mktemp("models"))


def _quantized(nodes: list, x: tuple[int, ...], weights: dict[str, np.ndarray]):  # type: ignore[no-untyped-def]
    """Return a QDQ model of nodes from `x` to `out`."""
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(
        nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)], constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    data = np.random.default_rng(0).standard_normal((4, *x[1:]), dtype=np.float32)
    return mirlo.quantize(model, data, whole=True).model


def _conv(shape: tuple[int, ...], size: tuple[int, int], **attributes: object):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(1)
    weight = rng.standard_normal(shape).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w", "b"], ["out"], **attributes)
    channels = shape[1] * int(str(attributes.get("group", 1)))
    return _quantized(
        [node], (1, channels, *size), {"w": weight, "b": rng.standard_normal(shape[0]).astype(np.float32)}
    )


def test_scales_become_multipliers_and_shifts() -> None:
    scales = np.array([1.0, 0.5, 0.3, 3.7e-5, 1e-12, 2.0**-62, 1 - 2.0**-40])
    multipliers, shifts = fixed_point(scales)
    found = multipliers.astype(np.float64) * np.exp2(-shifts.astype(np.float64))
    np.testing.assert_allclose(found, scales, rtol=2.0**-20, atol=2.0**-62)
    assert 2 <= shifts.min() <= shifts.max() <= 62
    with pytest.raises(ValueError, match="too large for TOSA"):
        fixed_point(np.array([2.0**31]))


def test_unknown_accelerators_are_refused() -> None:
    with pytest.raises(ValueError, match="accelerator is 'ethos-u99': expected one of ethos-u55-32, "):
        EthosU(accelerator="ethos-u99")


@pytest.mark.parametrize(
    ("shape", "attributes", "reason"),
    [
        ((4, 2, 3, 3), {"strides": [4, 4]}, "strides are at most 3"),
        ((4, 2, 3, 3), {"group": 2}, "only one group, or a group for each channel"),
        ((8, 4, 3), {}, "only convolutions of images"),
    ],
)
def test_the_rest_has_the_reason(
    shape: tuple[int, ...],
    attributes: dict[str, object],
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(_conv(shape, (12, 12)[: len(shape) - 2], **attributes).SerializeToString())  # type: ignore[arg-type]
    assert main(["partition", str(path), "--targets", "ethos-u,llvm", "--attempts"]) == 0
    assert reason in capsys.readouterr().out


@needs_tools
@pytest.mark.parametrize(
    ("shape", "size", "attributes"),
    [
        ((8, 3, 3, 3), (9, 10), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((8, 3, 1, 1), (8, 8), {"strides": [2, 2]}),
        ((6, 1, 3, 5), (9, 11), {"group": 6, "pads": [0, 2, 2, 1]}),
        ((4, 3, 3, 3), (12, 12), {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    ],
)
def test_convolutions(shape: tuple[int, ...], size: tuple[int, int], attributes: dict[str, object]) -> None:
    model = _conv(shape, size, **attributes)
    executable = mirlo.compile(model, TARGETS, cache=False)
    assert executable.artifact.externals
    host = mirlo.compile(model, cache=False)
    x = np.random.default_rng(2).standard_normal(tuple(host.inputs[0].shape)).astype(np.float32) * 2
    np.testing.assert_array_equal(executable(x), host(x))


@needs_tools
@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_models_are_equal_bit_for_bit(models: tiny.QuantizedFiles, accelerator: str) -> None:
    name = "ds_cnn" if accelerator == "ethos-u85-256" else "wake_word"
    found = measure(models / f"{name}.onnx", accelerator)
    assert found.is_equal
    assert found.regions == 1
    assert found.share > 0.99
    assert 0 < found.cycles < found.macs
    assert found.sram > 0


@needs_tools
def test_files_are_what_the_tools_made(models: tiny.QuantizedFiles, tmp_path: Path) -> None:
    executable = mirlo.compile(models / "wake_word.onnx", TARGETS, cache=False)
    (artifact,) = executable.artifact.externals
    files = EthosU().files(artifact, {})
    assert sorted(files) == ["ethos-u_0.tflite", "ethos-u_0.tosa"]
    assert files["ethos-u_0.tosa"][4:8] == b"TOSA"
    assert files["ethos-u_0.tflite"][4:8] == b"TFL3"


@needs_tools
def test_errors_of_the_tools_are_errors() -> None:
    with pytest.raises(ToolError, match=r"tosa-opt failed: .*expected"):
        serialize("func.func @main() -> nothing")
    with pytest.raises(ToolError, match=r"failed: "):
        compile_region(b"nothing", "ethos-u55-128")


def test_what_the_tools_refuse_stays_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str) -> bytes:
        raise ToolError("tosa-opt failed: no such thing")

    monkeypatch.setattr(generator, "serialize", refuse)
    model = _conv((4, 3, 3, 3), (12, 12))
    executable, host = mirlo.compile(model, TARGETS, cache=False), mirlo.compile(model, cache=False)
    assert not executable.artifact.externals
    x = np.random.default_rng(2).standard_normal((1, 3, 12, 12)).astype(np.float32)
    np.testing.assert_array_equal(executable(x), host(x))
    (region,) = placement_of(model, TARGETS).placement.regions
    assert (region.kept, region.reason) == (False, "tosa-opt failed: no such thing")


def test_missing_tools_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_find", lambda name: None)
    with pytest.raises(mirlo.MirloError, match="tosa-opt is missing: pip install tosa-tools"):
        mirlo.compile(_conv((4, 3, 3, 3), (12, 12)), TARGETS, cache=False)


@needs_tools
def test_programs_of_tosa_are_placed_whole() -> None:
    """Int8 models of TensorFlow Lite are placed completely, with equal bits."""
    assert placement_of(PROGRAM, TARGETS).shares["llvm"].nodes == 0
    executable, host = mirlo.compile(PROGRAM, TARGETS, cache=False), mirlo.compile(PROGRAM, cache=False)
    assert len(executable.artifact.externals) == 1
    rng = np.random.default_rng(3)
    for _ in range(3):
        x = rng.integers(-128, 128, (1, 9, 9, 4)).astype(np.int8)
        for on_unit, on_host in zip(executable(x), host(x), strict=True):
            np.testing.assert_array_equal(on_unit, on_host)


@needs_tools
def test_negative_scales_stay_with_the_reason(tmp_path: Path) -> None:
    text, identity = PROGRAM.read_text(), "[1073741824]> : tensor<1xi32>"
    path = tmp_path / "program.mlir"
    path.write_text(text.replace(identity, "[-1073741824]> : tensor<1xi32>"))
    regions = placement_of(path, TARGETS).placement.regions
    assert [region.reason for region in regions if not region.kept] == ["a scale is negative: TOSA has none"]


@needs_tools
def test_sums_of_scaled_elements_stay_with_the_reason(tmp_path: Path) -> None:
    text, identity = PROGRAM.read_text(), "[1073741824]> : tensor<1xi32>"
    assert identity in text
    path = tmp_path / "program.mlir"
    path.write_text(text.replace(identity, "[1073741823]> : tensor<1xi32>"))
    reasons = [str(attempt.reason) for attempt in placement_of(path, TARGETS).placement.attempts]
    assert any("elements must be summed as they are" in reason for reason in reasons), reasons
