"""Graphs of image encoders with dynamic image sizes: patches in squares, and windows of squares.

The sizes of an image are dynamic dims of one graph. The caller passes the positions of patches and windows, so that the
graph does not depend on them. Layers with windows gather the rows of each window.
"""

from __future__ import annotations

import numpy as np

from mirlo.extend.frontend import GraphBuilder, ImportedModule, Tensor, TensorType, maximum, where
from mirlo.extend.frontend import dims as D
from mirlo.extend.library import join_heads, layer_norm, rms_norm, split_heads
from mirlo_llm.generate.checkpoints.graph import HIDDEN, CheckpointGraph, CheckpointWeights, import_graph
from mirlo_llm.generate.checkpoints.image_grid import PLACES, SQUARES, WINDOWS, GridOptions
from mirlo_llm.generate.checkpoints.image_options import IMAGE_ROWS, PIXELS
from mirlo_llm.generate.checkpoints.image_tower import TowerOptions
from mirlo_llm.generate.checkpoints.latent import Angles

TOWER = "visual"
COUNT, WINDOW_COUNT = D.symbol("squares"), D.symbol("windows")
THETA = 10000.0
"""The base of the rotary embedding of rows and columns."""
CHANNELS = 3


def import_patch_encoder(
    tower: TowerOptions, grid: GridOptions, hidden: int, weights: CheckpointWeights
) -> ImportedModule:
    """Build the graph from the patches of an image to its rows in the text model, of `hidden` elements each."""
    patches = grid.merge**2
    inputs = {
        PIXELS: TensorType.of((COUNT, patches, CHANNELS * tower.patch**2), "f32"),
        PLACES: TensorType.of((COUNT, patches, 2), "i64"),
    }
    if len(grid.whole_layers) < tower.layers:
        inputs[WINDOWS] = TensorType.of((WINDOW_COUNT, grid.window**2), "i64")
        inputs[SQUARES] = TensorType.of((COUNT,), "i64")

    def build(
        builder: GraphBuilder, pixels: Tensor, places: Tensor, windows: Tensor | None = None, at: Tensor | None = None
    ) -> dict[str, Tensor]:
        graph = PatchEncoderGraph(builder, tower, grid, weights)
        inside = None if windows is None or at is None else Windows(windows, at, patches)
        rows = graph.merged(graph.states(pixels, places, inside), hidden)
        return {IMAGE_ROWS: rows}

    return import_graph(weights, inputs, build)


class Windows:
    """The attention windows of an image; rows are gathered from squares to windows, and back."""

    def __init__(self, squares: Tensor, places: Tensor, patches: int) -> None:
        """Store the squares of each window, -1 for none, and the place of each square among them."""
        count = squares.shape[1]
        assert isinstance(count, int)
        self._squares, self._places, self._patches, self._count = maximum(squares, 0), places, patches, count
        hidden = where(squares < 0, squares.like(HIDDEN).cast("f32"), squares.like(0).cast("f32"))
        shape = (WINDOW_COUNT, count, patches)
        self.mask = hidden.expand_dims(2).expand(shape).reshape((WINDOW_COUNT, 1, 1, count * patches))
        """What is added to scores: places without a square are not seen."""

    def read(self, rows: Tensor) -> Tensor:
        """Gather rows of patches, [1, patches, width], to windows, [windows, patches, width]."""
        width = rows.shape[-1]
        assert isinstance(width, int)
        squares = rows.reshape((COUNT, self._patches * width)).gather(self._squares)
        return squares.reshape((WINDOW_COUNT, self._count * self._patches, width))

    def write(self, rows: Tensor) -> Tensor:
        """Scatter rows of windows back to patches."""
        width = rows.shape[-1]
        assert isinstance(width, int)
        squares = rows.reshape((WINDOW_COUNT * self._count, self._patches * width)).gather(self._places)
        return squares.reshape((1, COUNT * self._patches, width))


