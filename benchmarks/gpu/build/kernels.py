"""Kernels whose time counts, at their full size and small: products, convolutions, attention, rows and elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..unit import Check
from .folder import Folder

BOUNDS = {"f32": 2e-5, "f16": 3e-3, "bf16": 2e-2, "f64": 1e-11}
"""Largest errors, relative to the largest number."""
ROWS, COLUMNS = 16384, 4096


@dataclass(frozen=True)
class Format:
    """A format of factors, and of the result."""

    name: str
    element: str
    result: str
    bound: float
    options: str = ""


FORMATS = {
    form.name: form
    for form in (
        Format("f32", "f32", "f32", 2e-5),
        Format("tf32", "f32", "f32", 3e-3, "tf32=true"),
        Format("f16", "f16", "f16", 3e-3),
        Format("bf16", "bf16", "bf16", 2e-2),
        Format("i8", "i8", "i32", 0.0),
        Format("f8e4m3", "f8E4M3FN", "f32", 5e-3),
        Format("f8e5m2", "f8E5M2", "f32", 5e-3),
    )
}
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1, "i32": 4, "f8E4M3FN": 1, "f8E5M2": 1, "f64": 8}


def add_product(
    folder: Folder, form: str, size: Sequence[int], transposed: str = "", is_measured: bool = True, options: str = "",
    library: str = "",
) -> None:  # fmt: skip
    """Add a product of m x k by k x n; the operands in `transposed` are given transposed."""
    kind = FORMATS[form]
    m, n, k = size
    shapes = [(k, m) if "a" in transposed else (m, k), (n, k) if "b" in transposed else (k, n)]
    operands = [_tensor(shape, kind.element) for shape in shapes]
    flags = f"transpose_lhs = {str('a' in transposed).lower()}, transpose_rhs = {str('b' in transposed).lower()}"
    result = _tensor((m, n), kind.result)
    text = f"""func.func @main(%0: {operands[0]}, %1: {operands[1]}) -> {result} {{
  %y = "relax.matmul"(%0, %1) {{{flags}, out_dtype = {kind.result}}} : ({operands[0]}, {operands[1]}) -> {result}
  return %y : {result}
}}"""
    name = " ".join([f"product {form} {_sizes(size)}", *([f"{transposed} transposed"] if transposed else [])])
    name += f" {options}" if options else ""
    name += f" by {library}" if library else ""
    bytes_ = BYTES[kind.element] * (m * k + k * n) + BYTES[kind.result] * m * n
    chosen = " ".join(filter(None, (kind.options, options)))
    folder.try_add(
        name, "libraries" if library else "products", lambda: folder.compile(text, chosen, library), inputs=_seeds(2),
        checks=(Check("product", (0,), "product", kind.bound, {"transposed": transposed}),), is_measured=is_measured,
        peer={"name": "product", "transposed": transposed, "tf32": form == "tf32"},
        flops=2.0 * m * n * k, moved=float(bytes_),
        is_small=m * n * k <= 1 << 28 and not library, seconds=120.0,
    )  # fmt: skip


@dataclass(frozen=True)
class Attention:
    """An attention: new tokens, those before, heads, heads of keys, the size of a head."""

    dtype: str
    new: int
    seen: int
    heads: int = 16
    shared: int = 16
    size: int = 128
    causal: bool = False
    batch: int = 1

    @property
    def name(self) -> str:
        """Return a description of the unit."""
        shared = f" of {self.shared}" if self.shared != self.heads else ""
        batch = f"{self.batch} x " if self.batch > 1 else ""
        return (
            f"attention {self.dtype} {batch}{self.heads}{shared} heads of {self.size}, {self.new} over {self.seen}"
            f"{', causal' if self.causal else ''}"
        )


def add_attention(
    folder: Folder, case: Attention, is_measured: bool = True, options: str = "", library: str = ""
) -> None:
    """Attention over a prompt, or for some new tokens."""
    q = _tensor((case.batch, case.heads, case.new, case.size), case.dtype)
    k = _tensor((case.batch, case.shared, case.seen, case.size), case.dtype)
    text = f"""func.func @main(%q: {q}, %k: {k}, %v: {k}) -> {q} {{
  %y = "relax.attention"(%q, %k, %v) {{causal = {str(case.causal).lower()}}} : ({q}, {k}, {k}) -> {q}
  return %y : {q}
}}"""
    work = 4.0 * case.batch * case.heads * case.new * case.seen * case.size * (0.5 if case.causal else 1.0)
    elements = 2 * case.batch * case.size * (case.heads * case.new + case.shared * case.seen)
    folder.try_add(
        f"{case.name}{f' {options}' if options else ''}{f' by {library}' if library else ''}",
        "libraries" if library else "attention", lambda: folder.compile(text, options, library), inputs=_seeds(3, 1.0),
        checks=(Check("attention", (0,), "attention", BOUNDS[case.dtype], {"causal": case.causal}),),
        is_measured=is_measured, peer={"name": "attention", "causal": case.causal}, flops=work,
        moved=float(elements * BYTES[case.dtype]), seconds=120.0,
        is_small=case.new * case.seen <= 1 << 18 and not library,
    )  # fmt: skip


def add_convolution(
    folder: Folder, dtype: str, images: int, side: int, channels: int, out: int, window: int = 3, strides: int = 1,
    is_measured: bool = True,
) -> None:  # fmt: skip
    """Add a convolution of images, channels last."""
    pad = window // 2
    size = (side + 2 * pad - window) // strides + 1
    x, w = _tensor((images, side, side, channels), dtype), _tensor((window, window, channels, out), dtype)
    y = _tensor((images, size, size, out), dtype)
    text = f"""func.func @main(%0: {x}, %1: {w}) -> {y} {{
  %y = "relax.conv"(%0, %1) {{padding = array<i64: {pad}, {pad}, {pad}, {pad}>,
    strides = array<i64: {strides}, {strides}>, data_layout = "N*C", kernel_layout = "*IO"}} : ({x}, {w}) -> {y}
  return %y : {y}
}}"""
    folder.try_add(
        f"convolution {dtype} {images}x{side}x{side}x{channels} to {out}, {window}x{window} by {strides}",
        "convolutions", lambda: folder.compile(text), inputs=_seeds(2),
        checks=(Check("convolution", (0,), "convolution", BOUNDS[dtype], {"strides": strides, "padding": pad}),),
        is_measured=is_measured, peer={"name": "convolution", "strides": strides, "padding": pad},
        flops=2.0 * images * size * size * out * channels * window * window, is_small=images * side <= 64,
        seconds=120.0,
    )  # fmt: skip


def add_rows(
    folder: Folder, function: str, dtype: str, rows: int = ROWS, columns: int = COLUMNS, is_measured: bool = True
) -> None:
    """Add functions of rows or elements that are bound by memory."""
    x, line = _tensor((rows, columns), dtype), _tensor((columns,), dtype)
    operands = {"add": [x, x], "layer_norm": [x, line, line]}.get(function, [x])
    operator, flags, result = {
        "add": ("add", "", x),
        "gelu": ("gelu", '{approximate = "tanh"}', x),
        "layer_norm": ("layer_norm", "{operandSegmentSizes = array<i32: 1, 1, 1>}", x),
        "softmax": ("softmax", "{axis = 1}", x),
        "sum": ("reduce_sum", "{axes = array<i64: 1>, keepdims = false}", _tensor((rows,), dtype)),
    }[function]
    names = ", ".join(f"%{i}" for i in range(len(operands)))
    arguments = ", ".join(f"%{i}: {kind}" for i, kind in enumerate(operands))
    text = f"""func.func @main({arguments}) -> {result} {{
  %y = "relax.{operator}"({names}) {flags} : ({", ".join(operands)}) -> {result}
  return %y : {result}
}}"""
    count = rows * columns * (3 if function == "add" else 1 if function == "sum" else 2)
    folder.try_add(
        f"{function} {dtype} {rows}x{columns}", "rows", lambda: folder.compile(text), inputs=_seeds(len(operands), 2.0),
        checks=(Check(function, (0,), "rows", BOUNDS[dtype], {"function": function}),), is_measured=is_measured,
        peer={"name": "rows", "function": function}, moved=float(count * BYTES[dtype]),
        is_small=rows * columns <= 1 << 20, seconds=90.0,
    )  # fmt: skip


def _tensor(shape: Sequence[int], element: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


def _sizes(size: Sequence[int]) -> str:
    return f"{size[0]}³" if len(set(size)) == 1 else "x".join(map(str, size))


def _seeds(count: int, scale: float = 0.25) -> tuple[dict[str, Any], ...]:
    return tuple({"seed": seed + 1, "how": {"scale": scale}} for seed in range(count))
