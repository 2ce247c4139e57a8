"""Numbers of scheduled convolutions against a plain numpy one in double precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from kernels import Kernel

from mirlo.dialects.tir.compute import maximum
from mirlo.targets.llvm.options import find_machine


@dataclass(frozen=True)
class Conv:
    """A convolution over `len(size)` dims."""

    batch: int
    channels: int
    size: tuple[int, ...]
    out: int
    window: tuple[int, ...]
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    groups: int = 1
    nhwc: bool = True
    epilogue: str = ""

    @property
    def counts(self) -> tuple[int, ...]:
        reach = [(w - 1) * self.dilation + 1 for w in self.window]
        return tuple((s + 2 * self.pad - r) // self.stride + 1 for s, r in zip(self.size, reach, strict=True))

    def data(self, channels: int, size: tuple[int, ...]) -> tuple[int, ...]:
        return (self.batch, *size, channels) if self.nhwc else (self.batch, channels, *size)

    @property
    def weights(self) -> tuple[int, ...]:
        group_in = self.channels // self.groups
        return (*self.window, group_in, self.out) if self.nhwc else (self.out, group_in, *self.window)

    def body(self, p: Any, x: Any, w: Any, *more: Any) -> Any:
        rank, group_in, group_out = len(self.size), self.channels // self.groups, self.out // self.groups
        shape = self.data(self.out, self.counts)

        def split(axes: Any) -> tuple[Any, Any, list[Any]]:
            return (axes[0], axes[-1], list(axes[1:-1])) if self.nhwc else (axes[0], axes[1], list(axes[2:]))

        def element(*axes: Any) -> Any:
            n, oc, at = split(axes[: rank + 2])
            ic, *taps = axes[rank + 2 :]
            channel = ic if self.groups == 1 else (oc // group_out) * group_in + ic
            read = [o * self.stride + t * self.dilation - self.pad for o, t in zip(at, taps, strict=True)]
            outside = 0.0 if self.pad else None
            value = x.at(n, *((*read, channel) if self.nhwc else (channel, *read)), outside=outside)
            return value * w.at(*((*taps, ic, oc) if self.nhwc else (oc, ic, *taps)))

        made = p.reduce("add", shape, (group_in, *self.window), element, name="conv")
        if "bias" in self.epilogue:
            before = made
            made = p.compute(shape, lambda *i: before.at(*i) + more[0][split(i)[1]], name="bias")
        if "residual" in self.epilogue:
            plain = made
            made = p.compute(shape, lambda *i: plain.at(*i) + more[-1].at(*i), name="residual")
        if "relu" in self.epilogue:
            raw = made
            made = p.compute(shape, lambda *i: maximum(raw.at(*i), 0.0), name="relu")
        return made

    def reference(self, x: np.ndarray, w: np.ndarray, *more: np.ndarray) -> np.ndarray:
        x, w = x.astype(np.float64), w.astype(np.float64)
        if self.nhwc:
            x, w = np.moveaxis(x, -1, 1), np.moveaxis(w, (-1, -2), (0, 1))
        x = np.pad(x, [(0, 0), (0, 0)] + [(self.pad, self.pad)] * len(self.size))
        group_in, group_out = self.channels // self.groups, self.out // self.groups
        out = np.zeros((self.batch, self.out, *self.counts))
        for taps in product(*map(range, self.window)):
            steps = [slice(t * self.dilation, t * self.dilation + (c - 1) * self.stride + 1, self.stride)
                     for t, c in zip(taps, self.counts, strict=True)]  # fmt: skip
            for g in range(self.groups):
                ins, outs = slice(g * group_in, (g + 1) * group_in), slice(g * group_out, (g + 1) * group_out)
                read = x[(slice(None), ins, *steps)]
                out[:, outs] += np.einsum("nc...,oc->no...", read, w[(outs, slice(None), *taps)])
        out = np.moveaxis(out, 1, -1) if self.nhwc else out
        if "bias" in self.epilogue:
            out = out + (more[0] if self.nhwc else more[0].reshape(-1, *[1] * len(self.size)))
        if "residual" in self.epilogue:
            out = out + more[-1]
        return np.maximum(out, 0) if "relu" in self.epilogue else out

    def check(self, machine: str | None = None) -> Kernel:
        generator = np.random.default_rng(0)
        shapes = [self.data(self.channels, self.size), self.weights]
        shapes += [(self.out,)] if "bias" in self.epilogue else []
        shapes += [self.data(self.out, self.counts)] if "residual" in self.epilogue else []
        arrays = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
        kernel = Kernel(self.body, [(shape, "f32") for shape in shapes], machine)
        np.testing.assert_allclose(kernel(*arrays), self.reference(*arrays), rtol=1e-4, atol=2e-3)
        assert kernel.rule == "contraction"
        return kernel


CASES = [
    Conv(1, 16, (9, 9), 32, (3, 3), pad=1),
    Conv(2, 8, (7, 7), 48, (3, 3), pad=1),
    Conv(1, 3, (21, 23), 17, (7, 7), stride=2, pad=3),
    Conv(1, 24, (10, 10), 40, (1, 1)),
    Conv(2, 24, (10, 10), 40, (1, 1), stride=2),
    Conv(1, 12, (12, 9), 20, (3, 5), dilation=2, pad=2),
    Conv(1, 64, (14, 14), 64, (3, 3)),
    Conv(1, 16, (12, 12), 32, (3, 3), groups=4, pad=1),
    Conv(1, 48, (11, 11), 48, (3, 3), groups=48, pad=1),
    Conv(2, 20, (12, 12), 20, (5, 5), groups=20, pad=2, stride=2),
    Conv(1, 8, (9, 9), 24, (3, 3), groups=8, pad=1),
    Conv(1, 6, (50,), 33, (5,), pad=2),
    Conv(1, 40, (30,), 40, (7,), groups=40, pad=3),
    Conv(1, 4, (6, 7, 8), 16, (3, 3, 3), pad=1),
    Conv(1, 1, (8, 8), 1, (3, 3), pad=1),
    Conv(1, 1, (12, 12), 32, (3, 3), pad=1),
    Conv(1, 32, (1, 1), 64, (1, 1)),
    Conv(1, 16, (3, 3), 16, (7, 7), pad=3),
    Conv(1, 16, (9, 9), 32, (3, 3), stride=4, pad=1),
    Conv(1, 16, (200,), 16, (3,), pad=90, dilation=90, groups=16),
]


@pytest.mark.sample(6)
@pytest.mark.parametrize("nhwc", [True, False], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions(case: Conv, nhwc: bool) -> None:
    replace(case, nhwc=nhwc, epilogue="bias relu").check()


@pytest.mark.sample(3)
@pytest.mark.parametrize("nhwc", [True, False], ids=["nhwc", "nchw"])
@pytest.mark.parametrize("epilogue", ["", "bias", "residual", "bias residual relu"])
def test_epilogues(epilogue: str, nhwc: bool) -> None:
    Conv(1, 12, (9, 10), 40, (3, 3), pad=1, nhwc=nhwc, epilogue=epilogue).check()
    Conv(1, 12, (9, 10), 12, (3, 3), pad=1, groups=12, nhwc=nhwc, epilogue=epilogue).check()


@pytest.mark.sample(0)
@pytest.mark.parametrize("machine", ["avx2", "neon", "sse"])
@pytest.mark.parametrize("nhwc", [True, False], ids=["nhwc", "nchw"])
def test_other_machines(machine: str, nhwc: bool) -> None:
    for case in CASES[:3] + CASES[7:10]:
        replace(case, nhwc=nhwc, epilogue="bias").check(machine)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(10))
def test_random_convolutions(seed: int) -> None:
    generator = np.random.default_rng(seed)

    def pick(*values: int) -> int:
        return int(generator.choice(values))

    rank, groups = pick(1, 2, 2, 3), pick(1, 1, 2, 3)
    Conv(
        pick(1, 2), groups * pick(1, 3, 8, 17), tuple(pick(7, 8, 11) for _ in range(rank)), groups * pick(1, 5, 16, 33),
        tuple(pick(1, 2, 3) for _ in range(rank)), pick(1, 2, 3), pick(0, 1, 2), pick(1, 2, 3), groups,
        bool(pick(0, 1)), str(generator.choice(["", "bias relu", "residual"])),
    ).check()  # fmt: skip


@pytest.mark.parametrize("out", [64, 40, 33, 17])
@pytest.mark.parametrize("size", [8, 3])
@pytest.mark.processors
def test_packed_weights(out: int, size: int, processor: str) -> None:
    """Weights that are stored as panels, the last one filled up, are read in place, and whole."""
    width = 2 * find_machine(processor).lanes(4)
    x_shape, w_shape = (1, size, size, 16), (-(-out // width), 3, 3, 16, width)

    def body(p: Any, x: Any, w: Any) -> Any:
        return p.reduce(
            "add", (1, size - 2, size - 2, out), (16, 3, 3),
            lambda n, oh, ow, oc, ic, kh, kw: x[n, oh + kh, ow + kw, ic] * w[oc // width, kh, kw, ic, oc % width],
            name="conv",
        )  # fmt: skip

    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal(s).astype(np.float32) for s in (x_shape, w_shape))
    kernel = Kernel(body, [(x_shape, "f32"), (w_shape, "f32")], processor)
    plain = Conv(1, 16, (size, size), out, (3, 3))
    want = plain.reference(x, w.transpose(1, 2, 3, 0, 4).reshape(3, 3, 16, -1)[..., :out])
    np.testing.assert_allclose(kernel(x, w), want, rtol=1e-4, atol=1e-3)
    assert kernel.rule == "contraction"
    assert "packed = false" in kernel.schedule
    assert "vector.maskedload" not in kernel.text  # what fills up a panel may be read


def test_rows_of_groups() -> None:
    """The tile's rows run along the pixels of a row, not along the groups."""
    kernel = Conv(1, 32, (14, 14), 32, (3, 3), pad=1, groups=8).check("avx512")
    assert "tile = array<i64: 14, 16>" in kernel.schedule


