"""Models of flax and of plain jax: Mirlo beside `jax.jit`, one thread: processor time of calls and first calls, error.

python -m benchmarks.jax_models [MODEL ...]        # needs jax and flax
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

CALLS = 30
"""Fewest calls of a model whose least time is taken."""
SECONDS = 2.0
"""Least time for the calls of a model."""


def models() -> dict[str, tuple[Any, np.ndarray]]:
    """Return modules of flax, each with an input."""
    return {**image_models(), **sequence_models(), **plain_models()}


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


@dataclass(frozen=True)
class PlainModel:
    """A model of functions of jax, with the methods of a module of flax."""

    shapes: dict[str, tuple[int, ...]]
    """Of the parameters."""
    function: Callable[[dict[str, Any], Any], Any]

    def init(self, key: Any, _: Any) -> dict[str, Any]:
        """Return random parameters."""
        import jax

        keys = jax.random.split(key, len(self.shapes))
        return {
            name: jax.random.normal(each, shape) / np.sqrt(shape[-2] if len(shape) > 1 else 1)
            for each, (name, shape) in zip(keys, self.shapes.items(), strict=True)
        }

    def apply(self, params: dict[str, Any], x: Any) -> Any:
        """Return the result for an array."""
        return self.function(params, x)


def plain_models() -> dict[str, tuple[Any, np.ndarray]]:
    """Return models that are written with jax alone: loops over layers, scans, routing, transposed convolutions."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32)

    mixer = PlainModel({"rows": (4, 64, 64), "columns": (4, 96, 96), "out": (96, 10)}, _mixer)
    gru = PlainModel({"input": (16, 96), "state": (32, 96), "out": (32, 16)}, _gru)
    filtered = PlainModel({"decay": (64,), "input": (32, 64), "gate": (32, 64), "out": (64, 32)}, _state_space)
    experts = PlainModel({"router": (32, 4), "up": (4, 32, 64), "down": (4, 64, 32)}, _experts)
    decoder = PlainModel({"encode": (3, 3, 3, 16), "decode": (3, 3, 16, 3)}, _autoencoder)
    stacked = PlainModel({"qkv": (4, 64, 192), "out": (4, 64, 64), "up": (4, 64, 128), "down": (4, 128, 64)}, _stacked)
    return {
        "mixer": (mixer, normal(2, 64, 96)),
        "gru": (gru, normal(2, 30, 16)),
        "state space": (filtered, normal(2, 50, 32)),
        "experts": (experts, normal(40, 32)),
        "autoencoder": (decoder, normal(1, 16, 16, 3)),
        "stacked transformer": (stacked, normal(2, 24, 64)),
    }


def _normalized(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + 1e-5) ** 0.5


def _mixer(params: dict[str, Any], x: Any) -> Any:
    import jax

    for layer in range(4):
        x = x + jax.nn.gelu(_normalized(x).swapaxes(1, 2) @ params["rows"][layer]).swapaxes(1, 2)
        x = x + jax.nn.gelu(_normalized(x) @ params["columns"][layer])
    return jax.nn.softmax(x.mean(1) @ params["out"])


def _gru(params: dict[str, Any], x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def step(state: Any, row: Any) -> Any:
        update, reset, new = jnp.split(row @ params["input"], 3, -1)
        from_state = jnp.split(state @ params["state"], 3, -1)
        update, reset = jax.nn.sigmoid(update + from_state[0]), jax.nn.sigmoid(reset + from_state[1])
        state = update * state + (1 - update) * jnp.tanh(new + reset * from_state[2])
        return state, state @ params["out"]

    _, rows = jax.lax.scan(step, jnp.zeros((x.shape[0], 32)), x.swapaxes(0, 1))
    return rows.swapaxes(0, 1)


def _state_space(params: dict[str, Any], x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    decay = jnp.broadcast_to(jax.nn.sigmoid(params["decay"]), (*x.shape[:2], 64))
    pairs = decay, x @ params["input"]
    _, states = jax.lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), pairs, axis=1)
    return (states * jax.nn.silu(x @ params["gate"])) @ params["out"]


def _experts(params: dict[str, Any], x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    weights, chosen = jax.lax.top_k(jax.nn.softmax(x @ params["router"]), 2)
    hidden = jax.nn.relu(jnp.einsum("td,edh->teh", x, params["up"]))
    outputs = jnp.einsum("teh,ehd->ted", hidden, params["down"])
    return (jnp.take_along_axis(outputs, chosen[..., None], 1) * weights[..., None]).sum(1)


def _autoencoder(params: dict[str, Any], x: Any) -> Any:
    import jax

    dims = ("NHWC", "HWIO", "NHWC")
    hidden = jax.nn.relu(jax.lax.conv_general_dilated(x, params["encode"], (2, 2), "SAME", dimension_numbers=dims))
    return jax.nn.sigmoid(jax.lax.conv_transpose(hidden, params["decode"], (2, 2), "SAME", dimension_numbers=dims))


def _stacked(params: dict[str, Any], x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    def layer(x: Any, weights: dict[str, Any]) -> Any:
        query, key, value = jnp.split(_normalized(x) @ weights["qkv"], 3, -1)
        scores = query @ key.swapaxes(1, 2) / 8 + jnp.triu(jnp.full((x.shape[1],) * 2, -1e9), 1)
        x = x + jax.nn.softmax(scores) @ value @ weights["out"]
        return x + jax.nn.gelu(_normalized(x) @ weights["up"]) @ weights["down"], None

    return jax.lax.scan(layer, x, params)[0]


def compare(model: Any, array: np.ndarray) -> tuple[float, float, float, float, float]:
    """Return the largest difference over the largest value, milliseconds of ours and JAX's calls, and first calls."""
    import jax

    import mirlo

    params = model.init(jax.random.PRNGKey(0), array)
    jitted = jax.jit(lambda x: model.apply(params, x))
    device_array = jax.device_put(array)
    start = time.process_time()
    wanted = np.asarray(jitted(device_array))
    theirs_first = time.process_time() - start
    start = time.process_time()
    compiled = mirlo.compile(jax.jit(lambda x: model.apply(params, x)), args=(array,), cache=False, threads=1)
    result = np.asarray(compiled(array))
    ours_first = time.process_time() - start
    ours, theirs = _least(lambda: compiled(array), lambda: jitted(device_array).block_until_ready())
    return float(np.abs(result - wanted).max() / np.abs(wanted).max()), ours, theirs, ours_first, theirs_first


def _least(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float]:
    """Return the least milliseconds of each, in turns."""
    least = [float("inf"), float("inf")]
    end, calls = time.perf_counter() + SECONDS, 0
    while calls < CALLS or time.perf_counter() < end:
        calls += 1
        for index, call in enumerate((ours, theirs)):
            start = time.process_time()
            call()
            least[index] = min(least[index], 1e3 * (time.process_time() - start))
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
