"""What language models ask of a GPU beside PyTorch: `python -m benchmarks.gpu_attention`, a part of `make bench-gpu`.

Attention over prompts and for one new token, beside `scaled_dot_product_attention`; products of a few rows with a
matrix of weights, beside `matmul`. Both are measured in turns in one process, on the device's clock, and compared with
numpy on a sample. PyTorch is left out where it is not installed. `--tokens` and `--width` make everything smaller.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .gpu_torch import device_name, in_turns, torch_on_gpu

TOKENS, WIDTH = 4096, 4096


@dataclass(frozen=True)
class Attention:
    """An attention: new tokens, those before, heads, heads of keys, the size of a head."""

    name: str
    dtype: str
    new: int
    seen: int
    heads: int = 16
    shared: int = 16
    size: int = 128
    causal: bool = False

    @property
    def work(self) -> float:
        """Operations."""
        return 4.0 * self.heads * self.new * self.seen * self.size * (0.5 if self.causal else 1.0)

    def module(self) -> str:
        """It as a module."""
        q = f"tensor<1x{self.heads}x{self.new}x{self.size}x{self.dtype}>"
        k = f"tensor<1x{self.shared}x{self.seen}x{self.size}x{self.dtype}>"
        return f"""func.func @main(%q: {q}, %k: {k}, %v: {k}) -> {q} {{
  %y = "relax.attention"(%q, %k, %v) {{causal = {str(self.causal).lower()}}} : ({q}, {k}, {k}) -> {q}
  return %y : {q}
}}"""

    def peer(self, torch: Any, inputs: list[np.ndarray]) -> Callable[[], Any]:
        """The same by PyTorch."""
        kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[self.dtype]
        q, k, v = (torch.from_numpy(x.astype(np.float32)).to(kind).cuda() for x in inputs)
        attend = torch.nn.functional.scaled_dot_product_attention
        return lambda: attend(q, k, v, is_causal=self.causal, enable_gqa=self.heads != self.shared)

    def error(self, inputs: list[np.ndarray], found: np.ndarray) -> float:
        """The largest difference in the last head, of the largest number in it."""
        q, k, v = (x[0, -1].astype(np.float64) for x in inputs)
        scores = q @ k.T * self.size**-0.5
        if self.causal:
            scores = np.where(np.tril(np.ones(scores.shape, bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        wanted = weights @ v / weights.sum(1, keepdims=True)
        return float(np.abs(found[0, -1].astype(np.float64) - wanted).max() / np.abs(wanted).max())


@dataclass(frozen=True)
class FewRows:
    """A product of a few rows with weights [out, in] or [in, out]."""

    name: str
    dtype: str
    rows: int
    inner: int
    outer: int
    turned: bool = True

    @property
    def work(self) -> float:
        """Operations."""
        return 2.0 * self.rows * self.inner * self.outer

    def module(self) -> str:
        """It as a module."""
        x, y = (f"tensor<{self.rows}x{n}x{self.dtype}>" for n in (self.inner, self.outer))
        shape = (self.outer, self.inner) if self.turned else (self.inner, self.outer)
        w = f"tensor<{shape[0]}x{shape[1]}x{self.dtype}>"
        return f"""func.func @main(%x: {x}, %w: {w}) -> {y} {{
  %y = "relax.matmul"(%x, %w) {{transpose_rhs = {str(self.turned).lower()}}} : ({x}, {w}) -> {y}
  return %y : {y}
}}"""

    def peer(self, torch: Any, inputs: list[np.ndarray]) -> Callable[[], Any]:
        """The same by PyTorch."""
        kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[self.dtype]
        x, w = (torch.from_numpy(a.astype(np.float32)).to(kind).cuda() for a in inputs)
        return lambda: torch.matmul(x, w.t() if self.turned else w)

    def error(self, inputs: list[np.ndarray], found: np.ndarray) -> float:
        """The largest difference, of the largest number."""
        x, w = (a.astype(np.float64) for a in inputs)
        wanted = x @ (w.T if self.turned else w)
        return float(np.abs(found.astype(np.float64) - wanted).max() / np.abs(wanted).max())


def cases(tokens: int, width: int) -> Iterator[Attention | FewRows]:
    """What is measured."""
    for dtype in ("f16", "bf16"):
        yield Attention(f"attention {dtype} causal", dtype, tokens, tokens, causal=True)
    yield Attention("attention f16", "f16", tokens, tokens)
    yield Attention("attention f16 causal, heads of 64", "f16", tokens, tokens, 32, 32, 64, causal=True)
    yield Attention("attention f16 causal, 4 heads share keys", "f16", tokens, tokens, 16, 4, causal=True)
    yield Attention("attention f32 causal", "f32", tokens, tokens, causal=True)
    yield Attention("a new token f16", "f16", 1, tokens)
    yield Attention("a new token f16, 4 heads share keys", "f16", 1, tokens, 32, 8)
    for rows in (1, 4):
        for turned in (True, False):
            layout = "[out, in]" if turned else "[in, out]"
            yield FewRows(f"{rows} rows by f16 {layout}", "f16", rows, width, 4 * width, turned)
    yield FewRows("16 rows by f16, long sums", "f16", 16, 16 * width, width // 16)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="nvvm", help="its options too: 'nvvm{chip=sm_90a}'")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    parser.add_argument("--repeat", type=int, default=10, help="calls in each turn")
    arguments = parser.parse_args()
    titles = ("kernel", "ms", "TFLOP/s", "GB/s", "PyTorch ms", "ratio", "error")
    print(f"Target `{arguments.target}`, {time.strftime('%Y-%m-%d')}{device_name()}; ratio: PyTorch's time to ours.\n")
    print(f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}")
    for case in cases(arguments.tokens, arguments.width):
        if arguments.only in case.name:
            print(f"| {' | '.join(_measured(case, arguments))} |", flush=True)


def _measured(case: Attention | FewRows, arguments: Any) -> tuple[str, ...]:
    import mirlo
    from mirlo.dialects.bindings import ir
    from mirlo.dialects.context import make_context

    with make_context():
        model = mirlo.compile(ir.Module.parse(case.module()), target=arguments.target, cache=False)
    inputs = [(x.astype(np.float32) / 4).astype(x.dtype) for x in model.random_inputs().values()]
    found = model(*inputs)
    error = case.error(inputs, found)
    torch = torch_on_gpu()
    own, other = in_turns(model, inputs, case.peer(torch, inputs) if torch is not None else None, arguments.repeat)
    moved = sum(x.nbytes for x in (*inputs, found))
    return (
        case.name, f"{1e3 * own:.3f}", f"{1e-12 * case.work / own:.2f}", f"{1e-9 * moved / own:.1f}",
        f"{1e3 * other:.3f}" if other else "-", f"{other / own:.2f}" if other else "-", f"{error:.1e}",
    )  # fmt: skip


if __name__ == "__main__":
    main()
