"""`python -m benchmarks.gpu --build FOLDER`: what there is to be run, the most telling first."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..unit import KitError
from .folder import Folder
from .kernels import Attention, add_attention, add_convolution, add_product, add_rows
from .models import MODELS, add_model
from .operators import add_intrinsics, add_operators
from .variants import add_variants

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What is built."""

    target: str = "nvvm{chip=sm_90a}"
    groups: Sequence[str] = ()
    """All where none is named."""
    models: str | None = None
    """Where the benchmark models are kept."""
    wheels: Sequence[str] = ()
    """Packages that go along, for a machine where nothing can be installed."""
    python: str = ""
    """The version of Python there: 3.12."""


def build(path: Path, options: Options, tell: Tell) -> Folder:
    """Compile everything into a folder."""
    unknown = [name for name in options.groups if name not in GROUPS]
    if unknown:
        raise KitError(f"no group is named '{unknown[0]}'; there are: {', '.join(GROUPS)}")
    folder = Folder(path, options.target, tell)
    for name, make in GROUPS.items():
        if not options.groups or name in options.groups:
            make(folder, options)
    folder.finish()
    _add_wheels(path / "wheels", options)
    return folder


def _first(folder: Folder, options: Options) -> None:
    """Add one small unit of each kind; if these are wrong, the others need not be tried."""
    folder.add_copy()
    add_rows(folder, "add", "f32", 64, 1000, is_measured=False)
    add_rows(folder, "softmax", "f32", 64, 1000, is_measured=False)
    for form in ("f32", "f16", "bf16", "i8", "f8e4m3"):
        add_product(folder, form, (256, 384, 128), "b", is_measured=False)
    for dtype in ("f32", "f16"):
        add_attention(folder, Attention(dtype, 200, 200, 4, 2, 64, causal=True), is_measured=False)
        add_attention(folder, Attention(dtype, 1, 300, 8, 2, 64), is_measured=False)
        add_convolution(folder, dtype, 2, 14, 32, 48, is_measured=False)


def _products(folder: Folder, options: Options) -> None:
    for form in ("bf16", "f16", "f8e4m3", "i8", "tf32", "f32"):
        for side in (4096, 8192) if form in ("bf16", "f16", "f8e4m3") else (4096,):
            add_product(folder, form, (side,) * 3, "b" if form in ("i8", "f8e4m3") else "")
    for form in ("f16", "bf16", "tf32"):
        for transposed in ("a", "b", "ab"):
            add_product(folder, form, (2048, 2048, 2048), transposed)
    for size in ((1024, 1024, 1024), (2048, 768, 1000), (1000, 520, 72), (640, 4096, 4096), (16, 256, 65536)):
        add_product(folder, "f16", size)
    for rows in (1, 4, 16):
        for transposed in ("", "b"):
            add_product(folder, "f16", (rows, 16384, 4096), transposed)
    for form in ("f32", "i8", "f8e5m2"):
        for transposed in ("", "a", "b"):
            add_product(folder, form, (1000, 520, 264), transposed, is_measured=False)
    for older in ("chip=sm_80", "chip=sm_89"):
        for form in ("f16", "i8", "f32"):
            add_product(folder, form, (1024, 1024, 512), "b", options=older)


