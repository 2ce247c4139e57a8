"""Steps of training with PyTorch: `torch.compile` with Mirlo beside eager and Inductor.

    python -m benchmarks.torch_training [MODEL ...] [--threads 1] [--repeat 15]
    python -m benchmarks.torch_training [MODEL ...] --losses 200
    python -m benchmarks.torch_training [MODEL ...] --accuracy

A step is forward, loss, backward and SGD with momentum, on random data. Times are medians of steps in turns; ratios are
medians over the turns. Memory is the largest that a process needs in steps with one engine, less what it has left when
the model is gone: weights, gradients, what is saved for them, and what compiled code needs. Inductor needs a C++
compiler; models of language and ViT need transformers. With `--losses`, eager PyTorch and Mirlo make this many steps,
each with the same draws of dropout, and losses are compared. With `--accuracy`, the gradients of one step are
compared with those of eager PyTorch in f64.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.turns import row_elsewhere, take_turns

ENGINES = ("eager", "inductor", "mirlo")
WARM_UP = 3
WORDS, LABELS = 2000, 10


@dataclass(frozen=True)
class Row:
    """What was measured of one model."""

    name: str
    eager_ms: float
    inductor_ms: float
    mirlo_ms: float
    of_eager: float
    of_inductor: float
    eager_mb: float
    inductor_mb: float
    mirlo_mb: float
    difference: float
    """The largest difference of a loss from eager's, over the loss."""

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        times = [f"{each:.1f}" for each in (self.eager_ms, self.inductor_ms, self.mirlo_ms)]
        sizes = [f"{each:.0f}" for each in (self.eager_mb, self.inductor_mb, self.mirlo_mb)]
        ratios = [f"{each:.2f}" for each in (self.of_eager, self.of_inductor)]
        return [self.name, *times, *ratios, *sizes, f"{self.difference:.0e}"]


TITLES = (
    "model", "eager ms", "Inductor ms", "Mirlo ms", "of eager", "of Inductor", "eager MB", "Inductor MB", "Mirlo MB",
    "difference",
)  # fmt: skip


def _resnet_18() -> tuple[Any, Any, Any]:
    """Return a ResNet-18, images and labels."""
    import torch

    class Block(torch.nn.Module):
        """Two convolutions, and what leads past them."""

        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.second = torch.nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(outputs), torch.nn.BatchNorm2d(outputs)])
            self.past: Any = torch.nn.Identity()
            if stride != 1:
                shorter = torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False)
                self.past = torch.nn.Sequential(shorter, torch.nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            inner = torch.relu(self.norms[0](self.first(x)))
            return torch.relu(self.norms[1](self.second(inner)) + self.past(x))

    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [Block(before, after, 1 + (before != after)) for before, after in zip(widths, widths[1:], strict=False)]
    begin = [torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU()]
    end = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, LABELS)]
    net = torch.nn.Sequential(*begin, torch.nn.MaxPool2d(3, 2, 1), *blocks, *end)
    return net, torch.randn(8, 3, 64, 64), torch.randint(0, LABELS, (8,))


def _of_transformers(model: str, **options: Any) -> Any:
    """Return a model of transformers with random weights that returns its logits."""
    import torch
    import transformers

    config, _, _ = model.partition("For")
    config = {"GPT2LMHeadModel": "GPT2"}.get(model, config)
    inner = getattr(transformers, model)(getattr(transformers, f"{config}Config")(**options))

    class Logits(torch.nn.Module):
        """The model, with one result."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x).logits

    return Logits()


def _bert() -> tuple[Any, Any, Any]:
    import torch

    net = _of_transformers(
        "BertForSequenceClassification", hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=1024, vocab_size=WORDS, num_labels=LABELS,
    )  # fmt: skip
    return net, torch.randint(0, WORDS, (4, 128)), torch.randint(0, LABELS, (4,))


def _gpt_2() -> tuple[Any, Any, Any]:
    import torch

    net = _of_transformers("GPT2LMHeadModel", n_embd=256, n_layer=4, n_head=4, vocab_size=WORDS, use_cache=False)
    return net, torch.randint(0, WORDS, (4, 128)), torch.randint(0, WORDS, (4, 128))


def _vit() -> tuple[Any, Any, Any]:
    import torch

    net = _of_transformers(
        "ViTForImageClassification", hidden_size=192, num_hidden_layers=6, num_attention_heads=3,
        intermediate_size=768, image_size=96, num_labels=LABELS,
    )  # fmt: skip
    return net, torch.randn(8, 3, 96, 96), torch.randint(0, LABELS, (8,))


def _lstm() -> tuple[Any, Any, Any]:
    import torch

    class Classifier(torch.nn.Module):
        """An LSTM, step by step: TorchDynamo leaves `nn.LSTM` to eager PyTorch."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(WORDS, 128)
            self.cell, self.head = torch.nn.LSTMCell(128, 256), torch.nn.Linear(256, LABELS)

        def forward(self, tokens: Any) -> Any:
            hidden = state = torch.zeros(tokens.shape[0], 256)
            x = self.embedding(tokens)
            for step in range(tokens.shape[1]):
                hidden, state = self.cell(x[:, step], (hidden, state))
            return self.head(hidden)

    return Classifier(), torch.randint(0, WORDS, (8, 16)), torch.randint(0, LABELS, (8,))