def test_packed_weights_under_padding() -> None:
    """The tile's rows run along the pixels of a row, whatever axes the weights have."""

    def body(p: Any, x: Any, w: Any) -> Any:
        return p.reduce(
            "add", (1, 14, 14, 64), (16, 3, 3),
            lambda n, oh, ow, oc, ic, kh, kw: (
                x.at(n, oh + kh - 1, ow + kw - 1, ic, outside=0.0) * w[oc // 32, kh, kw, ic, oc % 32]
            ),
            name="conv",
        )  # fmt: skip

    generator = np.random.default_rng(0)
    x_shape, w_shape = (1, 14, 14, 16), (2, 3, 3, 16, 32)
    x, w = (generator.standard_normal(s).astype(np.float32) for s in (x_shape, w_shape))
    kernel = Kernel(body, [(x_shape, "f32"), (w_shape, "f32")], "avx512")
    plain = Conv(1, 16, (14, 14), 64, (3, 3), pad=1)
    want = plain.reference(x, w.transpose(1, 2, 3, 0, 4).reshape(3, 3, 16, -1))
    np.testing.assert_allclose(kernel(x, w), want, rtol=1e-4, atol=1e-3)
    assert "tile = array<i64: 14, 32>" in kernel.schedule


def test_windows_that_leave_at_the_end_only() -> None:
    """They begin after the start of the operand, as those of a cropped transposed convolution do."""

    def body(p: Any, x: Any, w: Any) -> Any:
        return p.reduce(
            "add", (1, 34, 4, 2), (16, 3),
            lambda n, h, i, oc, ic, k: x.at(n, h + 1, i + 2 * k - 1, ic, outside=0.0) * w[oc, ic, k],
            name="conv",
        )  # fmt: skip

    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal(s).astype(np.float32) for s in ((1, 34, 6, 16), (2, 16, 3)))
    kernel = Kernel(body, [(x.shape, "f32"), (w.shape, "f32")], "avx512")
    padded = np.pad(x, ((0, 0), (0, 1), (1, 1), (0, 0)))[:, 1:]
    want = sum(padded[:, :, 2 * k : 2 * k + 4] @ w[:, :, k].T for k in range(3))
    np.testing.assert_allclose(kernel(x, w), want, rtol=1e-4, atol=1e-3)
