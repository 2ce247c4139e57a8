"""`python -m benchmarks.gpu`: models and kernels on a GPU target, beside ONNX Runtime and what the device can do.

Prints Markdown: the five models (latency, largest error against ONNX Runtime on the CPU), matrix products, row and
elementwise kernels (time of the kernel on the device, operations and bytes a second). `--target spirv` measures a
Vulkan device in place of an NVIDIA GPU; `--models` and `--products` choose what is measured.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

MODELS = ("mobilenetv2", "resnet50", "vit_base", "bert_base", "gpt2")
PRODUCTS = (512, 1024, 2048, 4096, 8192)
ELEMENTS = 1 << 26


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="nvvm")
    parser.add_argument("--cache", help="where the models are kept")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--products", nargs="*", type=int, default=list(PRODUCTS))
    parser.add_argument("--elements", type=int, default=ELEMENTS)
    parser.add_argument("--repeat", type=int, default=20)
    arguments = parser.parse_args()
    print(f"Target `{arguments.target}`, {time.strftime('%Y-%m-%d')}.\n")
    _table(("model", "ms", "compile s", "error"), _models(arguments))
    _table(("kernel", "ms", "TFLOP/s", "GB/s"), _kernels(arguments))


def _table(titles: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> None:
    print(f"| {' | '.join(titles)} |\n|{' --- |' * len(titles)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)
    print()


def _models(arguments: Any) -> Iterator[tuple[str, ...]]:
    import mirlo

    from .models import path

    for name in arguments.models:
        model = path(name, arguments.cache)
        inputs, expected = _reference(str(model))
        start = time.perf_counter()
        compiled = mirlo.compile(model, target=arguments.target, cache=False)
        seconds = time.perf_counter() - start
        results = compiled.run(inputs)
        error = max(np.abs(results[key] - value).max() / np.abs(value).max() for key, value in expected.items())
        times = []
        for _ in range(arguments.repeat):
            start = time.perf_counter()
            compiled.run(inputs)
            times.append(time.perf_counter() - start)
        yield name, f"{1e3 * statistics.median(times):.3f}", f"{seconds:.1f}", f"{error:.1e}"


def _reference(model: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    inputs = {}
    for spec in session.get_inputs():
        if spec.type == "tensor(float)":
            inputs[spec.name] = generator.standard_normal(spec.shape, dtype=np.float32)
        else:
            inputs[spec.name] = generator.integers(0, 2, spec.shape)
    names = [output.name for output in session.get_outputs()]
    return inputs, dict(zip(names, session.run(names, inputs), strict=True))


def _kernels(arguments: Any) -> Iterator[tuple[str, ...]]:
    rows = max(arguments.elements // 4096, 1)
    for dtype in ("f32", "f16", "bf16"):
        for size in arguments.products:
            text = _module("matmul", [f"{size}x{size}x{dtype}"] * 2, f"{size}x{size}x{dtype}")
            yield _measured(f"matmul {dtype} {size}³", text, arguments, 2.0 * size**3)
    for name, operator in (("add", "add"), ("softmax", "softmax"), ("gelu", "gelu")):
        kind = f"{rows}x4096xf32"
        text = _module(operator, [kind] * (2 if operator == "add" else 1), kind)
        yield _measured(f"{name} f32 {rows}x4096", text, arguments, 0.0)


def _module(operator: str, operands: list[str], result: str) -> str:
    names = ", ".join(f"%{i}" for i in range(len(operands)))
    arguments = ", ".join(f"%{i}: tensor<{kind}>" for i, kind in enumerate(operands))
    kinds = ", ".join(f"tensor<{kind}>" for kind in operands)
    return f"""func.func @main({arguments}) -> tensor<{result}> {{
  %y = "relax.{operator}"({names}) : ({kinds}) -> tensor<{result}>
  return %y : tensor<{result}>
}}"""


def _measured(name: str, text: str, arguments: Any, operations: float) -> tuple[str, ...]:
    import mirlo
    from mirlo.dialects.bindings import ir
    from mirlo.dialects.context import make_context

    with make_context():
        model = mirlo.compile(ir.Module.parse(text), target=arguments.target, cache=False)
    profile = model.profile(repeats=arguments.repeat)
    seconds = 1e-6 * profile.microseconds
    moved = sum(kernel.bytes for kernel in model.artifact.kernels)
    speed = f"{1e-12 * operations / seconds:.2f}" if operations else "-"
    return name, f"{1e3 * seconds:.3f}", speed, f"{1e-9 * moved / seconds:.1f}"


if __name__ == "__main__":
    main()
