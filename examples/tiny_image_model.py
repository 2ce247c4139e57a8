"""A tiny LLaVA with random weights in a folder, and an image: what it writes means nothing.

    python examples/tiny_image_model.py [FOLDER]

The model sees images of 16 x 16 pixels as 16 tokens. The folder has `image.png`.
"""

from __future__ import annotations

import argparse
import json
import runpy
from pathlib import Path

import numpy as np

WORDS, HIDDEN, INNER, LAYERS, SIZE, PATCH, WIDTH = 60, 32, 48, 2, 16, 4, 24
SPECIAL = ("<s>", "</s>", "<image>", "USER:", "ASSISTANT:")
CONFIG = {
    "model_type": "llava", "image_token_index": WORDS + 2, "projector_hidden_act": "gelu", "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default", "bos_token_id": WORDS, "eos_token_id": WORDS + 1,
    "text_config": {
        "model_type": "llama", "vocab_size": WORDS + len(SPECIAL), "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    },
    "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 3,
        "num_attention_heads": 2, "image_size": SIZE, "patch_size": PATCH,
    },
}  # fmt: skip
PROCESSOR = {
    "size": {"shortest_edge": SIZE}, "crop_size": {"height": SIZE, "width": SIZE}, "resample": 3,
    "image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28],
}  # fmt: skip
TEMPLATE = """\
{% for message in messages %}{{ message.role | upper }}: {% if message.content is string %}{{ message.content }}\
{% else %}{% for part in message.content %}{{ '<image>' if part.type == 'image' else part.text }} {% endfor %}\
{% endif %} {% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"""


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors."""
    words, places = WORDS + len(SPECIAL), (SIZE // PATCH) ** 2 + 1
    result: dict[str, tuple[int, ...]] = {
        "language_model.model.embed_tokens.weight": (words, HIDDEN), "language_model.model.norm.weight": (HIDDEN,),
        "language_model.lm_head.weight": (words, HIDDEN),
    }  # fmt: skip
    for i in range(LAYERS):
        layer = f"language_model.model.layers.{i}"
        for part, rows in (("q", HIDDEN), ("k", HIDDEN // 2), ("v", HIDDEN // 2), ("o", HIDDEN)):
            result[f"{layer}.self_attn.{part}_proj.weight"] = (rows, HIDDEN)
        result |= {f"{layer}.mlp.{part}_proj.weight": (INNER, HIDDEN) for part in ("gate", "up")}
        result[f"{layer}.mlp.down_proj.weight"] = (HIDDEN, INNER)
        result |= {f"{layer}.{norm}.weight": (HIDDEN,) for norm in ("input_layernorm", "post_attention_layernorm")}
    tower = "vision_tower.vision_model"
    result |= {
        f"{tower}.embeddings.class_embedding": (WIDTH,),
        f"{tower}.embeddings.patch_embedding.weight": (WIDTH, 3, PATCH, PATCH),
        f"{tower}.embeddings.position_embedding.weight": (places, WIDTH),
    }
    products = {f"{PROJECTOR}.linear_1": (HIDDEN, WIDTH), f"{PROJECTOR}.linear_2": (HIDDEN, HIDDEN)}
    norms = [f"{tower}.pre_layrnorm", f"{tower}.post_layernorm"]
    for i in range(3):
        layer = f"{tower}.encoder.layers.{i}"
        products |= {f"{layer}.self_attn.{part}_proj": (WIDTH, WIDTH) for part in ("q", "k", "v", "out")}
        products |= {f"{layer}.mlp.fc1": (32, WIDTH), f"{layer}.mlp.fc2": (WIDTH, 32)}
        norms += [f"{layer}.layer_norm1", f"{layer}.layer_norm2"]
    for name in norms:
        result |= {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}
    for name, shape in products.items():
        result |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return result


PROJECTOR = "multi_modal_projector"


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer of words."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    tokenizer = Tokenizer(WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_image(path: Path) -> None:
    """Write an image of 40 x 30 pixels."""
    from PIL import Image

    rows, columns = np.mgrid[:30, :40]
    pixels = np.stack([rows * 8, columns * 6, (rows * columns) % 256], -1).astype(np.uint8)
    Image.fromarray(pixels).save(path)


def write(folder: str | Path) -> Path:
    """Write the model and the image."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_weights = runpy.run_path(str(Path(__file__).with_name("tiny_encoder.py")))["write_weights"]
    random = np.random.default_rng(0)
    tensors = {
        name: random.standard_normal(shape) * 0.3 + ("norm" in name and name.endswith("weight"))
        for name, shape in shapes().items()
    }
    write_weights(folder / "model.safetensors", tensors)
    for file, content in (
        ("config.json", CONFIG), ("preprocessor_config.json", PROCESSOR),
        ("tokenizer_config.json", {"chat_template": TEMPLATE}),
    ):  # fmt: skip
        (folder / file).write_text(json.dumps(content), encoding="utf-8")
    write_tokenizer(folder)
    write_image(folder / "image.png")
    return folder


def main() -> None:
    """Write the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("pictures"))
    write(parser.parse_args().folder)


if __name__ == "__main__":
    main()
