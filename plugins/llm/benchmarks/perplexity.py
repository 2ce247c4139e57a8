"""Perplexity of real weights: Mirlo beside llama.cpp and transformers.

python plugins/llm/benchmarks/perplexity.py MODEL.gguf [--text FILE] [--tokens N] [--window N] [--threads N]
    [--only NAME ...]

All engines compute the same tokens, those of Mirlo's tokenizer: windows of a text, as `mirlo perplexity` reads them.
The reference is transformers in f64 on the weights that it dequantizes itself. A line has the perplexity; the mean
divergence from the reference's probabilities (Kullback-Leibler, in nats per token); the root of the mean square of the
errors of logits, each row less its mean, by the deviation of the reference's logits; and how often the most probable
token is that of the reference. The text is Python's own reference, which is a part of every Python, unless you bring
another; its first tokens are used.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from mirlo_llm.generate.config import read_config
from mirlo_llm.generate.perplexity import split_windows
from mirlo_llm.generate.tokenizer import ModelTokenizer, read_tokenizer

from mirlo.benchmarks.llm.evaluators import (
    Evaluator,
    load_llama_cpp,
    load_mirlo,
    load_transformers,
    missing_packages,
)

ROWS = 64
"""Tokens whose probabilities are computed together: a vocabulary may have 262,144 of them."""


@dataclass(frozen=True)
class Reference:
    """Reference logits of some tokens in f64, and the probabilities derived from them."""

    logits: np.ndarray

    @cached_property
    def logarithms(self) -> np.ndarray:
        """Return the logarithms of probabilities."""
        return log_probabilities(self.logits)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Return the probabilities."""
        return np.exp(self.logarithms)

    @cached_property
    def deviation(self) -> np.ndarray:
        """Return the deviation of each row from its mean."""
        deviation: np.ndarray = self.logits.std(1)
        return deviation


@dataclass
class Deviations:
    """Errors of an engine's logits, summed over tokens."""

    name: str
    evaluate: Evaluator
    tokens: int = 0
    loss: float = 0.0
    divergence: float = 0.0
    error: float = 0.0
    same: int = 0
    seconds: float = 0.0

    def logits(self, tokens: np.ndarray) -> np.ndarray:
        """Return the logits after each token but the last one."""
        start = time.process_time()
        result = self.evaluate(tokens)[:-1]
        self.seconds += time.process_time() - start
        return result

    def add(self, logits: np.ndarray, wanted: Reference, following: np.ndarray) -> None:
        """Add the differences of rows of logits from the reference; `following` are the tokens that come next."""
        ours = log_probabilities(logits)
        self.tokens += len(following)
        self.loss -= float(np.take_along_axis(ours, following[:, None], 1).sum())
        np.subtract(wanted.logarithms, ours, ours)
        self.divergence += float(np.vdot(wanted.probabilities, ours))
        error = (logits - wanted.logits).std(1, dtype=np.float64) / wanted.deviation
        self.error += float((error * error).sum())
        self.same += int((logits.argmax(1) == wanted.logits.argmax(1)).sum())

    def line(self) -> str:
        """Return the line of the table."""
        count = self.tokens
        return (
            f"{self.name:24} {np.exp(self.loss / count):10.4f} {self.divergence / count:11.2e} "
            f"{np.sqrt(self.error / count):10.2e} {self.same / count:8.2%} {self.seconds:8.1f}"
        )


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Return logarithms of the probabilities of rows of logits, in f64."""
    below = logits.astype(np.float64)
    below -= below.max(-1, keepdims=True)
    below -= np.log(np.exp(below).sum(-1, keepdims=True))
    return below


def windows_of(path: Path, text: str, count: int, window: int) -> list[np.ndarray]:
    """Return the first tokens of a text in windows, each with the tokens that begin a text of the model."""
    content = read_tokenizer(read_config(path))
    if content is None:
        raise SystemExit(f"{path}: there is no tokenizer")
    tokenizer = ModelTokenizer(*content)
    return split_windows(tokenizer.encode(text, special=True)[:count], window, 0, tokenizer.start())


def python_reference() -> str:
    """Return the topics of Python's own reference."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def engines(path: Path, window: int, threads: int) -> list[tuple[str, str, Callable[[], Evaluator]]]:
    """Return the engines of the table: a name, the kind of engine, and a function that loads it."""
    return [
        *(
            (f"mirlo, {activations}", "mirlo", partial(load_mirlo, path, threads, activations=activations))
            for activations in ("exact", "i8x2", "i8")
        ),
        ("mirlo, i8, i8 cache", "mirlo", partial(load_mirlo, path, threads, activations="i8", kv_cache_dtype="i8")),
        *(
            (f"llama.cpp, {cache} cache", "llama.cpp", partial(load_llama_cpp, path, threads, window, cache))
            for cache in ("f16", "f32")
        ),
        *(
            (f"transformers, {dtype}", "transformers", partial(load_transformers, path, threads, dtype))
            for dtype in ("float32", "bfloat16")
        ),
    ]


def measure(rows: Sequence[Deviations], reference: Deviations, windows: Sequence[np.ndarray]) -> None:
    """Compute all windows with each engine and compare the logits with those of the reference."""
    for tokens in windows:
        results = [(row, row.logits(tokens)) for row in (reference, *rows)]
        wanted = results[0][1]
        for first in range(0, len(wanted), ROWS):
            part = slice(first, first + ROWS)
            truth = Reference(wanted[part])
            for row, logits in results:
                row.add(logits[part], truth, tokens[1:][part])


def main() -> None:
    """Measure a file."""
    parser = argparse.ArgumentParser(
        prog="python plugins/llm/benchmarks/perplexity.py", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--text", type=Path, help="a text in UTF-8 (default: Python's own reference)")
    parser.add_argument("--tokens", type=int, default=10000, help="tokens of it (%(default)s)")
    parser.add_argument("--window", type=int, default=512, help="tokens of a window (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each engine (%(default)s)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="engines whose names begin so")
    arguments = parser.parse_args()
    text = arguments.text.read_text(encoding="utf-8") if arguments.text else python_reference()
    windows = windows_of(arguments.model, text, arguments.tokens, arguments.window)
    reference = Deviations("transformers, float64", load_transformers(arguments.model, arguments.threads, "float64"))
    rows = []
    for name, engine, load in engines(arguments.model, arguments.window, arguments.threads):
        if arguments.only and not name.startswith(tuple(arguments.only)):
            continue
        if missing := missing_packages(engine):
            print(f"{name}: not installed: {', '.join(missing)}", flush=True)
            continue
        rows.append(Deviations(name, load()))
    measure(rows, reference, windows)
    print(f"{len(windows)} windows, {reference.tokens} predicted tokens")
    print(f"{'':24} {'perplexity':>10} {'divergence':>11} {'RMS error':>10} {'same':>8} {'cpu s':>8}")
    for row in (reference, *rows):
        print(row.line())


if __name__ == "__main__":
    main()
