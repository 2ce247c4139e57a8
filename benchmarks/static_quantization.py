"""Static int8 quantization beside that of onnxruntime, on data that scikit-learn ships.

`python -m benchmarks.static_quantization [MODEL...]` trains five small models (needs torch, scikit-learn and
onnxruntime), quantizes each with the same calibration data, and evaluates both int8 models with ONNX Runtime and
Mirlo on data that neither training nor calibration has seen.
"""

from __future__ import annotations

import io
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import mirlo
from mirlo.tools.quantize.options import StaticQuantization

CALIBRATED = 256
"""Samples of the training data that calibrate."""
EPOCHS = 30
RUNS = {
    "mse": StaticQuantization(),
    "minmax": StaticQuantization(ranges="minmax"),
    "percentile": StaticQuantization(ranges="percentile"),
    "entropy": StaticQuantization(ranges="entropy"),
    "minmax, without bias correction": StaticQuantization(ranges="minmax", correct_bias=False),
    "mse, equalized": StaticQuantization(equalize=True),
    "mse, whole": StaticQuantization(whole=True),
}
"""By name in the table, how Mirlo quantizes."""


@dataclass(frozen=True)
class TrainedModel:
    """A model of ONNX with data that calibrate and data that test it."""

    name: str
    onnx: bytes
    calibration: np.ndarray
    test: np.ndarray
    labels: np.ndarray | None
    """The classes of the test data; None for a model that returns no scores."""


def models(names: Sequence[str]) -> Iterator[TrainedModel]:
    """Train the models of these names; all if there are none."""
    for name, make in MODELS.items():
        if not names or name in names:
            yield make(name)


def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return (x / 16).astype(np.float32).reshape(-1, 1, 8, 8), y


def _trained(name: str, network: Any, x: np.ndarray, y: np.ndarray, loss: Any, classes: bool) -> TrainedModel:
    import torch

    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    count = len(x) * 2 // 3
    inputs, wanted = torch.tensor(x[:count]), torch.tensor(y[:count])
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    for _ in range(EPOCHS):
        for at in range(0, count, 64):
            optimizer.zero_grad()
            loss(network(inputs[at : at + 64]), wanted[at : at + 64]).backward()
            optimizer.step()
    network.eval()
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (inputs[:2],), buffer, dynamo=False, input_names=["x"], output_names=["y"],
            dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
        )  # fmt: skip
    labels = y[count:] if classes else None
    return TrainedModel(name, buffer.getvalue(), x[: min(CALIBRATED, count)], x[count:], labels)


def _cnn(name: str) -> TrainedModel:
    from torch import nn

    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip
    return _trained(name, network, *_digits(), nn.CrossEntropyLoss(), classes=True)


def _separable(name: str) -> TrainedModel:
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(channels, 3 * channels, 1, bias=False), nn.BatchNorm2d(3 * channels), nn.ReLU6(),
                nn.Conv2d(3 * channels, 3 * channels, 3, padding=1, groups=3 * channels, bias=False),
                nn.BatchNorm2d(3 * channels), nn.ReLU6(),
                nn.Conv2d(3 * channels, channels, 1, bias=False), nn.BatchNorm2d(channels),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            return x + self.layers(x)

    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), Block(16), Block(16), nn.AvgPool2d(2), Block(16),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    return _trained(name, network, *_digits(), nn.CrossEntropyLoss(), classes=True)


def _transformer(name: str) -> TrainedModel:
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Linear(8, 32), nn.Linear(32, 10)
            self.place = nn.Parameter(torch.randn(8, 32) * 0.1)
            self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))
            self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
            self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

        def forward(self, x: Any) -> Any:
            x = self.embed(x.reshape(-1, 8, 8)) + self.place
            h = self.first(x)
            weights = torch.softmax(self.q(h) @ self.k(h).transpose(1, 2) / 32**0.5, -1)
            x = x + self.o(weights @ self.v(h))
            x = x + self.down(torch.relu(self.up(self.second(x))))
            return self.out(x.mean(1))

    return _trained(name, Attention(), *_digits(), nn.CrossEntropyLoss(), classes=True)


