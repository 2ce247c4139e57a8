"""Attentions with all kinds of masks and heads, and their reference in numpy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

Shape = tuple[Any, ...]
"""Of numbers, and of names of what is known at run time only."""
DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64}


@dataclass(frozen=True)
class Case:
    """One attention: shapes, what mask there is, and attributes."""

    query: Shape
    key: Shape
    value_size: int
    mask: Shape | None = None
    kind: str = "f32"
    """Element type of the mask."""
    scale: float | None = None
    causal: bool = False
    at_end: bool = False
    softcap: float | None = None
    sinks: bool = False
    transposed: bool = False
    """Whether tokens come before heads in memory, as models have them: transposes stand around it."""

    def text(self, dtype: str = "f32") -> str:
        """Return a module that computes the case."""

        def tensor(shape: Shape, kind: str = dtype) -> str:
            sizes = "x".join("?" if isinstance(dim, str) else str(dim) for dim in shape)
            dims = ", ".join(f'"{dim}"' if isinstance(dim, str) else str(dim) for dim in shape)
            return f"tensor<{sizes}x{kind}" + (f", #relax.dims<[{dims}]>>" if "?" in sizes else ">")

        kind = dtype if self.kind == "f32" else self.kind
        value = (*self.key[:3], self.value_size)
        types = [tensor(self.query), tensor(self.key), tensor(value)]
        types += [tensor(self.mask, kind)] if self.mask else []
        types += [tensor((self.query[1],))] if self.sinks else []
        operator = "relax.attention_with_sinks" if self.sinks else "relax.attention"
        names = [f"%a{i}" for i in range(len(types))]
        given = types
        if self.transposed:
            given = [*(tensor(_turned(shape)) for shape in (self.query, self.key, value)), *types[3:]]
        arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, given, strict=True))
        attributes = [f"causal = {str(self.causal).lower()}", f"at_end = {str(self.at_end).lower()}"]
        attributes += [f"scale = {self.scale:e} : f64"] if self.scale is not None else []
        attributes += [f"softcap = {self.softcap:e} : f64"] if self.softcap is not None else []
        out = tensor((*self.query[:3], self.value_size))
        if self.transposed:
            made = tensor(_turned((*self.query[:3], self.value_size)))
            axes = "{axes = array<i64: 0, 2, 1, 3>}"
            turns = "\n".join(
                f'%t{i} = "relax.permute"({names[i]}) {axes} : ({given[i]}) -> {types[i]}' for i in range(3)
            )
            return f"""func.func @main({arguments}) -> {made} {{
              {turns}
              %0 = "{operator}"({", ".join(["%t0", "%t1", "%t2", *names[3:]])}) {{{", ".join(attributes)}}}
                : ({", ".join(types)}) -> {out}
              %1 = "relax.permute"(%0) {axes} : ({out}) -> {made}
              return %1 : {made}
            }}"""
        return f"""func.func @main({arguments}) -> {out} {{
          %0 = "{operator}"({", ".join(names)}) {{{", ".join(attributes)}}} : ({", ".join(types)}) -> {out}
          return %0 : {out}
        }}"""

    def at(self, **sizes: int) -> Case:
        """Return the case with these sizes in place of names."""

        def known(shape: Shape | None) -> Any:
            return None if shape is None else tuple(sizes.get(dim, dim) for dim in shape)

        return replace(self, query=known(self.query), key=known(self.key), mask=known(self.mask))

    def arrays(self, dtype: str = "f32") -> list[np.ndarray]:
        """Return random operands; with a mask, one row sees no key at all."""
        rng = np.random.default_rng(0)
        shapes = (self.query, self.key, (*self.key[:3], self.value_size))
        made = [rng.standard_normal(shape, dtype=np.float32).astype(DTYPES[dtype]) for shape in shapes]
        if self.transposed:
            made = [np.ascontiguousarray(array.swapaxes(1, 2)) for array in made]
        if self.mask:
            seen = rng.random(self.mask) < 0.7
            seen[..., :1, :] &= seen.shape[-2] == 1
            added = np.where(seen, rng.standard_normal(self.mask), -np.inf).astype(DTYPES[dtype])
            made.append(seen if self.kind == "i1" else added)
        if self.sinks:
            made.append(rng.standard_normal(self.query[1], dtype=np.float32).astype(DTYPES[dtype]))
        return made

    def expected(self, arrays: list[np.ndarray]) -> np.ndarray:
        """Return the result in f64."""
        mask = arrays[3] if self.mask else None
        q, k, v = (array.swapaxes(1, 2) if self.transposed else array for array in arrays[:3])
        past = (k.shape[2] - q.shape[2] if self.at_end else 0) if self.causal else None
        found = reference(q, k, v, mask, self.scale, past, self.softcap, arrays[-1] if self.sinks else None)
        return found.swapaxes(1, 2) if self.transposed else found


def _turned(shape: Shape) -> Shape:
    """Return the tensor with tokens before heads."""
    return (shape[0], shape[2], shape[1], shape[3])


TURNED_CASES = {
    "bert": Case((2, 3, 16, 32), (2, 3, 16, 32), 32, (2, 1, 1, 16), transposed=True),
    "gpt": Case((1, 2, 40, 16), (1, 2, 40, 16), 16, causal=True, transposed=True),
    "vit": Case((2, 2, 19, 16), (2, 2, 19, 16), 16, transposed=True),
    "as many heads as tokens": Case((1, 8, 8, 16), (1, 8, 8, 16), 16, (1, 8, 8, 8), transposed=True),
}
"""Attention as models have it: transposes around it become part of it."""
OPEN_CASES = {
    "any lengths": Case(("b", 4, "s", 16), ("b", 2, "t", 16), 24),
    "a mask": Case(("b", 4, "s", 16), ("b", 2, "t", 16), 16, ("b", 1, "s", "t")),
    "a mask of keys": Case(("b", 2, "s", 16), ("b", 2, "t", 16), 16, ("b", 1, 1, "t"), "i1"),
    "causal": Case(("b", 4, "s", 16), ("b", 2, "s", 16), 16, causal=True),
    "behind a cache": Case(("b", 4, "s", 16), ("b", 4, "t", 16), 16, causal=True, at_end=True),
    "one query": Case(("b", 4, 1, 16), ("b", 1, "t", 16), 16),
    "keys that are known": Case(("b", 2, "s", 16), ("b", 2, 50, 16), 16, scale=0.5),
}
OPEN_SIZES = (
    {"b": 1, "s": 1, "t": 1}, {"b": 2, "s": 1, "t": 40}, {"b": 1, "s": 5, "t": 37}, {"b": 1, "s": 70, "t": 64},
    {"b": 1, "s": 1, "t": 1100}, {"b": 1, "s": 3, "t": 600}, {"b": 2, "s": 2, "t": 0}, {"b": 0, "s": 3, "t": 4},
    {"b": 2, "s": 0, "t": 3},
)  # fmt: skip
"""Edges of tiles, of which there are none, one, and several; keys that are divided, or not there."""


def reference(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None,
    scale: float | None,
    past: int | None,
    softcap: float | None = None,
    sinks: np.ndarray | None = None,
) -> np.ndarray:
    """softmax(q @ k^T * scale + mask) @ v, of a row without keys zero. With `past`, row s sees keys up to s + past."""
    groups = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype(np.float64), groups, axis=1) for x in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(2, 3) * (scale if scale is not None else q.shape[3] ** -0.5)
    if softcap is not None:
        scores = np.tanh(scores / softcap) * softcap
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask.astype(np.float64)
    if past is not None:
        scores = np.where(np.tri(*scores.shape[2:], past, dtype=bool), scores, -np.inf)
    peak = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks.astype(np.float64)[:, None, None] - np.where(np.isfinite(peak), peak, 0))
    return weights @ v / np.where(total == 0, 1, total)


CASES = {
    "bert": Case((2, 3, 16, 32), (2, 3, 16, 32), 32, (2, 1, 1, 16)),
    "odd": Case((1, 3, 19, 24), (1, 3, 37, 24), 40, scale=0.3),
    "causal": Case((1, 2, 33, 16), (1, 2, 33, 16), 16, causal=True),
    "mask of each head": Case((2, 2, 9, 16), (2, 2, 21, 16), 16, (2, 2, 9, 21)),
    "bool mask": Case((1, 2, 20, 16), (1, 2, 20, 16), 16, (20, 20), "i1"),
    "grouped": Case((2, 6, 17, 16), (2, 2, 23, 16), 16, (2, 1, 17, 23)),
    "grouped, causal": Case((1, 4, 30, 16), (1, 2, 30, 16), 16, causal=True),
    "grouped, a mask of each head": Case((1, 4, 10, 16), (1, 2, 30, 16), 16, (1, 4, 10, 30)),
    "behind a cache": Case((2, 4, 20, 16), (2, 2, 75, 16), 16, causal=True, at_end=True),
    "one head": Case((1, 1, 70, 16), (1, 1, 50, 16), 16),
    "one element a head": Case((1, 6, 56, 1), (1, 6, 56, 1), 1, (1, 1, 56, 56), transposed=True),
    "one row of one key": Case((2, 8, 1, 3), (2, 8, 1, 3), 1),
    "blocks": Case((1, 2, 150, 16), (1, 2, 700, 16), 16, (1, 1, 1, 700)),
    "decode": Case((1, 4, 1, 32), (1, 4, 100, 32), 32, (1, 1, 1, 100)),
    "decode, grouped": Case((2, 8, 1, 32), (2, 2, 100, 32), 32),
    "one row": Case((1, 1, 1, 32), (1, 1, 40, 32), 32),
    "one key": Case((1, 2, 5, 16), (1, 2, 1, 16), 16),
    "small": Case((1, 2, 3, 2), (1, 2, 3, 2), 2, causal=True),
}
