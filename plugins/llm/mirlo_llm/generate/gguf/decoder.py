"""The decoder of a GGUF file: its tensors by the architecture's names and layouts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mirlo.extend.frontend import ImportedModule
from mirlo_llm.generate.checkpoints.architectures import DecoderOptions, LatentOptions, read_options
from mirlo_llm.generate.checkpoints.block_weights import BlockWeights
from mirlo_llm.generate.checkpoints.decoder import hidden_states_module, import_decoder
from mirlo_llm.generate.checkpoints.graph import CheckpointWeights
from mirlo_llm.generate.checkpoints.image_decoder import build_image_decoder
from mirlo_llm.generate.checkpoints.image_options import ImageOptions
from mirlo_llm.generate.errors import ModelFolderError
from mirlo_llm.generate.gguf.container import GgufFile, GgufTensor
from mirlo_llm.generate.gguf.keys import ARCHITECTURE, INTERLEAVED, LONG_FACTORS, SHORT_FACTORS, decoder_keys

_TOP = {
    "model.embed_tokens": "token_embd", "model.embed_positions": "position_embd", "model.norm": "output_norm",
    "lm_head": "output",
}  # fmt: skip
_PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up", "mlp.gate": "ffn_gate_inp",
    "mlp.correction": "exp_probs_b",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b",
}  # fmt: skip
CORRECTION = "e_score_correction_bias"
"""The checkpoint's name of the bias of router scores."""
_NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
"""Names of the norms of a layer, in the order of `DecoderOptions.norms`."""
FREQUENCIES = "rope_freqs.weight"
"""The tensor with divisors of the rotation frequencies."""


def import_gguf(
    path: Path, file: GgufFile, images: ImageOptions | None = None, adapted: Sequence[str] = (), rings_below: int = 0
) -> ImportedModule:
    """Import the decoder of a file with image options, if any; the other arguments are those of `import_decoder`."""
    options, weights = _read_decoder(path, file)
    if images is None:
        return import_decoder(options, weights, adapted=adapted, rings_below=rings_below)
    return build_image_decoder(options, weights, images, adapted)


def import_gguf_hidden_states(path: Path, file: GgufFile) -> ImportedModule:
    """Import the decoder of a file without its output projection, for whole texts."""
    return hidden_states_module(*_read_decoder(path, file))


def _read_decoder(path: Path, file: GgufFile) -> tuple[DecoderOptions, CheckpointWeights]:
    """Return the options and the tensors of a file's decoder."""
    options = _options(path, file)
    is_interleaved = file.metadata.text(ARCHITECTURE) in INTERLEAVED
    counts = {"attn_q": options.heads, "attn_k": options.kv_heads} if is_interleaved else {}
    tensors: dict[str, np.ndarray | BlockWeights] = {}
    for name, tensor in file.tensors.items():
        if name not in (FREQUENCIES, SHORT_FACTORS, LONG_FACTORS):
            match = re.fullmatch(r"blk\.\d+\.(\w+)\.(?:weight|bias)", name)
            data = _separated(tensor, counts.get(match[1], 0) if match else 0)
            for part, shape, rows in _parts(name, tensor.shape, data):
                tensors[part] = tensor.kind.read(rows, shape)
    if options.latent is not None:
        tensors = dict(joined_latents(path, tensors, options.heads, options.latent))
    return options, CheckpointWeights(path, tensors, _FileNames(options))


def joined_latents(
    path: Path, tensors: Mapping[str, np.ndarray | BlockWeights], heads: int, latent: LatentOptions
) -> Iterator[tuple[str, np.ndarray | BlockWeights]]:
    """Yield tensors with the key and value projections of latents joined, as in older files.

    Newer files store them per head: [heads, rank, elements] for keys, [heads, elements, rank] for values.
    """
    for name, keys in tensors.items():
        match = re.fullmatch(r"(blk\.\d+)\.attn_([kv])_b\.weight", name)
        if match is None:
            yield name, keys
        if match is None or match[2] == "v":
            continue
        value_name = f"{match[1]}.attn_v_b.weight"
        parts = dict[str, np.ndarray]()
        for part, width in ((name, heads * latent.rank), (value_name, heads * latent.values)):
            tensor = tensors.get(part)
            depth = latent.plain if part == name else latent.rank
            if tensor is None or tensor.shape != (width, depth):
                actual = "none" if tensor is None else f"{list(tensor.shape)} in its rows"
                raise ModelFolderError(
                    f"{path}: tensor '{part}': expected [{width}, {depth}] in its rows, found {actual}"
                )
            array = tensor.values() if isinstance(tensor, BlockWeights) else tensor.astype(np.float32)
            parts[part] = array.reshape(heads, -1, depth)
        both = np.concatenate([parts[name].swapaxes(1, 2), parts[value_name]], 1)
        yield f"{match[1]}.attn_kv_b.weight", both.reshape(-1, latent.rank)