def _attention(folder: Folder, options: Options) -> None:
    for dtype in ("f16", "bf16"):
        add_attention(folder, Attention(dtype, 4096, 4096, causal=True))
    # What warpgroups compute, and what warps did before (`mma.sync`): code for the chip before runs on later ones.
    for case in (Attention("f16", 4096, 4096), Attention("f16", 4096, 4096, 32, 32, 64, causal=True)):
        add_attention(folder, case)
        add_attention(folder, case, options="chip=sm_89")
    add_attention(folder, Attention("f16", 4096, 4096, causal=True), options="chip=sm_89")
    add_attention(folder, Attention("f16", 4096, 4096, 16, 4, causal=True))
    add_attention(folder, Attention("f16", 16384, 16384, causal=True))
    add_attention(folder, Attention("bf16", 2048, 2048, 8, 8, 256, causal=True))
    add_attention(folder, Attention("f16", 512, 512, 12, 12, 64, batch=8))
    add_attention(folder, Attention("f32", 1024, 1024, causal=True))
    add_attention(folder, Attention("f16", 1, 4096, 32, 8))
    add_attention(folder, Attention("f16", 1, 4096, batch=8))
    for dtype in ("f32", "f16", "bf16"):
        small = [(19, 37, 3, 3, 24, False), (33, 33, 4, 1, 16, True), (150, 700, 2, 2, 40, False)]
        small += [(600, 600, 64, 32, 64, True), (520, 1000, 64, 64, 96, False), (300, 300, 64, 64, 128, True)]
        for case in small:
            add_attention(folder, Attention(dtype, *case), is_measured=False)


def _rows(folder: Folder, options: Options) -> None:
    for function in ("add", "softmax", "gelu", "layer_norm", "sum"):
        for dtype in ("f32", "f16"):
            add_rows(folder, function, dtype)
    add_rows(folder, "softmax", "f32", 65536, 500)
    add_rows(folder, "softmax", "f32", 64, 131072)


def _convolutions(folder: Folder, options: Options) -> None:
    for dtype in ("f16", "bf16"):
        add_convolution(folder, dtype, 32, 56, 64, 64)
        add_convolution(folder, dtype, 32, 28, 128, 128)
    add_convolution(folder, "f16", 32, 56, 128, 256, 1)
    add_convolution(folder, "f16", 32, 56, 128, 128, strides=2)
    add_convolution(folder, "f32", 8, 56, 64, 64)


def _libraries(folder: Folder, options: Options) -> None:
    """Add the same by NVIDIA's libraries through their targets: PyTorch ships them, or their own wheels."""
    if not options.target.startswith("nvvm"):
        return
    for form in ("f16", "bf16", "f32"):
        add_product(folder, form, (4096, 4096, 4096), library="cublas")
    add_product(folder, "i8", (4096, 4096, 4096), "b", library="cublas")
    add_product(folder, "f8e4m3", (4096, 4096, 4096), "b", library="cublas{f8}")
    for transposed in ("a", "ab"):
        add_product(folder, "f16", (200, 320, 144), transposed, is_measured=False, library="cublas")
    for case in (
        Attention("f16", 4096, 4096, causal=True),
        Attention("bf16", 4096, 4096, 16, 4),
        Attention("f16", 1, 4096, 32, 8),
        Attention("f16", 100, 333, 4, 2, 64, causal=True),
        Attention("bf16", 33, 64, 3, 1, 72),
    ):
        add_attention(folder, case, is_measured=case.seen >= 4096, library="cudnn")


def _models(folder: Folder, options: Options) -> None:
    for name in MODELS:
        add_model(folder, name, options.models)
    for name in ("bert_base", "gpt2", "resnet50"):
        add_model(folder, name, options.models, precision="f16")


GROUPS: dict[str, Callable[[Folder, Options], None]] = {
    "first": _first,
    "attention": _attention,
    "products": _products,
    "models": _models,
    "rows": _rows,
    "convolutions": _convolutions,
    "libraries": _libraries,
    "variants": lambda folder, options: add_variants(folder),
    "operators": lambda folder, options: add_operators(folder),
    "intrinsics": lambda folder, options: add_intrinsics(folder),
}


def _add_wheels(target: Path, options: Options) -> None:
    """Unpack packages for the other machine, where nothing may be installed."""
    if not options.wheels:
        return
    asked = ["--python-version", options.python] if options.python else []
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(target)]
    subprocess.run([*command, *asked, *options.wheels], check=True)
    for wheel in target.glob("*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(target / wheel.name.split("-")[0])
        wheel.unlink()