def _perceptron(name: str) -> TrainedModel:
    from sklearn.datasets import load_breast_cancer
    from torch import nn

    x, y = load_breast_cancer(return_X_y=True)
    x = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    network = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2))
    return _trained(name, network, x, y, nn.CrossEntropyLoss(), classes=True)


def _autoencoder(name: str) -> TrainedModel:
    from sklearn.datasets import load_sample_images
    from torch import nn

    patches = [
        image[i : i + 16, j : j + 16]
        for image in load_sample_images().images
        for i in range(0, image.shape[0] - 15, 16)
        for j in range(0, image.shape[1] - 15, 16)
    ]
    x = (np.stack(patches).transpose(0, 3, 1, 2) / 255).astype(np.float32)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(24, 16, 2, 2), nn.ReLU(), nn.ConvTranspose2d(16, 3, 2, 2),
    )  # fmt: skip
    return _trained(name, network, x, x, nn.MSELoss(), classes=False)


MODELS: dict[str, Callable[[str], TrainedModel]] = {
    "digits-cnn": _cnn,
    "digits-separable": _separable,
    "digits-transformer": _transformer,
    "cancer-perceptron": _perceptron,
    "photo-autoencoder": _autoencoder,
}


def of_onnxruntime(model: TrainedModel, method: str) -> bytes:
    """Return the int8 model of onnxruntime's tool, after its own preprocessing."""
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.batches = iter([{"x": model.calibration[at : at + 16]} for at in range(0, len(model.calibration), 16)])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.batches, None)

    with tempfile.TemporaryDirectory() as folder:
        source, prepared, target = (Path(folder) / name for name in ("m.onnx", "p.onnx", "q.onnx"))
        source.write_bytes(model.onnx)
        quant_pre_process(str(source), str(prepared))
        with redirect_stdout(io.StringIO()):
            quantize_static(
                str(prepared), str(target), Reader(), per_channel=True, activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8, calibrate_method=CalibrationMethod[method],
            )  # fmt: skip
        return target.read_bytes()


def run_onnxruntime(model: bytes, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def _row(name: str, actual: np.ndarray, expected: np.ndarray, model: TrainedModel) -> str:
    rms = float(np.sqrt(np.square(actual - expected).mean() / np.square(expected).mean()))
    top = "" if model.labels is None else f"{(actual.argmax(1) == model.labels).mean():.2%}"
    same = "" if model.labels is None else f"{(actual.argmax(1) == expected.argmax(1)).mean():.2%}"
    return f"| {model.name} | {name} | {rms:.4f} | {top} | {same} |"


def main() -> None:
    """Print the table."""
    import torch

    torch.set_num_threads(1)
    print("| model | quantized by | RMS error of the outputs | top-1 | as f32 |\n| --- | --- | --- | --- | --- |")
    for name in MODELS:
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.manual_seed(0)
        model = next(models([name]))
        expected = run_onnxruntime(model.onnx, model.test)
        print(_row("f32", expected, expected, model), flush=True)
        for method in ("MinMax", "Percentile", "Entropy"):
            model_bytes = of_onnxruntime(model, method)
            print(_row(f"onnxruntime, {method}", run_onnxruntime(model_bytes, model.test), expected, model), flush=True)
        for title, how in RUNS.items():
            quantized = mirlo.quantize(model.onnx, model.calibration, how=how)
            raw = quantized.model.SerializeToString()
            print(_row(f"Mirlo, {title}", run_onnxruntime(raw, model.test), expected, model), flush=True)
            if title == "mse":
                computed = np.asarray(mirlo.compile(quantized.model, cache=False)(model.test))
                print(_row(f"Mirlo, {title}, run by Mirlo", computed, expected, model), flush=True)


if __name__ == "__main__":
    main()
