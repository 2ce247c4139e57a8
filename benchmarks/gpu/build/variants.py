"""Forms of large kernels beside the plain one: masks, bounds, open dims, layouts; compared with what the CPU makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..seeds import seeded
from .folder import Folder, stored

BOUNDS = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}
MASKED = -1e9
MOST_STORED = 1 << 16


@dataclass(frozen=True)
class Variant:
    """A module, and the shapes of its inputs."""

    name: str
    text: str
    shapes: Sequence[tuple[int, ...]]
    dtypes: Sequence[str]
    """Those of the inputs; `mask` for numbers of which some hide a score."""
    dtype: str


def add_variants(folder: Folder, only: str = "") -> None:
    """Add a unit of each variant, with the outputs of the CPU."""
    for variant in _variants():
        if only in variant.name:
            _add(folder, variant)


def _add(folder: Folder, variant: Variant) -> None:
    import mirlo
    from mirlo.dialects.bindings import ir
    from mirlo.dialects.context import make_context

    with make_context():
        here = mirlo.compile(ir.Module.parse(variant.text), target="llvm", cache=False)
    pairs = zip(variant.shapes, variant.dtypes, strict=True)
    inputs = [_array(number, shape, dtype, variant.dtype) for number, (shape, dtype) in enumerate(pairs)]
    result = here(*inputs)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    sources: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    for number, (array, dtype) in enumerate(zip(inputs, variant.dtypes, strict=True)):
        if dtype == "mask":
            arrays[f"i{number}"] = array
            sources.append({"key": f"i{number}"})
        else:
            sources.append({"seed": number + 1, "shape": list(array.shape), "how": {"scale": 1.0}})
    # A part of a large result is as telling.
    step = 1 if max(array.size for array in outputs) <= MOST_STORED else 7
    arrays |= {
        f"o{n}": array.astype(np.float16 if variant.dtype == "f16" else np.float32) for n, array in enumerate(outputs)
    }
    if step > 1:
        arrays |= {f"o{n}": arrays[f"o{n}"].reshape(-1)[::step] for n in range(len(outputs))}
    checks = tuple(
        stored(f"output {n}", [n], [f"o{n}"], BOUNDS[variant.dtype], "relative", least=1e-30, step=step)
        for n in range(len(outputs))
    )
    folder.try_add(
        variant.name, "variants", lambda: folder.compile(variant.text), checks=checks, arrays=arrays,
        inputs=tuple(sources),
    )  # fmt: skip


def _array(number: int, shape: tuple[int, ...], dtype: str, other: str) -> np.ndarray:
    if dtype != "mask":
        return seeded(number + 1, dtype, shape, 1.0)
    hidden = seeded(number + 1, "bool", shape)
    hidden[..., 0] = False  # each row sees a key
    return np.where(hidden, np.float32(MASKED if other != "f16" else -6e4), 0).astype(seeded(0, other, (1,)).dtype)


def _variants() -> Iterator[Variant]:
    for dtype in ("f32", "f16", "bf16"):
        yield from _attentions(dtype)
        yield from _open(dtype)
    for dtype in ("f32", "f16"):
        yield from _convolutions(dtype)


def _attentions(dtype: str) -> Iterator[Variant]:
    for name, q, k, size, mask, flags in (
        ("mask of keys", (2, 12, 128, 64), (2, 12, 128, 64), 64, (2, 1, 1, 128), ""),
        ("mask of each head", (2, 4, 70, 64), (2, 4, 90, 64), 64, (2, 4, 70, 90), ""),
        ("mask and bound", (1, 4, 130, 128), (1, 4, 130, 128), 128, (130, 130), "causal = true"),
        ("booleans", (1, 4, 100, 64), (1, 4, 100, 64), 64, (100, 100), "bool"),
        ("after a cache", (1, 8, 32, 128), (1, 2, 500, 128), 128, None, "causal = true, at_end = true"),
        ("few queries after a cache", (2, 8, 3, 64), (2, 2, 333, 64), 64, None, "causal = true, at_end = true"),
        ("one query", (2, 16, 1, 128), (2, 4, 700, 128), 128, (2, 1, 1, 700), ""),
        ("values of another size", (1, 2, 150, 40), (1, 2, 700, 40), 72, None, ""),
        ("its own factor", (1, 2, 64, 256), (1, 2, 200, 256), 256, None, "scale = 0.1 : f64"),
    ):
        kinds = [f"{_dims(shape)}x{dtype}" for shape in (q, k, (*k[:3], size))]
        shapes, dtypes = [q, k, (*k[:3], size)], [dtype] * 3
        if mask is not None:
            is_bool = flags == "bool"
            kinds.append(f"{_dims(mask)}x{'i1' if is_bool else dtype}")
            shapes.append(mask)
            dtypes.append("bool" if is_bool else "mask")
        out = f"{_dims((*q[:3], size))}x{dtype}"
        text = _call("attention", kinds, out, "" if flags == "bool" else flags)
        yield Variant(f"attention {dtype}, {name}", text, shapes, dtypes, dtype)


def _open(dtype: str) -> Iterator[Variant]:
    """Yield products with dims that are known when a model is called."""
    x = f'tensor<?x256x{dtype}, #relax.dims<["n", 256]>>'
    w, y = f"tensor<256x320x{dtype}>", f'tensor<?x320x{dtype}, #relax.dims<["n", 320]>>'
    for rows in (1, 37, 200):
        text = f"""func.func @main(%0: {x}, %1: {w}) -> {y} {{
  %p = "relax.matmul"(%0, %1) : ({x}, {w}) -> {y}
  %y = "relax.softmax"(%p) {{axis = 1}} : ({y}) -> {y}
  return %y : {y}
}}"""
        shapes = [(rows, 256), (256, 320)]
        yield Variant(f"product and softmax {dtype}, {rows} open rows", text, shapes, [dtype] * 2, dtype)
    q = f'tensor<?x4x?x64x{dtype}, #relax.dims<["b", 4, "s", 64]>>'
    k = f'tensor<?x2x?x64x{dtype}, #relax.dims<["b", 2, "t", 64]>>'
    for batch, queries, keys in ((1, 1, 77), (2, 50, 130)):
        text = f"""func.func @main(%0: {q}, %1: {k}, %2: {k}) -> {q} {{
  %y = "relax.attention"(%0, %1, %2) : ({q}, {k}, {k}) -> {q}
  return %y : {q}
}}"""
        shapes = [(batch, 4, queries, 64), (batch, 2, keys, 64), (batch, 2, keys, 64)]
        yield Variant(f"attention {dtype}, {queries} over {keys}, open", text, shapes, [dtype] * 3, dtype)


def _convolutions(dtype: str) -> Iterator[Variant]:
    for name, x, w, flags, out in (
        ("channels first", (2, 24, 30, 28), (40, 24, 3, 3), "padding = array<i64: 1, 1, 1, 1>", (2, 40, 30, 28)),
        ("groups", (2, 24, 30, 28), (36, 8, 3, 3), "groups = 3 : i64", (2, 36, 28, 26)),
        ("of each channel", (2, 48, 30, 28), (48, 1, 3, 3), "groups = 48 : i64", (2, 48, 28, 26)),
        ("holes", (1, 16, 40, 40), (32, 16, 3, 3), "dilations = array<i64: 2, 3>", (1, 32, 36, 34)),
    ):
        kinds = [f"{_dims(shape)}x{dtype}" for shape in (x, w)]
        text = _call("conv", kinds, f"{_dims(out)}x{dtype}", flags)
        yield Variant(f"convolution {dtype}, {name}", text, [x, w], [dtype] * 2, dtype)


def _call(operator: str, kinds: Sequence[str], out: str, flags: str) -> str:
    names = ", ".join(f"%{i}" for i in range(len(kinds)))
    arguments = ", ".join(f"%{i}: tensor<{kind}>" for i, kind in enumerate(kinds))
    types = ", ".join(f"tensor<{kind}>" for kind in kinds)
    return f"""func.func @main({arguments}) -> tensor<{out}> {{
  %y = "relax.{operator}"({names}) {{{flags}}} : ({types}) -> tensor<{out}>
  return %y : tensor<{out}>
}}"""


def _dims(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
