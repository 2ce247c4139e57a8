"""Models of PyTorch with random weights: `torch.compile` with Mirlo beside eager, Inductor and ONNX Runtime.

    python -m benchmarks.torch_models [MODEL ...] [--threads 1] [--repeat 15] [--json FILE]
    python -m benchmarks.torch_models --page FILE ...         # the table, from files of earlier runs

Latencies are medians of calls in turns; ratios are medians over the turns, so that other load affects both sides. The
first call compiles, with empty caches: seconds of processor time, those of child processes included. Needs
`mirlo-torch`, torchvision, timm, transformers and a C++ compiler (for Inductor); onnxruntime and onnxscript add its
column.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.turns import onnxruntime_session, row_elsewhere, take_turns
from benchmarks.zoo.vision_ops import load

TORCHVISION = (
    "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0",
    "densenet121", "squeezenet1_1", "shufflenet_v2_x1_0", "googlenet", "regnet_y_400mf", "convnext_tiny", "swin_t",
    "vit_b_16",
)  # fmt: skip
TIMM = (
    "deit_tiny_patch16_224", "mixer_s32_224", "mobilevit_s", "ghostnet_100", "levit_128", "poolformer_s12", "repvgg_a0",
    "efficientformer_l1",
)  # fmt: skip
SMALL_DECODER = {
    "vocab_size": 8000, "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 1408,
}  # fmt: skip
TRANSFORMERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "BertModel": ("BertConfig", {}),
    "DistilBertModel": ("DistilBertConfig", {}),
    "ElectraModel": ("ElectraConfig", {}),
    "AlbertModel": ("AlbertConfig", {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    "T5EncoderModel": ("T5Config", {}),
    "GPT2LMHeadModel": ("GPT2Config", {"n_layer": 6}),
    "LlamaForCausalLM": ("LlamaConfig", SMALL_DECODER),
    "Qwen2ForCausalLM": ("Qwen2Config", SMALL_DECODER),
}
TOKENS = 64


@dataclass(frozen=True)
class Row:
    """What was measured of one model; times of ONNX Runtime are None where it has no model."""

    name: str
    eager_ms: float
    inductor_ms: float
    onnxruntime_ms: float | None
    mirlo_ms: float
    of_eager: float
    of_inductor: float
    of_onnxruntime: float | None
    inductor_first_s: float
    mirlo_first_s: float
    error: float
    """The largest difference from eager, over the largest value."""

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        theirs = "-" if self.onnxruntime_ms is None else f"{self.onnxruntime_ms:.2f}"
        ratio = "-" if self.of_onnxruntime is None else f"{self.of_onnxruntime:.2f}"
        return [
            self.name, f"{self.eager_ms:.2f}", f"{self.inductor_ms:.2f}", theirs, f"{self.mirlo_ms:.2f}",
            f"{self.of_eager:.2f}", f"{self.of_inductor:.2f}", ratio, f"{self.inductor_first_s:.1f}",
            f"{self.mirlo_first_s:.1f}", f"{self.error:.0e}",
        ]  # fmt: skip


TITLES = (
    "model", "eager ms", "Inductor ms", "ONNX Runtime ms", "Mirlo ms", "of eager", "of Inductor", "of ONNX Runtime",
    "Inductor's first call, s", "Mirlo's first call, s", "difference",
)  # fmt: skip


def model_names() -> tuple[str, ...]:
    """Return all models, in the order of the table."""
    return (*TORCHVISION, *TIMM, *TRANSFORMERS)


def make(name: str) -> tuple[Any, Any]:
    """Return a module with random weights, and its input."""
    import torch

    torch.manual_seed(0)
    image = torch.randn(1, 3, 224, 224)
    if name in TORCHVISION:
        options = {"init_weights": False, "transform_input": False} if name == "googlenet" else {}
        model = getattr(load().models, name)(weights=None, **options)
        if name == "googlenet":
            model.aux_logits = False
        return model.eval(), image
    load()
    if name in TIMM:
        import timm

        return timm.create_model(name, pretrained=False).eval(), image
    import transformers

    config, options = TRANSFORMERS[name]
    configuration = getattr(transformers, config)(**options)
    model = getattr(transformers, name)(configuration).eval()
    return _FirstResult(model), torch.randint(0, 1000, (1, TOKENS))


def _FirstResult(model: Any) -> Any:  # noqa: N802 - a class, where torch is imported
    import torch

    class FirstResult(torch.nn.Module):
        """A model of transformers that returns its first result, without caches."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model
            model.config.use_cache = False

        def forward(self, input_ids: Any) -> Any:
            return self.model(input_ids=input_ids, return_dict=False)[0]

    return FirstResult()


