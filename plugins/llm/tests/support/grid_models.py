"""Tiny folders of models that take images of any size, Qwen2-VL and Qwen2.5-VL, with random weights."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
from repository import ROOT
from safetensors_file import write_safetensors

EXAMPLE = runpy.run_path(str(ROOT / "examples" / "tiny_image_model.py"))
VOCABULARY, BEGIN, END, TOKEN, STOP = 65, 60, 61, 62, 64
"""Names of these tokens are `<s>`, `</s>` and `<image>`."""
HIDDEN, INNER, WIDTH, PATCH = 32, 48, 32, 4
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
    "bos_token_id": 0, "eos_token_id": STOP, "pad_token_id": 0, "rope_theta": 10000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
}  # fmt: skip
VISION: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {
        "depth": 3, "hidden_size": WIDTH, "num_heads": 2, "intermediate_size": 40, "out_hidden_size": HIDDEN,
        "patch_size": PATCH, "window_size": 16, "fullatt_block_indexes": [1],
    },
    "qwen2_vl": {
        "depth": 2, "embed_dim": WIDTH, "hidden_size": HIDDEN, "num_heads": 2, "mlp_ratio": 2, "patch_size": PATCH
    },
}  # fmt: skip
TOKENS = {
    "image_token_id": TOKEN, "video_token_id": 63, "vision_start_token_id": BEGIN, "vision_end_token_id": END
}  # fmt: skip
PROCESSOR: dict[str, Any] = {
    "image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28], "patch_size": PATCH, "temporal_patch_size": 2,
    "merge_size": 2, "min_pixels": 64, "max_pixels": 2000, "resample": 3,
}  # fmt: skip
TEMPLATE = """\
{% for message in messages %}{% if message.content is string %}{{ message.content }} {% else %}\
{% for part in message.content %}{{ '<s> <image> </s>' if part.type == 'image' else part.text }} {% endfor %}\
{% endif %}{% endfor %}"""


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of Qwen2.5-VL."""
    result: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN), "visual.patch_embed.proj.weight": (WIDTH, 3, 2, PATCH, PATCH),
        "visual.merger.ln_q.weight": (WIDTH,),
    }  # fmt: skip
    products = {"visual.merger.mlp.0": (4 * WIDTH, 4 * WIDTH), "visual.merger.mlp.2": (HIDDEN, 4 * WIDTH)}
    for i in range(TEXT["num_hidden_layers"]):
        name = f"model.layers.{i}"
        result |= {f"{name}.{norm}.weight": (HIDDEN,) for norm in ("input_layernorm", "post_attention_layernorm")}
        products |= {
            f"{name}.self_attn.{part}_proj": (width, HIDDEN) for part, width in zip("qkv", (32, 16, 16), strict=True)
        }
        result |= {f"{name}.mlp.{part}_proj.weight": (INNER, HIDDEN) for part in ("gate", "up")}
        result |= {f"{name}.self_attn.o_proj.weight": (HIDDEN, HIDDEN), f"{name}.mlp.down_proj.weight": (HIDDEN, INNER)}
    for i in range(VISION["qwen2_5_vl"]["depth"]):
        name = f"visual.blocks.{i}"
        result |= {f"{name}.norm{part}.weight": (WIDTH,) for part in (1, 2)}
        products |= {f"{name}.attn.qkv": (3 * WIDTH, WIDTH), f"{name}.attn.proj": (WIDTH, WIDTH)}
        products |= {f"{name}.mlp.{part}_proj": (40, WIDTH) for part in ("gate", "up")}
        products[f"{name}.mlp.down_proj"] = (WIDTH, 40)
    for name, shape in products.items():
        result |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return result


def write_grid_model(folder: Path) -> Path:
    """Write a Qwen2.5-VL, with a configuration whose keys of the text are beside those of the images."""
    random = np.random.default_rng(0)
    tensors = {
        name: (random.standard_normal(shape) * 0.3 + ("norm" in name or "ln_q" in name)).astype(np.float32)
        for name, shape in shapes().items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors)
    config = {"model_type": "qwen2_5_vl", **TEXT, **TOKENS, "vision_config": VISION["qwen2_5_vl"]}
    for file, content in (
        ("config.json", config), ("preprocessor_config.json", PROCESSOR),
        ("tokenizer_config.json", {"chat_template": TEMPLATE}),
    ):  # fmt: skip
        (folder / file).write_text(json.dumps(content), encoding="utf-8")
    EXAMPLE["write_tokenizer"](folder)
    EXAMPLE["write_image"](folder / "image.png")
    return folder
