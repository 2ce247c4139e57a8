"""The decoder of a GGUF file of the benchmark as an ONNX model with the same weights, bit for bit.

Weights of Q4_0 are those of `MatMulNBits` in blocks of 32 without zero points: a code of 4 bits less 8, times a scale.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mirlo.benchmarks.llm.model import DecoderBuilder, DecoderConfig, save

BLOCK = 32
"""Elements of a block of Q4_0: a scale in f16 and a byte for elements i and i + 16."""
_PARTS = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output"}


@dataclass
class GgufDecoderBuilder(DecoderBuilder):
    """A graph whose weights are those of a file."""

    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    """Bytes of the rows of each matrix."""

    def packed(self, name: str, rows: int, columns: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
        blocks = self.tensors[_tensor_name(name)].reshape(columns, rows // BLOCK, 2 + BLOCK // 2)
        if name.endswith((".q", ".k")):
            # Files of Llama have the two elements that rotate together side by side; here they are half a head apart.
            pairs = blocks.reshape(-1, self.config.size // 2, 2, *blocks.shape[1:])
            blocks = pairs.swapaxes(1, 2).reshape(blocks.shape)
        scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0].astype(np.float32)
        codes = np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], -1)
        return codes[..., ::2] | codes[..., 1::2] << 4, scales

    def embedding(self) -> np.ndarray:
        import gguf
        from gguf.quants import dequantize

        table = dequantize(self.tensors["token_embd.weight"], gguf.GGMLQuantizationType.Q4_0)
        return table.astype(np.float32, copy=False)


def _tensor_name(product: str) -> str:
    """Return the file's name of the matrix of a product."""
    if product == "head":
        return "output.weight"
    layer, part = product.split(".")
    return f"blk.{layer.removeprefix('layer')}.{_PARTS.get(part, f'ffn_{part}')}.weight"


def save_onnx(gguf_path: Path, config: DecoderConfig, folder: Path) -> Path:
    """Write the folder of a model with the weights of a GGUF file; return the path of its graph."""
    import gguf

    tensors = {each.name: np.array(each.data) for each in gguf.GGUFReader(gguf_path).tensors}
    folder.mkdir()
    return save(config, folder, GgufDecoderBuilder(config, tensors=tensors).build())
