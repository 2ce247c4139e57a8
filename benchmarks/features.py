"""Files of the code base by the feature that they implement, for `python -m benchmarks.house --against REVISION`.

A feature is new since a revision if none of its files is in that revision. Code of new features in files that older
features share is not listed here, so it counts as that of older ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatch

FEATURES = {
    "StableHLO and JAX": "frontends/mlir/* frontends/foreign.py",
    "TOSA and TensorFlow Lite": "frontends/files.py",
    "PyTorch": "frontends/builder.py frontends/tensor.py",
    "caches and states of language models": (
        "passes/graph/last_rows.py passes/graph/narrow_caches.py passes/graph/scaled_caches.py "
        "passes/graph/cache_updates.py "
        "runtime/huge_pages.py runtime/update.py frontends/onnx/caches.py frontends/onnx/ops/microsoft_window.py "
        "frontends/onnx/ops/microsoft_kv_cache.py frontends/onnx/ops/microsoft_paged.py"
    ),
    "caches in pages": "targets/llvm/schedule/page*.py",
    "complex numbers, Fourier transforms and solvers of frameworks": (
        "frontends/library/complex_numbers.py frontends/library/fourier.py frontends/library/linear_algebra.py"
    ),
    "cancellation of calls and compilations": "runtime/interrupts.py",
    "weights of few bits": (
        "targets/llvm/nbits/* frontends/onnx/ops/microsoft_nbits.py tools/quantize/* tools/cli/quantizing.py"
    ),
    "mixtures of experts": "frontends/onnx/ops/microsoft_moe.py frontends/onnx/ops/microsoft_float_experts.py",
    "linear attention, sparse attention, beams": (
        "frontends/onnx/ops/microsoft_beams.py frontends/onnx/ops/microsoft_linear.py "
        "frontends/onnx/ops/microsoft_recurrent.py frontends/onnx/ops/microsoft_sparse.py"
    ),
    "libraries for C, C++ and Rust": "targets/llvm/library/* tools/cli/library.py",
    "whole models as C": "targets/c/library.py targets/c/model.py",
    "other processors, several in one file": (
        "targets/llvm/cpus.py targets/llvm/options.py targets/llvm/processor.py targets/emulated_floats.py "
        "targets/llvm/intrinsics/dot_instructions.py runtime/fat.py driver/fat.py"
    ),
    "other operating systems": "runtime/system.py runtime/processes.py",
    "packed decision trees": "targets/llvm/trees/*",
    "Bessel and gamma functions": (
        "passes/lower/expansions/bessel.py passes/lower/expansions/bessel_tables.py "
        "passes/lower/expansions/gamma.py passes/lower/expansions/gamma_tables.py"
    ),
    "maps of ai.onnx.ml": (
        "frontends/onnx/ops/ml_maps.py frontends/onnx/ops/ml_vectors.py runtime/host_functions/map.py"
    ),
    "interface of ONNX Runtime": "driver/inference/*",
    "code of kernels for readers": (
        "driver/code.py driver/save_code.py passes/code_forms.py passes/locations.py runtime/kernel_code.py "
        "targets/llvm/machine_code.py tools/explain/kernel.py"
    ),
    "schedule primitives for tails and registers": (
        "passes/schedule/primitives/lanes.py passes/schedule/primitives/registers.py "
        "passes/schedule/primitives/rfactor.py"
    ),
    "rules as schedule primitives": ("passes/schedule/choices.py passes/schedule/primitives/rule_parts.py"),
    "intrinsics of plug-ins": "dialects/tir/own_intrinsics.py",
    "functions that call each other": "passes/graph/inline_calls.py",
    "compilation while passes run": "targets/llvm/compile_ahead.py",
    "compiled host functions of GPUs": (
        "targets/gpu/host_code.py targets/gpu/host_commands.py targets/gpu/host_values.py"
    ),
    "device libraries and tensor memory": "targets/nvvm/libraries.py targets/nvvm/schedule/tensormemory.py",
    "fuzzing of names, headers, structure and sizes": (
        "tools/fuzz/empty.py tools/fuzz/extreme.py tools/fuzz/headers.py tools/fuzz/malformed.py tools/fuzz/names.py "
        "tools/fuzz/sizes.py tools/fuzz/structure.py tools/fuzz/structure_parts.py"
    ),
    "bisection of rounding": "tools/bisect/amplify.py",
    "search for cases of rules": (
        "tools/conformance/derived.py tools/conformance/kernels.py tools/conformance/own.py "
        "tools/conformance/search.py tools/conformance/special.py"
    ),
    "new packages": "tools/new/* tools/cli/new_package.py",
    "doctor, completion, samples": "tools/cli/doctor.py tools/cli/completion.py tools/samples/*",
    "timelines and pages of measurements": "tools/bench/drawing.py tools/bench/page.py tools/bench/timeline.py",
}
"""Patterns of files (`*` also matches `/`) by feature."""


def feature_of(path: str) -> str | None:
    """Return the feature that lists a file, if any."""
    return next((name for name, patterns in FEATURES.items() if _matches(path, patterns)), None)


def new_features(files: Iterable[str], before: Iterable[str]) -> dict[str, list[str]]:
    """Return the files of each feature that none of the files before implements."""
    old = {feature_of(path) for path in before}
    features: dict[str, list[str]] = {name: [] for name in FEATURES if name not in old}
    for path in files:
        if (name := feature_of(path)) in features:
            features[name].append(path)
    return features


def _matches(path: str, patterns: str) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns.split())
