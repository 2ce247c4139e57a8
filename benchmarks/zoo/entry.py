"""Entries of the zoo: how to construct a model, and which inputs it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Sizes = Mapping[str, int]
Fill = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

SIZES: Mapping[str, tuple[int, int, int]] = {
    "batch": (2, 1, 3),
    "height": (64, 96, 128),
    "width": (64, 128, 96),
    "seq": (16, 7, 33),
    "target_seq": (8, 5, 12),
    "samples": (4000, 3200, 5600),
    "frames": (40, 32, 56),
    "nodes": (10, 5, 17),
    "edges": (30, 12, 40),
    "rows": (8, 1, 1000),
}
"""The three values of each dim: models are exported with the first of them."""

TORCHSCRIPT, DYNAMO, CONVERTED = "torchscript", "dynamo", "converter"
STATIC, DYNAMIC = "static", "dynamic"


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return standard normal f32 numbers."""
    return rng.standard_normal(shape, dtype=np.float32)


def uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return f32 numbers from 0 to 1."""
    return rng.random(shape, dtype=np.float32)


def integers(end: int, start: int = 0) -> Fill:
    """Return a fill of int64 numbers from `start` to `end - 1`."""
    return lambda rng, shape: rng.integers(start, end, shape, dtype=np.int64)


def ones(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return int64 ones."""
    return np.ones(shape, np.int64)


def mask(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return an int64 attention mask: in each row ones, then zeros."""
    lengths = rng.integers((shape[-1] + 1) // 2, shape[-1] + 1, (*shape[:-1], 1))
    return (np.arange(shape[-1]) < lengths).astype(np.int64)


@dataclass(frozen=True)
class Input:
    """An input: its name, its dims (numbers and names of dims) and how to fill it."""

    name: str
    dims: tuple[int | str, ...]
    fill: Fill = normal

    def array(self, rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
        """Return random values of the shape that the sizes give."""
        return self.fill(rng, tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.dims))


@dataclass(frozen=True)
class Entry:
    """A model of the zoo."""

    name: str
    family: str
    make: Callable[[], Any]
    """Returns a torch module; of the exporter `converter`, the bytes of an ONNX model."""
    inputs: tuple[Input, ...]
    sizes: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    """Values of dims that differ from SIZES."""
    exporters: tuple[str, ...] = (TORCHSCRIPT, DYNAMO)
    shapes: tuple[str, ...] = (STATIC, DYNAMIC)
    opset: int = 17
    """For TorchScript; the dynamo exporter takes 18 at least."""
    fixed: frozenset[str] = frozenset()
    """Dims that stay numbers in exports with dynamic shapes."""

    def size(self, index: int) -> Sizes:
        """Return the values of all dims for one of the three shapes."""
        return {dim: values[index] for dim, values in {**SIZES, **self.sizes}.items()}

    def arrays(self, index: int, seed: int) -> dict[str, np.ndarray]:
        """Return inputs for one of the three shapes."""
        rng, sizes = np.random.default_rng(seed), self.size(index)
        return {each.name: each.array(rng, sizes) for each in self.inputs}

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """Return the named dims of each input."""
        axes = {
            each.name: {i: d for i, d in enumerate(each.dims) if isinstance(d, str) and d not in self.fixed}
            for each in self.inputs
        }
        return {name: dims for name, dims in axes.items() if dims}


@dataclass(frozen=True)
class Variant:
    """An entry, exported in one of the ways that it can be."""

    entry: Entry
    exporter: str
    shapes: str

    @property
    def name(self) -> str:
        return f"{self.entry.family}/{self.entry.name}.{self.exporter}.{self.shapes}"


def variants(entry: Entry) -> list[Variant]:
    """Return all exports of an entry."""
    shapes = entry.shapes if entry.dynamic_axes() else (STATIC,)
    return [Variant(entry, exporter, each) for exporter in entry.exporters for each in shapes]
