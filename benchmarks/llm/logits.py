"""How far logits are from those in f64 of the same quantized weights.

python -m benchmarks.llm.logits [--tokens N] [--layers N] [--hidden N] [--threads N] [--only NAME ...]

A decoder with random weights in blocks of 4 bits (Q4_0 of GGUF) computes random tokens with each engine that is
installed. ONNX Runtime and GenAI get the same weights, bit for bit, as `MatMulNBits` (`onnx_of_gguf.py`), with
`accuracy_level` 4, which lets rows be int8 and is what model builders write for processors, and 1, f32; transformers
gets them dequantized. The reference is numpy in f64 on the dequantized weights. A line has the root of the mean square
of the errors, by that of the logits' own deviations from their mean; the largest error, by the same; and how often the
most probable token is that of the reference. Mirlo and GenAI get tokens one by one, the others in one call.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from mirlo.benchmarks.llm.evaluators import (
    Evaluator,
    evaluate_steps,
    load_llama_cpp,
    load_onnx_genai,
    load_onnxruntime,
    load_transformers,
    missing_packages,
)
from mirlo.benchmarks.llm.gguf_model import save_gguf
from mirlo.benchmarks.llm.model import MODELS, DecoderConfig
from mirlo.benchmarks.llm.onnx_of_gguf import save_onnx

BASE = 10000.0
EPSILON = 1e-5


def dequantized(path: Path) -> dict[str, np.ndarray]:
    """Return the weights of a file in f64, by the package that defines its types."""
    import gguf
    from gguf.quants import dequantize

    tensors = gguf.GGUFReader(path).tensors
    return {each.name: dequantize(each.data, each.tensor_type).astype(np.float64) for each in tensors}


def _norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    result: np.ndarray = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * scale
    return result


def _rotated(x: np.ndarray) -> np.ndarray:
    """Rotate pairs of elements that stand side by side, as files of Llama have them: [heads, length, size]."""
    length, size = x.shape[1:]
    angles = np.arange(length)[:, None] * BASE ** (-np.arange(0, size, 2) / size)
    cos, sin, even, odd = np.cos(angles), np.sin(angles), x[..., ::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)


def _softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(-1, keepdims=True))
    result: np.ndarray = weights / weights.sum(-1, keepdims=True)
    return result


def logits_in_f64(weights: dict[str, np.ndarray], config: DecoderConfig, tokens: list[int]) -> np.ndarray:
    """Return the logits after each token, [length, vocabulary]."""
    x, length = weights["token_embd.weight"][tokens], len(tokens)
    hidden = np.triu(np.full((length, length), -np.inf), 1)
    group = config.heads // config.kv_heads
    for i in range(config.layers):
        layer = {name.removeprefix(f"blk.{i}."): w for name, w in weights.items() if name.startswith(f"blk.{i}.")}
        normed = _norm(x, layer["attn_norm.weight"])
        q, k, v = (
            (normed @ layer[f"attn_{part}.weight"].T).reshape(length, -1, config.size).swapaxes(0, 1) for part in "qkv"
        )
        q, k, v = _rotated(q), np.repeat(_rotated(k), group, 0), np.repeat(v, group, 0)
        scores = _softmax(q @ k.swapaxes(1, 2) / np.sqrt(config.size) + hidden)
        x = x + (scores @ v).swapaxes(0, 1).reshape(length, -1) @ layer["attn_output.weight"].T
        normed = _norm(x, layer["ffn_norm.weight"])
        gate = normed @ layer["ffn_gate.weight"].T
        inner = gate / (1 + np.exp(-gate)) * (normed @ layer["ffn_up.weight"].T)
        x = x + inner @ layer["ffn_down.weight"].T
    result: np.ndarray = _norm(x, weights["output_norm.weight"]) @ weights["output.weight"].T
    return result


@dataclass(frozen=True)
class Row:
    """A line of the table: an engine in one of its modes."""

    name: str
    engine: str
    load: Callable[[], Evaluator]


def rows(path: Path, folders: dict[int, Path], config: DecoderConfig, length: int, threads: int) -> Iterator[Row]:
    """Yield the engines for a GGUF file, and the folders of ONNX models with its weights by their accuracy levels."""
    for activations in ("exact", "i8x2", "i8"):
        load = partial(evaluate_steps, path, threads, activations=activations)
        yield Row(f"mirlo, {activations}", "mirlo", load)
    for level, folder in folders.items():
        yield Row(f"mirlo, ONNX level {level}", "mirlo", partial(evaluate_steps, folder, threads))
        load = partial(load_onnxruntime, folder / "model.onnx", config, threads)
        yield Row(f"onnxruntime, level {level}", "onnxruntime", load)
        yield Row(f"genai, level {level}", "genai", partial(load_onnx_genai, folder, threads))
    for cache in ("f16", "f32"):
        yield Row(f"llama.cpp, {cache} cache", "llama.cpp", partial(load_llama_cpp, path, threads, length, cache))
    for dtype in ("float64", "float32", "bfloat16"):
        yield Row(f"transformers, {dtype}", "transformers", partial(load_transformers, path, threads, dtype))


def show(name: str, actual: np.ndarray, wanted: np.ndarray) -> None:
    """Print a line."""
    size = wanted.std()
    error = actual - wanted
    same = (actual.argmax(1) == wanted.argmax(1)).mean()
    print(
        f"{name:24} {np.sqrt((error**2).mean()) / size:10.2e} {abs(error).max() / size:10.2e} {same:8.1%}", flush=True
    )


def main() -> None:
    """Write a model and compare its logits."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.llm.logits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tokens", type=int, default=96, help="tokens (%(default)s)")
    parser.add_argument("--layers", type=int, default=8, help="layers (%(default)s)")
    parser.add_argument("--hidden", type=int, default=1024, help="width (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each engine (%(default)s)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="engines whose names begin so")
    arguments = parser.parse_args()
    base = next(iter(MODELS.values()))
    config = replace(
        base, layers=arguments.layers, hidden=arguments.hidden, inner=arguments.hidden * 11 // 4 // 32 * 32,
        vocabulary=8192, heads=arguments.hidden // 64, kv_heads=arguments.hidden // 256, size=64, positions=4096,
    )  # fmt: skip
    tokens = np.random.default_rng(1).integers(0, config.vocabulary, arguments.tokens)
    print(f"{'':24} {'RMS error':>10} {'largest':>10} {'same':>8}")
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "model.gguf"
        save_gguf(config, path)
        wanted = logits_in_f64(dequantized(path), config, tokens.tolist())
        folders = {level: Path(temporary) / f"level{level}" for level in (4, 1)}
        for level, folder in folders.items():
            save_onnx(path, replace(config, level=level), folder)
        for row in rows(path, folders, config, len(tokens), arguments.threads):
            if arguments.only and not row.name.startswith(tuple(arguments.only)):
                continue
            if missing := missing_packages(row.engine):
                print(f"{row.name:24} not installed: {', '.join(missing)}", flush=True)
                continue
            show(row.name, row.load()(tokens), wanted)
            gc.collect()


if __name__ == "__main__":
    main()
