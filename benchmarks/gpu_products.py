"""Products on a GPU beside PyTorch's (cuBLAS): `python -m benchmarks.gpu_products`, a part of `make bench-gpu`.

Each row is a product of square matrices in one format; both are measured in turns in one process, on the device's
clock, and compared with a product of the same numbers in f64 on a sample of rows. PyTorch is left out where it is not
installed, and in formats that it does not multiply.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .gpu_torch import device_name, in_turns, torch_on_gpu

SIZES = (1024, 2048, 4096, 8192)
CHECKED_ROWS = 16


@dataclass(frozen=True)
class Format:
    """A format of factors, and of the result."""

    name: str
    element: str
    result: str
    options: str = ""
    turned: bool = False
    """Whether the second factor is given transposed, as bytes are multiplied best."""

    def module(self, size: int) -> str:
        """The product as a module."""
        given, made = f"tensor<{size}x{size}x{self.element}>", f"tensor<{size}x{size}x{self.result}>"
        turn, second = "", "%1"
        if self.turned:
            turn = f'%t = "relax.permute"(%1) {{axes = array<i64: 1, 0>}} : ({given}) -> {given}'
            second = "%t"
        return f"""func.func @main(%0: {given}, %1: {given}) -> {made} {{
  {turn}
  %y = "relax.matmul"(%0, {second}) {{out_dtype = {self.result}}} : ({given}, {given}) -> {made}
  return %y : {made}
}}"""


FORMATS = (
    Format("f32", "f32", "f32"),
    Format("tf32", "f32", "f32", options="tf32=true"),
    Format("f16", "f16", "f16"),
    Format("bf16", "bf16", "bf16"),
    Format("i8", "i8", "i32", turned=True),
    Format("f8e4m3", "f8E4M3FN", "f32", turned=True),
)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="nvvm", help="its options too: 'nvvm{chip=sm_90a}'")
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--formats", nargs="*", default=[form.name for form in FORMATS])
    parser.add_argument("--repeat", type=int, default=10, help="products in each turn")
    arguments = parser.parse_args()
    titles = ("product", "ms", "TFLOP/s", "PyTorch TFLOP/s", "ratio", "error")
    print(f"Target `{arguments.target}`, {time.strftime('%Y-%m-%d')}{device_name()}.\n")
    print(f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}")
    for row in _rows(arguments):
        print(f"| {' | '.join(row)} |", flush=True)


def _rows(arguments: Any) -> Iterator[tuple[str, ...]]:
    for form in FORMATS:
        known = form.name in arguments.formats and (not form.options or arguments.target.startswith("nvvm"))
        for size in arguments.sizes if known else ():
            yield _measured(form, size, arguments)


def _measured(form: Format, size: int, arguments: Any) -> tuple[str, ...]:
    import mirlo
    from mirlo.dialects.bindings import ir
    from mirlo.dialects.context import make_context

    name, _, options = arguments.target.partition("{")
    target = f"{name}{{{' '.join(filter(None, (options.rstrip('}'), form.options)))}}}"
    with make_context():
        model = mirlo.compile(ir.Module.parse(form.module(size)), target=target.replace("{}", ""), cache=False)
    inputs = {key: _smaller(value) for key, value in model.random_inputs().items()}
    error = _error(form, list(inputs.values()), next(iter(model.run(inputs).values())))
    peer = _peer(form, list(inputs.values()))
    own, other = in_turns(model, inputs.values(), peer, arguments.repeat)
    operations = 2e-12 * size**3
    return (
        f"{form.name} {size}³", f"{1e3 * own:.3f}", f"{operations / own:.1f}",
        f"{operations / other:.1f}" if other else "-", f"{other / own:.2f}" if other else "-", f"{error:.1e}",
    )  # fmt: skip


def _smaller(value: np.ndarray) -> np.ndarray:
    """Numbers of which sums do not overflow."""
    return value if value.dtype.kind in "iu" else (value.astype(np.float32) / 4).astype(value.dtype)


def _error(form: Format, factors: list[np.ndarray], found: np.ndarray) -> float:
    """The largest difference in some rows, of the largest number in them."""
    left, right = (factor.astype(np.float64) for factor in (factors[0][:CHECKED_ROWS], factors[1]))
    wanted = left @ (right.T if form.turned else right)
    return float(np.abs(found[:CHECKED_ROWS].astype(np.float64) - wanted).max() / np.abs(wanted).max())


def _peer(form: Format, factors: list[np.ndarray]) -> Callable[[], Any] | None:
    """The same product by PyTorch, on the GPU."""
    torch = torch_on_gpu()
    if torch is None:
        return None
    kinds = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8}
    wide = [torch.from_numpy(factor.astype(np.int8 if form.element == "i8" else np.float32)) for factor in factors]
    if form.name == "f8e4m3":
        a, b = (factor.cuda().to(torch.float8_e4m3fn) for factor in wide)
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)
    a, b = (factor.to(kinds[form.element]).cuda() for factor in wide)
    if form.name == "i8":
        return lambda: torch._int_mm(a, b.t())
    torch.backends.cuda.matmul.allow_tf32 = form.name == "tf32"
    return lambda: torch.matmul(a, b)


if __name__ == "__main__":
    main()
