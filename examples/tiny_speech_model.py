"""A tiny Whisper with random weights in a folder, and a sound: what it writes means nothing.

    python examples/tiny_speech_model.py [FOLDER]

The model hears windows of 0.6 s. The folder has `sound.wav`, two seconds of a tone that rises.
"""

from __future__ import annotations

import argparse
import json
import runpy
import wave
from pathlib import Path

import numpy as np

WORDS, HIDDEN, INNER, LAYERS, FRAMES, BANDS, CONTEXT = 52, 16, 24, 2, 30, 80, 40
SPECIAL = ("end", "start", "en", "de", "translate", "transcribe", "nospeech", "notimestamps")
TIMES = 31
"""Times of a window: 0 s, 0.02 s, up to 0.6 s."""
CONFIG = {
    "model_type": "whisper", "vocab_size": WORDS + len(SPECIAL) + TIMES, "num_mel_bins": BANDS, "d_model": HIDDEN,
    "encoder_layers": LAYERS, "decoder_layers": LAYERS, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER,
    "encoder_attention_heads": 2, "decoder_attention_heads": 4, "max_source_positions": FRAMES,
    "max_target_positions": CONTEXT, "decoder_start_token_id": 53, "eos_token_id": 52, "pad_token_id": 52,
    "bos_token_id": 52, "activation_function": "gelu",
}  # fmt: skip
GENERATION = {
    "decoder_start_token_id": 53, "eos_token_id": 52, "lang_to_id": {"<|en|>": 54, "<|de|>": 55},
    "task_to_id": {"translate": 56, "transcribe": 57}, "no_timestamps_token_id": 59, "begin_suppress_tokens": [52],
    "suppress_tokens": [53, 54, 55, 56, 57, 58], "max_initial_timestamp_index": 5,
    "alignment_heads": [[0, 1], [1, 0], [1, 3]],
}  # fmt: skip


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors."""
    result: dict[str, tuple[int, ...]] = {
        "encoder.conv1.weight": (HIDDEN, BANDS, 3), "encoder.conv1.bias": (HIDDEN,),
        "encoder.conv2.weight": (HIDDEN, HIDDEN, 3), "encoder.conv2.bias": (HIDDEN,),
        "encoder.embed_positions.weight": (FRAMES, HIDDEN), "decoder.embed_positions.weight": (CONTEXT, HIDDEN),
        "decoder.embed_tokens.weight": (WORDS + len(SPECIAL) + TIMES, HIDDEN),
    }  # fmt: skip
    norms, products = ["encoder.layer_norm", "decoder.layer_norm"], dict[str, tuple[int, int]]()
    for part in ("encoder", "decoder"):
        for i in range(LAYERS):
            layer = f"{part}.layers.{i}"
            for attention in ("self_attn", *(["encoder_attn"] if part == "decoder" else [])):
                norms.append(f"{layer}.{attention}_layer_norm")
                products |= {f"{layer}.{attention}.{each}_proj": (HIDDEN, HIDDEN) for each in ("q", "k", "v", "out")}
            norms.append(f"{layer}.final_layer_norm")
            products |= {f"{layer}.fc1": (INNER, HIDDEN), f"{layer}.fc2": (HIDDEN, INNER)}
    for name in norms:
        result |= {f"{name}.weight": (HIDDEN,), f"{name}.bias": (HIDDEN,)}
    for name, shape in products.items():
        result[f"{name}.weight"] = shape
        if not name.endswith(".k_proj"):
            result[f"{name}.bias"] = shape[:1]
    return {f"model.{name}": shape for name, shape in result.items()}


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer of words; the first character of each stands for the space before it."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.decoders import ByteLevel
    from tokenizers.models import WordLevel

    tokenizer = Tokenizer(WordLevel({f"\u0120w{i}": i for i in range(WORDS)}, unk_token="\u0120w0"))
    tokenizer.decoder = ByteLevel()
    tokenizer.add_special_tokens([AddedToken(f"<|{name}|>", special=True) for name in SPECIAL])
    tokenizer.add_tokens([AddedToken(f"<|{i / 50:.2f}|>", special=True) for i in range(TIMES)])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_sound(path: Path) -> None:
    """Write a tone that rises, at 8 kHz."""
    seconds = np.arange(2 * 8000) / 8000
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(8000)
        file.writeframes((np.sin(2 * np.pi * (200 + 300 * seconds) * seconds) * 20000).astype("<i2").tobytes())


def write(folder: Path) -> Path:
    """Write the model and the sound."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    write_weights = runpy.run_path(str(Path(__file__).with_name("tiny_encoder.py")))["write_weights"]
    tensors = {name: random.standard_normal(shape) for name, shape in shapes().items()}
    write_weights(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps(GENERATION), encoding="utf-8")
    write_tokenizer(folder)
    write_sound(folder / "sound.wav")
    return folder


def main() -> None:
    """Write the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("speech"))
    write(parser.parse_args().folder)


if __name__ == "__main__":
    main()