def measure(name: str, threads: int, repeat: int) -> Row:
    """Measure a model in this process."""
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    import torch

    torch.set_num_threads(threads)
    model, example_input = make(name)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = model(example_input)
        inductor = torch.compile(model)
        inductor_first = _processor_seconds(lambda: inductor(example_input))
        mirlo = torch.compile(model, backend="mirlo", options={"cache": False, "strict": True, "threads": threads})
        mirlo_first = _processor_seconds(lambda: mirlo(example_input))
        # Some classifiers start from zero.
        error = float((mirlo(example_input) - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30))
        theirs = _onnxruntime(model, example_input, threads)
        engines = [
            lambda: model(example_input),
            lambda: inductor(example_input),
            lambda: mirlo(example_input),
            *([theirs] if theirs else []),
        ]
        turns = take_turns(engines, repeat)
    times = turns.milliseconds
    return Row(
        name, times[0], times[1], times[3] if theirs else None, times[2], turns.ratio(2, 0), turns.ratio(2, 1),
        turns.ratio(2, 3) if theirs else None, inductor_first, mirlo_first, error,
    )  # fmt: skip


def _onnxruntime(model: Any, example_input: Any, threads: int) -> Callable[[], Any] | None:
    """Return a call of the exported model; None where the exporter or ONNX Runtime does not take it."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        try:
            torch.onnx.export(model, (example_input,), str(file), dynamo=True, external_data=True, verbose=False)
            session = onnxruntime_session(str(file), threads)
        except Exception as error:
            print(f"no ONNX model: {str(error).splitlines()[0]}", file=sys.stderr)
            return None
    feeds = {session.get_inputs()[0].name: example_input.numpy()}
    return lambda: session.run(None, feeds)


def _processor_seconds(call: Callable[[], Any]) -> float:
    """Return the processor time of a call, that of child processes included."""

    def spent() -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in used) + _of_running_children()

    start = spent()
    call()
    return spent() - start


def _of_running_children() -> float:
    """Return the processor time of children that still run, and of theirs: workers that compile."""
    tick = os.sysconf("SC_CLK_TCK")
    total, waiting = 0.0, [os.getpid()]
    while waiting:
        for task in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                try:
                    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                total += sum(map(int, fields[11:15])) / tick
                waiting.append(child)
    return total


def table(rows: Sequence[Row]) -> str:
    """Return the table in Markdown, with the geometric means of the ratios."""
    lines = [TITLES, ("---", *["---:"] * (len(TITLES) - 1)), *(row.cells() for row in rows)]
    mean = {key: _mean([getattr(row, key) for row in rows]) for key in ("of_eager", "of_inductor", "of_onnxruntime")}
    lines.append(["geometric mean", "", "", "", "", *(f"{value:.2f}" for value in mean.values()), "", "", ""])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _mean(values: Sequence[float | None]) -> float:
    return statistics.geometric_mean([value for value in values if value is not None] or [1.0])


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; each model is measured in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_models", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"default: all of {', '.join(model_names())}")
    parser.add_argument("--threads", type=int, default=1, help="threads of all (default: 1)")
    parser.add_argument("--repeat", type=int, default=15, help="calls of each (default: 15)")
    parser.add_argument("--json", metavar="FILE", help="append each row to this file, and skip those that it has")
    parser.add_argument("--page", nargs="+", metavar="FILE", help="print the table of rows in these files")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.page:
        print(table([row for file in options.page for row in _rows(Path(file))]))
        return 0
    unknown = [name for name in options.models if name not in model_names()]
    if unknown:
        parser.error(f"no model '{unknown[0]}': there are {', '.join(model_names())}")
    if options.here:
        print(json.dumps(list(asdict(measure(options.models[0], options.threads, options.repeat)).values())))
        return 0
    file = Path(options.json) if options.json else None
    rows = {row.name: row for row in (_rows(file) if file and file.exists() else ())}
    for name in options.models or model_names():
        if name in rows:
            continue
        started = time.perf_counter()
        try:
            arguments = [name, "--threads", options.threads, "--repeat", options.repeat]
            rows[name] = Row(*row_elsewhere("benchmarks.torch_models", arguments))
        except RuntimeError as error:
            print(f"{name}: {str(error).splitlines()[-1]}", file=sys.stderr, flush=True)
            continue
        print(f"{' | '.join(rows[name].cells())}   ({time.perf_counter() - started:.0f} s)", flush=True)
        if file is not None:
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(asdict(rows[name])) + "\n")
    print(table(list(rows.values())))
    return 0


def _rows(file: Path) -> list[Row]:
    return [Row(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    sys.exit(main())
