"""Weights of a few bits are packed for each of the equal layers of a model, and what reads them is made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from equal_layers import check, compiled

from mirlo.passes.layers.once_per_layer import OncePerLayer
from mirlo.passes.pipeline import Pipeline
from mirlo.targets.llvm import nbits

PASSES = (
    "simplify,fold-constant,view-rows,pack-nbits{machine=avx512vnni},fold-constant{all=true packed=true widens=true},"
    "cse,remove-dead,legalize{target=llvm},annotate-kinds,fuse-ops{widen=true},fuse-tir"
)
KIND, COLUMNS, ROWS, BLOCK, COUNT = "tensor<5x32xf32>", 32, 32, 16, 10
BLOCKS = ROWS // BLOCK
DIFFERENT = "constants of the layers lead a pass to different decisions"


@dataclass(frozen=True)
class Weights:
    """The weights of one layer: what they are in memory, and what holds for their elements."""

    dtype: str = "i8"
    zeros: str = ""
    """Zero points: one number, or several."""
    is_f16: bool = False
    """Whether f16 represents the scales."""
    is_narrow: bool = False
    """Whether the weights fit in 5 bits."""
    experts: int = 0
    """Matrices of which one is chosen by an argument; 0 for one matrix."""

    def arrays(self, i: int) -> dict[str, np.ndarray]:
        random, lead = np.random.default_rng(i), (self.experts,) * bool(self.experts)
        shape, scales = (*lead, COLUMNS, ROWS), (*lead, COLUMNS, BLOCKS)
        low, high = {"i8": (-128, 128), "u8": (0, 256), "u4": (0, 256)}[self.dtype]
        if self.is_narrow:
            low, high = (-10, 10) if self.dtype == "i8" else (120, 140)
        packed = (*shape[:-1], ROWS // 2) if self.dtype == "u4" else shape
        kind = np.int8 if self.dtype == "i8" else np.uint8
        factors = random.integers(1, 9, scales) / 8 if self.is_f16 else random.uniform(0.1, 1, scales)
        arrays = {f"q{i}": random.integers(low, high, packed).astype(kind), f"s{i}": factors.astype(np.float32)}
        if self.zeros:
            points = (*scales[:-1], BLOCKS // 2) if self.dtype == "u4" else scales
            zero = np.full(points, 0x55 if self.dtype == "u4" else 5)
            several = random.integers(0, 100, points)
            arrays[f"z{i}"] = (zero if self.zeros == "one" else several).astype(kind)
        return arrays

    def text(self, i: int) -> str:
        element = {"i8": "i8", "u8": "ui8", "u4": "ui4"}[self.dtype]
        lines = self._constant("q", i, (COLUMNS, ROWS), element)
        lines += self._constant("s", i, (COLUMNS, BLOCKS), "f32")
        operands, kinds = f"%q{i}, %s{i}", f"tensor<{COLUMNS}x{ROWS}x{element}>, tensor<{COLUMNS}x{BLOCKS}xf32>"
        if self.zeros:
            lines += self._constant("z", i, (COLUMNS, BLOCKS), element)
            operands, kinds = f"{operands}, %z{i}", f"{kinds}, tensor<{COLUMNS}x{BLOCKS}x{element}>"
        weight = f"tensor<{COLUMNS}x{ROWS}xf32>"
        lines += [
            f'%w{i} = "relax.dequantize"({operands}) {{axis = 1 : i64, block = {BLOCK} : i64}} : ({kinds}) -> {weight}',
            f'%m{i} = "relax.matmul"(%x{i}, %w{i}) {{transpose_rhs = true}} : ({KIND}, {weight}) -> {KIND}',
            f'%r{i} = "relax.relu"(%m{i}) : ({KIND}) -> {KIND}',
            f'%y{i} = "relax.add"(%x{i}, %r{i}) : ({KIND}, {KIND}) -> {KIND}',
            f'%t{i} = "relax.tanh"(%y{i}) : ({KIND}) -> {KIND}',
            f'%x{i + 1} = "relax.negative"(%t{i}) : ({KIND}) -> {KIND}',
        ]
        return "\n".join(lines)

    def _constant(self, name: str, i: int, shape: tuple[int, int], element: str) -> list[str]:
        """Return a constant, the chosen matrix of it, and its elements of a few bits."""
        is_packed = element == "ui4"
        stored = "ui8" if is_packed else element
        sizes = f"{shape[0]}x{shape[1] // 2 if is_packed else shape[1]}x{stored}"
        lines, value = [], f"%{name}{i}"
        if is_packed:
            unpacked = f"tensor<{shape[0]}x{shape[1]}x{element}>"
            line = f'{value} = "relax.unpack"({value}_p) {{dtype = ui4}} : (tensor<{sizes}>) -> {unpacked}'
            lines, value = [line], f"{value}_p"
        if self.experts:
            whole = f"tensor<{self.experts}x{sizes}>"
            kinds = f"({whole}, tensor<i64>) -> tensor<{sizes}>"
            lines = [f'{value} = "relax.gather"({value}_w, %e) {{axis = 0 : i64}} : {kinds}', *lines]
            value, sizes = f"{value}_w", f"{self.experts}x{sizes}"
        return [f'{value} = "relax.constant"() {{param = "{name}{i}"}} : () -> tensor<{sizes}>', *lines]


def model_of(layers: list[Weights]) -> tuple[str, dict[str, np.ndarray]]:
    """Return a function of these layers, and its parameters."""
    body = "\n".join(layer.text(i) for i, layer in enumerate(layers))
    text = (
        f"func.func @main(%x0: {KIND}, %e: tensor<i64>) -> {KIND} attributes {{relax.entry}} {{\n{body}\n"
        f"return %x{len(layers)} : {KIND}\n}}"
    )
    arrays = {name: array for i, layer in enumerate(layers) for name, array in layer.arrays(i).items()}
    return text, arrays


def check_layers(layers: list[Weights], reason: str | None) -> str:
    text, arrays = model_of(layers)
    return check(text, reason, PASSES, arrays)


CASES = [Weights(*case) for case in product(("i8", "u8", "u4"), ("", "one", "own"), (False, True), (False, True))]


@pytest.mark.sample(8)
@pytest.mark.parametrize("weights", [*CASES, *(replace(case, experts=3) for case in CASES)], ids=str)
def test_equal_decisions(weights: Weights) -> None:
    code = check_layers([weights] * COUNT, None)
    assert code.count('.panels"') == COUNT
    assert '"relax.dequantize"' not in code


CHANGES: list[Callable[[Weights], Weights]] = [
    lambda weights: replace(weights, is_f16=True),
    lambda weights: replace(weights, is_narrow=True),
    lambda weights: replace(weights, zeros="one"),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("at", [0, 1, COUNT // 2, COUNT - 2, COUNT - 1])
@pytest.mark.parametrize("experts", [0, 3])
def test_one_layer_has_another_decision(change: Callable[[Weights], Weights], at: int, experts: int) -> None:
    """The first layers and the last one are their own; where one in between differs, passes run on all layers."""
    weights = Weights(zeros="own", experts=experts)
    layers = [weights] * COUNT
    layers[at] = change(weights)
    check_layers(layers, None if at in (0, 1, COUNT - 1) else DIFFERENT)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_few_layers(count: int) -> None:
    check_layers([Weights()] * count, "no operations repeat often enough")


@pytest.mark.parametrize("experts", [0, 3])
def test_less_is_decided_for_more_layers(experts: int) -> None:
    """The pass looks at as many products, however many layers there are."""

    def products(count: int) -> int:
        seen: list[object] = []
        matched = nbits.match_weights
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nbits, "match_weights", lambda *given: seen.append(given) or matched(*given))
            text, arrays = model_of([Weights(experts=experts)] * count)
            compiled(text, Pipeline([OncePerLayer(PASSES)]), arrays)
        return len(seen)

    assert products(COUNT) == products(2 * COUNT) > 0