class _FileNames:
    """Maps tensor names of checkpoints to those of a file."""

    def __init__(self, options: DecoderOptions) -> None:
        self._parts = {**_PARTS, **dict(zip(options.norms, _NORMS, strict=True))}

    def __call__(self, name: str) -> str:
        name, _, part = name.rpartition(".")
        if part == CORRECTION:
            name, part = name.replace("mlp.gate", "mlp.correction"), "bias"
        layer = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", name)
        expert = re.fullmatch(r"mlp\.experts\.(\d+)\.(\w+)_proj", layer[2]) if layer else None
        place = f"ffn_{expert[2]}_exps.{expert[1]}" if expert else layer and self._parts[layer[2]]
        prefix = f"blk.{layer[1]}.{place}" if layer else _TOP[name]
        return f"{prefix}.{part}"


def _options(path: Path, file: GgufFile) -> DecoderOptions:
    options = read_options(decoder_keys(file))
    if FREQUENCIES in file.tensors:
        factors = _factors(path, file.tensors[FREQUENCIES])
        kinds = {id(each.frequencies): each.frequencies for each in options.layers}
        slower = {key: None if each is None else _divided(path, each, factors) for key, each in kinds.items()}
        layers = (replace(each, frequencies=slower[id(each.frequencies)]) for each in options.layers)
        options = replace(options, layers=tuple(layers))
    # The weights of norms include offsets; all matrices have the columns of a product as rows.
    return replace(options, norm_offset=0.0, is_transposed=False)


def _parts(name: str, shape: tuple[int, ...], data: np.ndarray) -> Iterator[tuple[str, tuple[int, ...], np.ndarray]]:
    """Yield a tensor, or one per expert, as name, shape and rows."""
    base, _, end = name.rpartition(".")
    if base.endswith("_exps") and len(shape) == 3:
        for i, rows in enumerate(data.reshape(*shape[:2], -1)):
            yield f"{base}.{i}.{end}", shape[1:], rows
    elif base.endswith((".attn_k_b", ".attn_v_b")) and len(shape) == 3:
        yield name, (shape[0] * shape[1], shape[2]), data
    elif base.endswith("ffn_gate_inp_shexp") and len(shape) == 1:
        yield name, (1, *shape), data
    else:
        yield name, shape, data


def _factors(path: Path, tensor: GgufTensor) -> np.ndarray:
    factors = tensor.kind.read(tensor.data, tensor.shape)
    if isinstance(factors, BlockWeights) or factors.ndim != 1 or not (np.isfinite(factors) & (factors > 0)).all():
        actual = f"{tensor.kind.name}{list(tensor.shape)}"
        raise ModelFolderError(f"{path}: tensor '{FREQUENCIES}': expected a vector of numbers above 0, found {actual}")
    return factors.astype(np.float32)


def _divided(path: Path, frequencies: np.ndarray, factors: np.ndarray) -> np.ndarray:
    if frequencies.shape != factors.shape:
        expected = f"expected {len(frequencies)} elements, found {len(factors)}"
        raise ModelFolderError(f"{path}: tensor '{FREQUENCIES}': {expected}")
    slower: np.ndarray = frequencies / factors
    return slower


def _separated(tensor: GgufTensor, heads: int) -> np.ndarray:
    """Return the bytes of rows reordered from interleaved pairs to halves for rotation."""
    rows = tensor.shape[0]
    if not heads or rows % (2 * heads) or len(tensor.shape) > 2:
        return tensor.data
    pairs = tensor.data.reshape(heads, rows // heads // 2, 2, -1)
    separated: np.ndarray = pairs.swapaxes(1, 2).reshape(tensor.data.shape)
    return separated