def _vgg() -> tuple[Any, Any, Any]:
    """Return six convolutions with batch norm and ReLU, and three max pools."""
    import torch

    layers: list[Any] = []
    widths = (3, 32, 32, 64, 64, 128, 128)
    for number, (before, after) in enumerate(zip(widths, widths[1:], strict=False)):
        layers += [torch.nn.Conv2d(before, after, 3, padding=1), torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
        layers += [torch.nn.MaxPool2d(2)] if number % 2 else []
    net = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(128 * 16, LABELS))
    return net, torch.randn(32, 3, 32, 32), torch.randint(0, LABELS, (32,))


def _two_layers() -> tuple[Any, Any, Any]:
    """Return two convolutions, the second in steps of 2."""
    import torch

    first = [torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU()]
    second = [torch.nn.Conv2d(32, 64, 3, 2, 1), torch.nn.BatchNorm2d(64), torch.nn.ReLU()]
    end = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, LABELS)]
    return torch.nn.Sequential(*first, *second, *end), torch.randn(16, 3, 32, 32), torch.randint(0, LABELS, (16,))


def _channels_last() -> tuple[Any, Any, Any]:
    import torch

    net, x, labels = _two_layers()
    return net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last), labels


def _mobilenet() -> tuple[Any, Any, Any]:
    """Return a MobileNetV2, images and labels."""
    import torch

    def convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[Any]:
        layer = torch.nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        return [layer, torch.nn.BatchNorm2d(outputs)]

    class Block(torch.nn.Module):
        """An expansion, a depthwise convolution and a projection, and what leads past them."""

        def __init__(self, inputs: int, outputs: int, stride: int, factor: int) -> None:
            super().__init__()
            inner = inputs * factor
            first = [*convolution(inputs, inner, 1), torch.nn.ReLU6()] if factor != 1 else []
            second = [*convolution(inner, inner, 3, stride, inner), torch.nn.ReLU6()]
            self.inside = torch.nn.Sequential(*first, *second, *convolution(inner, outputs, 1))
            self.adds = stride == 1 and inputs == outputs

        def forward(self, x: Any) -> Any:
            return x + self.inside(x) if self.adds else self.inside(x)

    layers: list[Any] = [*convolution(3, 32, 3, 2), torch.nn.ReLU6()]
    before = 32
    for factor, outputs, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for number in range(count):
            layers.append(Block(before, outputs, 1 if number else stride, factor))
            before = outputs
    layers += [*convolution(320, 1280, 1), torch.nn.ReLU6(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(1280, LABELS))
    return net, torch.randn(8, 3, 64, 64), torch.randint(0, LABELS, (8,))


def _transformer() -> tuple[Any, Any, Any]:
    """Return two layers of an encoder, of PyTorch's own module."""
    import torch

    blocks = [
        torch.nn.TransformerEncoderLayer(
            128, 4, 256, batch_first=True, dropout=0.0, activation="gelu", norm_first=True
        ) for _ in range(2)
    ]  # fmt: skip
    net = torch.nn.Sequential(*blocks, torch.nn.Flatten(), torch.nn.Linear(64 * 128, LABELS))
    return net, torch.randn(4, 64, 128), torch.randint(0, LABELS, (4,))


MODELS = {
    "ResNet-18": _resnet_18, "BERT": _bert, "GPT-2": _gpt_2, "ViT": _vit, "LSTM": _lstm, "vgg": _vgg,
    "MobileNetV2": _mobilenet, "two-layer": _two_layers, "channels-last": _channels_last, "transformer": _transformer,
}  # fmt: skip


def _steps(name: str, engine: str, threads: int) -> Callable[[], float]:
    """Return what makes a step of training, from the same weights for each engine, and returns the loss."""
    import torch

    torch.manual_seed(0)
    net, x, labels = MODELS[name]()
    optimizer = torch.optim.SGD(net.train().parameters(), 1e-2, momentum=0.9)
    options = {"cache": False, "strict": True, "threads": threads} if engine == "mirlo" else None
    model = net if engine == "eager" else torch.compile(net, backend=engine, options=options)

    def step() -> float:
        optimizer.zero_grad()
        logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def _prepare(threads: int) -> None:
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(threads)


def memory(name: str, engine: str, threads: int) -> float:
    """Return the memory of training, in MB: the peak of steps after the first, less what is left without the model."""
    _prepare(threads)
    import torch

    step = _steps(name, engine, threads)
    step()
    _trim()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # forgets the peak
    for _ in range(WARM_UP):
        step()
    peak = _peak_mb()
    del step
    torch._dynamo.reset()
    _trim()
    return peak - _resident_mb()


def _trim() -> None:
    """Give memory that is free back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def _peak_mb() -> float:
    with open("/proc/self/status", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("VmHWM")).split()[1]) / 1024


def measure(name: str, threads: int, repeat: int) -> Row:
    """Measure a model in this process, its memory in others."""
    _prepare(threads)
    import torch

    steps, losses = [], []
    for engine in ENGINES:
        steps.append(_steps(name, engine, threads))
        torch.manual_seed(1)
        losses.append([steps[-1]() for _ in range(WARM_UP)])
    turns = take_turns(steps, repeat)
    difference = max(abs(ours - eager) / abs(eager) for eager, ours in zip(losses[0], losses[2], strict=True))
    sizes = [_elsewhere(name, engine, threads) for engine in ENGINES]
    eager, inductor, mirlo = turns.milliseconds
    return Row(name, eager, inductor, mirlo, turns.ratio(2, 0), turns.ratio(2, 1), *sizes, difference)


def losses(name: str, threads: int, steps: int) -> tuple[float, float, float]:
    """Return the first and the last loss of eager steps, and the largest difference from them, over the loss."""
    _prepare(threads)
    import torch

    rows = []
    for engine in ("eager", "mirlo"):
        step = _steps(name, engine, threads)
        torch.manual_seed(1)
        rows.append([step() for _ in range(steps)])
    difference = max(abs(ours - eager) / abs(eager) for eager, ours in zip(*rows, strict=True))
    return rows[0][0], rows[0][-1], difference


def accuracy(name: str, threads: int) -> list[float]:
    """Return the errors of all gradients of a step, relative to eager f64: those of eager f32 and of Mirlo."""
    _prepare(threads)
    import torch

    rows = []
    for engine, kind in (("eager", torch.float64), ("eager", torch.float32), ("mirlo", torch.float32)):
        torch.manual_seed(0)
        net, x, labels = MODELS[name]()
        net, x = net.train().to(kind), x.to(kind) if x.is_floating_point() else x
        options = {"cache": False, "strict": True, "threads": threads}
        logits = (net if engine == "eager" else torch.compile(net, backend=engine, options=options))(x)
        torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten()).backward()
        rows.append(torch.cat([parameter.grad.double().flatten() for parameter in net.parameters()]))
    return [float((row - rows[0]).norm() / rows[0].norm()) for row in rows[1:]]


def _elsewhere(name: str, engine: str, threads: int) -> float:
    command = [sys.executable, "-m", "benchmarks.torch_training", name, "--threads", str(threads), "--memory", engine]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def table(rows: Sequence[Row]) -> str:
    """Return the table in Markdown, with the geometric means of the ratios."""
    means = [statistics.geometric_mean(getattr(row, key) for row in rows) for key in ("of_eager", "of_inductor")]
    last = ["geometric mean", "", "", "", *(f"{mean:.2f}" for mean in means), "", "", "", ""]
    lines = [TITLES, ("---", *["---:"] * (len(TITLES) - 1)), *(row.cells() for row in rows), last]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; each model is measured in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_training", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"default: all of {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=1, help="threads of all (default: 1)")
    parser.add_argument("--repeat", type=int, default=15, help="steps of each (default: 15)")
    parser.add_argument("--memory", choices=ENGINES, help="print the memory of one engine, in MB")
    parser.add_argument(
        "--losses", type=int, metavar="STEPS", help="compare the losses of this many steps with eager's"
    )
    parser.add_argument("--accuracy", action="store_true", help="compare gradients with those of eager f64")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    unknown = [name for name in options.models if name not in MODELS]
    if unknown:
        parser.error(f"no model '{unknown[0]}': there are {', '.join(MODELS)}")
    if options.memory:
        print(memory(options.models[0], options.memory, options.threads))
        return 0
    if options.here and options.accuracy:
        print(json.dumps(accuracy(options.models[0], options.threads)))
        return 0
    if options.here and options.losses:
        print(json.dumps(losses(options.models[0], options.threads, options.losses)))
        return 0
    if options.here:
        print(json.dumps(list(asdict(measure(options.models[0], options.threads, options.repeat)).values())))
        return 0
    if options.accuracy:
        for name in options.models or MODELS:
            eager, mirlo = row_elsewhere(
                "benchmarks.torch_training", [name, "--threads", options.threads, "--accuracy"]
            )
            print(f"{name}: gradients of eager {eager:.1e}, of Mirlo {mirlo:.1e}, {mirlo / eager:.2f}", flush=True)
        return 0
    if options.losses:
        for name in options.models or MODELS:
            arguments = [name, "--threads", options.threads, "--losses", options.losses]
            first, last, difference = row_elsewhere("benchmarks.torch_training", arguments)
            print(f"{name}: from {first:.2g} to {last:.2g}, difference {difference:.0e}", flush=True)
        return 0
    rows = []
    for name in options.models or MODELS:
        arguments = [name, "--threads", options.threads, "--repeat", options.repeat]
        rows.append(Row(*row_elsewhere("benchmarks.torch_training", arguments)))
        print(" | ".join(rows[-1].cells()), file=sys.stderr, flush=True)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
