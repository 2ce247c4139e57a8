"""Programs of one operator with static sizes, generated from a seed: small and odd sizes, all layouts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attention_cases import Case

SIZES = (1, 2, 3, 5, 7, 8, 16, 17, 33, 64, 100)
KINDS = (("f32", "f32"), ("i8", "i32"))
"""Types of operands, and of sums of their products."""


@dataclass(frozen=True)
class Program:
    """An operator with its attributes, and the types of its operands and its result."""

    operator: str
    attributes: dict[str, str]
    operands: tuple[str, ...]
    result: str

    def text(self, is_constant: bool) -> str:
        """Return a module; the second operand may be a constant, whose layout passes may change."""
        constant = "" if len(self.operands) < 2 or not is_constant else self.operands[1]
        names = [f"%{i}" for i in range(len(self.operands))]
        taken = names[:1] if constant else names
        one = "1" if constant.endswith("i8>") else "1.0"
        parameters = ", ".join(f"{name}: {kind}" for name, kind in zip(taken, self.operands, strict=False))
        made = f'%1 = "relax.constant"() {{value = dense<{one}> : {constant}}} : () -> {constant}\n' if constant else ""
        attributes = ", ".join(f"{name} = {value}" for name, value in self.attributes.items())
        call = f'"relax.{self.operator}"({", ".join(names)}) {{{attributes}}} : ({", ".join(self.operands)})'
        return (
            f"func.func @main({parameters}) -> {self.result} {{\n{made}%y = {call} -> {self.result}\n"
            f"return %y : {self.result}\n}}\n"
        )


def tensor(dims: Sequence[int], kind: str = "f32") -> str:
    return f"tensor<{'x'.join(map(str, dims))}x{kind}>"


def numbers(values: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, values))}>"


def shape(rng: random.Random, least: int = 1, most: int = 4) -> list[int]:
    return [rng.choice(SIZES) for _ in range(rng.randint(least, most))]


@dataclass(frozen=True)
class Window:
    """Windows over an image, and how many there are along each axis."""

    taps: list[int]
    strides: list[int]
    dilations: list[int]
    padding: list[int]
    sizes: list[int]
    counts: list[int]


def window(rng: random.Random, is_pool: bool = False, most: int = 3) -> Window:
    """Return windows with padding on either side, of up to one window, and less for pools."""
    count = min(most, rng.choice((1, 2, 2, 3)))
    taps = [rng.choice((1, 1, 2, 3, 4)) for _ in range(count)]
    strides = [rng.choice((1, 1, 2, 3)) for _ in range(count)]
    dilations = [1 if is_pool else rng.choice((1, 1, 2)) for _ in range(count)]
    before, after = ([rng.randint(0, size - is_pool) for size in taps] for _ in range(2))
    spans = [(size - 1) * step + 1 for size, step in zip(taps, dilations, strict=True)]
    sizes = [span + rng.randint(0, 9) for span in spans]
    counts = [
        (size + first + last - span) // stride + 1
        for size, first, last, span, stride in zip(sizes, before, after, spans, strides, strict=True)
    ]
    return Window(taps, strides, dilations, [*before, *after], sizes, counts)


def image(dims: Sequence[int], channels: int, is_last: bool) -> list[int]:
    return [1, *dims, channels] if is_last else [1, channels, *dims]


def convolution(rng: random.Random) -> Program:
    """Return a convolution of floats or bytes: whole, in groups, or of each channel."""
    over, is_last, (kind, out) = window(rng), rng.random() < 0.6, rng.choice(KINDS)
    is_depthwise = rng.random() < 0.3
    groups = rng.choice((1, 3, 8, 16, 33)) if is_depthwise else rng.choice((1, 1, 1, 2))
    inner = 1 if is_depthwise else rng.choice((1, 3, 4, 4, 8, 17))
    filters = groups * rng.choice((1, 1, 2) if is_depthwise else (1, 5, 16, 33))
    weight = [filters, *over.taps, inner] if is_last else [filters, inner, *over.taps]
    attributes = {
        "strides": numbers(over.strides), "dilations": numbers(over.dilations), "padding": numbers(over.padding),
        "groups": f"{groups} : i64", "out_dtype": out, "data_layout": '"N*C"' if is_last else '"NC*"',
        "kernel_layout": '"O*I"' if is_last else '"OI*"',
    }  # fmt: skip
    x, y = image(over.sizes, groups * inner, is_last), image(over.counts, filters, is_last)
    return Program("conv", attributes, (tensor(x, kind), tensor(weight, kind)), tensor(y, out))


def transposed_convolution(rng: random.Random) -> Program:
    """Return a transposed convolution over one or two axes."""
    # With three axes, the gather of weights has masks of quotients of quotients, which are not proven.
    over, channels, filters = window(rng, most=2), rng.choice((1, 3, 8)), rng.choice((1, 5, 16))
    x, weight = [1, *over.sizes, channels], [channels, filters, *over.taps]
    spans = zip(over.sizes, over.strides, over.taps, strict=True)
    y = [1, *((size - 1) * stride + taps for size, stride, taps in spans), filters]
    attributes = {"strides": numbers(over.strides), "data_layout": '"N*C"'}
    return Program("conv_transpose", attributes, (tensor(x), tensor(weight)), tensor(y))


def product(rng: random.Random) -> Program:
    """Return a product of matrices, of floats or bytes."""
    rows, depth, columns = (rng.choice(SIZES) for _ in range(3))
    kind, out = rng.choice((*KINDS, ("bf16", "f32")))
    is_transposed = rng.random() < 0.5
    weight = [columns, depth] if is_transposed else [depth, columns]
    attributes = {"out_dtype": out, "transpose_rhs": str(is_transposed).lower()}
    return Program(
        "matmul", attributes, (tensor([rows, depth], kind), tensor(weight, kind)), tensor([rows, columns], out)
    )


def pool(rng: random.Random) -> Program:
    over, is_last, channels = window(rng, is_pool=True), rng.random() < 0.5, rng.choice(SIZES)
    attributes = {
        "kernel": numbers(over.taps), "strides": numbers(over.strides), "padding": numbers(over.padding),
        "data_layout": '"N*C"' if is_last else '"NC*"',
    }  # fmt: skip
    x, y = (tensor(image(dims, channels, is_last)) for dims in (over.sizes, over.counts))
    return Program(rng.choice(("max_pool", "avg_pool")), attributes, (x,), y)


def permutation(rng: random.Random) -> Program:
    dims, kind = shape(rng, 2, 4), rng.choice(("f32", "i8", "i64"))
    order = rng.sample(range(len(dims)), len(dims))
    moved = tensor([dims[axis] for axis in order], kind)
    return Program("permute", {"axes": numbers(order)}, (tensor(dims, kind),), moved)


def reduction(rng: random.Random) -> Program:
    dims = shape(rng)
    axes = sorted(rng.sample(range(len(dims)), rng.randint(1, len(dims))))
    kept = [1 if axis in axes else dim for axis, dim in enumerate(dims)]
    operator = rng.choice(("reduce_sum", "reduce_max", "reduce_mean", "reduce_prod"))
    return Program(operator, {"axes": numbers(axes), "keepdims": "true"}, (tensor(dims),), tensor(kept))


def softmax(rng: random.Random) -> Program:
    dims = shape(rng)
    return Program("softmax", {"axis": f"{rng.randrange(len(dims))} : i64"}, (tensor(dims),), tensor(dims))


def padding(rng: random.Random) -> Program:
    """Return padding that may crop, with a number or with the edge."""
    dims, mode = shape(rng), rng.choice(("constant", "edge"))
    pads = [rng.randint(0 if mode == "edge" or dims[i % len(dims)] < 3 else -1, 3) for i in range(2 * len(dims))]
    grown = [dim + pads[i] + pads[i + len(dims)] for i, dim in enumerate(dims)]
    return Program("pad", {"pads": numbers(pads), "mode": f'"{mode}"'}, (tensor(dims),), tensor(grown))


def resampling(rng: random.Random) -> Program:
    old, new = ([rng.randint(1, most), rng.randint(1, most)] for most in (9, 20))
    channels, is_last = rng.choice((1, 3, 16)), rng.random() < 0.5
    x, y = (image(dims, channels, is_last) for dims in (old, new))
    words = {"mode": ("nearest", "linear", "cubic"), "coordinates": ("half_pixel", "align_corners", "asymmetric")}
    attributes = {"shape": str(y)} | {name: f'"{rng.choice(values)}"' for name, values in words.items()}
    return Program("resize", attributes, (tensor(x),), tensor(y))


def attention(rng: random.Random) -> Case:
    """Return an attention with few or many heads, keys and elements; tokens before or after heads."""
    groups, heads = rng.choice((1, 1, 2)), rng.choice((1, 2, 3, 6, 8, 17))
    batch, rows, keys = rng.choice((1, 2)), rng.choice(SIZES), rng.choice(SIZES)
    sizes = (1, 1, 2, 3, 8, 16, 33)
    mask = (rng.choice((1, batch)), rng.choice((1, groups * heads)), rng.choice((1, rows)), keys)
    depth = rng.choice(sizes)
    return Case(
        (batch, groups * heads, rows, depth), (batch, heads, keys, depth), rng.choice(sizes),
        rng.choice((None, mask)), causal=rng.random() < 0.3, transposed=rng.random() < 0.6,
    )  # fmt: skip


GENERATORS: tuple[Callable[[random.Random], Program], ...] = (
    convolution, convolution, convolution, transposed_convolution, product, pool, permutation, reduction, softmax,
    padding, resampling,
)  # fmt: skip
