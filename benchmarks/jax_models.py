"""Models of flax: Mirlo beside `jax.jit` on one thread, by latency, difference and the time of the first call.

python -m benchmarks.jax_models [MODEL ...]        # needs jax and flax
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

CALLS = 30


def models() -> dict[str, tuple[Any, np.ndarray]]:
    """Return modules of flax, each with an input."""
    return {**image_models(), **sequence_models()}


def image_models() -> dict[str, tuple[Any, np.ndarray]]:
    """Return models of images."""
    import flax.linen as nn
    import jax
    import jax.numpy as jnp

    class Block(nn.Module):
        width: int
        heads: int

        @nn.compact
        def __call__(self, x: Any) -> Any:
            y = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(num_heads=self.heads)(y, y)
            y = nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x)))
            return x + nn.Dense(self.width)(y)

    class VisionTransformer(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(192, (16, 16), (16, 16))(x)
            x = x.reshape(x.shape[0], -1, 192)
            x = x + self.param("position", nn.initializers.normal(0.02), (1, x.shape[1], 192))
            for _ in range(4):
                x = Block(192, 3)(x)
            return nn.Dense(1000)(nn.LayerNorm()(x).mean(1))

    class Bottleneck(nn.Module):
        width: int
        stride: int = 1

        @nn.compact
        def __call__(self, x: Any) -> Any:
            norm = nn.BatchNorm
            y = nn.relu(norm(use_running_average=True)(nn.Conv(self.width, (1, 1), use_bias=False)(x)))
            strides = (self.stride, self.stride)
            y = nn.Conv(self.width, (3, 3), strides, use_bias=False)(y)
            y = nn.relu(norm(use_running_average=True)(y))
            y = norm(use_running_average=True)(nn.Conv(4 * self.width, (1, 1), use_bias=False)(y))
            if x.shape != y.shape:
                x = nn.Conv(4 * self.width, (1, 1), strides, use_bias=False)(x)
                x = norm(use_running_average=True)(x)
            return nn.relu(x + y)

    class ResNet(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
            x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
            for stage in range(3):
                for step in range(2):
                    x = Bottleneck(64 * 2**stage, 2 if stage and not step else 1)(x)
            return nn.Dense(1000)(x.mean((1, 2)))

    class UNet(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            first = nn.relu(nn.Conv(16, (3, 3))(x))
            y = nn.max_pool(first, (2, 2), (2, 2))
            y = nn.relu(nn.GroupNorm(4)(nn.Conv(32, (3, 3))(y)))
            y = jnp.concatenate([first, nn.ConvTranspose(16, (2, 2), (2, 2))(y)], -1)
            return jax.image.resize(nn.Conv(3, (1, 1))(y), (1, 64, 64, 3), "bilinear")

    random = np.random.default_rng(0)

    def image(size: int) -> np.ndarray:
        return random.standard_normal((1, size, size, 3), dtype=np.float32)

    return {
        "vision transformer": (VisionTransformer(), image(224)),
        "resnet": (ResNet(), image(224)),
        "unet": (UNet(), image(32)),
    }


def sequence_models() -> dict[str, tuple[Any, np.ndarray]]:
    """Return models of sequences."""
    import flax.linen as nn

    class LanguageModel(nn.Module):
        @nn.compact
        def __call__(self, ids: Any) -> Any:
            x, mask = nn.Embed(1000, 128)(ids), nn.make_causal_mask(ids)
            for _ in range(2):
                y = nn.RMSNorm()(x)
                x = x + nn.MultiHeadDotProductAttention(num_heads=4)(y, y, mask=mask)
                x = x + nn.Dense(128)(nn.silu(nn.Dense(256)(nn.RMSNorm()(x))))
            return nn.Dense(1000)(x)

    class Recurrent(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.RNN(nn.LSTMCell(32))(x)

    random = np.random.default_rng(0)
    return {
        "language model": (LanguageModel(), random.integers(0, 1000, (2, 33)).astype(np.int32)),
        "lstm": (Recurrent(), random.standard_normal((2, 20, 16), dtype=np.float32)),
    }


def compare(model: Any, array: np.ndarray) -> tuple[float, float, float, float, float]:
    """Return the largest difference over the largest value, milliseconds of ours and JAX's calls, and first calls."""
    import jax

    import mirlo

    params = model.init(jax.random.PRNGKey(0), array)
    jitted = jax.jit(lambda x: model.apply(params, x))
    given = jax.device_put(array)
    start = time.perf_counter()
    wanted = np.asarray(jitted(given))
    theirs_first = time.perf_counter() - start
    start = time.perf_counter()
    compiled = mirlo.compile(jax.jit(lambda x: model.apply(params, x)), args=(array,), cache=False, threads=1)
    found = np.asarray(compiled(array))
    ours_first = time.perf_counter() - start
    ours, theirs = _least(lambda: compiled(array), lambda: jitted(given).block_until_ready())
    return float(np.abs(found - wanted).max() / np.abs(wanted).max()), ours, theirs, ours_first, theirs_first


def _least(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
    """Return the least milliseconds of each, in turns."""
    least = [float("inf"), float("inf")]
    for _ in range(CALLS):
        for index, call in enumerate((ours, theirs)):
            start = time.perf_counter()
            call()
            least[index] = min(least[index], 1e3 * (time.perf_counter() - start))
    return least[0], least[1]


def main(names: list[str]) -> int:
    """Print the table; return 1 for an unknown name."""
    # Read when XLA starts: one thread, as Mirlo has.
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    every = models()
    unknown = [name for name in names if name not in every]
    if unknown:
        print(f"no model '{unknown[0]}': there are {', '.join(every)}", file=sys.stderr)
        return 1
    print("| model | Mirlo | jax.jit | ratio | first call | of jax.jit | difference |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in names or every:
        error, ours, theirs, ours_first, theirs_first = compare(*every[name])
        print(
            f"| {name} | {ours:.2f} ms | {theirs:.2f} ms | {ours / theirs:.2f} | {ours_first:.1f} s | "
            f"{theirs_first:.1f} s | {error:.0e} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