class PatchEncoderGraph(CheckpointGraph):
    """The graph of such an encoder under construction."""

    def __init__(
        self, builder: GraphBuilder, tower: TowerOptions, grid: GridOptions, weights: CheckpointWeights
    ) -> None:
        super().__init__(builder, weights)
        self.tower, self.grid, self._patches = tower, grid, grid.merge**2

    def states(self, pixels: Tensor, places: Tensor, windows: Windows | None) -> Tensor:
        """Return a row for each patch, [1, patches, hidden]."""
        tower, count = self.tower, COUNT * self._patches
        x = pixels.reshape((1, count, CHANNELS * tower.patch**2))
        x = x.matmul(self.builder.constant(self._kernel(), "f32"), transpose_rhs=True)
        angles = self._angles(places.reshape((1, count, 2)))
        of_image = (angles.cos().expand_dims(1), angles.sin().expand_dims(1))
        of_windows = of_image
        if windows is not None:
            angles = windows.read(angles).expand_dims(1)
            of_windows = (angles.cos(), angles.sin())
        for i in range(tower.layers):
            name, is_whole = f"{TOWER}.blocks.{i}", i in self.grid.whole_layers
            normed = self.norm(f"{name}.norm1", x)
            x = x + self.attention(
                f"{name}.attn", normed, of_image if is_whole else of_windows, None if is_whole else windows
            )
            x = x + self.products(f"{name}.mlp", self.norm(f"{name}.norm2", x))
        return x

    def merged(self, x: Tensor, hidden: int) -> Tensor:
        """Merge the patches of each square to a row, [squares, hidden]."""
        name, width = f"{TOWER}.merger", self._patches * self.tower.hidden
        squares = self.norm(f"{name}.ln_q", x).reshape((COUNT, width))
        inner = self.activated(self.product(f"{name}.mlp.0", squares, width), "gelu")
        return self.product(f"{name}.mlp.2", inner, hidden)

    def attention(self, name: str, x: Tensor, angles: Angles, windows: Windows | None) -> Tensor:
        """Compute attention of each patch to those of its window, or to all."""
        hidden, heads = self.tower.hidden, self.tower.heads
        rows = self._projected(name, x)
        if windows is not None:
            rows = [windows.read(each) for each in rows]
        parts = rows if len(rows) > 1 else rows[0].split((hidden,) * 3, -1)
        query, key, value = (split_heads(each, heads, hidden // heads) for each in parts)
        query, key = (self.builder.emit("rotary_embedding", each, *angles) for each in (query, key))
        mask = None if windows is None else windows.mask
        attended = join_heads(self.builder.emit("attention", query, key, value, mask))
        return self.product(f"{name}.proj", attended if windows is None else windows.write(attended), hidden)

    def _projected(self, name: str, x: Tensor) -> list[Tensor]:
        """Return queries, keys and values from one fused matrix or from three."""
        hidden = self.tower.hidden
        if f"{name}.q.weight" in self._weights:
            return [self.product(f"{name}.{part}", x, hidden) for part in "qkv"]
        return [self.product(f"{name}.qkv", x, 3 * hidden)]

    def products(self, name: str, x: Tensor) -> Tensor:
        """Return the result of a layer's MLP."""
        tower = self.tower
        if not self.grid.is_gated:
            inner = self.activated(self.product(f"{name}.fc1", x, tower.inner), tower.activation)
            return self.product(f"{name}.fc2", inner, tower.hidden)
        gate, up = (self.product(f"{name}.{part}_proj", x, tower.inner) for part in ("gate", "up"))
        return self.product(f"{name}.down_proj", self.activated(gate, tower.activation) * up, tower.hidden)

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Apply RMSNorm or LayerNorm."""
        scale = self.weight(name, self.tower.hidden)
        if self.grid.is_gated:
            return rms_norm(x, scale, -1, self.tower.epsilon)
        return layer_norm(x, scale, self.weight(name, self.tower.hidden, part="bias"), -1, self.tower.epsilon)

    def _kernel(self) -> np.ndarray:
        """Return the patch embedding summed over frames: all frames of an image are equal."""
        hidden, patch = self.tower.hidden, self.tower.patch
        name = f"{TOWER}.patch_embed.proj.weight"
        kernel = self._weights.take(name, hidden, CHANNELS, self.grid.frames, patch, patch)
        assert isinstance(kernel, np.ndarray)  # blocks have two dims
        total: np.ndarray = kernel.astype(np.float32).sum(2)
        return total.reshape(hidden, -1)

    def _angles(self, places: Tensor) -> Tensor:
        """Return the rotation angles of patches by row and column, [1, patches, pairs]."""
        pairs = self.tower.hidden // self.tower.heads // 4
        exponents = np.arange(0, 2 * pairs, 2, dtype=np.float32) / np.float32(2 * pairs)
        frequencies = self.builder.constant(1 / np.float32(THETA) ** exponents, "f32")
        angles = places.cast("f32").expand_dims(3) * frequencies
        return angles.reshape((1, places.shape[1], 2 * pairs))
